"""The choice of brokers for new replicas, and of replicas to remove."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright.planning.replicas import Partition, Racks, one_rack, placed

few = settings(max_examples=60)
NO_RACKS: Racks = dict.fromkeys(range(1, 6))


def partition(*replicas: int, in_sync: set[int] | None = None, leader: int | None = None, number: int = 0) -> Partition:
    return Partition(
        number, replicas, frozenset(replicas if in_sync is None else in_sync), replicas[0] if leader is None else leader
    )


@st.composite
def clusters(draw: st.DrawFn) -> Racks:
    """Racks of the brokers that are up; either all brokers have a rack or none has."""
    brokers = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6, unique=True))
    racked = draw(st.booleans())
    return {b: draw(st.sampled_from("abc")) if racked else None for b in brokers}


@st.composite
def layouts(draw: st.DrawFn) -> list[Partition]:
    """Partitions on brokers 1 to 7, which may be down; a leader is in sync."""
    placement = []
    for number in range(draw(st.integers(1, 5))):
        replicas = draw(st.lists(st.integers(1, 7), min_size=1, max_size=5, unique=True))
        in_sync = draw(st.sets(st.sampled_from(replicas), min_size=1))
        leader = draw(st.none() | st.sampled_from(sorted(in_sync)))
        placement.append(Partition(number, tuple(replicas), frozenset(in_sync), leader))
    return placement


def after(layout: list[Partition], factor: int, racks: Racks) -> list[tuple[Partition, tuple[int, ...]]]:
    target = placed(layout, factor, racks)
    return [(p, target.get(p.number, p.replicas)) for p in layout]


@few
@given(layouts(), st.integers(1, 4), clusters())
def test_replicas_are_on_as_many_distinct_brokers_as_requested_or_as_exist(
    layout: list[Partition], factor: int, racks: Racks
) -> None:
    for p, replicas in after(layout, factor, racks):
        assert len(set(replicas)) == len(replicas) == min(factor, len({*p.replicas, *racks}))


@few
@given(layouts(), st.integers(1, 4), clusters())
def test_growing_keeps_every_replica_in_its_place_and_adds_only_brokers_that_are_up(
    layout: list[Partition], factor: int, racks: Racks
) -> None:
    for p, replicas in after(layout, factor, racks):
        if len(p.replicas) <= factor:
            assert replicas[: len(p.replicas)] == p.replicas
            assert set(replicas[len(p.replicas) :]) <= racks.keys()


@few
@given(layouts(), st.integers(1, 4), clusters())
def test_shrinking_only_removes_replicas_and_keeps_their_order(
    layout: list[Partition], factor: int, racks: Racks
) -> None:
    for p, replicas in after(layout, factor, racks):
        if len(p.replicas) >= factor:
            assert replicas == tuple(b for b in p.replicas if b in replicas)


@few
@given(layouts(), st.integers(1, 4), clusters())
def test_partitions_with_the_right_number_of_replicas_are_not_moved(
    layout: list[Partition], factor: int, racks: Racks
) -> None:
    named = placed(layout, factor, racks)
    assert not [p for p in layout if len(p.replicas) == factor and p.number in named]
    again = placed(
        [Partition(p.number, r, p.in_sync & set(r), None) for p, r in after(layout, factor, racks)], factor, racks
    )
    assert not [n for n in again if len({*layout[n].replicas, *racks}) >= factor]


@few
@given(layouts(), st.integers(1, 4), clusters())
def test_replicas_on_missing_brokers_are_removed_first_then_lagging_ones_and_the_leader_last(
    layout: list[Partition], factor: int, racks: Racks
) -> None:
    for p, replicas in after(layout, factor, racks):
        if len(p.replicas) > factor:
            keeps = p.replicas[0] if p.leader is None else p.leader
            worth = {b: (b in racks, b in p.in_sync, b == keeps) for b in p.replicas}
            assert max(worth[b] for b in p.replicas if b not in replicas) <= min(worth[b] for b in replicas)


def racks_of(replicas: tuple[int, ...], racks: Racks) -> int:
    return len({racks[b] for b in replicas if b in racks})


@few
@given(layouts(), st.integers(1, 4), clusters())
def test_no_other_minimal_move_spreads_over_more_racks(layout: list[Partition], factor: int, racks: Racks) -> None:
    for p, replicas in after(layout, factor, racks):
        if len(p.replicas) < factor:
            free = [b for b in racks if b not in p.replicas]
            others = [p.replicas + c for c in combinations(free, min(factor - len(p.replicas), len(free)))]
        else:
            keeps = p.replicas[0] if p.leader is None else p.leader
            worth = {b: (b in racks, b in p.in_sync, b == keeps) for b in p.replicas}
            remaining = sorted(worth[b] for b in replicas)
            others = [c for c in combinations(p.replicas, len(replicas)) if sorted(worth[b] for b in c) == remaining]
        assert racks_of(replicas, racks) == max(racks_of(c, racks) for c in others)


@few
@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_brokers_differ_by_at_most_two_replicas_or_as_before(
    partitions: int, brokers: int, before: int, factor: int
) -> None:
    """Starting from Kafka's own layout of a new topic, for more and for fewer replicas."""
    before, factor = min(before, brokers), min(factor, brokers)
    layout = [partition(*((n + i) % brokers for i in range(before)), number=n) for n in range(partitions)]

    def difference(replicas: list[tuple[int, ...]]) -> int:
        load = Counter(b for r in replicas for b in r)
        return max(load.values()) - min(load[b] for b in range(brokers))

    placement = [replicas for _, replicas in after(layout, factor, dict.fromkeys(range(brokers)))]
    assert difference(placement) <= max(2, difference([p.replicas for p in layout]))


