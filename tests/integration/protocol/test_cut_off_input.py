"""A task whose input ends early because the JVM's part of the task failed while the Python worker lives.

The worker has received a part of its lane's range and must not commit it as the complete range.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode, JobSpec, Restart
from integration.support.pipelines import create_topics, document, job_of, positions_of, read, running
from integration.support.produce import produce_pairs
from waiting import WAIT, wait_until

ALL, POISON = 300, 250
# Spark sends rows to a worker in chunks of 64 KiB and more: a range has 30 chunks, and the poison is in the 26th.
PADDING = b"." * 10_000
PIECES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10"}
COPY = "SELECT key, value FROM source"
# The range fits into the connection's buffers. Without work before each row it could be complete before the JVM is
# killed.
SLOWLY = f"{COPY} WHERE aggregate(sequence(0L, 200000L + length(key)), 0L, (sum, n) -> sum + n) > 0"
POISONED = f"{COPY} WHERE 1 / (CAST(CAST(key AS STRING) AS INT) - {POISON}) IS NOT NULL"
# Spark's daemon as it would be without the check.
TRUSTING = """
import runpy
from ackwright_stream.delivery import batch
batch.require_complete_input = lambda rows, connection: rows
runpy.run_module("ackwright_stream.worker_daemon", run_name="__main__")
"""


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """One lane with all its records in one range."""

    servers: str
    name: str
    directory: Path

    def job(self, sql: str, *, checked: bool = True) -> JobSpec:
        described = document(
            self.servers,
            self.name,
            "exactly-once",
            f"{self.name}-in",
            f"{self.name}-out",
            transform={"sql": sql},
            trigger={"availableNow": True},
        )
        del described["spec"]["source"]["maxOffsetsPerTrigger"]
        spec = job_of(described, self.directory)
        # One attempt for a task: a second one would fence the first, in time or not.
        settings = {**spec.spark, **PIECES, "spark.master": "local[1,1]"}
        if not checked:
            (self.directory / "trusting_daemon.py").write_text(TRUSTING)
            settings["spark.python.daemon.module"] = "trusting_daemon"
        return dataclasses.replace(
            spec, spark=settings, restart=Restart(initial_ms=100, max_ms=200, forgive_after_ms=60_000, max_attempts=2)
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.directory)}

    def position(self) -> int:
        return positions_of(self.servers, f"test.{self.name}", f"{self.name}-in", 1)[0]

    def delivered(self) -> list[int]:
        return [int(r.key or b"") for r in read(self.servers, f"{self.name}-out")]

    def resume(self) -> None:
        """Runs a driver with correct SQL, which delivers what the last one left."""
        with running(self.job(COPY), self.directory / "on", self.environment) as job:
            assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Pipeline:
    name = f"cut-{uuid.uuid4().hex[:8]}"
    create_topics(kafka.bootstrap_servers, f"{name}-in", f"{name}-out", partitions=1)
    produce_pairs(kafka.bootstrap_servers, f"{name}-in", ((b"%d" % n, PADDING) for n in range(ALL)))
    return Pipeline(kafka.bootstrap_servers, name, tmp_path)


def failed_at_the_poison(p: Pipeline, *, checked: bool = True) -> None:
    with running(p.job(POISONED, checked=checked), p.directory / "poisoned", p.environment) as job:
        job.job.wait(WAIT)


def test_poison_behind_the_first_rows_of_a_range_commits_nothing_of_it(pipeline: Pipeline) -> None:
    failed_at_the_poison(pipeline)
    assert pipeline.position() == 0
    pipeline.resume()
    assert pipeline.delivered() == list(range(ALL))


def test_control_without_the_check_the_rest_of_the_range_is_lost(pipeline: Pipeline) -> None:
    failed_at_the_poison(pipeline, checked=False)
    assert pipeline.position() == ALL
    pipeline.resume()
    assert pipeline.delivered() == list(range(len(pipeline.delivered())))
    assert len(pipeline.delivered()) <= POISON


def killed_under_a_worker(p: Pipeline, *, checked: bool = True) -> None:
    """Kills JVM and daemon, as when memory runs out, while a worker has the first rows.

    The worker runs until it ends by itself. The suspended driver does not clean up.
    """
    with running(p.job(SLOWLY, checked=checked), p.directory / "killed", p.environment) as job:
        worker = job.arrived(job.arm("mid-produce"))
        daemon = _parent(worker)
        jvm = _parent(daemon)
        with suspended(job.job.pid):
            os.kill(daemon, signal.SIGKILL)  # first: it ends its workers when the JVM is gone
            os.kill(jvm, signal.SIGKILL)
            job.release("mid-produce")
            wait_until(lambda: not Path(f"/proc/{worker}").exists(), "the worker has ended")


def test_a_worker_that_outlives_its_jvm_commits_nothing(pipeline: Pipeline) -> None:
    killed_under_a_worker(pipeline)
    assert pipeline.position() == 0
    pipeline.resume()
    assert pipeline.delivered() == list(range(ALL))


def test_control_without_the_check_a_worker_that_outlives_its_jvm_loses_records(pipeline: Pipeline) -> None:
    killed_under_a_worker(pipeline, checked=False)
    assert pipeline.position() == ALL
    pipeline.resume()
    assert len(pipeline.delivered()) < ALL


@contextlib.contextmanager
def suspended(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def _parent(process: int) -> int:
    """proc_pid_stat(5): behind the name come the state and the parent."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
