"""A source topic that was deleted and recreated, on real brokers.

The pipeline halts until a person accepts the loss of the old topic, and then delivers every record of the new one. The
job's own code runs in this process; the last test runs a complete job.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream import ownership
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.audit import audit
from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Position, Range
from ackwright_stream.reports import Verdict
from integration.support.pipelines import create_topics, document, feed, job_of, judge, positions_of, read, running
from integration.support.produce import produce
from integration.support.rules import (
    GUARANTEES,
    NewPipe,
    Pipe,
    add_partitions,
    reason_of,
    rows,
)
from integration.support.spark_local import session
from waiting import WAIT


def accepting(p: Pipe, identity: str) -> Pipe:
    """The pipeline after a person has accepted the loss of the source topic that had this id."""
    return replace(p, job=replace(p.job, accepted_losses={p.source: identity}))


def replaced(p: Pipe, records: int = 5) -> str:
    """Deletes the source topic, recreates it and writes to it; returns the old topic's id."""
    old = p.ids()[p.source]
    p.recreate_source()
    feed(p.servers, p.source, 2, 100, records)
    return old


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_replaced_topic_halts_until_its_loss_is_accepted(pipe: NewPipe, guarantee: str) -> None:
    """Its positions were deleted with it; the lane's record shows the change. startingOffsets do not apply."""
    p = pipe(guarantee, startingOffsets="latest")
    p.take()
    old = replaced(p)
    with pytest.raises(JobError) as caught:
        p.take()
    assert caught.value.reason is Reason.TOPIC_REPLACED
    for word in (old, p.ids()[p.source], "ackwright accept-topic"):
        assert word in caught.value.message
    assert p.positions() == {}
    assert {r["topicId"] for r in p.records().values()} == {old}

    accepted = accepting(p, old)
    assert accepted.take().positions == {p.lane(0): 0, p.lane(1): 0}
    assert {r["topicId"] for r in p.records().values()} == {p.ids()[p.source]}
    assert len(p.records()) == 2


def test_all_of_the_new_topic_is_delivered_exactly_once(pipe: NewPipe) -> None:
    p = pipe()
    p.take().lanes.advance(0, [Range(p.lane(), 0, 3)], rows(b"of the old one"))
    p = accepting(p, replaced(p))
    owned = p.take()
    assert owned.positions == {p.lane(0): 0, p.lane(1): 0}
    ranges = (Range(p.lane(), 0, 2), Range(p.lane(), 2, 5))
    for range_, value in zip(ranges, (b"0-2", b"2-5"), strict=True):
        work = p.work(owned, range_)
        assert process_and_advance(work, work.task, rows(value))[0] is Outcome.DONE
    again = p.take()  # the acceptance is still there, and the positions are the new topic's
    assert again.positions == {p.lane(0): 5, p.lane(1): 0}
    for range_ in ranges:
        work = p.work(again, range_)
        assert process_and_advance(work, work.task, rows(b"again"))[0] is Outcome.SKIPPED
    assert p.written() == [b"0-2", b"2-5", b"of the old one"]


@pytest.mark.parametrize("which", ["another", "the present"])
def test_control_accepting_another_id_changes_nothing(pipe: NewPipe, which: str) -> None:
    p = pipe()
    p.take().lanes.advance(0, [Range(p.lane(), 0, 3)], rows(b"a"))
    identity = "pMwI-OlDoLdOlD_oLdOl-A" if which == "another" else p.ids()[p.source]
    accepted = accepting(p, identity)
    assert accepted.take().positions == {p.lane(0): 3, p.lane(1): 0}  # the loss of an existing topic cannot be accepted
    replaced(p)
    accepted = accepting(p, identity if which == "another" else p.ids()[p.source])
    assert reason_of(accepted.take) is Reason.TOPIC_REPLACED
    assert p.positions() == {}
    assert p.written("read_uncommitted") == [b"a"]


def committed_late(p: Pipe) -> tuple[Ownership, str]:
    """Replaces the topic; then a task that began before commits offset 4 of the old one. Returns also the old id.

    The task's driver hangs, so its member does not notice the new topic and is still a member.
    """
    before = p.take()
    transaction = before.lanes.sink.open(0, [p.lane()], before.lanes.membership)
    p.end_drivers()
    old = replaced(p)
    transaction.commit({p.lane(): Position(4, old, before.driver)})
    return before, old


def test_positions_of_the_old_topic_count_as_missing(pipe: NewPipe) -> None:
    p = pipe()
    _, old = committed_late(p)
    assert reason_of(p.take) is Reason.TOPIC_REPLACED
    assert reason_of(accepting(p, "pMwI-OlDoLdOlD_oLdOl-A").take) is Reason.TOPIC_REPLACED
    assert p.positions() == {0: 4}
    assert accepting(p, old).take().positions == {p.lane(0): 0, p.lane(1): 0}
    assert p.positions() == {0: 0, 1: 0}


