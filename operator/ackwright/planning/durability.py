"""What is to be said of topics as they are: which clauses of the guarantee are broken, and what is not as it should be. Pure.

Each finding has a name, which is the reason of a condition, of an Event and a label of the metrics, and a sentence with cause and remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ackwright.planning.comparison import Difference, ObservedTopic, differences
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.replicas import Racks, one_rack
from ackwright.planning.topics import MIN_INSYNC, UNCLEAN
from ackwright_stream.jobspec import Guarantee

INTERNAL = ("__consumer_offsets", "__transaction_state")  # before the first transaction they do not exist
_WORST_FIRST = ("NoLeader", "NotEnoughReplicas", "UncleanElection", "TopicsTooWeak", "InternalTopicsTooWeak")


@dataclass(frozen=True)
class Clause:
    reason: str
    sentence: str


def broken(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], racks: Racks) -> tuple[Clause, ...]:
    """Clauses of the guarantee that do not hold at this moment, the worst first. observed: the plan's topics, those that the job needs,
    and the brokers' own."""
    f = plan.broker_failures
    found = (
        *(c for t in observed.values() for c in _unavailable(t, racks, f)),
        *(c for d in _differences(plan, observed) if (c := _too_weak(d, f))),
        *(c for name in _internal_topics(plan) if name in observed and (c := _internal(observed[name], f))),
    )
    return tuple(sorted(found, key=lambda c: _WORST_FIRST.index(c.reason)))


def remarks(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], racks: Racks) -> tuple[Clause, ...]:
    """What is not as it should be, and breaks nothing yet."""
    topics = [t for name, t in observed.items() if name not in INTERNAL]
    return (
        *(c for t in topics if (c := _under_replicated(t, racks))),
        *(c for t in topics if (c := in_one_rack(t, racks))),
    )


def drift(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], policy: str) -> tuple[Difference, ...]:
    """Differences of existing topics with this driftPolicy. A broker that is down is not drift."""
    planned = [t for t in plan.topics if t.drift_policy == policy and not t.internal and t.name in observed]
    return tuple(d for t in planned for d in differences(t, observed[t.name]) if d.setting != "replicas in sync")


def _differences(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic]) -> Iterator[Difference]:
    return (d for t in plan.topics if t.name in observed for d in differences(t, observed[t.name]))


def _unavailable(topic: ObservedTopic, racks: Racks, f: int) -> Iterator[Clause]:
    leaderless = [p for p in topic.layout if p.leader is None or p.leader not in racks]
    if leaderless:
        yield Clause(
            "NoLeader",
            f"topic {topic.name}: {len(leaderless)} of {topic.partitions} partitions have no leader, so nobody can read or write them; "
            f"bring back one of brokers {_ids(b for p in leaderless for b in p.in_sync or p.replicas)}",
        )
    short = [p for p in topic.layout if len(p.in_sync) < topic.min_insync]
    if short and f > 0 and not leaderless:
        yield Clause(
            "NotEnoughReplicas",
            f"topic {topic.name} takes no records in {len(short)} of {topic.partitions} partitions until a broker is back: {topic.in_sync} "
            f"replicas in sync, {MIN_INSYNC} = {topic.min_insync}{_down(topic, racks)}",
        )


def _too_weak(difference: Difference, f: int) -> Clause | None:
    if difference.setting == UNCLEAN and f > 0 and difference.planned != difference.found:
        return Clause("UncleanElection", str(difference))
    if difference.setting in ("replication.factor", MIN_INSYNC) and int(difference.found) < int(difference.planned):
        return Clause("TopicsTooWeak", str(difference))
    return None


def _internal_topics(plan: DeliveryPlan) -> tuple[str, ...]:
    return INTERNAL if plan.guarantee is Guarantee.EXACTLY_ONCE else ()


def _internal(topic: ObservedTopic, f: int) -> Clause | None:
    """Positions and transactions live in the brokers' own topics, which must survive what the pipeline's topics survive."""
    if topic.survives(f):
        return None
    return Clause(
        "InternalTopicsTooWeak",
        f"the brokers' own topic {topic.name} has {topic.replication_factor} replicas and {MIN_INSYNC} = {topic.min_insync}; to tolerate "
        f"{f} lost brokers it needs {2 * f + 1} and {f + 1}: raise them on the brokers, or lower tolerate.brokerFailures",
    )


def _under_replicated(topic: ObservedTopic, racks: Racks) -> Clause | None:
    behind = [p for p in topic.layout if len(p.in_sync) < len(p.replicas)]
    if not behind:
        return None
    sentence = f"topic {topic.name}: {len(behind)} of {topic.partitions} partitions lack replicas in sync (fewest: {topic.in_sync})"
    return Clause("UnderReplicated", f"{sentence}{_down(topic, racks)}")


def in_one_rack(topic: ObservedTopic, racks: Racks) -> Clause | None:
    """Some partition's replicas share a rack though there are several."""
    if not one_rack(topic.layout, racks):
        return None
    return Clause(
        "OneRack",
        f"topic {topic.name}: all replicas of some partitions are in one rack, and are lost with it; move one of each to another rack by "
        "kafka-reassign-partitions",
    )


def _down(topic: ObservedTopic, racks: Racks) -> str:
    gone = {b for p in topic.layout for b in p.replicas if b not in racks}
    return f"; broker {_ids(gone)} is down" if gone else ""


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(brokers))))
