"""The guarantees with a sink that is not Kafka and that no module of the job knows: real brokers and Spark, rows and
positions in SQLite.

The control takes the comparisons away: what the tests call exactly-once must then not be so.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.supervise import Job
from ackwright.local.watch import Watch
from ackwright_stream.audit import audit
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import VARIABLE
from ackwright_stream.jobspec import ExitCode, Reason, from_json, to_json
from ackwright_stream.positions import SOURCE, Lane, Position
from ackwright_stream.reports import Verdict as Proof
from integration.support.driver_lives import DriverLives
from integration.support.pipelines import Record, Running, Verdict, create_topics, document, job_of, judge
from integration.support.spark_local import session
from sqlite import audit as sqlite_audit
from sqlite import job as sqlite_job
from sqlite.job import SqliteSink
from sqlite.jobspec import SqliteSpec
from sqlite.operator import PipelineWithSqlite
from waiting import WAIT, wait_until

PARTITIONS, EACH = 2, 100
COMMAND = (sys.executable, "-m", sqlite_job.__name__)
MODULES = str(Path(sqlite_job.__file__).parents[sqlite_job.__name__.count(".")])


@dataclass
class Pipeline(DriverLives):
    """One pipeline into a database, over several lives of its driver."""

    path: str

    def feed(self, count: int = EACH) -> None:
        super().feed(count)

    @contextmanager
    def life(self) -> Iterator[Running]:
        self.lives += 1
        directory = self.directory / str(self.lives)
        points = directory / "points"
        points.mkdir(parents=True)
        modules = os.pathsep.join((MODULES, os.environ.get("PYTHONPATH", "")))
        environment = {VARIABLE: str(points), "PYTHONPATH": modules}
        with Watch() as watch:
            job = Job(self.spec, directory, watch, command=COMMAND, environment=environment)
            try:
                yield Running(job, points, self.spec)
            finally:
                job.kill()

    def positions(self) -> set[int | None]:
        lanes = [Lane(self.source, p) for p in range(PARTITIONS)]
        return {at.offset if at else None for at in SqliteSink(self.spec).read(lanes).values()}

    def verdict(self) -> Verdict:
        records = [Record("", p, n, key, value, ()) for n, (p, key, value) in enumerate(sqlite_job.rows(self.path))]
        return judge(records, PARTITIONS, self.fed)

    def assert_exactly_once(self) -> None:
        assert self.verdict() == Verdict(0, 0, 0, 0)
        assert self.positions() == {self.fed}


def pipeline(kafka: EmbeddedKafka, directory: Path, guarantee: str, *, compare: bool = True, **more: Any) -> Pipeline:
    servers, source = kafka.bootstrap_servers, f"sqlite-{uuid.uuid4().hex[:8]}"
    create_topics(servers, source, partitions=PARTITIONS)
    path = str(directory / "sink.db")
    sqlite_job.create(path)
    declared = document(servers, source, guarantee, source, "not-used", **more)
    declared["spec"]["sink"] = {"sqlite": {"path": path}}
    spec = job_of(declared, directory, resource=PipelineWithSqlite)
    spec = replace(spec, sink=replace(spec.sink, compare=compare))
    return Pipeline(servers, directory, spec, PARTITIONS, path)


def test_the_jobspec_carries_a_registered_sink(tmp_path: Path) -> None:
    spec = job_of(document("127.0.0.1:1", "p", "exactly-once", "in", "out"), tmp_path)
    sink = SqliteSpec("/somewhere/sink.db", compare=False)
    assert from_json(to_json(replace(spec, sink=sink))) == replace(spec, sink=sink)
    with pytest.raises(
        ValueError, match="a sink of kind 'mysql', and this job has delta, files, iceberg, kafka, postgres, sqlite"
    ):
        from_json(to_json(spec).replace('"kind": "kafka"', '"kind": "mysql"'))


A, B = Lane("in", 0), Lane("in", 1)
ROWS = pa.record_batch({SOURCE: pa.array([0, 1], pa.int32()), "key": [b"a", b"b"], "value": [b"1", b"2"]})


def stores(directory: Path, *, compare: bool = True) -> list[SqliteSink]:
    """The store of two drivers, one position per lane, and no member."""
    path = str(directory / "sink.db")
    sqlite_job.create(path)
    spec: Any = SqliteSpec(path, compare)
    job = replace(job_of(document("127.0.0.1:1", "p", "exactly-once", "in", "out"), directory), sink=spec)
    return [SqliteSink(job), SqliteSink(job)]


def test_joining_fences_what_the_store_was_opened_for_before(tmp_path: Path) -> None:
    """Also the first transaction of a driver that has moved nothing since, which no position tells."""
    older, newer = stores(tmp_path)
    first = older.join([A, B])
    older.settle({A: Position(0, "t", 1), B: Position(0, "t", 1)}, {A: None, B: None}, first)
    transaction = older.open(0, [A, B], first)
    assert newer.join([A, B]) != first
    assert (older.is_member(), newer.is_member()) == (False, True)
    moved = {A: Position(5, "t", 1), B: Position(7, "t", 1)}
    for refused in (
        lambda: transaction.commit(moved, [ROWS]),
        lambda: older.advance(moved, first),
        lambda: older.settle(moved, {}, first),
    ):
        with pytest.raises(JobError, match="another driver has joined") as caught:
            refused()
        assert caught.value.reason is Reason.POSITION_CONFLICT
    assert sqlite_job.rows(older.spec.path) == []
    assert newer.read([A, B]) == {A: Position(0, "t", 1), B: Position(0, "t", 1)}


def test_two_attempts_of_one_task_commit_once(tmp_path: Path) -> None:
    sink, _ = stores(tmp_path)
    membership = sink.join([A, B])
    sink.settle({A: Position(0, "t", 1), B: Position(0, "t", 1)}, {A: None, B: None}, membership)
    attempts = [sink.open(0, [A, B], membership) for _ in range(2)]
    moved = {A: Position(5, "t", 1), B: Position(7, "t", 1)}
    assert attempts[1].commit(moved, [ROWS]) == 2
    with pytest.raises(JobError, match="has moved"):
        attempts[0].commit(moved, [ROWS])
    assert sqlite_job.rows(sink.spec.path) == [(0, b"a", b"1"), (1, b"b", b"2")]
    assert sink.read([A, B]) == moved
    assert sink.records().lanes == {A: "t", B: "t"}


def test_killed_between_write_and_commit_and_after_the_commit_exactly_once(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    p = pipeline(kafka, tmp_path, "exactly-once")
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        p.kill_tasks(job, "before-commit", "after-commit")
        p.assert_exactly_once()
        hit = job.arm("before-commit", lane=f"{p.source}-0")  # the whole driver, in the middle of a batch
        p.feed()
        job.arrived(hit)
        job.job.kill()
    assert p.positions() != {p.fed}
    with p.life() as job:
        p.caught_up(job)
        p.drain(job)
    p.assert_exactly_once()


def suspended_without_lock(job: Running, path: str) -> bool:
    """Suspends the job, unless the task of another lane holds a lock: SQLite would keep it from the next driver."""
    job.suspend()
    if sqlite_job.is_locked(path):
        job.resume()
        return False
    return True


@pytest.mark.parametrize("compare", [True, False])
def test_an_overtaken_driver_duplicates_only_without_the_comparisons(
    kafka: EmbeddedKafka, tmp_path: Path, compare: bool
) -> None:
    p = pipeline(kafka, tmp_path, "exactly-once", compare=compare)
    p.feed()
    with p.life() as zombie:
        p.caught_up(zombie)
        hit = zombie.arm("after-read", lane=f"{p.source}-0")
        p.feed()
        zombie.arrived(hit)
        wait_until(lambda: suspended_without_lock(zombie, p.path), "the zombie is suspended between transactions", WAIT)
        with p.life() as driver:
            p.caught_up(driver)
            zombie.release("after-read", lane=f"{p.source}-0")
            zombie.resume()
            if compare:
                assert zombie.job.wait(WAIT) == ExitCode.SUPERSEDED, zombie.job.failure()
                p.feed()
                p.caught_up(driver)
                p.drain(driver)
                p.assert_exactly_once()
            else:
                # Its batch may be a part of the records. The next one ends it: the other lane has a newer driver.
                wait_until(lambda: p.verdict().duplicated > 0, "the zombie's rows", WAIT)
                with pytest.raises(AssertionError):
                    p.assert_exactly_once()


@pytest.mark.parametrize(
    ("guarantee", "point", "lost", "duplicated"),
    [("at-least-once", "before-advance", 0, PARTITIONS * EACH), ("at-most-once", "claimed", EACH, 0)],
)
def test_the_other_guarantees_keep_their_order(
    kafka: EmbeddedKafka, tmp_path: Path, *, guarantee: str, point: str, lost: int, duplicated: int
) -> None:
    """One process is killed between the two steps; a bounded run completes."""
    p = pipeline(kafka, tmp_path, guarantee, trigger={"availableNow": True})
    p.feed()
    p.complete_after_kill(point)
    assert p.verdict() == Verdict(lost, duplicated, 0, p.verdict().disordered)
    assert p.positions() == {p.fed}


def test_the_audit_judges_it_through_its_reader(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    sqlite_audit.register()
    p = pipeline(kafka, tmp_path, "exactly-once", trigger={"availableNow": True})
    p.feed()
    with p.life() as job:
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    report = audit(session(), p.spec)
    everything = PARTITIONS * EACH
    assert report.verdict is Proof.HELD, report
    assert (report.sent, report.expected, report.delivered) == (everything, everything, everything)
    sqlite_job.execute(p.path, "DELETE FROM rows WHERE id = 1")
    sqlite_job.execute(
        p.path, "INSERT INTO rows (partition, key, value) SELECT partition, key, value FROM rows LIMIT 2"
    )
    sqlite_job.execute(p.path, "INSERT INTO rows (partition, key, value) VALUES (0, x'00', x'00')")
    damaged = audit(session(), p.spec)
    assert damaged.verdict is Proof.BROKEN
    assert (damaged.lost, damaged.duplicated, damaged.unexpected) == (1, 2, 1)
