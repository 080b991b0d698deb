"""Runs queries one after another in one Spark session, and measures from the start of each to its first batch.

Run as `python -m bench.session SETTINGS`, a JSON file with the fields of Settings. Prints one JSON object per
measurement: partitions, candidate, start ("first" or "restart"), seconds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ackwright.local.wait import wait_for
from ackwright_stream.driver import Driver, start_spark
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.progress import Progress
from ackwright_stream.spark_internals.session import silence_gateway_log
from bench import workload
from bench.context import in_turn
from bench.processes import descendants
from bench.runs import SPARK_SINK, Copy, our_job, spark_sink_settings
from bench.spark_sink import start_query

RECORDS = 1024  # of a batch, the same for any number of partitions
_STARTS = ("first", "restart")
# Spark keeps the consumers of a query that has ended for a minute: with 256 partitions those of ten queries would use
# more than the memory of a job, and 20,000 file descriptors. Here they are closed before the next query starts.
_CLOSE_AT_ONCE = {
    "spark.kafka.consumer.cache.timeout": "1s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "20ms",
}
_FILES = 200  # that the JVM may have opened since its start, when it has closed the consumers
_TRIGGER_S = 3600  # no second batch while a query runs
_TIMEOUT = 300.0  # seconds


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    bootstrap: str
    guarantee: str
    partitions: tuple[int, ...]
    rounds: int
    uncounted: int  # rounds before them
    slots: int
    directory: str


def measure(settings: Settings) -> None:
    """Prints the measurements."""
    copies = {partitions: _copy(settings, partitions) for partitions in settings.partitions}
    names = (SPARK_SINK, settings.guarantee)
    job = our_job(next(iter(copies.values())), settings.guarantee, {"interval": "1s"})
    spark = start_spark(replace(job, spark={**job.spark, **_CLOSE_AT_ONCE}))
    closed = _consumers_closed()
    # A driver stops its session at the end, and the next query needs it.
    stop, SparkSession.stop = SparkSession.stop, lambda _: None
    try:
        for number in range(-settings.uncounted, settings.rounds):
            for partitions, copy in copies.items():
                for name in in_turn(names, number):
                    for start, seconds in _starts(spark, name, copy, number, closed):
                        if number >= 0:
                            line = {"partitions": partitions, "candidate": name, "start": start, "seconds": seconds}
                            print(json.dumps(line), flush=True)
    finally:
        stop(spark)
        for copy in copies.values():
            workload.delete(settings.bootstrap, copy.source, copy.sink)


def _copy(settings: Settings, partitions: int) -> Copy:
    """Topics whose source has the records of one batch for each of two starts."""
    source, sink = (workload.create(settings.bootstrap, name, partitions) for name in ("source", "sink"))
    workload.fill(settings.bootstrap, source, partitions, RECORDS * len(_STARTS), 100)
    return Copy(settings.bootstrap, source, sink, RECORDS, settings.slots, Path(settings.directory))


def _consumers_closed() -> Callable[[], None]:
    """A function that waits until Spark's JVM has as few open files as now, because a consumer has several."""
    jvm = next(process.pid for process in descendants(os.getpid()) if process.name == "java")
    files = Path(f"/proc/{jvm}/fd")
    before = len(list(files.iterdir()))
    return lambda: wait_for(
        lambda: len(list(files.iterdir())) < before + _FILES, "Spark has closed its consumers", _TIMEOUT
    )


def _starts(
    spark: SparkSession, name: str, copy: Copy, number: int, closed: Callable[[], None]
) -> Iterator[tuple[str, float]]:
    """The seconds of a new pipeline's first start, and of its second one, which resumes. closed: waits before each."""
    settings = spark_sink_settings(copy, {"processingTime": f"{_TRIGGER_S} seconds"})
    settings["checkpoint"] += f"-{copy.source}-{number}"
    job = None if name == SPARK_SINK else our_job(copy, name, {"interval": f"{_TRIGGER_S}s"})  # with a new group
    for start in _STARTS:
        closed()
        yield start, _first_batch(job) if job else _first_batch_of_spark(spark, settings)


def _first_batch_of_spark(spark: SparkSession, settings: dict[str, Any]) -> float:
    started = time.monotonic()
    query = start_query(spark, settings)
    try:
        while query.lastProgress is None:
            if (failure := query.exception()) is not None:
                raise failure
            _require_in_time(started)
            time.sleep(0.005)
        return time.monotonic() - started
    finally:
        query.stop()


def _first_batch(job: JobSpec) -> float:
    """Runs a driver until its first batch is committed, and drains it."""
    progress, stop = Progress(job), threading.Event()
    seconds: list[float] = []
    started = time.monotonic()

    def watch() -> None:
        while not stop.is_set():
            report = progress.snapshot()
            if report.records >= RECORDS:
                seconds.append(time.monotonic() - started)
                stop.set()
            elif time.monotonic() - started > _TIMEOUT:
                stop.set()
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        Driver(job, progress, stop).run()
    finally:
        stop.set()
        watcher.join()
    if not seconds:
        raise RuntimeError(f"no batch of {RECORDS} records was committed within {_TIMEOUT:g} s")
    return seconds[0]


def _require_in_time(started: float) -> None:
    if time.monotonic() - started > _TIMEOUT:
        raise RuntimeError(f"no batch was committed within {_TIMEOUT:g} s")


if __name__ == "__main__":
    silence_gateway_log()
    values = json.loads(Path(sys.argv[1]).read_text())
    measure(Settings(**{**values, "partitions": tuple(values["partitions"])}))
