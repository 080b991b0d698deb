"""Offsets that another program has set halt the driver that meets them, until a person accepts exactly those.

On brokers: integration/protocol/test_rules_positions.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from ackwright_stream import ownership, positions
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, from_json, to_json
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Lane, Position, Range
from ackwright_stream.query import Query
from ackwright_stream.sinks.base import Records
from minimal_job import minimal_job
from position_store import PositionStore

JOB = minimal_job()
TOPIC, DRIVER, MEMBERSHIP = "topic-id", 4, b"membership"
A, B, C = (Lane("in", n) for n in range(3))
OWN, FOREIGN = Position(5, TOPIC, DRIVER), Position(3)
RANGES = [Range(A, 5, 9), Range(B, 5, 8)]


class Store(PositionStore):
    """Stands for the sink's transactions, too, and records what is moved and how transactions end."""

    def __init__(self, committed: Mapping[Lane, Position | None], records: Iterable[Lane] = ()) -> None:
        super().__init__(committed, dict.fromkeys(records, TOPIC))
        self.moved: list[tuple[Mapping[Lane, Position], bytes]] = []
        self.ended: list[str] = []
        self.opened: list[tuple[int, tuple[Lane, ...], bytes]] = []
        self.reads = 0  # of the records

    peek = PositionStore.read

    def records(self) -> Records:
        self.reads += 1
        return super().records()

    def settle(
        self, targets: Mapping[Lane, Position], records: Iterable[Lane], membership: bytes, *, accepted: str | None
    ) -> None:
        self.moved.append((targets, membership))
        self.recorded |= dict.fromkeys(records, TOPIC)

    def advance(self, targets: Mapping[Lane, Position], membership: bytes) -> None:
        self.moved.append((targets, membership))

    def open(self, slot: int, lanes: Sequence[Lane], membership: bytes) -> Store:
        self.opened.append((slot, tuple(lanes), membership))
        self.positions = self.read(lanes)
        return self

    def commit(self, targets: Mapping[Lane, Position], rows: Iterable[int], letters: Iterable[int]) -> int:
        self.ended.append("commit")
        self.moved.append((targets, MEMBERSHIP))
        return sum(rows)

    def release(self) -> None:
        self.ended.append("release")


def lanes_of(store: Store, accepted: str | None = None) -> Lanes:
    sink: Any = store
    return Lanes(replace(JOB, accepted_positions=accepted), sink, MEMBERSHIP, DRIVER, {"in": TOPIC})


def reason_of(store: Store, *, accepted: str | None = None) -> Reason | None:
    """Why a driver that reads these positions at its start does not continue; None if it does."""
    try:
        ownership._require_own(lanes_of(store, accepted), store.committed, store.records)
    except JobError as e:
        return e.reason
    return None


# ------------------------------------------------ at a start


@pytest.mark.parametrize(
    ("committed", "records", "halts"),
    [
        ({A: OWN, B: OWN}, [A, B], False),
        ({A: FOREIGN, B: OWN}, [A, B], True),
        ({A: FOREIGN, B: FOREIGN}, [A, B], True),
        ({A: OWN, B: None}, [A], False),
        ({A: FOREIGN, B: FOREIGN}, [], False),  # a group that is adopted
        ({A: FOREIGN, B: OWN}, [B], False),  # a partition whose offset was set before the pipeline had it
    ],
)
def test_a_recorded_lane_with_a_foreign_offset_halts(
    committed: Mapping[Lane, Position | None], records: list[Lane], halts: bool
) -> None:
    assert reason_of(Store(committed, records)) is (Reason.POSITIONS_MOVED if halts else None)


def test_a_lane_that_is_recorded_for_another_topic_of_that_name_is_new() -> None:
    store = Store({A: FOREIGN}, [A])
    store.recorded = {A: "id of the old topic"}
    assert reason_of(store) is None


def test_the_fingerprint_of_the_message_lets_it_continue_and_no_other_does() -> None:
    store = Store({A: FOREIGN, B: Position(7), C: OWN}, [A, B, C])
    with pytest.raises(JobError) as caught:
        ownership._require_own(lanes_of(store), store.committed, store.records)
    accepted = positions.fingerprint([(A, FOREIGN), (B, Position(7))])
    assert f"ackwright accept-positions {JOB.name} {accepted} -n {JOB.namespace}," in caught.value.message
    assert caught.value.fingerprint == accepted
    assert reason_of(store, accepted=accepted) is None
    for other in (None, "", positions.fingerprint([(A, FOREIGN)])):
        assert reason_of(store, accepted=other) is Reason.POSITIONS_MOVED
    store.committed = {**store.committed, B: Position(8)}
    assert reason_of(store, accepted=accepted) is Reason.POSITIONS_MOVED, "they were set again"


def test_positions_that_were_just_settled_are_waited_for() -> None:
    """The brokers write them a moment after the transaction's end. Until then the moved ones are read."""
    store = Store({A: FOREIGN}, [A])

    def peek(lanes: Iterable[Lane]) -> dict[Lane, Position | None]:
        committed, store.committed = store.read(lanes), {A: OWN}
        return committed

    store.peek = peek  # type: ignore[method-assign]
    ownership._check_before_join(lanes_of(store), [A])


def test_the_jobspec_carries_what_is_accepted() -> None:
    job = replace(JOB, accepted_positions="0123456789ab")
    assert from_json(to_json(job)) == job
    assert from_json(to_json(JOB)).accepted_positions is None


# ------------------------------------------------ while it runs


