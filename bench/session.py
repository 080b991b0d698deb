"""Runs queries one after another in one Spark session, and measures from the start of each to its first batch.

Run as `python -m bench.session SETTINGS`, a JSON file with the fields of Settings. Prints one JSON object per
measurement: partitions, candidate, start ("first" or "restart"), seconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ackwright_stream.driver import Driver, start_spark
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.progress import Progress
from ackwright_stream.spark_internals.session import silence_gateway_log
from bench import workload
from bench.context import in_turn
from bench.runs import SPARK_SINK, Copy, our_job, spark_sink_settings
from bench.spark_sink import start_query

RECORDS = 1024  # of a batch, the same for any number of partitions
_STARTS = ("first", "restart")
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
    spark = start_spark(our_job(next(iter(copies.values())), settings.guarantee, {"interval": "1s"}))
    # A driver stops its session at the end, and the next query needs it.
    stop, SparkSession.stop = SparkSession.stop, lambda _: None
    try:
        for number in range(-settings.uncounted, settings.rounds):
            for partitions, copy in copies.items():
                for name in in_turn(names, number):
                    for start, seconds in _starts(spark, name, copy, number):
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


def _starts(spark: SparkSession, name: str, copy: Copy, number: int) -> list[tuple[str, float]]:
    """The seconds of a new pipeline's first start, and of its second one, which resumes."""
    if name == SPARK_SINK:
        settings = spark_sink_settings(copy, {"processingTime": f"{_TRIGGER_S} seconds"})
        settings["checkpoint"] += f"-{copy.source}-{number}"
        return [(start, _first_batch_of_spark(spark, settings)) for start in _STARTS]
    job = our_job(copy, name, {"interval": f"{_TRIGGER_S}s"})  # with a new group
    return [(start, _first_batch(job)) for start in _STARTS]


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
