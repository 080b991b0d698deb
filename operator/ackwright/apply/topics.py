"""Creates the topics of a plan that do not exist. Idempotent; never changes or deletes an existing topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ackwright.clients.kafka import Kafka
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.comparison import Comparison, Difference, ObservedTopic, compare, missing, removing_records
from ackwright.planning.guarantees import values
from ackwright.planning.topic_work import too_few_brokers
from ackwright.planning.topics import CLEANUP, COMPACT, TopicPlan, command_to_set
from ackwright.wording import named
from ackwright_stream.jobspec import Reason

ReadTopics = Callable[[Iterable[str]], Mapping[str, ObservedTopic]]  # observe.topics of the same brokers

_PAUSE_S = 0.1  # between two reads of topics


@dataclass(frozen=True)
class Ensured:
    created: tuple[str, ...]  # names
    differences: tuple[Difference, ...]  # of topics that existed before, which are left as they are


def combined(of_clusters: Iterable[Ensured]) -> Ensured:
    """The results for several clusters as one."""
    listed = tuple(of_clusters)
    return Ensured(tuple(n for e in listed for n in e.created), tuple(d for e in listed for d in e.differences))


def ensure(
    kafka: Kafka,
    plans: Sequence[TopicPlan],
    needed: Iterable[str] = (),
    *,
    read_topics: ReadTopics,
    timeout: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Ensured:
    """Creates missing topics and waits until all their replicas are in sync (timeout: seconds, for all).

    It does not wait for existing topics: a pipeline that tolerates the loss of a broker starts while one is lost. Their
    lag is among the differences.

    needed: topics that must exist, planned or not. Raises AckwrightError, before anything is written: TopicMissing,
    BrokersTooFew, BrokersUnsupported if an existing topic of Ackwright's own is not compacted, and why the brokers
    refuse a topic; later: BrokersUnreachable if the outcome stays unknown, BrokersTooFew if the replicas do not get in
    sync, BrokersUnsupported if another program has created such a topic just before.
    """
    deadline = clock() + timeout
    observed, comparison = _compared(kafka, plans, tuple(needed), read_topics)
    if len(comparison.create) > 1:  # a single topic is checked by its creation
        for topic in comparison.create:
            if _dry_run(kafka, topic) is Outcome.UNKNOWN:
                break  # the creation reads it again
    created = tuple(topic.name for topic in comparison.create if _create(kafka, topic, deadline, clock))
    settled = _wait_until_in_sync(read_topics, comparison.create, deadline, clock)
    differences = compare(plans, {**observed, **settled}).differences
    _require_compacted(kafka, removing_records(plans, differences))
    return Ensured(created, differences)


def topics_to_create(
    kafka: Kafka, plans: Sequence[TopicPlan], needed: Iterable[str] = (), *, read_topics: ReadTopics
) -> tuple[str, ...]:
    """The names of the topics that ensure() would create. Raises AckwrightError as ensure() does before it writes."""
    return tuple(topic.name for topic in _compared(kafka, plans, tuple(needed), read_topics)[1].create)


def dry_run(
    kafka: Kafka, plans: Sequence[TopicPlan], needed: Iterable[str] = (), *, read_topics: ReadTopics
) -> Ensured:
    """What ensure() would create, validated by the brokers, and the differences of existing topics. Writes nothing.

    Raises AckwrightError as ensure() does.
    """
    _, comparison = _compared(kafka, plans, tuple(needed), read_topics)
    for topic in comparison.create:
        if _dry_run(kafka, topic) is Outcome.UNKNOWN:
            raise AckwrightError(
                Reason.BROKERS_UNREACHABLE,
                f"the brokers at {kafka.address} did not answer whether they would create topic {topic.name}; "
                "try again",
            )
    return Ensured(tuple(t.name for t in comparison.create), comparison.differences)


def _compared(
    kafka: Kafka, plans: Sequence[TopicPlan], needed: tuple[str, ...], read_topics: ReadTopics
) -> tuple[Mapping[str, ObservedTopic], Comparison]:
    observed = read_topics([*(topic.name for topic in plans), *needed])
    absent = missing(needed, plans, observed)
    if absent:
        them = "it" if len(absent) == 1 else "them"
        raise AckwrightError(
            Reason.TOPIC_MISSING,
            f"no such topic at {kafka.address}: {', '.join(absent)}; "
            f"create {them}, or declare {them} under spec.topics",
        )
    comparison = compare(plans, observed)
    _require_compacted(kafka, removing_records(plans, comparison.differences))
    _require_brokers(kafka, comparison.create)
    return observed, comparison


def _require_compacted(kafka: Kafka, removing: Sequence[Difference]) -> None:
    """Raises AckwrightError if there are such differences. Where there is an operator, it repairs them."""
    if removing:
        commands = (command_to_set(d.topic, CLEANUP, COMPACT) for d in removing)
        raise AckwrightError(
            Reason.BROKERS_UNSUPPORTED,
            f"at {kafka.address}: {'; '.join(map(str, removing))}",
            f"change it with {'; '.join(commands)}",
        )


def _require_brokers(kafka: Kafka, create: Sequence[TopicPlan]) -> None:
    """Raises AckwrightError (BrokersTooFew) if some topic has more replicas than there are brokers."""
    up = len(kafka.brokers())
    problems = too_few_brokers([topic for topic in create if topic.replication_factor > up], up)
    if problems:
        raise AckwrightError(Reason.BROKERS_TOO_FEW, f"at {kafka.address}: {'; '.join(map(str, problems))}")


def _dry_run(kafka: Kafka, topic: TopicPlan) -> Outcome:
    """Whether the brokers would create the topic. Raises AckwrightError if they would refuse."""
    return kafka.create_topic(
        topic.name, topic.partitions, topic.replication_factor, values(topic.config), validate_only=True
    )


def _create(kafka: Kafka, topic: TopicPlan, deadline: float, clock: Callable[[], float]) -> bool:
    """Creates the topic. Returns whether this call created it, as far as that can be known."""
    unknown = False
    while True:
        outcome = kafka.create_topic(topic.name, topic.partitions, topic.replication_factor, values(topic.config))
        if outcome is Outcome.DONE:
            return True
        if outcome is Outcome.EXISTS:
            return unknown  # after an unknown outcome most likely an earlier request created it; it is compared anyway
        unknown = True
        # The request is repeated to find out: "exists" means that an earlier one arrived.
        if clock() > deadline:
            raise AckwrightError(
                Reason.BROKERS_UNREACHABLE,
                f"it is unknown whether topic {topic.name} was created, because the brokers at {kafka.address} do not "
                "answer; run again",
            )


def _wait_until_in_sync(
    read_topics: ReadTopics, topics: Sequence[TopicPlan], deadline: float, clock: Callable[[], float]
) -> Mapping[str, ObservedTopic]:
    while True:
        observed = read_topics([topic.name for topic in topics])
        behind = [topic.name for topic in topics if topic.name not in observed or observed[topic.name].out_of_sync]
        if not behind:
            return observed
        if clock() > deadline:
            raise AckwrightError(
                Reason.BROKERS_TOO_FEW,
                f"not all replicas of {named('topic', behind)} are in sync; "
                "bring the missing brokers back, or wait and run again",
            )
        time.sleep(_PAUSE_S)