def owned(store: Store) -> ownership.Ownership:
    return ownership.Ownership({A: 5}, 0, lanes_of(store))


def test_a_query_that_fails_names_all_positions_that_were_moved() -> None:
    """Its task knows its own lanes alone. The next start halts because of all of them."""
    store, unused = Store({A: FOREIGN, B: Position(7), C: OWN}, [A, B, C]), cast(Any, None)
    with pytest.raises(JobError) as caught:
        lanes_of(store).advance_all([Range(A, 0, 9)])
    failed = Query(unused, JOB, owned(store), unused, unused)._failed(caught.value)
    accepted = positions.fingerprint([(A, FOREIGN), (B, Position(7))])
    assert f"ackwright accept-positions {JOB.name} {accepted} -n {JOB.namespace}," in failed.error.message
    assert (caught.value.fingerprint, failed.error.fingerprint) == (None, accepted)


def test_lanes_that_appear_are_taken_with_one_read_and_in_one_step() -> None:
    store = Store({B: FOREIGN}, [A])
    assert ownership.add(owned(store), {B: 0, C: 2}) == {B: 3, C: 2}
    assert store.moved == [({B: Position(3, TOPIC, DRIVER), C: Position(2, TOPIC, DRIVER)}, MEMBERSHIP)]
    assert store.recorded == {A: TOPIC, B: TOPIC, C: TOPIC}
    assert store.reads == 1


def test_a_lane_that_appears_with_a_moved_position_halts() -> None:
    store = Store({B: FOREIGN}, [B])
    with pytest.raises(JobError) as caught:
        ownership.add(owned(store), {B: 0, C: 0})
    assert caught.value.reason is Reason.POSITIONS_MOVED
    assert store.moved == []


@pytest.mark.parametrize(
    ("committed", "reason"),
    [
        ({A: OWN, B: FOREIGN}, Reason.POSITIONS_MOVED),
        ({A: OWN, B: None}, Reason.POSITION_LOST),
        ({A: OWN, B: Position(6, TOPIC, DRIVER)}, Reason.POSITION_CONFLICT),
        ({A: OWN, B: Position(5, TOPIC, DRIVER - 1)}, Reason.POSITION_CONFLICT),
        ({A: OWN, B: Position(5, TOPIC, DRIVER + 1)}, Reason.SUPERSEDED),
        ({A: OWN, B: Position(5, "another", DRIVER)}, Reason.TOPIC_REPLACED),
        ({A: OWN, B: Position(8, TOPIC, DRIVER)}, Reason.POSITION_CONFLICT),  # one done and one not
    ],
)
def test_a_task_that_meets_anything_else_commits_nothing(
    committed: Mapping[Lane, Position | None], reason: Reason
) -> None:
    store = Store(committed)
    with pytest.raises(JobError) as caught:
        lanes_of(store).advance(1, RANGES)
    assert caught.value.reason is reason
    assert (store.ended, store.moved) == (["release"], [])


def test_a_task_moves_all_its_lanes_with_the_drivers_number_and_the_topics_id() -> None:
    store, rows = Store({A: OWN, B: OWN}), iter([2, 1])
    fake_rows: Any = rows
    assert lanes_of(store).advance(1, RANGES, fake_rows) == (Outcome.DONE, 3)
    assert store.opened == [(1, (A, B), MEMBERSHIP)]
    assert store.moved == [({A: Position(9, TOPIC, DRIVER), B: Position(8, TOPIC, DRIVER)}, MEMBERSHIP)]
    assert store.ended == ["commit"]


def test_a_task_that_was_committed_before_reads_no_row() -> None:
    store, rows = Store({A: Position(9, TOPIC, DRIVER), B: Position(11, TOPIC, DRIVER)}), iter([2, 1])
    fake_rows: Any = rows
    assert lanes_of(store).advance(1, RANGES, fake_rows) == (Outcome.SKIPPED, 0)
    assert (store.ended, store.moved, list(rows)) == (["release"], [], [2, 1])


@pytest.mark.parametrize(
    ("committed", "reason"),
    [
        (FOREIGN, Reason.POSITIONS_MOVED),
        (Position(2000), Reason.POSITIONS_MOVED),  # beyond the target
        (None, Reason.POSITION_LOST),
        (Position(5, TOPIC, DRIVER + 1), Reason.SUPERSEDED),
        (Position(5, TOPIC, DRIVER - 1), Reason.POSITION_CONFLICT),  # of a sink that was restored
        (Position(4, TOPIC, DRIVER), Reason.POSITION_CONFLICT),  # the same, since this driver has started
    ],
)
def test_an_advance_that_meets_anything_else_moves_no_lane(committed: Position | None, reason: Reason) -> None:
    store = Store({A: OWN, B: committed})
    with pytest.raises(JobError) as caught:
        lanes_of(store).advance_all([Range(A, 5, 9), Range(B, 5, 9)])
    assert caught.value.reason is reason
    assert store.moved == []


def test_an_advance_moves_only_forwards_and_all_lanes_at_once() -> None:
    store = Store({A: OWN, B: OWN, C: Position(12, TOPIC, DRIVER)})
    lanes_of(store).advance_all([Range(A, 0, 9), Range(B, 0, 6), Range(C, 0, 10)])
    assert store.moved == [({A: Position(9, TOPIC, DRIVER), B: Position(6, TOPIC, DRIVER)}, MEMBERSHIP)]
    lanes_of(store).advance_all([Range(C, 0, 10)])
    assert len(store.moved) == 1
