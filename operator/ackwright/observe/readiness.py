"""What `ackwright check` judges, as the brokers tell it. Reads only; what may not be read is left out, and that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe import cluster
from ackwright.observe.topics import topics
from ackwright.planning.acls import Kind, Need
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.durability import INTERNAL
from ackwright.planning.permissions import Answers
from ackwright.planning.readiness import ACL_AUTHORISERS, AUTHORISER, Observed
from ackwright_stream.jobspec import Reason

T = TypeVar("T")


def observed(kafka: Kafka, names: Iterable[str], group: str | None) -> Observed:
    """names: of topics, to which the brokers' own are added; group None: none. Raises AckwrightError if the brokers cannot be asked."""
    racks = kafka.racks()
    found, hidden = _topics(kafka, (*names, *INTERNAL))
    return Observed(
        racks=racks,
        settings=_permitted(lambda: {broker: kafka.broker_config(broker) for broker in racks}) or {},
        features=_features(kafka),
        topics=found,
        hidden=hidden,
        in_use=_in_use(kafka, group) if group else "",
    )


def answers(kafka: Kafka, needs: Iterable[Need], settings: Mapping[int, Mapping[str, str]]) -> Answers | None:
    """What the connection's principal may do with what is needed; None if the brokers have no authoriser. settings: of each broker."""
    told = {s.get(AUTHORISER, "") for s in settings.values()}
    if told == {""}:
        return None
    resources = tuple(dict.fromkeys(need.resource for need in needs))
    names = {kind: [r.name for r in resources if r.kind is kind] for kind in (Kind.TOPIC, Kind.GROUP)}
    return kafka.permissions(names[Kind.TOPIC], names[Kind.GROUP], acls=bool(told) and told <= ACL_AUTHORISERS)


def _topics(kafka: Kafka, names: Iterable[str]) -> tuple[dict[str, ObservedTopic], frozenset[str]]:
    found: dict[str, ObservedTopic] = {}
    hidden: set[str] = set()
    for name in dict.fromkeys(names):
        told = _permitted(lambda: topics(kafka, [name]))  # noqa: B023 (called at once)
        if told is None:
            hidden.add(name)
        else:
            found |= told
    return found, frozenset(hidden)


def _features(kafka: Kafka) -> dict[str, int]:
    """Only ever shown: another client asks for them, and its troubles are not worth a verdict."""
    try:
        return kafka.features()
    except AckwrightError:
        return {}


def _in_use(kafka: Kafka, group: str) -> str:
    try:
        cluster.check_group(kafka, group)
    except AckwrightError as e:
        if e.reason is not Reason.GROUP_IN_USE:
            raise
        return e.message
    return ""


def _permitted(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except AckwrightError as e:
        if e.reason is not Reason.AUTHORIZATION_FAILED:
            raise
        return None
