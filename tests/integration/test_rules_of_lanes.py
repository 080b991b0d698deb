"""The rules of lanes (design, section 3) on real brokers: the job's own code in this process, without Spark.

Where a rule can be switched off, a control does so and sees the damage. The brokers' share in the rules: test_broker_facts.py.
The rules that need Spark (7, 13): test_rules_ranges.py and test_job_features.py.
"""

from __future__ import annotations

import ast
import json
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from ackwright.api.spec import parse
from ackwright.errors import InvalidSpec
from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream import cluster as looking
from ackwright_stream import lanes as protocol
from ackwright_stream import ownership, positions
from ackwright_stream.cluster import Cluster
from ackwright_stream.connection import positions_consumer
from ackwright_stream.delivery.at_least_once import AtLeastOnce
from ackwright_stream.delivery.at_most_once import claim_and_process
from ackwright_stream.delivery.batch import Work
from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import ExitCode, JobSpec, Reason
from ackwright_stream.lanes import Lanes, Outcome, Range, record_key
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Lane, Position
from ackwright_stream.progress import Progress
from ackwright_stream.query import Query
from integration.pipelines import LANES, create_topics, document, feed, hanging, job_of, positions_of, read, wait_until
from integration.wire import Wire

SECONDS = 30
ROOT = Path(__file__).parents[2]
JOB_SOURCES = sorted((ROOT / "spark_app" / "ackwright_stream").rglob("*.py"))
GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")


@dataclass(frozen=True)
class Pipe:
    """A pipeline with topics of its own: two source partitions with five records each, two sink partitions."""

    job: JobSpec
    admin: AdminClient

    @property
    def servers(self) -> str:
        return self.job.cluster.bootstrap_servers

    @property
    def source(self) -> str:
        return self.job.source.topics[0]

    @property
    def sink(self) -> str:
        assert self.job.sink.topic
        return self.job.sink.topic

    def lane(self, partition: int = 0) -> Lane:
        return Lane(self.source, partition)

    def take(self, previous: int | None = None) -> Ownership:
        return ownership.take(self.job, Cluster(self.job), previous)

    def lanes(self, driver: int, topic_ids: dict[str, str] | None = None) -> Lanes:
        return Lanes(self.job, driver, self.ids() if topic_ids is None else topic_ids)

    def ids(self) -> dict[str, str]:
        return dict(Cluster(self.job).topology().topic_ids)

    def work(self, owned: Ownership, *ranges: Range) -> Work:
        return Work(self.job, owned.driver, owned.topic_ids, ranges)

    def positions(self, partitions: int = 2) -> dict[int, int]:
        return positions_of(self.servers, self.job.group, self.source, partitions)

    def driver_at(self, partition: int = 0) -> int:
        found = positions.read(positions_consumer(self.job), [self.lane(partition)], SECONDS)[self.lane(partition)]
        assert found is not None
        return found.driver

    def written(self, isolation: str = "read_committed") -> list[bytes | None]:
        return sorted((r.value for r in read(self.servers, self.sink, isolation=isolation)), key=str)

    def records(self) -> dict[bytes, Any]:
        """What the lanes topic says about this pipeline."""
        prefix = record_key(self.job.group, Lane("", 0)).split(b"/")[0] + b"/"
        return {r.key: json.loads(r.value) for r in read(self.servers, LANES) if r.key and r.key.startswith(prefix) and r.value}

    def forget_positions(self) -> None:
        self.admin.delete_consumer_groups([self.job.group])[self.job.group].result(SECONDS)

    def recreate_source(self) -> None:
        before = self.ids()[self.source]
        self.admin.delete_topics([self.source])[self.source].result(SECONDS)
        wait_until(lambda: self.source not in self.admin.list_topics(timeout=SECONDS).topics, "the topic is gone", SECONDS)
        create_topics(self.servers, self.source, partitions=2)
        wait_until(lambda: self.ids()[self.source] != before, "the topic is another one", SECONDS)
        wait_until(lambda: not self.positions(), "the deleted topic's positions are gone", SECONDS)


