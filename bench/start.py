"""Measures starts: of a query with Spark up, for many partitions against few, and of a job's process.

The queries run in one session, in a separate process: session.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ackwright.local.supervise import spark_environment, spark_settings
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch
from ackwright_stream.reports import StartPart
from bench import workload
from bench.context import Context, in_turn
from bench.figures import Figure, median, ratio
from bench.runs import SPARK_SINK, Copy, our_job, running
from bench.session import RECORDS, Settings

FEW, MANY, QUICK_MANY = 4, 256, 32
QUERY_TARGET = 1.3  # many partitions relative to few
LAUNCH_TARGET = 1.6  # relative to a bare session
_TIMEOUT = 1800.0  # seconds of all starts of queries together
_LAUNCH_TIMEOUT = 180.0  # seconds

BARE, BARE_DEFAULT = "bare SparkSession", "bare SparkSession with Java's default options"
# Prints when a trivial query has ended.
_BARE_PROGRAM = """
import json, sys, time
from pyspark.sql import SparkSession
builder = SparkSession.builder
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
assert builder.getOrCreate().range(1000).selectExpr("sum(id)").first()[0] == 499500
print(time.time(), flush=True)
"""


def measure_query(context: Context) -> list[Figure]:
    """From the start of a query, with Spark up, to its first committed batch."""
    settings = Settings(
        context.bootstrap,
        context.guarantee,
        context.cases((FEW, MANY), (FEW, QUICK_MANY)),
        context.size(5, 1, context.rounds),
        1,
        context.slots,
        str(context.directory / "start"),
    )
    lines = _run_session(settings)
    for line in lines:
        context.report(
            "start of a query: {partitions} partitions, {candidate}, {start}: {seconds:.2f} s".format(**line)
        )
    return query_summary(lines, settings.partitions, context.guarantee)


def _run_session(settings: Settings) -> list[dict[str, Any]]:
    directory = Path(settings.directory)
    directory.mkdir(parents=True, exist_ok=True)
    file, log = directory / "settings.json", directory / "session.log"
    file.write_text(json.dumps(asdict(settings)))
    with Watch() as watch, log.open("wb") as errors:
        command = [sys.executable, "-m", "bench.session", str(file)]
        process = watch.start(
            command, env=spark_environment(os.environ, directory), stdout=subprocess.PIPE, stderr=errors
        )
        output, _ = process.communicate(timeout=_TIMEOUT)
    if process.returncode:
        raise RuntimeError(f"the session ended with exit code {process.returncode}: {log.read_text()[-2000:]}")
    return [json.loads(line) for line in output.decode().splitlines() if line.startswith("{")]


def query_summary(lines: Sequence[Mapping[str, Any]], partitions: Sequence[int], guarantee: str) -> list[Figure]:
    """The seconds of each candidate, and those of the most partitions relative to those of the fewest."""
    few, many = min(partitions), max(partitions)
    figures: list[Figure] = []
    for start, text in (("first", "first start of a query"), ("restart", "restart of a query")):
        title = f"{text} to its first committed batch, Spark up"
        for name in (SPARK_SINK, guarantee):
            seconds = {
                count: [
                    float(line["seconds"])
                    for line in lines
                    if (line["partitions"], line["candidate"], line["start"]) == (count, name, start)
                ]
                for count in partitions
            }
            for count in partitions:
                figures.append(median(f"{title}: {name}, {count} partitions", seconds[count], "s"))
            if few != many:
                target = QUERY_TARGET if name == guarantee else None
                figures.append(
                    ratio(
                        f"{title}: {name}, {many} ÷ {few} partitions",
                        seconds[many],
                        seconds[few],
                        target,
                        at_least=False,
                        note=f"batches of {RECORDS:,} records",
                    )
                )
    return figures


def measure_launch(context: Context) -> list[Figure]:
    """From the launch of a job's process to its first committed batch, beside a bare session with a trivial query."""
    names = (BARE, context.guarantee, BARE_DEFAULT)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    parts: list[Mapping[StartPart, float]] = []
    partitions = context.cases((FEW,), (FEW,))[0]
    source = workload.create(context.bootstrap, "source", partitions)
    try:
        workload.fill(context.bootstrap, source, partitions, RECORDS, 100)
        with workload.sink(context.bootstrap, partitions) as sink:
            # The first round reads the programs from disk, and does not count.
            uncounted = 0 if context.quick else 1
            for number in range(-uncounted, context.size(7, 2, context.rounds)):
                for name in in_turn(names, number):
                    directory = context.directory / f"launch-{number}-{names.index(name)}"
                    copy = Copy(context.bootstrap, source, sink, RECORDS, context.slots, directory)
                    if name == context.guarantee:
                        duration_s, of_job = _launch(copy, name)
                        parts += [of_job] if number >= 0 else []
                    else:
                        duration_s = _launch_bare(copy, name)
                    context.report(f"launch, {name}: {duration_s:.2f} s")
                    if number >= 0:
                        seconds[name].append(duration_s)
    finally:
        workload.delete(context.bootstrap, source)
    return launch_summary(seconds, parts, context.guarantee, partitions)


