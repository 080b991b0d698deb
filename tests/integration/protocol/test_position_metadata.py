"""What a position names, beside its driver: the pipeline, the lanes topic, and the topic while a task is in it.

See docs/protocol.md#rule-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic

from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Position, Range, fingerprint
from ackwright_stream.sinks.kafka import lane_records
from integration.support.rules import NewPipe, Pipe, reason_of, rows
from minimal_job import with_positions
from waiting import ANSWER, wait_until


def of(p: Pipe, identity: str) -> Pipe:
    """The same pipeline, applied to another cluster."""
    return replace(p, job=replace(p.job, identity=identity))


def test_a_pipeline_of_the_same_name_is_refused_and_disturbs_nobody(pipe: NewPipe) -> None:
    here, there = of(p := pipe(), "here"), of(p, "there")
    owned = here.take()
    here.positions()  # waits: beside first positions that are still pending, the other would join, and halt then
    assert reason_of(there.take) is Reason.POSITIONS_MOVED
    assert owned.lanes.sink.is_member()
    work = here.work(owned, Range(p.lane(), 0, 5))
    assert process_and_advance(work, work.task, rows(b"here")) == (Outcome.DONE, 1)
    assert here.take().positions == {p.lane(0): 5, p.lane(1): 0}


def test_it_is_refused_also_while_the_other_is_started_again(pipe: NewPipe) -> None:
    """An edit or an eviction stops a driver in order, and another one of the same pipeline follows."""
    here, there = of(p := pipe(), "namespace/uid"), of(p, "another-namespace/another-uid")
    here.take().lanes.stop({p.lane(0): 0, p.lane(1): 0})
    assert reason_of(there.take) is Reason.POSITIONS_MOVED
    assert here.take().positions == {p.lane(0): 0, p.lane(1): 0}


@pytest.mark.parametrize("earlier", ["uid", "namespace/uid-before"])
def test_positions_of_an_earlier_release_and_of_a_resource_that_was_applied_again_are_its_own(
    pipe: NewPipe, earlier: str
) -> None:
    before, now = of(p := pipe(), earlier), of(p, "namespace/uid")
    before.take()
    assert now.take().positions == {p.lane(0): 0, p.lane(1): 0}


def test_it_may_take_over_after_a_final_stop_or_if_a_person_accepts_that(pipe: NewPipe) -> None:
    here, there = of(p := pipe(), "here"), of(p, "there")
    here.take().lanes.stop({p.lane(0): 0, p.lane(1): 0})
    there.take()
    assert reason_of(here.take) is Reason.POSITIONS_MOVED
    accepted = fingerprint((p.lane(n), Position(0)) for n in (0, 1))
    accepting = replace(here, job=replace(here.job, accepted_positions=accepted))
    assert accepting.take().positions == {p.lane(0): 0, p.lane(1): 0}


def test_records_that_went_with_the_lanes_topic_are_written_again(pipe: NewPipe) -> None:
    p = pipe()
    name = f"{p.source}-lanes"
    p = replace(p, job=with_positions(p.job, lanes_topic=name))

    def create() -> None:
        p.admin.create_topics([NewTopic(name, 1, 3)])[name].result(ANSWER)
        wait_until(lambda: name in p.admin.list_topics(timeout=ANSWER).topics, "the topic is there")

    create()
    p.take()
    assert set(lane_records.records(p.job).lanes) == {p.lane(0), p.lane(1)}
    p.admin.delete_topics([name])[name].result(ANSWER)
    wait_until(lambda: name not in p.admin.list_topics(timeout=ANSWER).topics, "the topic is gone")
    create()
    assert lane_records.records(p.job).lanes == {}
    p.take()
    assert set(lane_records.records(p.job).lanes) == {p.lane(0), p.lane(1)}
    p.forget_positions()
    assert reason_of(p.take) is Reason.POSITION_LOST  # and not a start from startingOffsets


@pytest.mark.parametrize("compared", [True, False])
def test_a_topic_that_is_recreated_during_a_task_stops_its_commit(pipe: NewPipe, *, compared: bool) -> None:
    """Without the comparison, the control, output of the new topic remains that no position counts."""
    p = pipe()
    owned = p.take()

    def recreated() -> Iterator[pa.RecordBatch]:
        yield from rows(b"a")
        p.recreate_source_now()

    if compared:
        work = p.work(owned, Range(p.lane(), 0, 5))
        assert reason_of(lambda: process_and_advance(work, work.task, recreated())) is Reason.TOPIC_REPLACED
        assert p.written() == []
    else:
        assert p.lanes(owned).advance(0, [Range(p.lane(), 0, 5)], recreated()) == (Outcome.DONE, 1)
        assert (p.written(), p.positions()) == ([b"a"], {})  # the brokers have dropped the position, and not the row
    assert reason_of(p.take) is Reason.TOPIC_REPLACED
