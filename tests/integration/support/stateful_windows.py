"""Pipelines that count the records of windows of event time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from ackwright_stream.jobspec import JobSpec
from integration.support.driver_lives import DriverLives
from integration.support.pipelines import create_topics, document, job_of
from integration.support.stateful_pipelines import create_decisions
from waiting import ANSWER

OF_WINDOW = 50  # records, and seconds
_DELAY = 10  # seconds of the watermark
_MODULE = f"""
from pyspark.sql import functions as F


def windows(source):
    number = F.split(F.col("value").cast("string"), ":")[1].cast("int")
    timed = source.select(F.timestamp_seconds(number).alias("at")).withWatermark("at", "{_DELAY} seconds")
    counts = timed.groupBy(F.window("at", "{OF_WINDOW} seconds")).count()
    begin = F.unix_timestamp(F.col("window.start")).cast("string")
    return counts.select(begin.alias("key"), F.col("count").cast("string").alias("value"))
"""


def count_windows(pipeline: DriverLives) -> None:
    """Gives a stateful pipeline this transform, which returns a key, when a window begins, and a value, the count.

    Its source has one partition, so that no record is late.
    """
    (pipeline.directory / "counted_windows.py").write_text(_MODULE)
    path = os.pathsep.join([str(pipeline.directory), os.environ.get("PYTHONPATH", "")])
    pipeline.environment["PYTHONPATH"] = path
    transform = replace(pipeline.spec.transform, sql=None, module="counted_windows", function="windows")
    assert pipeline.spec.state is not None
    state = replace(pipeline.spec.state, output_mode="append")
    pipeline.spec = replace(pipeline.spec, transform=transform, state=state)


def ended_windows(fed: int) -> list[int]:
    """When the windows begin that have ended before the watermark, after so many records."""
    return [begin for begin in range(0, fed, OF_WINDOW) if begin + OF_WINDOW <= fed - 1 - _DELAY]


_TIMED = """
    SELECT CAST(unix_timestamp(window.start) AS STRING) AS key, CAST(count(*) AS STRING) AS value
    FROM source GROUP BY window(at, '10 seconds')
"""

_SUMMED = """
    SELECT CAST(unix_timestamp(window.start) AS STRING) AS key, sum(CAST(unix_timestamp(at) AS DOUBLE) / 10) AS value
    FROM source GROUP BY window(at, '10 seconds')
"""


def timed_windows(
    servers: str,
    name: str,
    directory: Path,
    of_sink: Mapping[str, Any] | None = None,
    secrets: Path | None = None,
    *,
    guarantee: str = "exactly-once",
) -> JobSpec:
    """A pipeline that counts the records of each 10 seconds, with its topics, as it is declared.

    of_sink: spec.sink; None: a topic. secrets: where its Secrets are mounted; None: in the directory.
    """
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=1)
    create_decisions(servers)
    spec = {
        "source": {
            "topics": [source],
            "format": "json",
            "schema": "at TIMESTAMP",
            "maxOffsetsPerTrigger": 20,
            "eventTime": {"column": "at", "watermark": "5s"},
        },
        "transform": {"sql": _TIMED},
        "state": {"partitions": 2},
        "sink": of_sink or {"kafka": {"topic": sink}},
        "checkpoint": {"volume": {"size": "1Gi"}},
    }
    stateful = document(servers, name, guarantee, source, sink)
    stateful["spec"] |= spec
    job = job_of(stateful, directory, secrets=str(secrets or directory))
    assert job.state is not None
    return replace(job, state=replace(job.state, checkpoint=str(directory / "state")))


def summed_windows(
    servers: str, name: str, directory: Path, of_sink: Mapping[str, Any], secrets: Path | None = None
) -> JobSpec:
    """A pipeline of timed_windows() whose values are sums of fractions, of type DOUBLE."""
    job = timed_windows(servers, name, directory, of_sink, secrets)
    return replace(job, transform=replace(job.transform, sql=_SUMMED))


def feed_seconds(job: JobSpec, seconds: Iterable[int]) -> None:
    """Sends a record for each of these seconds."""
    producer = Producer({"bootstrap.servers": job.cluster.bootstrap_servers, "acks": "all", "linger.ms": 0})
    for second in seconds:
        value = json.dumps({"at": f"1970-01-01T00:{second // 60:02}:{second % 60:02}Z"})
        producer.produce(job.source.topics[0], value.encode(), partition=0)
    assert producer.flush(ANSWER) == 0
