"""Whether Kafka is as a pipeline's guarantee needs it: topics, replicas in sync, brokers, the group. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ackwright.clients.kafka import Kafka
from ackwright.conditions import Finding
from ackwright.errors import AckwrightError
from ackwright.observe import cluster
from ackwright.observe.topics import topics
from ackwright.planning.comparison import Comparison, ObservedTopic, compare, missing
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.topics import MIN_INSYNC
from ackwright_stream.jobspec import Guarantee, Reason

_INTERNAL = ("__consumer_offsets", "__transaction_state")


@dataclass(frozen=True)
class Delivery:
    """comparison: of the planned topics, None if the brokers cannot be asked; blocked: why the job may not start, None if it may."""

    topics: Finding
    guarantee: Finding
    comparison: Comparison | None = None
    blocked: AckwrightError | None = None
    summary: str | None = None


def unreachable(error: AckwrightError) -> Delivery:
    """Nothing is known while the brokers do not answer, or refuse us."""
    return Delivery(
        Finding("Unknown", error.reason.value, error.message), Finding("Unknown", error.reason.value, error.message), blocked=error
    )


def taken(found: Delivery, group: str, owner: str) -> Delivery:
    """Another pipeline has the positions: this one must not start."""
    error = AckwrightError(
        Reason.GROUP_IN_USE, f"consumer group {group} is that of the older pipeline {owner}; make this one anew with another source.groupId"
    )
    return _unfit(found, error)


def _unfit(found: Delivery, error: AckwrightError) -> Delivery:
    """The job must not start, however good its topics are; and those that are missing are not made."""
    said = Finding("False", error.reason.value, error.message)
    missing_topics = found.comparison is not None and bool(found.comparison.create)
    return replace(found, topics=said if missing_topics else found.topics, guarantee=said, blocked=error)


def delivery(kafka: Kafka, plan: DeliveryPlan, needed: tuple[str, ...], *, check_brokers: bool) -> Delivery:
    """What the brokers say. needed: topics that must exist, planned or not. check_brokers: also their own settings and the group, which
    takes as many calls as there are brokers."""
    unfit = None
    try:
        kafka.brokers()
        planned = [t.name for t in plan.topics]
        # Before the first transaction the internal topics do not exist.
        seen = topics(kafka, [*planned, *needed, *_INTERNAL])
        if check_brokers:
            unfit = _refusal(kafka, plan)
    except AckwrightError as e:
        return unreachable(e)
    observed = {name: t for name, t in seen.items() if name not in _INTERNAL}
    comparison = compare(plan.topics, observed)
    lacking = missing(needed, plan.topics, observed)
    if lacking:
        error = AckwrightError(
            Reason.TOPIC_MISSING, f"no such topic: {', '.join(lacking)}; create it, or list it under spec.topics to have it created"
        )
        said = error.reason.value, error.message
        return Delivery(Finding("False", *said), Finding("Unknown", *said), blocked=error)
    found = Delivery(
        _topics(comparison),
        _guarantee(plan, comparison, seen),
        comparison,
        summary=f"{len(plan.topics) - len(comparison.create)}/{len(plan.topics)}",
    )
    return _unfit(found, unfit) if unfit else found


def _refusal(kafka: Kafka, plan: DeliveryPlan) -> AckwrightError | None:
    """Why the job may not run with these brokers or this group, None if it may. Raises AckwrightError if they do not say."""
    try:
        cluster.check(kafka, plan)
    except AckwrightError as e:
        if e.reason not in (Reason.GROUP_IN_USE, Reason.BROKERS_UNSUPPORTED):
            raise
        return e
    return None


def _topics(comparison: Comparison) -> Finding:
    if comparison.create:
        return Finding("False", "Creating", f"to be created: {', '.join(t.name for t in comparison.create)}")
    if comparison.differences:
        return Finding("True", "Differences", "; ".join(str(d) for d in comparison.differences))
    return Finding("True", "AsPlanned")


def _guarantee(plan: DeliveryPlan, comparison: Comparison, seen: Mapping[str, ObservedTopic]) -> Finding:
    """Every clause that is broken, in one sentence each."""
    if comparison.create:
        return Finding("Unknown", "Creating", "topics are still to be created")
    f = plan.broker_failures
    strength = ("replication.factor", MIN_INSYNC, "unclean.leader.election.enable")
    broken = [str(d) for d in comparison.differences if d.setting in strength and _weaker(d.planned, d.found)]
    broken += [clause for t in seen.values() if (clause := _out_of_sync(t, f))]
    if plan.guarantee is Guarantee.EXACTLY_ONCE:
        broken += [clause for name in _INTERNAL if name in seen and (clause := _internal(seen[name], f))]
    if broken:
        return Finding("False", "TopicsTooWeak", "; ".join(broken))
    return Finding("True", "Met", "")


def _weaker(planned: str, found: str) -> bool:
    if planned.isdigit() and found.isdigit():
        return int(found) < int(planned)
    return planned != found


def _out_of_sync(topic: ObservedTopic, f: int) -> str | None:
    least = topic.config.get(MIN_INSYNC, "1")
    in_sync = topic.replication_factor - topic.out_of_sync
    if f > 0 and least.isdigit() and in_sync < int(least):
        return f"topic {topic.name} takes no records until a broker is back: {in_sync} replicas in sync, {MIN_INSYNC} = {least}"
    return None


def _internal(topic: ObservedTopic, f: int) -> str | None:
    """Positions and transactions live in the brokers' own topics, which must survive what the pipeline's topics survive."""
    least = int(topic.config.get(MIN_INSYNC, "1"))
    if topic.replication_factor < 2 * f + 1 or least < f + 1:
        return (
            f"the brokers' own topic {topic.name} has {topic.replication_factor} replicas and {MIN_INSYNC} = {least}; to tolerate {f} lost "
            f"brokers it needs {2 * f + 1} and {f + 1}"
        )
    return None