def test_running_drivers_and_tasks_do_not_use_positions_of_the_old_topic(pipe: NewPipe) -> None:
    """A late commit sets lane 0 to an offset of the old topic while a driver runs; no driver resumes from there."""
    p = pipe()
    before, old = committed_late(p)
    for now, reason in ((p, Reason.TOPIC_REPLACED), (accepting(p, old), Reason.POSITION_LOST)):
        lanes = now.lanes(before)
        assert reason_of(lambda: lanes.advance(0, [Range(p.lane(), 4, 5)], rows(b"a"))) is reason  # noqa: B023
        assert reason_of(lambda: lanes.advance_all([Range(p.lane(), 0, 5)])) is reason  # noqa: B023
    assert p.positions() == {0: 4}
    assert p.written("read_uncommitted") == []


def test_a_driver_that_moves_positions_itself_notices_the_new_topic(pipe: NewPipe) -> None:
    """At-least-once: the brokers have dropped the old topic's positions, which alone would look like an expiry."""
    p = pipe("at-least-once")
    owned = p.take()
    replaced(p)
    assert reason_of(lambda: owned.lanes.advance_all([Range(p.lane(), 0, 3)])) is Reason.TOPIC_REPLACED
    assert p.positions() == {}


def test_partitions_that_only_the_new_topic_has_are_read_from_their_start(pipe: NewPipe) -> None:
    p = pipe(startingOffsets="latest")
    p.take()
    old = replaced(p)
    add_partitions(p, 3)
    feed(p.servers, p.source, 3, 200, 5)
    assert accepting(p, old).take().positions == {p.lane(n): 0 for n in range(3)}


def test_partitions_added_to_the_new_topic_start_at_zero(pipe: NewPipe) -> None:
    """The old topic's third partition has a record when the driver first reads the new topic's third partition."""
    p = pipe()
    add_partitions(p, 3)
    p.take()
    p = accepting(p, replaced(p))
    owned = p.take()
    assert set(owned.positions) == {p.lane(0), p.lane(1)}
    add_partitions(p, 3)
    without = Lanes(
        replace(p.job, accepted_losses={}), owned.lanes.sink, owned.lanes.membership, owned.driver, owned.topic_ids
    )
    assert reason_of(lambda: ownership.add(replace(owned, lanes=without), {p.lane(2): 0})) is Reason.TOPIC_REPLACED
    assert ownership.add(owned, {p.lane(2): 0}) == {p.lane(2): 0}
    assert p.positions(3) == {0: 0, 1: 0, 2: 0}


def test_of_two_drivers_that_start_a_recreated_topic_one_decides(pipe: NewPipe) -> None:
    p = pipe()
    p.take()
    p = accepting(p, replaced(p))
    late = p.join()
    assert late.read([p.lane()]) == {p.lane(): None}
    p.take().lanes.advance(0, [Range(p.lane(), 0, 2)], rows(b"a"))
    assert reason_of(lambda: late.settle({p.lane(): 0}, [p.lane()], None, ())) is Reason.POSITION_CONFLICT
    assert p.positions() == {0: 2, 1: 0}


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_loss_of_the_new_topics_positions_halts_the_pipeline(pipe: NewPipe, by_hand: bool) -> None:
    """Also after positions set by hand: without the new topic's record they would count as an accepted loss."""
    p = pipe()
    p.take()
    p = accepting(p, replaced(p))
    if by_hand:
        p.set_positions(2)
    assert p.take().positions == dict.fromkeys((p.lane(0), p.lane(1)), 2 if by_hand else 0)
    p.forget_positions()
    assert reason_of(p.take) is Reason.POSITION_LOST
    assert p.positions() == {}


def test_positions_set_by_hand_do_not_change_the_recorded_start_of_the_lane(pipe: NewPipe) -> None:
    """The audit counts from there."""
    p = pipe()
    p.take()
    p.set_positions(3)
    assert p.accepting(3).take().positions == {p.lane(0): 3, p.lane(1): 3}
    assert {r["start"] for r in p.records().values()} == {0}


def test_a_job_halts_when_its_topic_is_replaced_and_resumes_once_the_loss_is_accepted(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    servers, name = kafka.bootstrap_servers, f"replaced-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=2)
    feed(servers, source, 2, 0, 200)
    p = Pipe(
        job_of(document(servers, name, "exactly-once", source, sink), tmp_path),
        AdminClient({"bootstrap.servers": servers}),
    )
    with running(p.job, tmp_path / "halts") as job:
        job.until_position(2, 200)
        old = p.ids()[source]
        p.recreate_source()
        feed(servers, source, 2, 200, 100)
        assert job.job.wait(WAIT) == ExitCode.HALTED
        assert str(job.job.failure()).startswith("TopicReplaced: "), job.job.failure()
    assert positions_of(servers, p.job.group, source, 2) == {}
    with running(accepting(p, old).job, tmp_path / "goes-on") as job:
        job.until_position(2, 100)
        feed(servers, source, 2, 300, 100)
        job.until_position(2, 200)
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK
    assert judge(read(servers, sink), 2, 400).exactly_once
    report = audit(session(), p.job)
    assert (report.sent, report.delivered, report.verdict) == (400, 400, Verdict.HELD), "of the new topic"
    assert "recreated" in report.notes[0]
    produce(servers, sink, b"0:250", key=b"p0")
    assert audit(session(), p.job).duplicated == 1
