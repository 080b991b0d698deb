"""Creates the topics that a plan lacks. Idempotent; never alters or deletes an existing one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ackwright.clients.kafka import Kafka
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.comparison import Comparison, Difference, ObservedTopic, compare, missing
from ackwright.planning.guarantees import values
from ackwright.planning.topics import TopicPlan
from ackwright_stream.jobspec import Reason

Look = Callable[[Iterable[str]], Mapping[str, ObservedTopic]]  # observe.topics, of the same brokers

_PAUSE = 0.1  # seconds between looks


@dataclass(frozen=True)
class Ensured:
    """created: names; differences: of topics that existed, which are left as they are."""

    created: tuple[str, ...]
    differences: tuple[Difference, ...]


def ensure(
    kafka: Kafka,
    planned: Sequence[TopicPlan],
    needed: Iterable[str] = (),
    *,
    look: Look,
    timeout: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Ensured:
    """Creates what is missing and waits until every replica of the new topics is in sync (timeout: seconds, for all). An existing topic is
    not waited for: a pipeline that tolerates the loss of a broker starts while one is lost, and the lag is among the differences.

    needed: topics that must exist in the end, planned or not; look: reads topics as they are. Raises AckwrightError, before anything is
    written: TopicMissing, BrokersTooFew, and why the brokers refuse a topic; later: BrokersUnreachable if the outcome stays unknown,
    BrokersTooFew if the replicas do not get in sync.
    """
    deadline = clock() + timeout
    observed, comparison = _compared(kafka, planned, tuple(needed), look)
    if len(comparison.create) > 1:  # of one topic the creation itself tells
        for topic in comparison.create:
            if _try(kafka, topic) is Outcome.UNKNOWN:
                break  # the creation asks again
    created = tuple(topic.name for topic in comparison.create if _create(kafka, topic, deadline, clock))
    settled = _wait_until_in_sync(look, comparison.create, deadline, clock)
    return Ensured(created, compare(planned, {**observed, **settled}).differences)


def lacking(kafka: Kafka, planned: Sequence[TopicPlan], needed: Iterable[str] = (), *, look: Look) -> tuple[str, ...]:
    """The topics that ensure would create. Raises as ensure does before it writes."""
    return tuple(topic.name for topic in _compared(kafka, planned, tuple(needed), look)[1].create)


def try_ensure(kafka: Kafka, planned: Sequence[TopicPlan], needed: Iterable[str] = (), *, look: Look) -> Ensured:
    """What ensure would create, after the brokers have judged it, and what differs. Writes nothing; raises as ensure does."""
    _, comparison = _compared(kafka, planned, tuple(needed), look)
    for topic in comparison.create:
        if _try(kafka, topic) is Outcome.UNKNOWN:
            raise AckwrightError(
                Reason.BROKERS_UNREACHABLE,
                f"the brokers at {kafka.address} do not say whether they would create {topic.name}",
            )
    return Ensured(tuple(t.name for t in comparison.create), comparison.differences)


def _compared(
    kafka: Kafka, planned: Sequence[TopicPlan], needed: tuple[str, ...], look: Look
) -> tuple[Mapping[str, ObservedTopic], Comparison]:
    observed = look([*(topic.name for topic in planned), *needed])
    absent = missing(needed, planned, observed)
    if absent:
        raise AckwrightError(
            Reason.TOPIC_MISSING,
            f"no such topic at {kafka.address}: {', '.join(absent)}; create it, or list it under spec.topics to have it created",
        )
    comparison = compare(planned, observed)
    _require_brokers(kafka, comparison.create)
    return observed, comparison


def _require_brokers(kafka: Kafka, create: Sequence[TopicPlan]) -> None:
    brokers = len(kafka.brokers())
    most = max(create, key=lambda topic: topic.replication_factor, default=None)
    if most is not None and most.replication_factor > brokers:
        raise AckwrightError(
            Reason.BROKERS_TOO_FEW,
            f"topic {most.name} needs {most.replication_factor} brokers for its {most.replication_factor} replicas and the cluster at "
            f"{kafka.address} has {brokers}; add brokers, or lower tolerate.brokerFailures",
        )


def _try(kafka: Kafka, topic: TopicPlan) -> Outcome:
    """Whether the brokers would create it. Raises AckwrightError if they would refuse."""
    return kafka.create_topic(
        topic.name, topic.partitions, topic.replication_factor, values(topic.config), try_only=True
    )


def _create(kafka: Kafka, topic: TopicPlan, deadline: float, clock: Callable[[], float]) -> bool:
    """Whether this call created the topic, as far as can be told."""
    unknown = False
    while True:
        outcome = kafka.create_topic(topic.name, topic.partitions, topic.replication_factor, values(topic.config))
        if outcome is Outcome.DONE:
            return True
        if outcome is Outcome.EXISTS:
            return unknown  # after an unknown outcome it was most likely ours; compared all the same
        unknown = True
        # Asking again is looking: "exists" tells that the first request arrived.
        if clock() > deadline:
            raise AckwrightError(
                Reason.BROKERS_UNREACHABLE,
                f"whether topic {topic.name} was created is not known: the brokers at {kafka.address} do not answer; run again",
            )


def _wait_until_in_sync(
    look: Look, topics: Sequence[TopicPlan], deadline: float, clock: Callable[[], float]
) -> Mapping[str, ObservedTopic]:
    while True:
        found = look([topic.name for topic in topics])
        behind = [topic.name for topic in topics if topic.name not in found or found[topic.name].out_of_sync]
        if not behind:
            return found
        if clock() > deadline:
            raise AckwrightError(
                Reason.BROKERS_TOO_FEW,
                f"not all replicas are in sync of: {', '.join(behind)}; bring the missing brokers back, or wait and run again",
            )
        time.sleep(_PAUSE)
