"""Starts the measured programs: our job as `ackwright run` starts it, and Spark's own sink as a user starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ackwright.api.spec import parse
from ackwright.local import jars
from ackwright.local.supervise import Job, spark_environment, spark_settings
from ackwright.local.watch import Watch
from ackwright.planning.plan import plan as make_plan
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.reports import ProgressReport, State
from ackwright_stream.source import fetch_limit
from bench.processes import signal_tree

SPARK_SINK = "Spark's own sink"
SPARK_SINK_ASYNC = "Spark's own sink with asynchronous progress tracking"  # it writes its logs once a second
EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
AT_MOST_ONCE = "at-most-once"
SPARK_LOG = "spark.log"
GUARANTEES = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)
_TIMEOUT = 400  # seconds per run
_CLASS_PATH = "spark.driver.extraClassPath"
_POLL = 0.5  # seconds between two requests for a job's progress


@dataclass(frozen=True)
class Copy:
    """One copy from a topic to another."""

    bootstrap: str
    source: str
    sink: str
    batch: int  # records per batch
    slots: int  # parallel tasks
    directory: Path  # for the files of this run
    partitions: int = 1  # of the source


@dataclass(frozen=True)
class Target:
    """Where Spark's own sink writes, in place of a topic."""

    format: str  # of Spark's writer
    options: Mapping[str, str]  # of the writer
    jars: str  # the kind of its jars
    spark: Mapping[str, str] = field(default_factory=dict)  # further configuration
    tasks: int | None = None  # of a batch; None: one per source partition


@dataclass(frozen=True)
class StatefulQuery:
    """What Spark's own sink computes, in place of a copy."""

    schema: str  # of the JSON values, as DDL
    event_time: str  # one of its columns
    watermark: str  # how late a record may come, as Spark reads an interval
    sql: str  # reads the view `source`
    output_mode: str
    spark: Mapping[str, str]  # configuration of the state


