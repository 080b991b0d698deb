"""Which clauses of the guarantee the present topics break, and what else differs from the plan. Pure.

Each clause has a name, which is a reason of conditions and Events and a label of metrics, and a sentence with cause
and remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass

from ackwright.planning.comparison import Difference, ObservedTopic, differences
from ackwright.planning.guarantees import TERMS
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.replicas import Racks, one_rack
from ackwright.planning.topics import CLEANUP, COMPACT, MIN_INSYNC, UNCLEAN, is_compacted
from ackwright.reasons import ConditionReason, severity
from ackwright.wording import sentence

INTERNAL = ("__consumer_offsets", "__transaction_state")  # Kafka's own topics; created on first use


@dataclass(frozen=True)
class Clause:
    """One clause of the guarantee that does not hold."""

    reason: ConditionReason
    cause: str
    remedy: str = ""  # empty: it is the operator's, unless the topic's driftPolicy leaves it to a person

    def __str__(self) -> str:
        return sentence(self.cause, self.remedy)


def broken(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], racks: Racks) -> tuple[Clause, ...]:
    """Clauses of the guarantee that do not hold at this moment, the worst first.

    observed: the plan's topics, those that the job needs, and Kafka's internal ones.
    """
    f = plan.broker_failures
    if not plan.sink.in_kafka:  # the job uses no internal topic
        observed = {name: topic for name, topic in observed.items() if name not in INTERNAL}
    clauses = (
        *(c for t in observed.values() for c in _unavailable(t, racks, f)),
        *(c for d in _differences(plan, observed) if (c := _too_weak(d, f))),
        *(c for name in _internal_topics(plan) if name in observed and (c := _internal(observed[name], f))),
    )
    return tuple(sorted(clauses, key=lambda c: severity(c.reason)))


def remarks(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], racks: Racks) -> tuple[Clause, ...]:
    """Clauses about topics that differ from the plan without breaking the guarantee yet."""
    topics = [t for name, t in observed.items() if name not in INTERNAL]
    declared = {t.name for t in plan.topics}  # a policy that differs from the declared one is drift
    return (
        *(c for t in topics if (c := _under_replicated(t, racks))),
        *(c for t in topics if (c := in_one_rack(t, racks))),
        *(c for t in topics if t.name not in declared and (c := not_compacted(t, plan))),
    )


def drift(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], policy: str) -> tuple[Difference, ...]:
    """Differences between existing topics with this driftPolicy and the plan. A broker that is down is not drift."""
    topics = [t for t in plan.topics if t.drift_policy == policy and not t.internal and t.name in observed]
    return tuple(d for t in topics for d in differences(t, observed[t.name]) if d.setting != "replicas in sync")


def _differences(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic]) -> Iterator[Difference]:
    return (d for t in plan.topics if t.name in observed for d in differences(t, observed[t.name]))


def _unavailable(topic: ObservedTopic, racks: Racks, f: int) -> Iterator[Clause]:
    leaderless = [p for p in topic.layout if p.leader is None or p.leader not in racks]
    if leaderless:
        yield Clause(
            ConditionReason.NO_LEADER,
            f"topic {topic.name}: no leader for {_partitions(leaderless, topic)}, so they can be neither read nor "
            "written",
            f"restart one of the brokers {_ids(b for p in leaderless for b in p.in_sync or p.replicas)}",
        )
    short = [p for p in topic.layout if len(p.in_sync) < topic.min_insync]
    if short and f > 0 and not leaderless:
        yield Clause(
            ConditionReason.NOT_ENOUGH_REPLICAS,
            f"topic {topic.name} accepts no records in {_partitions(short, topic)} until a broker "
            f"returns: {replicas(topic.in_sync)} in sync, {MIN_INSYNC} = {topic.min_insync}{_down(topic, racks)}",
            _restart(topic, racks) or "read in the brokers' logs why replicas lag",
        )


def _too_weak(difference: Difference, f: int) -> Clause | None:
    if difference.setting == UNCLEAN and f > 0 and difference.planned != difference.found:
        return Clause(ConditionReason.UNCLEAN_ELECTION, str(difference))
    if difference.setting in ("replication.factor", MIN_INSYNC) and int(difference.found) < int(difference.planned):
        return Clause(ConditionReason.TOPICS_TOO_WEAK, str(difference))
    return None


def _internal_topics(plan: DeliveryPlan) -> tuple[str, ...]:
    return INTERNAL if TERMS[plan.guarantee].promise.needs_internal_topics else ()


def _internal(topic: ObservedTopic, f: int) -> Clause | None:
    """The clause that an internal topic breaks. Positions and transactions live there, so it must survive what the
    pipeline's topics do."""
    if topic.survives(f):
        return None
    return Clause(
        ConditionReason.INTERNAL_TOPICS_TOO_WEAK,
        f"Kafka's internal topic {topic.name} has {replicas(topic.replication_factor)} and {MIN_INSYNC} = "
        f"{topic.min_insync}; with tolerate.brokerFailures = {f} it needs {2 * f + 1} and {f + 1}",
        "raise them on the brokers, or lower tolerate.brokerFailures",
    )


