"""Starts the measured programs: our job as `ackwright run` starts it, and Spark's own sink as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackwright.api.spec import parse
from ackwright.local.supervise import Job, spark_settings
from ackwright.local.watch import Watch
from ackwright.planning.plan import plan as make_plan
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import JobSpec

SPARK_SINK = "Spark's own sink"
EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
AT_MOST_ONCE = "at-most-once"
SPARK_LOG = "spark.log"
_TIMEOUT = 400  # seconds per run


@dataclass(frozen=True)
class Copy:
    """One copy from a topic to another."""

    bootstrap: str
    source: str
    sink: str
    batch: int  # records per batch
    slots: int  # parallel tasks
    directory: Path  # for the files of this run


def our_job(copy: Copy, guarantee: str, trigger: Mapping[str, Any], **spark: str) -> JobSpec:
    """The jobspec that `ackwright run` renders for a pipeline that copies one topic."""
    spec = {
        "guarantee": guarantee,
        "kafka": {"bootstrapServers": copy.bootstrap},
        "source": {"topics": [copy.source], "format": "binary", "maxOffsetsPerTrigger": copy.batch},
        "transform": {"sql": "SELECT key, value FROM source"},
        "sink": {"kafka": {"topic": copy.sink, "format": "binary"}},
        "trigger": dict(trigger),
        "spark": {"conf": spark} if spark else {},
    }
    metadata = {"name": f"bench-{uuid.uuid4().hex[:8]}", "namespace": "bench"}
    pipeline = parse(
        {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": metadata, "spec": spec}
    )
    return jobspec(
        make_plan(pipeline), master=f"local[{copy.slots}]", secrets=None, spark_extra=spark_settings(copy.directory)
    )


@contextmanager
def running(job: JobSpec, directory: Path, verbose: bool = False) -> Iterator[Job]:
    """Our job as a process, which is killed at the end if it still runs. verbose: logs a line per batch."""
    command = (sys.executable, "-m", "ackwright_stream", *(("-v",) if verbose else ()))
    with Watch() as watch:
        process = Job(job, directory, watch, command=command)
        try:
            yield process
        finally:
            process.kill()


def copy_with(variant: str, copy: Copy) -> None:
    """Copies the source to its current end. Raises RuntimeError if the run fails."""
    if variant == SPARK_SINK:
        with spark_sink(copy, {"availableNow": True}) as process:
            code = process.wait(_TIMEOUT)
        if code:
            raise RuntimeError(f"{SPARK_SINK} ended with exit code {code}; see {copy.directory / SPARK_LOG}")
        return
    with running(our_job(copy, variant, {"availableNow": True}), copy.directory, verbose=True) as job:
        code = job.wait(_TIMEOUT)
    if code:
        raise RuntimeError(f"{variant} ended with exit code {code}: {job.failure()}")


def spark_sink_command(settings: Path) -> list[str]:
    """The command that runs Spark's own sink. settings: the path of its JSON file."""
    # -P keeps the script's directory out of the module path: its package `operator` would hide Python's.
    return [sys.executable, "-P", str(Path(__file__).with_name("spark_sink.py")), str(settings)]


@contextmanager
def spark_sink(copy: Copy, trigger: Mapping[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Spark's own sink as a process, which is killed at the end if it still runs; SPARK_LOG receives its output.

    trigger: keyword arguments of PySpark's DataStreamWriter.trigger.
    """
    copy.directory.mkdir(parents=True, exist_ok=True)
    ours = our_job(copy, AT_LEAST_ONCE, {"availableNow": True})
    shared = {
        name: ours.spark[name] for name in ("spark.driver.memory", "spark.sql.streaming.checkpointFileManagerClass")
    }
    settings = {
        "bootstrapServers": copy.bootstrap,
        "source": copy.source,
        "sink": copy.sink,
        "maxOffsetsPerTrigger": copy.batch,
        "checkpoint": str(copy.directory / "checkpoint"),
        "consumer": {name: value for name, value in ours.consumer.items() if name.startswith(("fetch.", "max."))},
        "trigger": dict(trigger),
        "spark": {"spark.master": f"local[{copy.slots}]", **shared, **spark_settings(copy.directory)},
    }
    file = copy.directory / "settings.json"
    file.write_text(json.dumps(settings))
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with Watch() as watch, (copy.directory / SPARK_LOG).open("wb") as log:
        yield watch.start(spark_sink_command(file), env=environment, stdout=log, stderr=log)
