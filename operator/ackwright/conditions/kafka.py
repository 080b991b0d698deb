"""What the operator finds about a pipeline's topics, and about its guarantee as far as Kafka decides it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ackwright.api.status import Truth
from ackwright.conditions.findings import Finding
from ackwright.errors import AckwrightError
from ackwright.planning.durability import broken, drift, remarks
from ackwright.planning.kafka_work import KafkaWork
from ackwright.planning.observed import KafkaState
from ackwright.planning.plan import DeliveryPlan
from ackwright.reasons import ConditionReason
from ackwright.wording import named


def topics_ready(
    plan: DeliveryPlan, kafka: KafkaState | AckwrightError, work: KafkaWork, conflicts: Mapping[str, str]
) -> Finding:
    """Whether the topics are as planned. conflicts: by topic, the older pipeline that declares it differently."""
    if work.refused is not None:
        return _error("False", work.refused)
    if isinstance(kafka, AckwrightError):
        return _error("Unknown", kafka)
    if work.missing is not None:
        return Finding("False", work.missing.reason, work.missing.message, work.missing_topics)
    created = [t.name for t in work.topics.created]
    if work.unfit is not None and created:
        return _error("False", work.unfit)
    if work.topics.problems:
        return Finding("False", work.topics.reason, "; ".join(map(str, work.topics.problems)))
    if differing := [
        f"topic {name} is declared differently by the older pipeline {older}"
        for name, older in sorted(conflicts.items())
        if name in kafka.topics
    ]:
        return Finding(
            "False",
            ConditionReason.TOPIC_CONFLICT,
            f"{'; '.join(differing)}; declare the same in both, or declare it in one of them only",
        )
    if created:
        return Finding("False", ConditionReason.CREATING, f"to be created: {', '.join(created)}")
    if work.topics.steps or work.topics.waiting:
        return Finding(
            "False", ConditionReason.REPAIRING, "; ".join((*map(str, work.topics.steps), *work.topics.waiting))
        )
    if drifted := (*drift(plan, kafka.topics, "alert"), *drift(plan, kafka.topics, "pause")):
        return Finding("True", ConditionReason.DRIFTED, "; ".join(map(str, drifted)))
    if clauses := remarks(plan, kafka.topics, kafka.racks):
        return Finding("True", clauses[0].reason, "; ".join(map(str, clauses)))
    return Finding("True", ConditionReason.MATCHES_PLAN)


def guarantee_met(plan: DeliveryPlan, kafka: KafkaState | AckwrightError, work: KafkaWork) -> Finding:
    """Whether the topics and brokers keep the guarantee, with all broken clauses; the worst gives the reason."""
    if work.unfit is not None:
        return _error("False", work.unfit)
    if isinstance(kafka, AckwrightError):
        return _error("Unknown", kafka)
    if work.missing is not None:
        return _error("Unknown", work.missing)
    absent = [t.name for t in plan.topics if t.name not in kafka.topics] or [t.name for t in work.topics.created]
    if absent:
        verb = "does" if len(absent) == 1 else "do"
        return Finding("Unknown", ConditionReason.CREATING, f"{named('topic', absent)} {verb} not exist yet")
    clauses = broken(plan, kafka.topics, kafka.racks)
    if clauses:
        return Finding("False", clauses[0].reason, "; ".join(map(str, clauses)))
    return Finding("True", ConditionReason.MET)


def worst(of_clusters: Iterable[Finding]) -> Finding:
    """The finding about all clusters of a pipeline: the first that is bad, else the first that says something."""
    listed = list(of_clusters)
    order: Mapping[Truth, int] = {"False": 0, "Unknown": 1, "True": 2}
    return min(listed, key=lambda finding: (order[finding.status], not finding.message))


def topic_count(of_clusters: Iterable[tuple[DeliveryPlan, KafkaState | AckwrightError]]) -> str | None:
    """How many of the planned topics exist, such as 2/3; None if that is unknown."""
    existing = total = 0
    for plan, kafka in of_clusters:
        if isinstance(kafka, AckwrightError):
            return None
        existing += sum(t.name in kafka.topics for t in plan.topics)
        total += len(plan.topics)
    return f"{existing}/{total}"


def _error(status: Truth, error: AckwrightError) -> Finding:
    return Finding(status, error.reason, error.message)
