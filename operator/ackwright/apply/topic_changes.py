"""Takes the steps on topics.

Writes only. Each step is idempotent: a step that was taken already is repeated, or refused as done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ackwright.apply.topics import ReadTopics, ensure
from ackwright.clients.kafka import Kafka
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
    steps: tuple[TopicStep, ...]  # steps that must not be taken
    error: AckwrightError  # everything that the brokers refuse


def refusal(kafka: Kafka, steps: Sequence[TopicStep]) -> Refusal | None:
    """The steps that the brokers would refuse, by dry runs before the first step is taken; None: they would accept all.

    A missing permission blocks this step and later steps on the same topic. Any other refusal blocks all steps, so that
    a spec is never applied in part. The end of a throttle is blocked by neither.
    """
    refused: dict[int, AckwrightError] = {}
    for number, step in enumerate(steps):
        try:
            _run_checks([*_dry_runs(kafka, step)])
        except AckwrightError as e:
            refused[number] = e
            if e.reason is Reason.BROKERS_UNREACHABLE:
                break
    if not refused:
        return None
    worst = next((e for e in refused.values() if e.reason is not Reason.AUTHORIZATION_FAILED), None)
    first_of_topic = {_topic(steps[n]): n for n in reversed(refused)}
    blocked = [
        s
        for n, s in enumerate(steps)
        if n in refused
        or (not isinstance(s, Unthrottle) and (worst is not None or first_of_topic.get(_topic(s), n) < n))
    ]
    message = "\n".join(dict.fromkeys(_with_topic(steps[n], e.message) for n, e in refused.items()))
    return Refusal(tuple(blocked), AckwrightError((worst or next(iter(refused.values()))).reason, message))


def _topic(step: TopicStep) -> str | None:
    """The topic of the step; None: several."""
    return None if isinstance(step, CreateTopics) else step.topic


def _with_topic(step: TopicStep, message: str) -> str:
    """The message, with the topic in front if it does not name the topic, such as one about a broker's settings."""
    topic = _topic(step)
    return message if topic is None or topic in message else f"topic {topic}: {message}"


def change_topics(kafka: Kafka, step: TopicStep, *, read_topics: ReadTopics, rate: int) -> None:
    """Takes one step. rate: of replication while replicas are copied, in bytes per second and broker.

    Raises AckwrightError; BrokersUnreachable also if the outcome is unknown, which the next reconcile finds out.
    """
    match step:
        case CreateTopics():
            ensure(kafka, step.topics, read_topics=read_topics, timeout=_CREATE_S)
        case Configure():
            _require_known(kafka.configure("TOPIC", step.topic, dict(step.settings)), step)
        case AddPartitions():
            _require_known(kafka.add_partitions(step.topic, step.total), step)
        case Reassign():
            _throttle(kafka, step, rate)
            _require_known(kafka.reassign(step.topic, {m.partition: m.after for m in step.moves}), step)
        case Unthrottle():
            unthrottle(kafka, step)


def unthrottle(kafka: Kafka, step: Unthrottle) -> None:
    """Removes a throttle; of a deleted topic only the brokers' rates are left.

    Raises AckwrightError as change_topics() does.
    """
    for broker in step.brokers:
        _require_known(kafka.configure("BROKER", str(broker), dict.fromkeys(RATES)), step)
    try:
        _require_known(kafka.configure("TOPIC", step.topic, {LEADERS: None, FOLLOWERS: None}), step)
    except AckwrightError as e:
        if e.reason is not Reason.TOPIC_MISSING:
            raise


def _throttle(kafka: Kafka, step: Reassign, rate: int) -> None:
    """Throttles the copies of a move before it starts: without a throttle it would use the whole network."""
    copied = [m for m in step.moves if set(m.after) - set(m.before)]
    if not copied:
        return
    replicas = {
        LEADERS: ",".join(f"{m.partition}:{b}" for m in copied for b in m.before),
        FOLLOWERS: ",".join(f"{m.partition}:{b}" for m in copied for b in m.after if b not in m.before),
    }
    _require_known(kafka.configure("TOPIC", step.topic, replicas), step)
    for broker in step.throttled:
        _require_known(kafka.configure("BROKER", str(broker), dict.fromkeys(RATES, str(rate))), step)


def _dry_runs(kafka: Kafka, step: TopicStep) -> Iterable[Callable[[], object]]:
    match step:
        case CreateTopics():
            return [partial(_create_dry_run, kafka, topic) for topic in step.topics]
        case Configure():
            return [lambda: kafka.configure("TOPIC", step.topic, dict(step.settings), validate_only=True)]
        case AddPartitions():
            return [lambda: kafka.add_partitions(step.topic, step.total, validate_only=True)]
        case Reassign():
            may_reassign = partial(kafka.reassign, step.topic, {})
            return (
                [*_throttle_dry_runs(kafka, step.topic, step.throttled), may_reassign]
                if step.copies
                else [may_reassign]
            )
        case Unthrottle():
            return _throttle_dry_runs(kafka, step.topic, step.brokers)


def _throttle_dry_runs(kafka: Kafka, topic: str, brokers: Sequence[int]) -> list[Callable[[], object]]:
    """Dry runs of a throttle's end, which takes the same permissions as its beginning."""
    return [
        partial(kafka.configure, "TOPIC", topic, {LEADERS: None, FOLLOWERS: None}, validate_only=True),
        *(partial(kafka.configure, "BROKER", str(b), dict.fromkeys(RATES), validate_only=True) for b in brokers[:1]),
    ]


def _create_dry_run(kafka: Kafka, topic: TopicPlan) -> None:
    config = values(topic.config)
    outcome = kafka.create_topic(topic.name, topic.partitions, topic.replication_factor, config, validate_only=True)
    if outcome is Outcome.EXISTS:
        # A broker that lags behind has not shown the topic yet, and nothing has checked its settings.
        kafka.configure("TOPIC", topic.name, dict(config), validate_only=True)


def _require_known(outcome: Outcome, step: TopicStep) -> None:
    if outcome is Outcome.UNKNOWN:
        raise AckwrightError(
            Reason.BROKERS_UNREACHABLE,
            f"{step}: the brokers did not answer, so it is unknown whether this was done; the operator checks again",
        )


def _run_checks(checks: Sequence[Callable[[], object]]) -> None:
    """Runs all checks. Raises their failures as one AckwrightError: the reason of the first, and one line per message.

    Stops at unreachable brokers, since each further check would only wait to fail in the same way.
    """
    errors: list[AckwrightError] = []
    for check in checks:
        try:
            check()
        except AckwrightError as e:
            errors.append(e)
            if e.reason is Reason.BROKERS_UNREACHABLE:
                break
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise AckwrightError(errors[0].reason, "\n".join(e.message for e in errors))
