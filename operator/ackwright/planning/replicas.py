"""Chooses brokers for the replicas of a topic's partitions. Pure.

Growing adds replicas and moves none: nothing is copied twice, and no replica in sync is removed. Shrinking removes the
least valuable replicas: those on brokers that are down, then those that lag, then those that share a rack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

Racks = Mapping[int, str | None]  # of the brokers that are up, by id; None: the broker has no rack


@dataclass(frozen=True)
class Partition:
    """A partition, as the brokers report it."""

    number: int
    replicas: tuple[int, ...]  # broker ids, the preferred leader first
    in_sync: frozenset[int]
    leader: int | None  # None: no broker takes its records


@dataclass(frozen=True)
class DescribedTopic:
    """A topic without its settings, as the brokers report it."""

    id: str
    layout: tuple[Partition, ...]  # its partitions


@dataclass(frozen=True)
class Reassignment:
    """A move of a partition's replicas that is under way.

    Until it ends, brokers report old and new replicas together.
    """

    adding: tuple[int, ...]
    removing: tuple[int, ...]


def placed(partitions: Iterable[Partition], factor: int, racks: Racks) -> dict[int, tuple[int, ...]]:
    """The replicas for each partition that has more or fewer than `factor`, by its number.

    With too few brokers a partition gets as many replicas as there are brokers.
    """
    partitions = sorted(partitions, key=lambda p: p.number)
    load = Counter(b for p in partitions for b in p.replicas)
    leaders = Counter(p.replicas[0] for p in partitions if p.replicas)
    placement: dict[int, tuple[int, ...]] = {}
    for partition in partitions:
        replicas = list(partition.replicas)
        while len(replicas) > factor:
            surplus = _least_valuable(partition, replicas, racks, load)
            replicas.remove(surplus)
            load[surplus] -= 1
        while len(replicas) < factor and (best := _best(replicas, racks, load, leaders)) is not None:
            replicas.append(best)
            load[best] += 1
        if replicas != list(partition.replicas):
            placement[partition.number] = tuple(replicas)
    return placement


def _best(replicas: Sequence[int], racks: Racks, load: Counter[int], leaders: Counter[int]) -> int | None:
    """The broker for one more replica: in the rack with the fewest of them, then with the lowest load."""
    used = Counter(racks.get(b) for b in replicas)
    candidates = (b for b in racks if b not in replicas)
    return min(candidates, key=lambda b: (used[racks[b]] if racks[b] else 0, load[b], leaders[b], b), default=None)


def _least_valuable(partition: Partition, replicas: Sequence[int], racks: Racks, load: Counter[int]) -> int:
    """The broker whose replica is removed first. The leader comes last: its removal would interrupt writes."""
    used = Counter(racks.get(b) for b in replicas if racks.get(b))

    def value(broker: int) -> tuple[object, ...]:
        shares = used[racks[broker]] if racks.get(broker) else 0
        leader = partition.leader if partition.leader is not None else partition.replicas[0]
        return (
            broker in racks,
            broker in partition.in_sync,
            broker == leader,
            -shares,
            -load[broker],
            broker == partition.replicas[0],
        )

    return min(replicas, key=lambda b: (value(b), b))


def one_rack(partitions: Iterable[Partition], racks: Racks) -> bool:
    """Whether some partition has all replicas in one rack although the brokers are in several."""
    if len({r for r in racks.values() if r}) < 2:
        return False
    return any(len(p.replicas) > 1 and _same_rack(p.replicas, racks) for p in partitions)


def _same_rack(replicas: Collection[int], racks: Racks) -> bool:
    used = {racks.get(b) for b in replicas}
    return len(used) == 1 and None not in used
