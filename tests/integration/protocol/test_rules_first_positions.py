"""docs/protocol.md#rule-4 on real brokers: how a position starts.

The job's own code runs in this process, without Spark. Where the rule can be switched off, a control does so and shows
the damage.
"""

from __future__ import annotations

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream import ownership
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Position, Range
from ackwright_stream.sinks.kafka.lane_records import record_key
from integration.support.pipelines import LANES, feed
from integration.support.produce import produce_pairs
from integration.support.rules import (
    GUARANTEES,
    NewPipe,
    add_partitions,
    offset_batches,
    reason_of,
    rows,
)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_04_a_recorded_lane_without_a_position_halts(pipe: NewPipe, guarantee: str) -> None:
    p = pipe(guarantee)
    p.take()
    assert p.positions() == {0: 0, 1: 0}
    assert {v["start"] for v in p.records().values()} == {0}
    assert len(p.records()) == 2
    p.forget_positions()
    assert reason_of(p.take) is Reason.POSITION_LOST
    assert p.positions() == {}
    assert p.written("read_uncommitted") == []
    p.set_positions(3)  # the remedy in the message
    p.check()
    assert reason_of(p.take) is Reason.POSITIONS_MOVED
    assert p.accepting(3).take().positions == {p.lane(0): 3, p.lane(1): 3}


def test_rule_04_control_without_the_record_the_loss_goes_unnoticed(pipe: NewPipe) -> None:
    p = pipe()
    p.take().lanes.advance(0, [Range(p.lane(), 0, 5)], rows(b"a"))
    p.forget_positions()
    produce_pairs(p.servers, LANES, ((record_key(p.job.group, p.lane(n)), None) for n in (0, 1)))
    owned = p.take()
    assert owned.positions == {p.lane(0): 0, p.lane(1): 0}
    owned.lanes.advance(0, [Range(p.lane(), 0, 5)], rows(b"a"))
    assert p.written() == [b"a", b"a"]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_04_the_loss_of_an_adopted_group_halts_the_pipeline(pipe: NewPipe, guarantee: str) -> None:
    """The pipeline resumes from offsets older than itself; offsets set by hand later do not change the record."""
    p = pipe(guarantee)
    p.set_positions(3)
    assert p.records() == {}
    assert p.take().positions == {p.lane(0): 3, p.lane(1): 3}
    adopted = {record_key(p.job.group, p.lane(n)): {"start": 3, "topicId": p.ids()[p.source]} for n in (0, 1)}
    assert p.records() == adopted
    p.set_positions(4)
    assert p.accepting(4).take().positions == {p.lane(0): 4, p.lane(1): 4}
    assert p.records() == adopted
    p.forget_positions()
    assert reason_of(p.take) is Reason.POSITION_LOST
    assert p.positions() == {}


def test_rule_04_control_without_its_record_an_adopted_group_starts_from_the_beginning(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = pipe()
    p.set_positions(3)
    monkeypatch.setattr(ownership, "_unrecorded", lambda *_: frozenset())
    p.take().lanes.advance(0, [Range(p.lane(), 3, 5)], rows(b"a"))
    p.forget_positions()
    assert p.take().positions == {p.lane(0): 0, p.lane(1): 0}


def test_rule_04_an_adopted_lane_is_recorded_with_its_position_or_not_at_all(pipe: NewPipe) -> None:
    p = pipe()
    p.set_positions(3)
    older = p.join()
    assert older.read([p.lane()]) == {p.lane(): Position(3)}
    p.join()  # another driver
    assert reason_of(lambda: older.settle({p.lane(): 3}, [p.lane()], None, ())) is Reason.POSITION_CONFLICT
    assert (p.positions(), p.records(), p.driver_at()) == ({0: 3, 1: 3}, {}, 0)


def test_rule_04_a_new_partition_that_already_has_a_position_is_adopted(pipe: NewPipe) -> None:
    p = pipe()
    owned = p.take()
    add_partitions(p, 3)
    feed(p.servers, p.source, 3, 5, 3)
    p.move_without_membership(1, 2)
    assert ownership.add(owned, {p.lane(2): 0}) == {p.lane(2): 1}
    assert p.records()[record_key(p.job.group, p.lane(2))]["start"] == 1
    p.forget_positions()
    assert reason_of(lambda: ownership.add(owned, {p.lane(2): 0})) is Reason.POSITION_LOST


def test_rule_04_positions_and_records_of_all_lanes_come_together_or_not_at_all(
    kafka: EmbeddedKafka, pipe: NewPipe
) -> None:
    p = pipe()
    older, younger = p.join(), p.join()
    starts = {p.lane(0): 0, p.lane(1): 2}
    assert reason_of(lambda: older.settle(starts, list(starts), None, ())) is Reason.POSITION_CONFLICT
    assert (p.positions(), p.records()) == ({}, {})
    younger.settle(starts, list(starts), None, ())
    assert p.positions() == {0: 0, 1: 2}
    assert p.records().keys() == {record_key(p.job.group, lane) for lane in starts}
    assert len({(b.producer_id, b.epoch) for b in offset_batches(kafka, p.job.group)}) == 1  # one transaction


def test_rule_04_of_two_drivers_that_resolve_latest_one_decides(pipe: NewPipe) -> None:
    p = pipe(startingOffsets="latest")
    older = p.join()
    assert older.read([p.lane()]) == {p.lane(): None}
    feed(p.servers, p.source, 2, 5, 3)
    younger = p.join()
    assert younger.read([p.lane()]) == {p.lane(): None}
    assert reason_of(lambda: older.settle({p.lane(): 5}, [p.lane()], None, ())) is Reason.POSITION_CONFLICT
    younger.settle({p.lane(): 8}, [p.lane()], None, ())
    assert p.take().positions[p.lane()] == 8  # a later driver reads the decided position


def test_rule_04_latest_is_resolved_once(pipe: NewPipe) -> None:
    p = pipe(startingOffsets="latest")
    assert p.take().positions == {p.lane(0): 5, p.lane(1): 5}
    feed(p.servers, p.source, 2, 5, 3)
    assert p.take().positions == {p.lane(0): 5, p.lane(1): 5}


def test_rule_04_partitions_added_later_start_at_earliest(pipe: NewPipe) -> None:
    p = pipe(startingOffsets="latest")
    owned = p.take()
    add_partitions(p, 4)
    feed(p.servers, p.source, 4, 5, 3)
    assert ownership.add(owned, {p.lane(2): 0}) == {p.lane(2): 0}  # added while running
    assert p.take().positions == {p.lane(0): 5, p.lane(1): 5, p.lane(2): 0, p.lane(3): 0}  # added before a start
    p.forget_positions()
    assert reason_of(lambda: ownership.add(owned, {p.lane(2): 0})) is Reason.POSITION_LOST
    assert p.positions(4) == {}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_records_that_expired_before_they_were_delivered_halt(pipe: NewPipe, guarantee: str) -> None:
    p = pipe(guarantee)
    p.take()
    p.expire(3)
    assert reason_of(p.take) is Reason.DATA_EXPIRED
    assert p.positions() == {0: 0, 1: 0}
    assert p.written("read_uncommitted") == []


def test_records_that_expired_before_they_were_delivered_are_counted_at_most_once(pipe: NewPipe) -> None:
    p = pipe("at-most-once")
    p.take()
    p.expire(3)
    assert p.take().expired == 6
    assert p.positions() == {0: 3, 1: 3}