def _under_replicated(topic: ObservedTopic, racks: Racks) -> Clause | None:
    behind = [p for p in topic.layout if len(p.in_sync) < len(p.replicas)]
    if not behind:
        return None
    cause = f"replicas out of sync in {_partitions(behind, topic)} (fewest in sync: {topic.in_sync})"
    return Clause(
        ConditionReason.UNDER_REPLICATED, f"topic {topic.name}: {cause}{_down(topic, racks)}", _restart(topic, racks)
    )


def in_one_rack(topic: ObservedTopic, racks: Racks) -> Clause | None:
    """The clause of a topic with a partition whose replicas share a rack although the brokers are in several racks."""
    if not one_rack(topic.layout, racks):
        return None
    return Clause(
        ConditionReason.ONE_RACK,
        f"topic {topic.name}: all replicas of some partitions are in one rack, and are lost with it",
        "move one replica of each to another rack with kafka-reassign-partitions",
    )


def not_compacted(topic: ObservedTopic, plan: DeliveryPlan) -> Clause | None:
    """The clause of a topic whose dead letters are keyed, and that does not keep the last record of each key."""
    letters = plan.sink.dead_letters
    policy = topic.config.get(CLEANUP, "delete")
    if letters is None or not letters.keyed or topic.name != letters.name or is_compacted(policy):
        return None
    return Clause(
        ConditionReason.NOT_COMPACTED,
        f"dead-letter topic {topic.name}: {CLEANUP} is {policy}, so dead letters that were written again stay twice, "
        "and are removed for their age",
        f"set {CLEANUP} to {COMPACT}, or list the topic under spec.topics to have it changed",
    )


def _down_brokers(topic: ObservedTopic, racks: Racks) -> set[int]:
    return {b for p in topic.layout for b in p.replicas if b not in racks}


def _restart(topic: ObservedTopic, racks: Racks) -> str:
    """The remedy for brokers that are down; empty if none is."""
    down = _down_brokers(topic, racks)
    return f"restart {'it' if len(down) == 1 else 'them'}" if down else ""


def _down(topic: ObservedTopic, racks: Racks) -> str:
    down = _down_brokers(topic, racks)
    if not down:
        return ""
    return f"; broker {_ids(down)} is down" if len(down) == 1 else f"; brokers {_ids(down)} are down"


def _partitions(some: Sized, topic: ObservedTopic) -> str:
    return f"{len(some)} of {topic.partitions} partition{'' if topic.partitions == 1 else 's'}"


def replicas(number: int) -> str:
    """The number with its noun."""
    return "1 replica" if number == 1 else f"{number} replicas"


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(brokers))))
