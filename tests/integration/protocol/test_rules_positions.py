"""docs/protocol.md#rule-1 to #rule-4 on real brokers: how a position starts, moves and decides.

The job's own code runs in this process, without Spark. Where a rule can be switched off, a control does so and shows
the damage. The brokers' part is in test_broker_facts.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream import lanes as protocol
from ackwright_stream import ownership
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import Cluster
from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Position, Range
from ackwright_stream.sinks.kafka.transactions import record_key
from integration.support.pipelines import LANES, assert_nothing_hangs, feed, read
from integration.support.produce import produce_pairs
from integration.support.rules import GUARANTEES, SECONDS, NewPipe, everything, offset_batches, pipes, reason_of, rows
from waiting import wait_until

ROOT = Path(__file__).parents[3]
# Where the job calls one of its methods named commit; each ends in a Kafka transaction.
COMMITS = {
    "ownership.py": {"lanes.commit"},
    "lanes.py": {"self.commit", "transaction.commit"},
    "sink.py": {"self._transactions.commit", "self._driver_producer.commit"},
}
CONSUMERS = {
    f"Consumer(settings({job}.cluster, {job}.{consumer}))"
    for job in ("job", "self._job")
    for consumer in ("positions_consumer", "lanes_consumer")
}
JOB_SOURCES = sorted((ROOT / "spark_app" / "ackwright_stream").rglob("*.py"))


@pytest.fixture
def pipe(kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path) -> NewPipe:
    return pipes(kafka, admin, tmp_path)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_01_positions_move_in_transactions_alone(kafka: EmbeddedKafka, pipe: NewPipe, guarantee: str) -> None:
    p = pipe(guarantee)
    everything(p, p.take())
    assert p.positions()[0] == 3
    batches = offset_batches(kafka, p.job.group)
    assert len(batches) >= 6  # two first positions, two advances, two heartbeats
    assert all(batch.transactional for batch in batches)
    plain = Consumer({"bootstrap.servers": p.servers, "group.id": p.job.group, "enable.auto.commit": False})
    plain.commit(offsets=[TopicPartition(p.source, 0, 4)], asynchronous=False)
    plain_commits = [b for b in offset_batches(kafka, p.job.group) if not b.transactional]
    assert len(plain_commits) == 1, "the control: this test detects a plain commit"


def test_rule_01_no_line_of_the_job_commits_plainly() -> None:
    joins_or_stores = {"subscribe", "store_offsets", "alter_consumer_group_offsets"}
    for file in JOB_SOURCES:
        text = file.read_text()
        calls = [
            n.func for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
        ]
        assert not [ast.unparse(c) for c in calls if c.attr in joins_or_stores], file.name
        committing = {ast.unparse(c) for c in calls if c.attr == "commit"}
        assert committing <= COMMITS.get(file.name, set()), file.name
        consumers = [
            c for c in ast.walk(ast.parse(text)) if isinstance(c, ast.Call) and ast.unparse(c.func) == "Consumer"
        ]
        for consumer in consumers:  # both settings are those of a jobspec, which refuses another enable.auto.commit
            assert ast.unparse(consumer) in CONSUMERS, file.name


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
    for file in JOB_SOURCES:
        assert "abort_transaction(" not in file.read_text(), file.name
    p = pipe()
    owned = p.take()

    def torn() -> Iterator[pa.RecordBatch]:
        yield from rows(b"torn")
        wait_until(lambda: p.written("read_uncommitted") == [b"torn"], "the row is in the log", SECONDS)
        raise JobError(Reason.BATCH_FAILED, "torn")

    assert reason_of(lambda: owned.lanes.advance(Range(p.lane(), 0, 5), torn())) is Reason.BATCH_FAILED
    assert p.written("read_uncommitted") == [b"torn"]
    assert owned.lanes.advance(Range(p.lane(), 0, 5), rows(b"whole")) == (Outcome.DONE, 1)
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
    owned.lanes.advance(Range(p.lane(), 0, 2))
    work = p.work(owned, Range(p.lane(), start, until))
    if isinstance(expected, Reason):
        assert reason_of(lambda: process_and_advance(work, work.ranges[0], rows(b"a"))) is expected
    else:
        assert process_and_advance(work, work.ranges[0], rows(b"a"))[0] is expected
    assert p.positions()[0] == (4 if expected is Outcome.DONE else 2)
    assert p.written("read_uncommitted") == ([b"a"] if expected is Outcome.DONE else [])


def test_rule_03_without_a_position_nothing_is_written(pipe: NewPipe) -> None:
    p = pipe()
    owned = p.take()
    p.forget_positions()
    work = p.work(owned, Range(p.lane(), 0, 5))
    assert reason_of(lambda: process_and_advance(work, work.ranges[0], rows(b"a"))) is Reason.POSITION_LOST
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
        process_and_advance(work, work.ranges[0], rows(b"a"))
    assert p.written() == [b"a", b"a"]


def test_rule_03_init_comes_before_the_read(pipe: NewPipe) -> None:
    """A new owner fences the old one in mid-transaction; the position that it then reads cannot change any more."""
    p = pipe()
    owned = p.take()
    older, _ = owned.lanes.fence(p.lane())
    younger = p.lanes(owned.driver)
    positions_read: list[Position | None] = []

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from rows(b"older")
        wait_until(lambda: p.written("read_uncommitted") == [b"older"], "the row is in the log", SECONDS)
        positions_read.append(younger.fence(p.lane())[1])

    assert reason_of(lambda: owned.lanes.commit(older, p.lane(), 5, overtaken())) is Reason.POSITION_CONFLICT
    assert [t and t.offset for t in positions_read] == [0]
    assert p.positions()[0] == 0
    assert p.written() == []
    assert_nothing_hangs(p.servers, p.sink)


def test_rule_03_output_in_several_topics_is_visible_as_one(pipe: NewPipe) -> None:
    """Rows of a lane in several topics and its position are one transaction, also after a failed attempt."""
    p = pipe()
    work = p.work(p.take(), Range(p.lane(), 0, 5))

    def routed() -> pa.RecordBatch:
        values: Any = {"key": [b"k", b"k"], "value": [b"to the sink", b"aside"], "topic": [None, p.source]}
        schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string())])
        return pa.RecordBatch.from_pydict(values, schema=schema)

    def torn() -> Iterator[pa.RecordBatch]:
        yield routed()
        raise JobError(Reason.BATCH_FAILED, "the rows end here")

    def visible() -> tuple[list[bytes | None], int]:
        return p.written(), sum(r.value == b"aside" for r in read(p.servers, p.source))

    assert reason_of(lambda: process_and_advance(work, work.ranges[0], torn())) is Reason.BATCH_FAILED
    p.lanes(1).fence(p.lane())  # ends what the attempt left open, so that readers get past it
    assert visible() == ([], 0)
    assert process_and_advance(work, work.ranges[0], iter([routed()])) == (Outcome.DONE, 2)
    assert visible() == ([b"to the sink"], 1)


# ------------------------------------------------ docs/protocol.md#rule-4: the first position


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
    assert p.take().positions == {p.lane(0): 3, p.lane(1): 3}


def test_rule_04_control_without_the_record_the_loss_goes_unnoticed(pipe: NewPipe) -> None:
    p = pipe()
    p.take().lanes.advance(Range(p.lane(), 0, 5), rows(b"a"))
    p.forget_positions()
    produce_pairs(p.servers, LANES, ((record_key(p.job.group, p.lane(n)), None) for n in (0, 1)))
    owned = p.take()
    assert owned.positions == {p.lane(0): 0, p.lane(1): 0}
    owned.lanes.advance(Range(p.lane(), 0, 5), rows(b"a"))
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
    assert p.take().positions == {p.lane(0): 4, p.lane(1): 4}
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
    p.take().lanes.advance(Range(p.lane(), 3, 5), rows(b"a"))
    p.forget_positions()
    assert p.take().positions == {p.lane(0): 0, p.lane(1): 0}


def test_rule_04_an_adopted_lane_is_recorded_with_its_position_or_not_at_all(pipe: NewPipe) -> None:
    p = pipe()
    p.set_positions(3)
    lanes = p.lanes(1)
    producer, position = lanes.fence(p.lane())
    assert position == Position(3)
    p.lanes(1).fence(p.lane())  # a younger owner
    assert reason_of(lambda: lanes.initialise(producer, p.lane(), 3)) is Reason.POSITION_CONFLICT
    assert (p.positions(), p.records(), p.driver_at()) == ({0: 3, 1: 3}, {}, 0)


def test_rule_04_a_new_partition_that_already_has_a_position_is_adopted(pipe: NewPipe) -> None:
    p = pipe()
    owned = p.take()
    p.admin.create_partitions([NewPartitions(p.source, 3)])[p.source].result(SECONDS)
    wait_until(lambda: len(Cluster(p.job).topology().lanes) == 3, "three partitions", SECONDS)
    feed(p.servers, p.source, 3, 5, 3)
    offsets = [TopicPartition(p.source, 2, 1)]
    p.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(p.job.group, offsets)])[p.job.group].result(
        SECONDS
    )
    assert ownership.add(owned, p.lane(2), 0) == 1
    assert p.records()[record_key(p.job.group, p.lane(2))]["start"] == 1
    p.forget_positions()
    assert reason_of(lambda: ownership.add(owned, p.lane(2), 0)) is Reason.POSITION_LOST


def test_rule_04_position_and_record_come_together_or_not_at_all(pipe: NewPipe) -> None:
    p = pipe()
    lanes = p.lanes(1)
    producer, position = lanes.fence(p.lane())
    assert position is None
    p.lanes(1).fence(p.lane())  # a younger owner
    assert reason_of(lambda: lanes.initialise(producer, p.lane(), 0)) is Reason.POSITION_CONFLICT
    assert (p.positions(), p.records()) == ({}, {})


def test_rule_04_of_two_drivers_that_resolve_latest_one_decides(pipe: NewPipe) -> None:
    p = pipe(startingOffsets="latest")
    a, b = p.lanes(1), p.lanes(1)
    first, position = a.fence(p.lane())
    feed(p.servers, p.source, 2, 5, 3)
    second, other_position = b.fence(p.lane())
    assert (position, other_position) == (None, None)
    assert reason_of(lambda: a.initialise(first, p.lane(), 5)) is Reason.POSITION_CONFLICT
    assert b.initialise(second, p.lane(), 8).offset == 8
    assert a.fence(p.lane())[1] == Position(8, p.ids()[p.source], 1)  # a later owner reads the decided position


def test_rule_04_latest_is_resolved_once(pipe: NewPipe) -> None:
    p = pipe(startingOffsets="latest")
    assert p.take().positions == {p.lane(0): 5, p.lane(1): 5}
    feed(p.servers, p.source, 2, 5, 3)
    assert p.take().positions == {p.lane(0): 5, p.lane(1): 5}


def test_rule_04_partitions_added_later_start_at_earliest(pipe: NewPipe) -> None:
    p = pipe(startingOffsets="latest")
    owned = p.take()
    p.admin.create_partitions([NewPartitions(p.source, 4)])[p.source].result(SECONDS)
    wait_until(lambda: len(Cluster(p.job).topology().lanes) == 4, "four partitions", SECONDS)
    feed(p.servers, p.source, 4, 5, 3)
    assert ownership.add(owned, p.lane(2), 0) == 0  # added while running
    assert p.take().positions == {p.lane(0): 5, p.lane(1): 5, p.lane(2): 0, p.lane(3): 0}  # added before a start
    p.forget_positions()
    assert reason_of(lambda: ownership.add(owned, p.lane(2), 0)) is Reason.POSITION_LOST
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
