"""Reads what `ackwright check` judges.

Reads only; what the principal may not read is left out and reported as hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe.cluster import broker_settings, if_permitted
from ackwright.observe.topics import topics
from ackwright.planning.acls import Answers, Kind, Need
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.durability import INTERNAL
from ackwright.planning.readiness import ACL_AUTHORISERS, AUTHORISER, Observed
from ackwright_stream.jobspec import INSTANCE_ID


def observed(kafka: Kafka, names: Iterable[str], group: str | None) -> Observed:
    """The state of the brokers, of the named topics and the brokers' own, and of the group if one is named.

    Raises AckwrightError if the brokers cannot be read.
    """
    racks = kafka.racks()
    readable, hidden = _topics(kafka, (*names, *INTERNAL))
    return Observed(
        racks=racks,
        settings=broker_settings(kafka, racks),
        features=_features(kafka),
        topics=readable,
        hidden=hidden,
        others=if_permitted(lambda: kafka.other_members(group, INSTANCE_ID)) if group else None,
    )


def answers(kafka: Kafka, needs: Iterable[Need], settings: Mapping[int, Mapping[str, str]]) -> Answers | None:
    """The permissions of the connection's principal; None if the brokers have no authoriser. settings: by broker."""
    authorisers = {s.get(AUTHORISER, "") for s in settings.values()}
    if authorisers == {""}:
        return None
    resources = tuple(dict.fromkeys(need.resource for need in needs))
    # A prefix is no name that the brokers could be asked about: only ACLs tell.
    literal = [r for r in resources if not r.prefixed]
    names = {kind: [r.name for r in literal if r.kind is kind] for kind in (Kind.TOPIC, Kind.GROUP)}
    acls = bool(authorisers) and authorisers <= ACL_AUTHORISERS
    return kafka.permissions(names[Kind.TOPIC], names[Kind.GROUP], acls=acls)


def _topics(kafka: Kafka, names: Iterable[str]) -> tuple[dict[str, ObservedTopic], frozenset[str]]:
    """The topics that exist, and the names of those that the principal may not describe."""
    readable: dict[str, ObservedTopic] = {}
    hidden: set[str] = set()
    for name in dict.fromkeys(names):
        described = if_permitted(lambda: topics(kafka, [name]))  # noqa: B023 (called at once)
        if described is None:
            hidden.add(name)
        else:
            readable |= described
    return readable, frozenset(hidden)


def _features(kafka: Kafka) -> dict[str, int]:
    """The features, for display only: another client reads them, and its failures decide nothing."""
    try:
        return kafka.features()
    except AckwrightError:
        return {}
