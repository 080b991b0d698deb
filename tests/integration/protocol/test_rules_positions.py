"""docs/protocol.md#rule-1 to #rule-3 on real brokers: how a position moves and decides.

The job's own code runs in this process, without Spark. Where a rule can be switched off, a control does so and shows
the damage. The brokers' part is in test_broker_facts.py; how a position starts is in test_rules_first_positions.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream import lanes as protocol
from ackwright_stream.delivery.at_most_once import claim_and_process
from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.ownership import Ownership, complete
from ackwright_stream.positions import Position, Range
from integration.support.members import describe
from integration.support.pipelines import assert_nothing_hangs, read
from integration.support.rules import (
    GUARANTEES,
    NewPipe,
    Pipe,
    everything,
    offset_batches,
    reason_of,
    rows,
    torn,
    with_short_session,
)
from waiting import ANSWER, wait_until


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_01_positions_move_in_transactions_alone(kafka: EmbeddedKafka, pipe: NewPipe, guarantee: str) -> None:
    p = pipe(guarantee)
    everything(p, p.take())
    assert p.positions()[0] == 3
    batches = offset_batches(kafka, p.job.group)
    assert len(batches) == 3  # the first positions of both lanes, and two advances
    assert all(batch.transactional for batch in batches)
    p.empty_group()  # with a member the plain commit would be refused
    plain = Consumer({"bootstrap.servers": p.servers, "group.id": p.job.group, "enable.auto.commit": False})
    plain.commit(offsets=[TopicPartition(p.source, 0, 4)], asynchronous=False)
    plain_commits = [b for b in offset_batches(kafka, p.job.group) if not b.transactional]
    assert len(plain_commits) == 1, "the control: this test detects a plain commit"


@pytest.mark.parametrize(
    ("guarantee", "once"), [("exactly-once", True), ("at-most-once", True), ("at-least-once", False)]
)
def test_rule_02_one_epoch_carries_one_transaction(
    kafka: EmbeddedKafka, pipe: NewPipe, guarantee: str, once: bool
) -> None:
    """Each transaction here holds one batch of offsets. At-least-once reuses an epoch, which is the control."""
    p = pipe(guarantee)
    everything(p, p.take())
    epochs = [(b.producer_id, b.epoch) for b in offset_batches(kafka, p.job.group)]
    assert (len(set(epochs)) == len(epochs)) is once


def test_rule_02_after_a_failure_nothing_is_aborted_and_the_next_attempt_starts_a_new_epoch(pipe: NewPipe) -> None:
    p = pipe()
    owned = p.take()

    assert reason_of(lambda: owned.lanes.advance(0, [Range(p.lane(), 0, 5)], torn(p))) is Reason.BATCH_FAILED
    assert p.written("read_uncommitted") == [b"torn"]
    assert owned.lanes.advance(0, [Range(p.lane(), 0, 5)], rows(b"whole")) == (Outcome.DONE, 1)
    assert p.written() == [b"whole"]
    assert p.positions()[0] == 5
    assert_nothing_hangs(p.servers, p.sink)


@pytest.mark.parametrize(
    ("start", "until", "expected"),
    [
        (2, 4, Outcome.DONE),
        (0, 2, Outcome.SKIPPED),
        (0, 1, Outcome.SKIPPED),
        (3, 5, Reason.POSITION_CONFLICT),
        (1, 4, Reason.POSITION_CONFLICT),
    ],
)
def test_rule_03_the_position_decides(pipe: NewPipe, start: int, until: int, expected: Outcome | Reason) -> None:
    p = pipe()
    owned = p.take()
    owned.lanes.advance(0, [Range(p.lane(), 0, 2)])
    work = p.work(owned, Range(p.lane(), start, until))
    if isinstance(expected, Reason):
        assert reason_of(lambda: process_and_advance(work, work.task, rows(b"a"))) is expected
    else:
        assert process_and_advance(work, work.task, rows(b"a"))[0] is expected
    assert p.positions()[0] == (4 if expected is Outcome.DONE else 2)
    assert p.written("read_uncommitted") == ([b"a"] if expected is Outcome.DONE else [])


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (((0, 4), (0, 4)), Reason.POSITION_CONFLICT),  # one at its end, one at its start
        (((4, 5), (0, 3)), Outcome.DONE),
        (((0, 4), (0, 0)), Outcome.SKIPPED),
        (((4, 5), (1, 3)), Reason.POSITION_CONFLICT),
    ],
)
def test_rule_03_the_lanes_of_a_task_are_decided_together(
    pipe: NewPipe, ranges: tuple[tuple[int, int], ...], expected: Outcome | Reason
) -> None:
    p = pipe()
    owned = p.take()
    owned.lanes.advance(0, [Range(p.lane(), 0, 4)])
    work = p.work(owned, *(Range(p.lane(n), *offsets) for n, offsets in enumerate(ranges)))
    if isinstance(expected, Reason):
        assert reason_of(lambda: process_and_advance(work, work.task, rows(b"a"))) is expected
    else:
        assert process_and_advance(work, work.task, rows(b"a"))[0] is expected
    assert p.positions() == ({0: 5, 1: 3} if expected is Outcome.DONE else {0: 4, 1: 0})
    assert p.written("read_uncommitted") == ([b"a"] if expected is Outcome.DONE else [])


@pytest.mark.parametrize("until", [2, 5])
def test_rule_03_a_position_of_an_older_driver_decides_nothing(pipe: NewPipe, until: int) -> None:
    """A driver commits every position with its number when it takes the pipeline."""
    p = pipe()
    owned = p.take()
    owned.lanes.advance(0, [Range(p.lane(), 0, 2)])
    work = replace(p.work(owned, Range(p.lane(), 0 if until == 2 else 2, until)), driver=owned.driver + 1)
    assert reason_of(lambda: process_and_advance(work, work.task, rows(b"a"))) is Reason.POSITION_CONFLICT
    assert (p.positions()[0], p.written("read_uncommitted")) == (2, [])


def deliver(p: Pipe, owned: Ownership) -> Callable[[], object]:
    """What delivers the first five offsets of lane 0, or advances over them at the end of a batch."""
    work = p.work(owned, Range(p.lane(), 0, 5))
    ways: dict[str, Callable[[], object]] = {
        "at-most-once": lambda: claim_and_process(work, work.task, rows(b"a")),
        "at-least-once": lambda: owned.lanes.advance_all([Range(p.lane(), 0, 5)]),
        "exactly-once": lambda: process_and_advance(work, work.task, rows(b"a")),
    }
    return ways[p.job.guarantee]


@pytest.mark.parametrize("offset", [0, 3, 5])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_03_offsets_set_by_another_program_during_a_run_halt(pipe: NewPipe, guarantee: str, offset: int) -> None:
    """Also at the start and at the end of the range: the position says nothing about what was delivered."""
    p = pipe(guarantee)
    owned = p.take()
    p.move_without_membership(offset)
    assert reason_of(deliver(p, owned)) is Reason.POSITIONS_MOVED
    assert reason_of(lambda: p.take(owned.driver)) is Reason.POSITIONS_MOVED  # as after a failure, without a new driver
    assert p.positions() == {0: offset, 1: offset}
    assert p.written("read_uncommitted") == []


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_rule_03_a_running_driver_names_what_its_next_start_accepts(pipe: NewPipe, guarantee: str) -> None:
    """Each task knows its own lanes alone. Also after positions that were accepted before."""
    p = pipe(guarantee)
    p.take()
    p.set_positions(0)
    p = p.accepting(0)
    owned = p.take()
    p.move_without_membership(3)
    with pytest.raises(JobError) as caught:
        deliver(p, owned)()
    error = complete(caught.value, owned)  # as the driver does
    accepted = error.fingerprint
    assert f"({p.lane(0)}: 3, {p.lane(1)}: 3)" in error.message
    assert f"accept-positions {p.job.name} {accepted} -n {p.job.namespace}," in error.message
    p = replace(p, job=replace(p.job, accepted_positions=accepted))
    assert p.take().positions == {p.lane(0): 3, p.lane(1): 3}


def test_rule_03_control_without_the_number_a_reset_to_the_end_passes_records_over(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_the_offset_alone(batch: Range, position: Position, _: int) -> Outcome | None:
        return Outcome.SKIPPED if position.offset >= batch.until else None

    p = pipe()
    owned = p.take()
    p.move_without_membership(5)
    monkeypatch.setattr(protocol, "_outcome", by_the_offset_alone)
    assert deliver(p, owned)() == (Outcome.SKIPPED, 0)
    assert p.written("read_uncommitted") == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_03_offsets_set_by_hand_between_two_runs_halt_until_they_are_accepted(
    pipe: NewPipe, guarantee: str
) -> None:
    """Brokers accept them once the session of the last driver has ended."""
    p = with_short_session(pipe(guarantee))
    p.take()
    p.end_drivers()
    wait_until(lambda: not describe(p.admin, p.job.group).members, "the session has ended")
    p.alter_positions(3)
    with pytest.raises(JobError) as caught:
        p.take()
    assert caught.value.reason is Reason.POSITIONS_MOVED
    accepted = p.accepting(3)
    assert f"ackwright accept-positions {p.job.name} {accepted.job.accepted_positions} -n" in caught.value.message
    assert reason_of(p.accepting(4).take) is Reason.POSITIONS_MOVED
    assert (p.positions(), p.driver_at()) == ({0: 3, 1: 3}, 0)
    assert accepted.take().positions == {p.lane(0): 3, p.lane(1): 3}
    assert p.driver_at() > 0
    assert accepted.take().positions == p.take().positions  # needed once


def test_rule_03_an_acceptance_is_good_for_one_move(pipe: NewPipe) -> None:
    """The same offsets, set again by mistake, would be delivered again."""
    p = pipe()
    p.take()
    p.set_positions(3)
    accepted = p.accepting(3)
    accepted.take().lanes.advance_all([Range(p.lane(0), 0, 5), Range(p.lane(1), 0, 5)])
    accepted.set_positions(3)
    with pytest.raises(JobError) as caught:
        accepted.take()
    assert caught.value.reason is Reason.POSITIONS_MOVED
    second = caught.value.fingerprint
    assert second not in (None, accepted.job.accepted_positions)
    again = replace(p, job=replace(p.job, accepted_positions=second))
    assert again.take().positions == {p.lane(0): 3, p.lane(1): 3}


def test_rule_03_without_a_position_nothing_is_written(pipe: NewPipe) -> None:
    p = pipe()
    owned = p.take()
    p.forget_positions()
    work = p.work(owned, Range(p.lane(), 0, 5))
    assert reason_of(lambda: process_and_advance(work, work.task, rows(b"a"))) is Reason.POSITION_LOST
    assert p.positions() == {}
    assert p.written("read_uncommitted") == []


def test_rule_03_control_without_the_decision_a_replay_duplicates(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = pipe()
    owned = p.take()
    work = p.work(owned, Range(p.lane(), 0, 5))
    monkeypatch.setattr(protocol, "decide", lambda *_: None)
    for _ in range(2):
        process_and_advance(work, work.task, rows(b"a"))
    assert p.written() == [b"a", b"a"]


def test_rule_03_init_comes_before_the_read(pipe: NewPipe) -> None:
    """A later attempt fences the earlier one in mid-transaction; the position that it then reads cannot change."""
    p = pipe()
    owned = p.take()
    older = owned.lanes.sink.open(0, [p.lane()], owned.lanes.membership)
    younger = p.lanes(owned)
    positions_read: list[Position | None] = []

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from rows(b"older")
        wait_until(lambda: p.written("read_uncommitted") == [b"older"], "the row is in the log")
        positions_read.append(younger.sink.open(0, [p.lane()], younger.membership).positions[p.lane()])

    target = {p.lane(): Position(5, p.ids()[p.source], owned.driver)}
    assert reason_of(lambda: older.commit(target, overtaken())) is Reason.POSITION_CONFLICT
    assert [t and t.offset for t in positions_read] == [0]
    assert p.positions()[0] == 0
    assert p.written() == []
    assert_nothing_hangs(p.servers, p.sink)


def test_rule_03_a_row_after_the_fencing_is_refused_as_such(pipe: NewPipe) -> None:
    """The producer then refuses rows without the cause; the task still names its successor."""
    p = pipe()
    owned = p.take()
    older = owned.lanes.sink.open(0, [p.lane()], owned.lanes.membership)
    younger = p.lanes(owned)

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from rows(b"older")
        wait_until(lambda: p.written("read_uncommitted") == [b"older"], "the row is in the log")
        younger.sink.open(0, [p.lane()], younger.membership)
        deadline = time.monotonic() + ANSWER
        while time.monotonic() < deadline:  # a refused row ends this iterator
            yield from rows(b"late")

    target = {p.lane(): Position(5, p.ids()[p.source], owned.driver)}
    assert reason_of(lambda: older.commit(target, overtaken())) is Reason.POSITION_CONFLICT
    assert p.written() == []


def test_rule_03_output_in_several_topics_is_visible_as_one(pipe: NewPipe) -> None:
    """Rows of a lane in several topics and its position are one transaction, also after a failed attempt."""
    p = pipe()
    owned = p.take()
    work = p.work(owned, Range(p.lane(), 0, 5))

    def routed() -> pa.RecordBatch:
        values: Any = {"key": [b"k", b"k"], "value": [b"to the sink", b"aside"], "topic": [None, p.source]}
        schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string())])
        return pa.RecordBatch.from_pydict(values, schema=schema)

    def failing() -> Iterator[pa.RecordBatch]:
        yield routed()
        raise JobError(Reason.BATCH_FAILED, "the rows end here")

    def visible() -> tuple[list[bytes | None], int]:
        return p.written(), sum(r.value == b"aside" for r in read(p.servers, p.source))

    assert reason_of(lambda: process_and_advance(work, work.task, failing())) is Reason.BATCH_FAILED
    # Ends what the attempt left open, so that readers get past it.
    owned.lanes.sink.open(0, [p.lane()], owned.lanes.membership).release()
    assert visible() == ([], 0)
    assert process_and_advance(work, work.task, iter([routed()])) == (Outcome.DONE, 2)
    assert visible() == ([b"to the sink"], 1)