def our_job(
    copy: Copy,
    guarantee: str,
    trigger: Mapping[str, Any],
    *,
    spec: Mapping[str, Any] | None = None,
    secrets: Path | None = None,
    **spark: str,
) -> JobSpec:
    """The jobspec that `ackwright run` renders for a pipeline that copies one topic.

    spec: other or further parts of the spec. secrets: the directory of the Secrets that they name.
    """
    described = {
        "guarantee": guarantee,
        "kafka": {"bootstrapServers": copy.bootstrap},
        "source": {"topics": [copy.source], "format": "binary", "maxOffsetsPerTrigger": copy.batch},
        "transform": {"sql": "SELECT key, value FROM source"},
        "sink": {"kafka": {"topic": copy.sink, "format": "binary"}},
        "trigger": dict(trigger),
        "spark": {"conf": spark} if spark else {},
        **(spec or {}),
    }
    metadata = {"name": f"bench-{uuid.uuid4().hex[:8]}", "namespace": "bench"}
    pipeline = parse(
        {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": metadata, "spec": described}
    )
    return jobspec(
        make_plan(pipeline),
        master=f"local[{copy.slots}]",
        secrets=str(secrets) if secrets else None,
        spark_extra=spark_settings(copy.directory),
    )


@contextmanager
def running(job: JobSpec, directory: Path) -> Iterator[Job]:
    """Our job as a process, which is killed at the end if it still runs."""
    with Watch() as watch:
        process = Job(job, directory, watch)
        try:
            yield process
        finally:
            process.kill()


@dataclass(frozen=True)
class Candidate:
    """A copy in another process."""

    pid: int
    exit_code: Callable[[], int | None]  # None: it runs
    cause: Callable[[], object]  # of its end
    progress: Callable[[], ProgressReport | None] | None = None  # None: Spark's own sink has none

    def running(self) -> bool:
        """Whether it can deliver, as far as it reports that. Raises RuntimeError once it has ended."""
        if (code := self.exit_code()) is not None:
            raise RuntimeError(f"the candidate ended with exit code {code}: {self.cause()}")
        if self.progress is None:
            return True
        report = self.progress()
        return report is not None and report.state is State.RUNNING

    def stands_by(self) -> bool:
        """Whether it reports that it is ready to take over. Raises RuntimeError once it has ended."""
        if (code := self.exit_code()) is not None:
            raise RuntimeError(f"the candidate ended with exit code {code}: {self.cause()}")
        report = self.progress() if self.progress else None
        return report is not None and report.state is State.STANDBY

    def suspend(self) -> None:
        """Stops it with all its processes, so that it leaves the processors to another candidate."""
        signal_tree(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        signal_tree(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL for the driver and all that it started, as when its machine dies."""
        signal_tree(self.pid, signal.SIGKILL)


@contextmanager
def started(job: JobSpec | None, copy: Copy, trigger_s: int, query: Mapping[str, str]) -> Iterator[Candidate]:
    """Our job, or Spark's own sink (None) with a trigger of this interval, as a process that is killed at the end.

    query: options of the query of Spark's own sink. A job that is started again resumes, and so does Spark's own sink
    from the checkpoint in the copy's directory.
    """
    if job is None:
        with spark_sink(copy, {"processingTime": f"{trigger_s} seconds"}, query) as process:
            candidate = Candidate(process.pid, process.poll, lambda: copy.directory / SPARK_LOG)
            try:
                yield candidate
            finally:
                candidate.kill()
        return
    with running(job, copy.directory) as ours:
        yield Candidate(ours.pid, ours.poll, ours.failure, ours.progress)


def copy_with(name: str, copy: Copy) -> dict[int, float]:
    """Copies the source to its current end. Raises RuntimeError if the run fails.

    Returns the seconds of our job's batches by their number, as far as its progress showed them; none for Spark's sink.
    """
    if name == SPARK_SINK:
        run_spark_sink(copy)
        return {}
    return run_job(our_job(copy, name, {"availableNow": True}), copy.directory)


def run_spark_sink(copy: Copy, target: Target | None = None, stateful: StatefulQuery | None = None) -> None:
    """Copies the source to its current end with Spark's own sink. Raises RuntimeError if the run fails."""
    with spark_sink(copy, {"availableNow": True}, target=target, stateful=stateful) as process:
        code = process.wait(_TIMEOUT)
    if code:
        raise RuntimeError(f"{SPARK_SINK} ended with exit code {code}: {last_error(copy.directory / SPARK_LOG)}")


def last_error(log: Path) -> str:
    """The last line of a log that names an exception or an error, or else its last line."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"(Exception|Error)\b", line) and not line.startswith("\tat ")]
    return (named or lines or ["nothing in its log"])[-1].strip()


def run_job(job: JobSpec, directory: Path) -> dict[int, float]:
    """Runs our job to its end. Raises RuntimeError if it fails.

    Returns the seconds of its batches by their number, as far as its progress showed them.
    """
    seconds: dict[int, float] = {}
    with running(job, directory) as process:
        deadline = time.monotonic() + _TIMEOUT
        while (exit_code := process.poll()) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{job.guarantee} has not copied {job.source.topics[0]} within {_TIMEOUT} s")
            if (report := process.progress()) is not None and report.batches:
                seconds[report.batch_id] = report.batch_seconds
            time.sleep(_POLL)
    if exit_code:
        raise RuntimeError(f"{job.guarantee} ended with exit code {exit_code}: {process.failure()}")
    return seconds


def spark_sink_command(settings: Path) -> list[str]:
    """The command that runs Spark's own sink. settings: the path of its JSON file."""
    # -P keeps the script's directory out of the module path: its package `operator` would hide Python's.
    return [sys.executable, "-P", str(Path(__file__).with_name("spark_sink.py")), str(settings)]


def spark_sink_settings(
    copy: Copy,
    trigger: Mapping[str, Any],
    query: Mapping[str, str] | None = None,
    target: Target | None = None,
    stateful: StatefulQuery | None = None,
) -> dict[str, Any]:
    """The settings of spark_sink.py.

    trigger: keyword arguments of PySpark's DataStreamWriter.trigger. query: options of the query.
    """
    spark = spark_settings(copy.directory)
    if target is not None:
        of_target = (str(jar) for jar in jars.directory(target.jars).glob("*.jar"))
        spark = {**spark, **target.spark, _CLASS_PATH: os.pathsep.join((spark[_CLASS_PATH], *of_target))}
    if stateful is not None:
        spark = {**spark, **stateful.spark}
    ours = our_job(copy, AT_LEAST_ONCE, {"availableNow": True})
    shared = {
        name: ours.spark[name] for name in ("spark.driver.memory", "spark.sql.streaming.checkpointFileManagerClass")
    }
    return {
        "bootstrapServers": copy.bootstrap,
        "source": copy.source,
        "sink": copy.sink,
        "maxOffsetsPerTrigger": copy.batch,
        "checkpoint": str(copy.directory / "checkpoint"),
        "consumer": {
            **{name: value for name, value in ours.consumer.items() if name.startswith(("fetch.", "max."))},
            # As our job: with the full size a backlog of 256 partitions fills the heap.
            "max.partition.fetch.bytes": str(fetch_limit(ours, copy.partitions)),
        },
        "trigger": dict(trigger),
        "query": dict(query or {}),
        "target": asdict(target) if target else None,
        "stateful": asdict(stateful) if stateful else None,
        "spark": {"spark.master": f"local[{copy.slots}]", **shared, **spark},
    }


@contextmanager
def spark_sink(
    copy: Copy,
    trigger: Mapping[str, Any],
    query: Mapping[str, str] | None = None,
    *,
    target: Target | None = None,
    stateful: StatefulQuery | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Spark's own sink as a process, which is killed at the end if it still runs; SPARK_LOG receives its output.

    trigger and query: as for spark_sink_settings().
    """
    copy.directory.mkdir(parents=True, exist_ok=True)
    file = copy.directory / "settings.json"
    file.write_text(json.dumps(spark_sink_settings(copy, trigger, query, target, stateful)))
    # The same Java options as for our job: garbage collector, class archive.
    environment = spark_environment(os.environ, copy.directory)
    with Watch() as watch, (copy.directory / SPARK_LOG).open("ab") as log:
        yield watch.start(spark_sink_command(file), env=environment, stdout=log, stderr=log)
