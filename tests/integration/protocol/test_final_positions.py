"""A driver that stops in order records its final positions, from which a later one resumes if they have expired.

See docs/protocol.md#rule-4.
"""

from __future__ import annotations

import pytest

from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Range
from ackwright_stream.sinks.kafka import lane_records
from ackwright_stream.sinks.kafka.lane_records import record_key
from integration.support.pipelines import LANES
from integration.support.produce import produce_pairs
from integration.support.rules import GUARANTEES, NewPipe, Pipe, reason_of


def stopped(p: Pipe) -> None:
    """A driver has delivered three records of lane 0 and stopped in order."""
    owned = p.take()
    owned.lanes.advance_all([Range(p.lane(), 0, 3)])
    owned.lanes.stop({p.lane(0): 3, p.lane(1): 0})


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_expired_positions_are_resumed_after_an_orderly_stop(pipe: NewPipe, guarantee: str) -> None:
    p = pipe(guarantee)
    stopped(p)
    p.forget_positions()
    owned = p.take()
    assert owned.positions == {p.lane(0): 3, p.lane(1): 0}
    assert owned.driver == 2
    assert p.positions() == {0: 3, 1: 0}


def test_without_an_orderly_stop_they_are_lost(pipe: NewPipe) -> None:
    """The control."""
    p = pipe()
    p.take().lanes.advance_all([Range(p.lane(), 0, 3)])
    p.forget_positions()
    assert reason_of(p.take) is Reason.POSITION_LOST


def test_final_positions_do_not_outlive_the_next_start(pipe: NewPipe) -> None:
    """Resuming from them would deliver again what the later driver has delivered."""
    p = pipe()
    stopped(p)
    p.take().lanes.advance_all([Range(p.lane(), 0, 5)])
    assert lane_records.records(p.job).final == {}
    p.forget_positions()
    assert reason_of(p.take) is Reason.POSITION_LOST


def test_an_overtaken_driver_records_no_final_positions(pipe: NewPipe) -> None:
    p = pipe()
    older, _ = p.take(), p.take()
    assert reason_of(lambda: older.lanes.stop({p.lane(0): 0, p.lane(1): 0})) is Reason.POSITION_CONFLICT
    assert lane_records.records(p.job).final == {}


def test_the_lanes_topic_alone_knows_the_final_positions_of_lanes_whose_records_are_lost(pipe: NewPipe) -> None:
    p = pipe()
    stopped(p)
    produce_pairs(p.servers, LANES, ((record_key(p.job.group, p.lane(n)), None) for n in (0, 1)))
    p.forget_positions()
    assert p.take().positions == {p.lane(0): 3, p.lane(1): 0}
