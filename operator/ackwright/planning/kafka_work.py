"""What to do about a pipeline's topics, and whether its driver may run meanwhile, out of the state of Kafka. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ackwright.errors import AckwrightError
from ackwright.planning.comparison import missing
from ackwright.planning.durability import drift
from ackwright.planning.observed import KafkaState
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.suitability import unsuitable
from ackwright.planning.topic_records import RecordedTopics
from ackwright.planning.topic_steps import (
    Brokers,
    Reassign,
    TopicProblem,
    TopicStep,
    TopicWork,
    Unthrottle,
    created_topics,
)
from ackwright.planning.topic_work import combined_work
from ackwright.planning.topics import TopicPlan
from ackwright.reasons import ConditionReason
from ackwright.wording import named
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import LostTopic

T = TypeVar("T")


@dataclass(frozen=True)
class KafkaWork:
    """The work on Kafka, and what it means for the driver."""

    topics: TopicWork = field(default_factory=TopicWork)
    steps: tuple[TopicStep, ...] = ()  # of topics.steps those to take now
    missing: AckwrightError | None = None  # topics that the job needs, that do not exist and that no step creates
    missing_topics: tuple[LostTopic, ...] = ()  # that `missing` names
    unfit: AckwrightError | None = None  # why no job may run with these brokers or this consumer group
    refused: AckwrightError | None = None  # why the brokers refuse some of topics.steps
    start_error: AckwrightError | None = None  # why no driver may be started; a running one is left alone
    pause: TopicProblem | None = None  # why a running driver has to drain
    replaced: frozenset[str] = frozenset()  # topics that were deleted and created again

    def may_start(self, plan: DeliveryPlan, kafka: KafkaState | AckwrightError) -> bool:
        """Whether a driver may be started, after the steps."""
        if self.start_error is not None or isinstance(kafka, AckwrightError):
            return False
        created = {t.name for t in created_topics(self.steps)}
        return all(t.name in kafka.topics or t.name in created for t in plan.topics)


def kafka_work(
    plan: DeliveryPlan,
    needed: Sequence[str],
    kafka: KafkaState | AckwrightError,
    recorded: RecordedTopics,
    group_owner: str | None,
) -> KafkaWork:
    """The work for a pipeline. needed: topics that must exist; group_owner: an older pipeline with the same group."""
    in_use = _group_in_use(plan.group, group_owner) if group_owner else None
    if isinstance(kafka, AckwrightError):
        return KafkaWork(unfit=in_use, start_error=in_use or kafka)
    replaced = frozenset(name for name in kafka.topics if recorded.is_replaced(name, kafka.topics))
    absent = _missing_topics(plan, needed, kafka, recorded)
    if absent:
        error = _topics_missing(plan, absent, kafka, recorded)
        return KafkaWork(
            missing=error,
            missing_topics=tuple(LostTopic(name, recorded.ids.get(name)) for name in absent),
            unfit=in_use,
            start_error=in_use or error,
            replaced=replaced,
        )
    topics = _topic_work(plan, kafka, recorded)
    unfit = in_use or (unsuitable(plan, kafka.premises) if kafka.premises else None)
    return KafkaWork(
        topics,
        steps=() if unfit else topics.steps,
        unfit=unfit,
        start_error=unfit,
        pause=_pause(plan, kafka, recorded, replaced),
        replaced=replaced,
    )


def combined(works: Iterable[KafkaWork]) -> KafkaWork:
    """The work on all clusters of a pipeline as one. Of several reasons that name what is wrong the first counts."""
    works = tuple(works)
    if len(works) == 1:
        return works[0]
    return KafkaWork(
        TopicWork(
            tuple(s for w in works for s in w.topics.steps),
            tuple(waiting for w in works for waiting in w.topics.waiting),
            tuple(p for w in works for p in w.topics.problems),
        ),
        steps=tuple(s for w in works for s in w.steps),
        missing=_first(w.missing for w in works),
        missing_topics=tuple(t for w in works for t in w.missing_topics),
        unfit=_first(w.unfit for w in works),
        refused=_first(w.refused for w in works),
        start_error=_first(w.start_error for w in works),
        pause=_first(w.pause for w in works),
        replaced=frozenset(name for w in works for name in w.replaced),
    )


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def without_refused(work: KafkaWork, refused: Sequence[TopicStep], error: AckwrightError) -> KafkaWork:
    """The work without the steps that the brokers refuse. No driver starts without its topics."""
    return replace(
        work,
        steps=tuple(s for s in work.steps if s not in refused),
        refused=error,
        start_error=error if created_topics(tuple(refused)) else work.start_error,
    )


def _topic_work(plan: DeliveryPlan, kafka: KafkaState, recorded: RecordedTopics) -> TopicWork:
    brokers = Brokers(kafka.racks, kafka.moving, kafka.rated, recorded.throttled)
    work = combined_work(_managed(plan, kafka, recorded), kafka.topics, brokers)
    if kafka.moves_forbidden is None:
        return work
    # Without the permission to list moves, the operator moves no replicas. Nothing else depends on that.
    error = kafka.moves_forbidden
    return TopicWork(
        tuple(s for s in work.steps if not isinstance(s, Reassign | Unthrottle)),
        problems=(*work.problems, TopicProblem(error.reason, error.message)),
    )


def _managed(plan: DeliveryPlan, kafka: KafkaState, recorded: RecordedTopics) -> list[TopicPlan]:
    """The topics that steps may change.

    Missing topics are created under every driftPolicy. An existing topic is changed if its policy is repair, it is not
    a replacement of the topic that was known, and no older pipeline declares it differently.
    """
    return [
        t
        for t in plan.topics
        if t.name not in kafka.topics
        or (
            t.drift_policy == "repair"
            and t.name not in recorded.conflicts
            and not recorded.is_replaced(t.name, kafka.topics)
        )
    ]


def _group_in_use(group: str, owner: str) -> AckwrightError:
    return AckwrightError(
        Reason.GROUP_IN_USE,
        f"consumer group {group} belongs to the older pipeline {owner}",
        "recreate this pipeline with another source.groupId",
    )


def _missing_topics(
    plan: DeliveryPlan, needed: Sequence[str], kafka: KafkaState, recorded: RecordedTopics
) -> tuple[str, ...]:
    """The topics that do not exist and that no step creates: undeclared ones, and those that were deleted."""
    undeclared = missing(needed, plan.topics, kafka.topics)
    names = dict.fromkeys([*(t.name for t in plan.topics), *needed])
    return tuple(n for n in names if n in undeclared or recorded.is_deleted(n, kafka.topics))


def _topics_missing(
    plan: DeliveryPlan, names: Sequence[str], kafka: KafkaState, recorded: RecordedTopics
) -> AckwrightError:
    deleted = [n for n in names if recorded.is_deleted(n, kafka.topics)]
    never_created = [n for n in names if n not in deleted]
    problems = []
    if never_created:
        them = "it" if len(never_created) == 1 else "them"
        problems.append(
            f"{named('topic', never_created)} {_do(never_created)} not exist; "
            f"create {them}, or declare {them} under spec.topics"
        )
    if deleted:
        them, loss = ("it", "its loss") if len(deleted) == 1 else ("them", "their loss")
        problems.append(
            f"{named('topic', deleted)} {_do(deleted)} not exist any more; "
            f"restore {them}, or accept {loss}: {_accepting(plan, deleted)}"
        )
    return AckwrightError(Reason.TOPIC_MISSING, "; ".join(problems))


def _accepting(plan: DeliveryPlan, topics: Sequence[str]) -> str:
    """The commands that accept the loss of these topics, as a shell takes them."""
    return " && ".join(f"ackwright accept-topic {plan.name} {topic} -n {plan.namespace}" for topic in topics)


def _do(names: Sequence[str]) -> str:
    return "does" if len(names) == 1 else "do"


def _pause(
    plan: DeliveryPlan, kafka: KafkaState, recorded: RecordedTopics, replaced: frozenset[str]
) -> TopicProblem | None:
    if replaced:
        lost = tuple(LostTopic(n, recorded.ids[n], kafka.topics[n].id) for n in sorted(replaced))
        return TopicProblem(
            Reason.TOPIC_REPLACED,
            "; ".join(f"topic {t.name} was deleted and recreated (id {t.current_id}, before {t.id})" for t in lost),
            f"its records that were not delivered are lost; to accept that: {_accepting(plan, [t.name for t in lost])}",
            lost,
        )
    drifted = drift(plan, kafka.topics, "pause")
    if drifted:
        return TopicProblem(
            ConditionReason.DRIFTED,
            "; ".join(map(str, drifted)),
            "driftPolicy is pause: reset the setting, declare the present value, or set driftPolicy: repair",
        )
    return None