def _launch(copy: Copy, guarantee: str) -> tuple[float, Mapping[StartPart, float]]:
    """The seconds of a launch, and those of its parts as the driver reports them."""
    job = our_job(copy, guarantee, {"interval": "3600s"})  # a new group; no second batch
    started = time.time()
    with running(job, copy.directory) as process:
        ended: list[tuple[float, Mapping[StartPart, float]]] = []

        def delivered() -> bool:
            if (code := process.poll()) is not None:
                raise RuntimeError(f"the job ended with exit code {code}: {process.failure()}")
            report = process.progress()
            if report is not None and report.records >= RECORDS and report.last_batch_at is not None:
                ended.append((report.last_batch_at - started, report.start_seconds))
            return bool(ended)

        wait_for(delivered, "the job commits its first batch", _LAUNCH_TIMEOUT)
    return ended[0]


def _launch_bare(copy: Copy, name: str) -> float:
    """The job's Java options, without which Spark loads its classes more slowly, are for BARE alone."""
    copy.directory.mkdir(parents=True)
    settings = {"spark.master": f"local[{copy.slots}]", **spark_settings(copy.directory)}
    environment = spark_environment(os.environ, copy.directory)
    if name == BARE_DEFAULT:
        environment.pop("JDK_JAVA_OPTIONS")
    started = time.time()
    completed = subprocess.run(
        [sys.executable, "-c", _BARE_PROGRAM, json.dumps(settings)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LAUNCH_TIMEOUT,
        check=False,
    )
    if completed.returncode:
        raise RuntimeError(f"{name} ended with exit code {completed.returncode}: {completed.stderr[-2000:]}")
    return float(completed.stdout.split()[-1]) - started


def launch_summary(
    seconds: Mapping[str, Sequence[float]],
    parts: Sequence[Mapping[StartPart, float]],
    guarantee: str,
    partitions: int,
) -> list[Figure]:
    """The seconds of each program, and those of the job relative to the bare session with the same Java options.

    parts: of each launch of the job.
    """
    title = "launch of a job to its first committed batch"
    texts = {guarantee: f"{title}: {guarantee}, {partitions} partitions"}
    figures = [
        median(texts.get(name, f"launch of a {name} to the end of a trivial query"), values, "s")
        for name, values in seconds.items()
    ]
    figures += [median(f"{title}: {part}", [launch.get(part, 0.0) for launch in parts], "s") for part in StartPart]
    for name, target in ((BARE, LAUNCH_TARGET), (BARE_DEFAULT, None)):
        figures.append(
            ratio(f"{title}: {guarantee} ÷ {name}", seconds[guarantee], seconds[name], target, at_least=False)
        )
    return figures