@pytest.fixture
def pipe(kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path) -> Callable[..., Pipe]:
    """pipe(guarantee, records=5, **spec) makes topics and a jobspec under a name that nobody else has."""

    def make(guarantee: str = "exactly-once", records: int = 5, **spec: Any) -> Pipe:
        name = f"rules-{uuid.uuid4().hex[:8]}"
        source, sink = f"{name}-in", f"{name}-out"
        create_topics(kafka.bootstrap_servers, source, sink, partitions=2)
        if records:
            feed(kafka.bootstrap_servers, source, 2, 0, records)
        described = document(kafka.bootstrap_servers, name, guarantee, source, sink)
        described["spec"]["source"] |= spec
        return Pipe(job_of(described, tmp_path), admin)

    return make


def rows(*values: bytes) -> Iterator[pa.RecordBatch]:
    columns: dict[str, Any] = {"key": [b"k"] * len(values), "value": list(values)}
    yield pa.RecordBatch.from_pydict(columns, schema=pa.schema([("key", pa.binary()), ("value", pa.binary())]))


def reason_of(call: Callable[[], object]) -> Reason:
    with pytest.raises(JobError) as caught:
        call()
    return caught.value.reason


def one_row(value: bytes, topic: str) -> Callable[[Producer], int]:
    def write(producer: Producer) -> int:
        producer.produce(topic, value, partition=0)
        return 1

    return write


def heart(pipe: Pipe, owned: Ownership) -> Query:
    """A query that has not started: its heartbeat finds every lane idle."""
    spark: Any = None
    return Query(spark, replace(pipe.job, heartbeat_interval_ms=0), owned, Progress(pipe.job), threading.Event())


# ------------------------------------------------ what the brokers' logs say about a group


class Batch(NamedTuple):
    """The header of a record batch in __consumer_offsets that holds offsets of a group."""

    producer_id: int
    epoch: int
    transactional: bool


def offset_batches(kafka: EmbeddedKafka, group: str) -> list[Batch]:
    """Every batch of offsets of the group in the brokers' log files. (Kafka's message format v2, KIP-98)"""
    leader = kafka.coordinator(group).node
    found = []
    for segment in sorted((kafka.directory / f"data-{leader}").glob("__consumer_offsets-*/*.log")):
        log = segment.read_bytes()
        at = 0
        while at + 61 <= len(log) and (length := struct.unpack_from(">i", log, at + 8)[0]) > 0:
            attributes, producer_id, epoch = struct.unpack_from(">h20xqh", log, at + 21)
            # The key of an offset record begins with its version (0 or 1) and the group. Markers and group metadata have other keys.
            key = struct.pack(">hh", 1, len(group)) + group.encode()
            if key in log[at + 61 : at + 12 + length]:
                found.append(Batch(producer_id, epoch, bool(attributes & 0x10)))
            at += 12 + length
    return found


def everything(pipe: Pipe, owned: Ownership) -> None:
    """Each way in which the job moves or keeps a position."""
    match pipe.job.guarantee:
        case "exactly-once":
            for start, until, batches in ((0, 2, rows(b"a")), (2, 3, iter(()))):
                work = pipe.work(owned, Range(pipe.lane(), start, until))
                assert process_and_advance(work, work.ranges[0], batches)[0] is Outcome.DONE
        case "at-most-once":
            work = pipe.work(owned, Range(pipe.lane(), 0, 2))
            assert claim_and_process(work, work.ranges[0], rows(b"a"))[0] is Outcome.DONE
            owned.lanes.advance(Range(pipe.lane(), 2, 3))  # a range that is given up
        case "at-least-once":
            delivery = AtLeastOnce(pipe.job, owned.driver, owned.topic_ids, owned.owner)
            delivery.advance({pipe.lane(): 2})
            delivery.advance({pipe.lane(): 3, pipe.lane(1): 3})
    query = heart(pipe, owned)
    query._at.update({pipe.lane(p): offset for p, offset in pipe.positions().items()})
    query._heartbeat()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_01_positions_move_in_transactions_alone(kafka: EmbeddedKafka, pipe: Callable[..., Pipe], guarantee: str) -> None:
    p = pipe(guarantee)
    everything(p, p.take())
    assert p.positions()[0] == 3
    found = offset_batches(kafka, p.job.group)
    assert len(found) >= 6  # two first positions, two advances, two heartbeats
    assert all(batch.transactional for batch in found)
    plain = Consumer({"bootstrap.servers": p.servers, "group.id": p.job.group, "enable.auto.commit": False})
    plain.commit(offsets=[TopicPartition(p.source, 0, 4)], asynchronous=False)
    assert [b.transactional for b in offset_batches(kafka, p.job.group)].count(False) == 1  # the control: this test sees a plain commit


