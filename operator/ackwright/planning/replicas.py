"""Which brokers hold the replicas of a topic's partitions, and which shall. Pure.

Growing adds and never moves: the replicas that exist stay where they are, so that nothing is copied twice and nobody who is in sync leaves.
Shrinking takes away what is worth least: replicas on brokers that are gone, then those that lag, then those that share a rack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

Racks = Mapping[int, str | None]  # of the brokers that are up, by their id; None: the broker names no rack


@dataclass(frozen=True)
class Partition:
    """A partition as the brokers tell it. replicas: broker ids, the preferred leader first; leader None: nobody takes records."""

    number: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    leader: int | None


@dataclass(frozen=True)
class Reassignment:
    """A move of a partition's replicas that is under way; until it ends the brokers tell of old and new replicas together."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


def placed(partitions: Iterable[Partition], factor: int, racks: Racks) -> dict[int, tuple[int, ...]]:
    """The replicas of each partition that has more or fewer than `factor`, by its number. A partition for which there are too few brokers
    gets as many as there are."""
    partitions = sorted(partitions, key=lambda p: p.number)
    load = Counter(b for p in partitions for b in p.replicas)
    leaders = Counter(p.replicas[0] for p in partitions if p.replicas)
    found: dict[int, tuple[int, ...]] = {}
    for partition in partitions:
        replicas = list(partition.replicas)
        while len(replicas) > factor:
            least = _least_worth(partition, replicas, racks, load)
            replicas.remove(least)
            load[least] -= 1
        while len(replicas) < factor and (best := _best(replicas, racks, load, leaders)) is not None:
            replicas.append(best)
            load[best] += 1
        if replicas != list(partition.replicas):
            found[partition.number] = tuple(replicas)
    return found


def _best(replicas: Sequence[int], racks: Racks, load: Counter[int], leaders: Counter[int]) -> int | None:
    """The broker for one more replica: in the rack with the fewest of them, then the one that holds and leads least."""
    used = Counter(racks.get(b) for b in replicas)
    candidates = (b for b in racks if b not in replicas)
    return min(candidates, key=lambda b: (used[racks[b]] if racks[b] else 0, load[b], leaders[b], b), default=None)


def _least_worth(partition: Partition, replicas: Sequence[int], racks: Racks, load: Counter[int]) -> int:
    """The leader stays as long as any other can go: its going would stop writes for a moment."""
    used = Counter(racks.get(b) for b in replicas if racks.get(b))

    def worth(broker: int) -> tuple[object, ...]:
        shares = used[racks[broker]] if racks.get(broker) else 0
        keeps = partition.leader if partition.leader is not None else partition.replicas[0]
        return (
            broker in racks,
            broker in partition.in_sync,
            broker == keeps,
            -shares,
            -load[broker],
            broker == partition.replicas[0],
        )

    return min(replicas, key=lambda b: (worth(b), b))


def one_rack(partitions: Iterable[Partition], racks: Racks) -> bool:
    """Whether some partition has all of its replicas in one rack, though the brokers stand in several."""
    if len({r for r in racks.values() if r}) < 2:
        return False
    return any(len(p.replicas) > 1 and _same_rack(p.replicas, racks) for p in partitions)


def _same_rack(replicas: Collection[int], racks: Racks) -> bool:
    found = {racks.get(b) for b in replicas}
    return len(found) == 1 and None not in found
