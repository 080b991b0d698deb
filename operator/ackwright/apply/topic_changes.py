"""Carries out the steps on topics. Writes only, each of them idempotent; what is done already is done again, or refused as done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ackwright.apply.topics import Look, ensure
from ackwright.clients.kafka import Kafka, together
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.guarantees import values
from ackwright.planning.topic_steps import (
    FOLLOWERS,
    LEADERS,
    RATES,
    AddPartitions,
    Configure,
    CreateTopics,
    Reassign,
    TopicStep,
    Unthrottle,
)
from ackwright.planning.topics import TopicPlan
from ackwright_stream.jobspec import Reason

_CREATE_S = 30.0  # until the replicas of new topics are in sync


@dataclass(frozen=True)
class Refusal:
    """steps: those that must not be taken; error: why, with all that the brokers refuse."""

    steps: tuple[TopicStep, ...]
    error: AckwrightError


def refusal(kafka: Kafka, steps: Sequence[TopicStep]) -> Refusal | None:
    """Asks the brokers whether they would take every step, before the first is taken; None: they would.

    What the principal may not do holds up what comes after it of the same topic. Anything else holds up all: nothing is applied by halves.
    The end of a throttle waits for neither.
    """
    found: dict[int, AckwrightError] = {}
    for number, step in enumerate(steps):
        try:
            together([*_checks(kafka, step)])
        except AckwrightError as e:
            found[number] = e
            if e.reason is Reason.BROKERS_UNREACHABLE:
                break
    if not found:
        return None
    worst = next((e for e in found.values() if e.reason is not Reason.AUTHORIZATION_FAILED), None)
    topics = {_topic(steps[n]): n for n in reversed(found)}  # the first that is refused of each
    held = [
        s
        for n, s in enumerate(steps)
        if n in found or (not isinstance(s, Unthrottle) and (worst is not None or topics.get(_topic(s), n) < n))
    ]
    message = "\n".join(dict.fromkeys(_of_topic(steps[n], e.message) for n, e in found.items()))
    return Refusal(tuple(held), AckwrightError((worst or next(iter(found.values()))).reason, message))


def _topic(step: TopicStep) -> str | None:
    """None: several."""
    return None if isinstance(step, CreateTopics) else step.topic


def _of_topic(step: TopicStep, message: str) -> str:
    """What is refused of brokers is refused for the sake of a topic."""
    topic = _topic(step)
    return message if topic is None or topic in message else f"topic {topic}: {message}"


def carry_out(kafka: Kafka, step: TopicStep, *, look: Look, rate: int) -> None:
    """rate: of replication while replicas are copied, in bytes a second and broker. Raises AckwrightError; BrokersUnreachable also if the
    outcome is unknown: then look again."""
    match step:
        case CreateTopics():
            ensure(kafka, step.topics, look=look, timeout=_CREATE_S)
        case Configure():
            _known(kafka.configure("TOPIC", step.topic, dict(step.settings)), step)
        case AddPartitions():
            _known(kafka.add_partitions(step.topic, step.total), step)
        case Reassign():
            _throttle(kafka, step, rate)
            _known(kafka.reassign(step.topic, {m.partition: m.after for m in step.moves}), step)
        case Unthrottle():
            unthrottle(kafka, step)


def unthrottle(kafka: Kafka, step: Unthrottle) -> None:
    """Raises AckwrightError as carry_out does. A topic that is gone has taken its settings with it."""
    for broker in step.brokers:
        _known(kafka.configure("BROKER", str(broker), dict.fromkeys(RATES)), step)
    try:
        _known(kafka.configure("TOPIC", step.topic, {LEADERS: None, FOLLOWERS: None}), step)
    except AckwrightError as e:
        if e.reason is not Reason.TOPIC_MISSING:
            raise


def _throttle(kafka: Kafka, step: Reassign, rate: int) -> None:
    """Before the move begins: a move without a throttle takes what the network gives, and clients wait."""
    copied = [m for m in step.moves if set(m.after) - set(m.before)]
    if not copied:
        return
    replicas = {
        LEADERS: ",".join(f"{m.partition}:{b}" for m in copied for b in m.before),
        FOLLOWERS: ",".join(f"{m.partition}:{b}" for m in copied for b in m.after if b not in m.before),
    }
    _known(kafka.configure("TOPIC", step.topic, replicas), step)
    for broker in step.throttled:
        _known(kafka.configure("BROKER", str(broker), dict.fromkeys(RATES, str(rate))), step)


def _checks(kafka: Kafka, step: TopicStep) -> Iterable[Callable[[], object]]:
    match step:
        case CreateTopics():
            return [partial(_try_to_create, kafka, topic) for topic in step.topics]
        case Configure():
            return [lambda: kafka.configure("TOPIC", step.topic, dict(step.settings), try_only=True)]
        case AddPartitions():
            return [lambda: kafka.add_partitions(step.topic, step.total, try_only=True)]
        case Reassign():
            may = partial(kafka.reassign, step.topic, {})
            return [*_unthrottled(kafka, step.topic, step.throttled), may] if step.copies else [may]
        case Unthrottle():
            return _unthrottled(kafka, step.topic, step.brokers)


def _unthrottled(kafka: Kafka, topic: str, brokers: Sequence[int]) -> list[Callable[[], object]]:
    """Whoever may end a throttle may set it."""
    return [
        partial(kafka.configure, "TOPIC", topic, {LEADERS: None, FOLLOWERS: None}, try_only=True),
        *(partial(kafka.configure, "BROKER", str(b), dict.fromkeys(RATES), try_only=True) for b in brokers[:1]),
    ]


def _try_to_create(kafka: Kafka, topic: TopicPlan) -> None:
    config = values(topic.config)
    outcome = kafka.create_topic(topic.name, topic.partitions, topic.replication_factor, config, try_only=True)
    if (
        outcome is Outcome.EXISTS
    ):  # then nobody has looked at its settings: a broker that lagged behind has not shown it yet
        kafka.configure("TOPIC", topic.name, dict(config), try_only=True)


def _known(outcome: Outcome, step: TopicStep) -> None:
    if outcome is Outcome.UNKNOWN:
        raise AckwrightError(
            Reason.BROKERS_UNREACHABLE, f"{step}: no answer came, and whether it was done is looked at again"
        )