def test_a_new_broker_gets_the_added_replicas_until_the_load_is_even() -> None:
    layout = [partition(1, 2, number=0), partition(2, 1, number=1), partition(1, 2, number=2)]
    assert placed(layout, 3, dict.fromkeys((1, 2, 3))) == {0: (1, 2, 3), 1: (2, 1, 3), 2: (1, 2, 3)}


def test_a_rack_without_a_replica_gets_one_and_a_rack_with_two_loses_one() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    busy = [partition(3, number=1), partition(3, number=2)]
    assert placed([partition(1, number=0), *busy], 2, racks)[0] == (1, 4)
    assert placed([partition(1, 2, 3)], 2, racks) == {0: (1, 3)}
    assert placed([partition(1, 2, 3)], 2, {1: "a", 2: "b", 3: "a"}) == {0: (1, 2)}


def test_a_leader_that_is_not_the_preferred_one_stays() -> None:
    assert placed([partition(1, 2, 3, leader=3)], 1, NO_RACKS) == {0: (3,)}
    assert placed([partition(1, 2, 3, leader=3, in_sync={1, 3})], 2, NO_RACKS) == {0: (1, 3)}


def test_the_preferred_leader_stays_among_equally_good_replicas() -> None:
    assert placed([partition(1, 2, 3, leader=2)], 2, NO_RACKS) == {0: (1, 2)}


def test_one_rack_is_reported_only_where_there_are_several() -> None:
    two = {1: "a", 2: "a", 3: "b"}
    assert one_rack([partition(1, 3), partition(1, 2)], two)
    assert not one_rack([partition(1, 3), partition(2, 3)], two)
    assert not one_rack([partition(1)], two), "a single replica is in one rack in any case"
    assert not one_rack([partition(1, 2)], {1: "a", 2: "a"})
    assert not one_rack([partition(1, 2)], {1: "a", 2: None, 3: "b"}), "a broker without a rack may be in any rack"
    assert not one_rack([partition(1, 9)], two), "a broker that is down may be in any rack"
    assert not one_rack([partition(8, 9)], two)
