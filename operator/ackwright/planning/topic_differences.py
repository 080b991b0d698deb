"""What applying a plan would change of existing topics, for whoever asks before. Pure; what is done about it is for topic_steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ackwright.planning.comparison import Difference, ObservedTopic, compare
from ackwright.planning.topic_work import at_least
from ackwright.planning.topics import TopicPlan

_POLICIES = {
    "alert": "; driftPolicy alert: told, and left as it is",
    "pause": "; driftPolicy pause: told, and the driver drains",
}
_BROKERS_BUSINESS = "replicas in sync"  # is not changed by applying anything


def of_topics(
    planned: Sequence[TopicPlan], observed: Mapping[str, ObservedTopic]
) -> tuple[tuple[str, ...], tuple[Difference, ...]]:
    """The names of topics that would be created, and what differs of the others. A topic of our own is only ever made stronger."""
    raised = [at_least(t, observed[t.name]) if t.internal and t.name in observed else t for t in planned]
    found = compare(raised, observed)
    policies = {t.name: _POLICIES.get(t.drift_policy, "") for t in planned}
    differing = tuple(
        replace(d, reason=d.reason + policies[d.topic]) for d in found.differences if d.setting != _BROKERS_BUSINESS
    )
    return tuple(t.name for t in found.create), differing
