"""What an audit cannot judge, by what is left of source and sink."""

from __future__ import annotations

import pytest

from ackwright_stream import audit_limits
from ackwright_stream.audit_kafka import LaneStart
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

A, B = ("in", 0), ("in", 1)
OUT = ("out", 0)


def test_only_the_lanes_whose_records_are_gone_are_in_doubt() -> None:
    recorded = {A: LaneStart(4), B: LaneStart(0)}
    start, doubts = audit_limits.counting_from("g", [A, B], recorded, {A: 9, B: 9}, {A: 4, B: 3})
    assert start == {A: 4, B: 3}
    assert [list(d.lanes) for d in doubts] == [[B]], "the lane began where the log begins, the other one did not"
    assert "in-1: records from 0 to 3 are no longer in the source" in doubts[0].reason


def test_records_in_front_of_a_lane_without_a_position_were_never_delivered() -> None:
    start, doubts = audit_limits.counting_from("g", [A], {}, {A: None}, {A: 3})
    assert (start, doubts) == ({A: 3}, [])


def test_a_recorded_lane_without_a_position_is_refused() -> None:
    with pytest.raises(JobError, match="g no longer has a position for in-1") as e:
        audit_limits.counting_from("g", [A, B], {B: LaneStart(0)}, {A: 1, B: None}, {A: 0, B: 0})
    assert e.value.reason is Reason.POSITION_LOST


def test_offsets_without_a_record_are_in_doubt_only_if_the_topic_is_compacted() -> None:
    start, passed, counted = {A: 0, B: 2}, {A: 5, B: 6}, {A: 3, B: 4}
    assert audit_limits.compaction_of_source(set(), start, passed, counted) == ([], [])
    doubts, notes = audit_limits.compaction_of_source({"in"}, start, passed, counted)
    assert [list(d.lanes) for d in doubts] == [[A]]
    assert "in-0: the topic is compacted, and 2 of the 5 offsets from 0 to 5 have no record" in doubts[0].reason
    assert notes == ["in-1: the topic is compacted, but no record was removed yet"]


@pytest.mark.parametrize(
    ("compacted", "earliest", "begin", "end", "topics"),
    [
        (set(), 0, 0, 9, []),
        (set(), 3, 3, 9, ["out"]),
        (set(), 3, 5, 9, []),  # what was removed is output of a recreated topic, which is not judged
        ({"out"}, 0, 0, 9, ["out"]),
        ({"out"}, 0, 0, 0, []),
    ],
)
def test_output_that_may_have_been_removed(
    compacted: set[str], earliest: int, begin: int, end: int, topics: list[str]
) -> None:
    doubts = audit_limits.removals_from_sink(compacted, {OUT: earliest}, {OUT: begin}, {OUT: end})
    assert [topic for doubt in doubts for topic in doubt.topics] == topics


def test_output_of_a_recreated_topic_is_left_out_if_its_end_is_known() -> None:
    known = {A: LaneStart(0, "id", {0: 7})}
    assert audit_limits.output_of_old_topic("out", "id", 1, {A: LaneStart(0)}, {OUT: 0}) == ({OUT: 0}, [], [])
    begin, doubts, notes = audit_limits.output_of_old_topic("out", "id", 1, known, {OUT: 0})
    assert (begin, doubts) == ({OUT: 7}, [])
    assert "judges the sink from out-0@7" in notes[0]


@pytest.mark.parametrize(("sink", "sink_id", "sources"), [("out", "another", 1), ("out", "id", 2), (None, "", 1)])
def test_where_that_end_is_not_known_the_recreated_lanes_are_in_doubt(
    sink: str | None, sink_id: str, sources: int
) -> None:
    recorded = {A: LaneStart(0, "id", {0: 7}), B: LaneStart(0)}
    begin, doubts, notes = audit_limits.output_of_old_topic(sink, sink_id, sources, recorded, {OUT: 0})
    assert (begin, notes) == ({OUT: 0}, [])
    assert [list(d.lanes) for d in doubts] == [[A]]


def test_two_clients_that_count_differently_are_a_doubt() -> None:
    assert audit_limits.reader_disagrees(5, 5) == []
    (doubt,) = audit_limits.reader_disagrees(5, 7)
    assert "has 5 source records, and another client has 7" in doubt.reason


def test_malformed_records_that_were_passed_have_a_note() -> None:
    assert audit_limits.passed_although_malformed(0) == []
    assert "passed 1 malformed record although" in audit_limits.passed_although_malformed(1)[0]
    assert "passed 2 malformed records although" in audit_limits.passed_although_malformed(2)[0]
