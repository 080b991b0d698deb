"""What applying a plan would change about existing topics, for commands that show it beforehand.

Pure; topic_work chooses the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ackwright.planning.comparison import IN_SYNC, Difference, ObservedTopic, compare
from ackwright.planning.topic_work import at_least
from ackwright.planning.topics import TopicPlan

_POLICIES = {
    "alert": "; driftPolicy alert: reported, and not changed",
    "pause": "; driftPolicy pause: reported, and the driver drains",
}


def of_topics(
    plans: Sequence[TopicPlan], observed: Mapping[str, ObservedTopic]
) -> tuple[tuple[str, ...], tuple[Difference, ...]]:
    """The names of topics that would be created, and the differences of the others that applying the plan would fix."""
    raised = [at_least(t, observed[t.name]) if t.internal and t.name in observed else t for t in plans]
    comparison = compare(raised, observed)
    policies = {t.name: _POLICIES.get(t.drift_policy, "") for t in plans}
    differences = tuple(
        replace(d, reason=d.reason + policies[d.topic]) for d in comparison.differences if d.setting != IN_SYNC
    )
    return tuple(t.name for t in comparison.create), differences