def test_rule_01_no_line_of_the_job_commits_plainly() -> None:
    committers = {"commit_offsets", "store_offsets", "alter_consumer_group_offsets", "subscribe"}
    for file in JOB_SOURCES:
        text = file.read_text()
        calls = [n.func for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
        names = {ast.unparse(c) for c in calls if c.attr in committers} - {c for c in map(ast.unparse, calls) if "readStream" in c}
        assert not names, f"{file.name}: {names}"
        consumers = {ast.unparse(c) for c in calls if c.attr == "commit" and "lanes" not in ast.unparse(c.value)}
        assert consumers <= ({"self.commit"} if file.name == "lanes.py" else set()), f"{file.name}: {consumers}"
        if "Consumer(" in text:
            assert '"enable.auto.commit": "false"' in text, file.name


@pytest.mark.parametrize(("guarantee", "once"), [("exactly-once", True), ("at-most-once", True), ("at-least-once", False)])
def test_rule_02_one_epoch_carries_one_transaction(kafka: EmbeddedKafka, pipe: Callable[..., Pipe], guarantee: str, once: bool) -> None:
    """Each transaction here holds one batch of offsets. The at-least-once driver's advances are the exception, and show that it is seen."""
    p = pipe(guarantee)
    everything(p, p.take())
    epochs = [(b.producer_id, b.epoch) for b in offset_batches(kafka, p.job.group)]
    assert (len(set(epochs)) == len(epochs)) is once


def test_rule_02_after_a_failure_nothing_is_aborted_and_the_next_attempt_begins_anew(pipe: Callable[..., Pipe]) -> None:
    for file in JOB_SOURCES:
        assert "abort_transaction(" not in file.read_text(), file.name
    p = pipe()
    owned = p.take()

    def torn(producer: Producer) -> int:
        producer.produce(p.sink, b"torn", partition=0)
        producer.flush(SECONDS)
        raise JobError(Reason.BATCH_FAILED, "torn")

    assert reason_of(lambda: owned.lanes.advance(Range(p.lane(), 0, 5), torn)) is Reason.BATCH_FAILED
    assert p.written("read_uncommitted") == [b"torn"]
    assert owned.lanes.advance(Range(p.lane(), 0, 5), one_row(b"whole", p.sink)) == (Outcome.DONE, 1)
    assert p.written() == [b"whole"]
    assert p.positions()[0] == 5
    assert hanging(p.servers, p.sink) == []


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
def test_rule_03_the_position_decides(pipe: Callable[..., Pipe], start: int, until: int, expected: Outcome | Reason) -> None:
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


def test_rule_03_without_a_position_nothing_is_written(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    owned = p.take()
    p.forget_positions()
    work = p.work(owned, Range(p.lane(), 0, 5))
    assert reason_of(lambda: process_and_advance(work, work.ranges[0], rows(b"a"))) is Reason.POSITION_LOST
    assert p.positions() == {}
    assert p.written("read_uncommitted") == []


def test_rule_03_control_without_the_decision_a_replay_duplicates(pipe: Callable[..., Pipe], monkeypatch: pytest.MonkeyPatch) -> None:
    p = pipe()
    owned = p.take()
    work = p.work(owned, Range(p.lane(), 0, 5))
    monkeypatch.setattr(protocol, "decide", lambda *_: None)
    for _ in range(2):
        process_and_advance(work, work.ranges[0], rows(b"a"))
    assert p.written() == [b"a", b"a"]


def test_rule_03_init_comes_before_the_read(pipe: Callable[..., Pipe]) -> None:
    """An older owner is fenced in the middle of its transaction: what the younger one then reads cannot change behind its back."""
    p = pipe()
    owned = p.take()
    older, _ = owned.lanes.fence(p.lane())
    younger = p.lanes(owned.driver)
    taken: list[Position | None] = []

    def overtaken(producer: Producer) -> int:
        one_row(b"older", p.sink)(producer)
        producer.flush(SECONDS)
        taken.append(younger.fence(p.lane())[1])
        return 1

    assert reason_of(lambda: owned.lanes.commit(older, p.lane(), 5, overtaken)) is Reason.POSITION_CONFLICT
    assert [t and t.offset for t in taken] == [0]
    assert p.positions()[0] == 0
    assert p.written() == []
    assert hanging(p.servers, p.sink) == []


# ------------------------------------------------ rule 4: the first position


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_04_a_recorded_lane_without_a_position_halts(pipe: Callable[..., Pipe], guarantee: str) -> None:
    p = pipe(guarantee)
    p.take()
    assert p.positions() == {0: 0, 1: 0}
    assert {v["start"] for v in p.records().values()} == {0}
    assert len(p.records()) == 2
    p.forget_positions()
    assert reason_of(p.take) is Reason.POSITION_LOST
    assert p.positions() == {}
    assert p.written("read_uncommitted") == []


def test_rule_04_control_without_the_record_the_loss_goes_unnoticed(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    p.take().lanes.advance(Range(p.lane(), 0, 5), one_row(b"a", p.sink))
    p.forget_positions()
    producer = Producer({"bootstrap.servers": p.servers})
    for partition in (0, 1):
        producer.produce(LANES, None, record_key(p.job.group, p.lane(partition)))
    assert producer.flush(SECONDS) == 0
    owned = p.take()
    assert owned.positions == {p.lane(0): 0, p.lane(1): 0}
    owned.lanes.advance(Range(p.lane(), 0, 5), one_row(b"a", p.sink))
    assert p.written() == [b"a", b"a"]


def test_rule_04_position_and_record_come_together_or_not_at_all(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    lanes = p.lanes(1)
    producer, found = lanes.fence(p.lane())
    assert found is None
    p.lanes(1).fence(p.lane())  # somebody younger
    assert reason_of(lambda: lanes.initialise(producer, p.lane(), 0)) is Reason.POSITION_CONFLICT
    assert (p.positions(), p.records()) == ({}, {})


def test_rule_04_of_two_drivers_that_resolve_latest_one_decides(pipe: Callable[..., Pipe]) -> None:
    p = pipe(startingOffsets="latest")
    a, b = p.lanes(1), p.lanes(1)
    first, found = a.fence(p.lane())
    feed(p.servers, p.source, 2, 5, 3)
    second, found_too = b.fence(p.lane())
    assert (found, found_too) == (None, None)
    assert reason_of(lambda: a.initialise(first, p.lane(), 5)) is Reason.POSITION_CONFLICT
    assert b.initialise(second, p.lane(), 8).offset == 8
    assert a.fence(p.lane())[1] == Position(8, p.ids()[p.source], 1)  # whoever comes again gets what was decided


def test_rule_04_latest_is_resolved_once(pipe: Callable[..., Pipe]) -> None:
    p = pipe(startingOffsets="latest")
    assert p.take().positions == {p.lane(0): 5, p.lane(1): 5}
    feed(p.servers, p.source, 2, 5, 3)
    assert p.take().positions == {p.lane(0): 5, p.lane(1): 5}


def test_rule_04_partitions_found_later_start_at_earliest(pipe: Callable[..., Pipe]) -> None:
    p = pipe(startingOffsets="latest")
    owned = p.take()
    p.admin.create_partitions([NewPartitions(p.source, 4)])[p.source].result(SECONDS)
    wait_until(lambda: len(Cluster(p.job).topology().lanes) == 4, "four partitions", SECONDS)
    feed(p.servers, p.source, 4, 5, 3)
    assert ownership.add(p.job, owned, p.lane(2), 0) == 0  # found while running
    assert p.take().positions == {p.lane(0): 5, p.lane(1): 5, p.lane(2): 0, p.lane(3): 0}  # found at a start
    p.forget_positions()
    assert reason_of(lambda: ownership.add(p.job, owned, p.lane(2), 0)) is Reason.POSITION_LOST
    assert p.positions(4) == {}


# ------------------------------------------------ rules 5 and 6


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_05_a_heartbeat_commits_the_position_again(kafka: EmbeddedKafka, pipe: Callable[..., Pipe], guarantee: str) -> None:
    p = pipe(guarantee)
    owned = p.take()
    before = len(offset_batches(kafka, p.job.group))
    heart(p, owned)._heartbeat()
    assert len(offset_batches(kafka, p.job.group)) == before + 2  # one a lane
    assert p.positions() == {0: 0, 1: 0}


def test_rule_05_only_idle_lanes_and_not_during_a_batch(kafka: EmbeddedKafka, pipe: Callable[..., Pipe]) -> None:
    """A heartbeat would fence the lane's task."""
    p = pipe()
    query = heart(p, p.take())
    before = len(offset_batches(kafka, p.job.group))
    query._moved_at[p.lane()] = float("inf")  # just moved
    query._heartbeat()
    assert len(offset_batches(kafka, p.job.group)) == before + 1
    with query._busy:
        query._heartbeat()
    assert len(offset_batches(kafka, p.job.group)) == before + 1


def test_rule_05_heartbeats_of_an_overtaken_driver_fail(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    older = heart(p, p.take())
    younger = p.take()
    assert reason_of(older._heartbeat) is Reason.SUPERSEDED
    assert p.driver_at() == younger.driver == 2


def test_rule_05_a_heartbeat_brings_back_no_position(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    query = heart(p, p.take())
    p.forget_positions()
    assert reason_of(query._heartbeat) is Reason.POSITION_LOST
    assert p.positions() == {}


def amo(pipe: Callable[..., Pipe]) -> tuple[Pipe, Work]:
    p = pipe("at-most-once")
    return p, p.work(p.take(), Range(p.lane(), 0, 5))


def test_rule_06_a_second_attempt_processes_nothing(pipe: Callable[..., Pipe]) -> None:
    p, work = amo(pipe)
    assert claim_and_process(work, work.ranges[0], rows(b"a")) == (Outcome.DONE, 1)
    assert claim_and_process(work, work.ranges[0], rows(b"a")) == (Outcome.SKIPPED, 0)
    assert p.written() == [b"a"]


def test_rule_06_the_position_has_moved_before_the_first_row_is_read(pipe: Callable[..., Pipe]) -> None:
    p, work = amo(pipe)
    seen: list[int] = []

    def watched() -> Iterator[pa.RecordBatch]:
        seen.append(p.positions()[0])
        yield from rows(b"a")

    claim_and_process(work, work.ranges[0], watched())
    assert seen == [5]


@pytest.mark.parametrize("committed", [True, False])
def test_rule_06_an_unknown_claim_means_not_processed(pipe: Callable[..., Pipe], monkeypatch: pytest.MonkeyPatch, committed: bool) -> None:
    p, work = amo(pipe)

    def lost(point: str, *_: object) -> None:
        if point == ("after-commit" if committed else "before-commit"):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with monkeypatch.context() as patched:
        patched.setattr(protocol, "reach", lost)
        assert reason_of(lambda: claim_and_process(work, work.ranges[0], rows(b"a"))) is Reason.BROKERS_UNREACHABLE
    assert p.written("read_uncommitted") == []
    again = claim_and_process(work, work.ranges[0], rows(b"a"))
    assert again == ((Outcome.SKIPPED, 0) if committed else (Outcome.DONE, 1))
    assert p.written() == ([] if committed else [b"a"])


def test_rule_06_control_without_the_claim_two_attempts_duplicate(pipe: Callable[..., Pipe], monkeypatch: pytest.MonkeyPatch) -> None:
    p, work = amo(pipe)
    monkeypatch.setattr(protocol, "decide", lambda *_: None)
    for _ in range(2):
        claim_and_process(work, work.ranges[0], rows(b"a"))
    wait_until(lambda: len(p.written()) == 2, "both copies (nobody acknowledges them)", SECONDS)


# ------------------------------------------------ rules 7 to 11


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ("source", {"minPartitions": 8}),
        ("spark", {"conf": {"spark.sql.streaming.kafka.minPartitions": "8"}}),
        ("spark", {"conf": {"spark.sql.adaptive.enabled": "true"}}),
        ("spark", {"conf": {"spark.speculation": "true"}}),
    ],
)
def test_rule_07_what_splits_or_doubles_ranges_is_refused_in_the_spec(part: str, field: dict[str, Any]) -> None:
    found = document("127.0.0.1:1", "p", "exactly-once", "in", "out")
    parse(found)
    found["spec"][part] = {**found["spec"].get(part, {}), **field}
    with pytest.raises(InvalidSpec):
        job_of(found, Path("/nowhere"))


def test_rule_07_of_two_pipelines_with_one_group_the_older_ends(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    first = p.take()
    second = p.take()
    assert second.driver > first.driver
    work = p.work(first, Range(p.lane(), 0, 5))
    error = reason_of(lambda: process_and_advance(work, work.ranges[0], rows(b"older")))
    assert error is Reason.SUPERSEDED
    assert p.written("read_uncommitted") == []
    assert p.positions() == {0: 0, 1: 0}


def test_rule_08_a_position_of_a_foreign_topic_halts(pipe: Callable[..., Pipe]) -> None:
    """A task that began before the topic was replaced commits into the new one: brokers know topics by name."""
    p = pipe()
    old = p.take()
    producer, _ = old.lanes.fence(p.lane())
    p.recreate_source()
    old.lanes.commit(producer, p.lane(), 4)
    assert p.positions() == {0: 4}
    assert reason_of(p.take) is Reason.TOPIC_REPLACED
    assert reason_of(lambda: p.lanes(old.driver).advance(Range(p.lane(), 4, 5), one_row(b"a", p.sink))) is Reason.TOPIC_REPLACED
    assert p.positions() == {0: 4}
    assert p.written("read_uncommitted") == []


def test_rule_08_control_without_the_topic_id_the_new_topics_records_are_passed_over(
    pipe: Callable[..., Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    p = pipe()
    old = p.take()
    producers = [old.lanes.fence(p.lane(n))[0] for n in (0, 1)]
    p.recreate_source()
    for n, producer in enumerate(producers):
        old.lanes.commit(producer, p.lane(n), 4)
    feed(p.servers, p.source, 2, 0, 5)
    monkeypatch.setattr(positions, "check_topic", lambda *_: None)
    assert p.take().positions == {p.lane(0): 4, p.lane(1): 4}  # four new records of each would never be read


def test_rule_08_a_replaced_topic_halts_though_its_positions_went_with_it(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    p.take()
    p.recreate_source()
    assert reason_of(p.take) in (Reason.POSITION_LOST, Reason.TOPIC_REPLACED)
    assert p.positions() == {}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_08_a_driver_that_sees_a_younger_one_ends(pipe: Callable[..., Pipe], guarantee: str) -> None:
    p = pipe(guarantee)
    older = p.take()
    younger = p.take()
    wanted = Range(p.lane(), 0, 5)
    work = p.work(older, wanted)
    at_least_once = AtLeastOnce(p.job, older.driver, older.topic_ids, older.owner)
    calls: dict[str, Callable[[], object]] = {
        "at-most-once": lambda: claim_and_process(work, wanted, rows(b"a")),
        "at-least-once": lambda: at_least_once.advance({p.lane(): 5}),
        "exactly-once": lambda: process_and_advance(work, wanted, rows(b"a")),
    }
    with pytest.raises(JobError) as caught:
        calls[guarantee]()
    assert (caught.value.reason, caught.value.exit_code) == (Reason.SUPERSEDED, ExitCode.SUPERSEDED)
    assert p.written("read_uncommitted") == []
    assert p.driver_at() == younger.driver


def test_rule_08_control_without_the_number_a_driver_that_comes_back_takes_part(
    pipe: Callable[..., Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No harm to the records, for fencing and position hold: but the two would fence one another for ever."""
    p = pipe()
    older, younger = p.take(), p.take()
    monkeypatch.setattr(positions, "check_incarnation", lambda *_: None)
    assert older.lanes.advance(Range(p.lane(), 0, 3))[0] is Outcome.DONE
    assert younger.lanes.advance(Range(p.lane(), 0, 3))[0] is Outcome.SKIPPED


def test_rule_09_a_pending_position_is_waited_for(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    owned = p.take()
    # The spec cannot reach these settings; even a jobspec that says otherwise changes nothing.
    loose = replace(p.job, positions_consumer={"isolation.level": "read_uncommitted", "enable.auto.commit": "true"})
    lax = Consumer({"bootstrap.servers": p.servers, "group.id": p.job.group, "isolation.level": "read_uncommitted"})

    def pending(producer: Producer) -> int:
        # Another transactional.id would be let through here; the lane's own would end the transaction first. (rule 3)
        wait_until(lambda: _is_pending(p), "the new position is pending", SECONDS)
        for job in (p.job, loose):
            with pytest.raises(JobError) as caught:
                positions.read(positions_consumer(job), [p.lane()], 1.0)
            assert caught.value.reason is Reason.BROKERS_UNREACHABLE  # not known yet; never the old one, never none
        assert positions.read(lax, [p.lane()], 5.0)[p.lane()] == Position(0, p.ids()[p.source], 1)  # the control: an old position
        return 0

    assert owned.lanes.advance(Range(p.lane(), 0, 5), pending)[0] is Outcome.DONE
    assert p.positions()[0] == 5


def _is_pending(p: Pipe) -> bool:
    try:
        positions.read(positions_consumer(p.job), [p.lane()], 0.3)
    except JobError:
        return True
    return False


@pytest.mark.parametrize("member", ["classic", "consumer"])
def test_rule_10_a_group_with_a_member_is_refused(pipe: Callable[..., Pipe], member: str) -> None:
    p = pipe()
    p.take()
    Cluster(p.job).check_group()  # the control: transactions alone leave a group that is accepted
    consumer = Consumer({"bootstrap.servers": p.servers, "group.id": p.job.group, "group.protocol": member, "enable.auto.commit": False})
    consumer.subscribe([p.source])

    def joined() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    wait_until(joined, "the member has an assignment", SECONDS)
    assert reason_of(Cluster(p.job).check) is Reason.GROUP_IN_USE
    consumer.close()
    assert reason_of(Cluster(p.job).check_group) is Reason.GROUP_IN_USE  # it had one: its offsets would expire as a whole
    assert p.positions() == {0: 0, 1: 0}


def test_rule_11_brokers_without_verification_are_refused(kafka: EmbeddedKafka, pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    Cluster(p.job).check()
    setting = "transaction.partition.verification.enable"
    node = kafka.coordinator(p.job.group).node

    def verify(value: str) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
        p.admin.incremental_alter_configs([resource])[resource].result(SECONDS)
        asked = ConfigResource(ResourceType.BROKER, str(node))
        wait_until(lambda: p.admin.describe_configs([asked])[asked].result(SECONDS)[setting].value == value, f"{setting}={value}", SECONDS)

    try:
        verify("false")
        with pytest.raises(JobError) as caught:
            Cluster(p.job).check()
        assert caught.value.reason is Reason.BROKERS_UNSUPPORTED
        assert f"broker {node} has {setting}=false" in caught.value.message
        with Wire(p.servers) as wire:  # the control: why it is refused
            owner = wire.init(f"{p.job.group}/late")
            wait_until(lambda: wire.commit_offset(owner, p.job.group, p.source, 2) == 0, "a late commit is taken", SECONDS)
        assert _is_pending(p)  # and no marker will ever end it
    finally:
        verify("true")


def test_rule_11_brokers_that_are_too_old_are_refused(pipe: Callable[..., Pipe], monkeypatch: pytest.MonkeyPatch) -> None:
    p = pipe()
    monkeypatch.setattr(looking, "_SINCE_3_7", "a.setting.that.no.broker.has")
    with pytest.raises(JobError) as caught:
        Cluster(p.job).check()
    assert caught.value.reason is Reason.BROKERS_UNSUPPORTED
    assert "older than Kafka 3.7" in caught.value.message


# ------------------------------------------------ rules 12 to 14

SMALL_QUEUE = {"queue.buffering.max.messages": "100", "linger.ms": "200"}
MANY = [b"%04d" % i for i in range(250)]


def test_rule_12_a_full_queue_loses_nothing(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    p = Pipe(replace(p.job, producer={**p.job.producer, **SMALL_QUEUE}), p.admin)
    work = p.work(p.take(), Range(p.lane(), 0, 5))
    assert process_and_advance(work, work.ranges[0], rows(*MANY)) == (Outcome.DONE, 250)
    assert p.written() == MANY


def test_rule_12_control_produce_batch_alone_loses_and_the_commit_succeeds(pipe: Callable[..., Pipe]) -> None:
    p = pipe()
    p.take()

    def naive(producer: Producer) -> int:
        return int(producer.produce_batch(p.sink, [{"value": value} for value in MANY]))

    lanes = Lanes(p.job, 1, p.ids(), {**p.job.producer, **SMALL_QUEUE})
    assert lanes.advance(Range(p.lane(), 0, 5), naive) == (Outcome.DONE, 100)
    assert len(p.written()) == 100
    assert p.positions()[0] == 5


@pytest.mark.parametrize("task", [process_and_advance, claim_and_process])
def test_rule_13_a_range_without_rows_commits(pipe: Callable[..., Pipe], task: Callable[..., tuple[Outcome, int]]) -> None:
    p = pipe("exactly-once" if task is process_and_advance else "at-most-once")
    work = p.work(p.take(), Range(p.lane(), 0, 5))
    assert task(work, work.ranges[0], iter(())) == (Outcome.DONE, 0)
    assert p.positions() == {0: 5, 1: 0}
    assert task(work, work.ranges[0], iter(())) == (Outcome.SKIPPED, 0)


def test_rule_13_rows_are_not_counted_by_offsets(pipe: Callable[..., Pipe]) -> None:
    """The source's last offset may be that of a marker, which no reader ever sees; the ends are those of a read_committed reader."""
    p = pipe(records=0)
    writer = Producer({"bootstrap.servers": p.servers, "transactional.id": f"{p.source}-writer"})
    writer.init_transactions(SECONDS)
    for value, end in ((b"gone", writer.abort_transaction), (b"here", writer.commit_transaction)):
        writer.begin_transaction()
        writer.produce(p.source, value, partition=0)
        end(SECONDS)
    writer.begin_transaction()
    writer.produce(p.source, b"open", partition=0)
    writer.flush(SECONDS)
    end_of = {TopicPartition(p.source, 0): OffsetSpec.latest()}

    def end(level: IsolationLevel) -> int:
        return int(next(iter(p.admin.list_offsets(end_of, isolation_level=level).values())).result(SECONDS).offset)

    wait_until(lambda: end(IsolationLevel.READ_COMMITTED) == 4, "the markers", SECONDS)
    assert end(IsolationLevel.READ_UNCOMMITTED) == 5
    owned = p.take()
    assert Cluster(p.job).topology().latest[p.lane()] == 4
    work = p.work(owned, Range(p.lane(), 0, 4))
    assert process_and_advance(work, work.ranges[0], rows(b"here")) == (Outcome.DONE, 1)
    assert p.positions()[0] == 4
    assert p.take().positions[p.lane()] == 4  # not "beyond the end"
    writer.abort_transaction(SECONDS)


def test_rule_14_what_is_not_covered_is_documented() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    assert "What is not covered" in text
    assert "deposed group coordinator" in text.split("What is not covered", 1)[1]
