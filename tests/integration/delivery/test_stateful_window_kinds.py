"""Sliding windows, session windows and dropDuplicatesWithinWatermark whose drivers are killed.

The audit does not judge them, so the output is compared with what each test computes. See docs/stateful.md.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import KafkaSink, Transform
from integration.support.pipelines import read, running
from integration.support.stateful_windows import feed_seconds, timed_windows
from waiting import WAIT, wait_until

_DELAY = 5  # seconds of the watermark
_COUNT = "CAST(count(*) AS STRING) AS value FROM source GROUP BY"
_FIRST_RECORDS = """
from pyspark.sql import functions as F


def first_records(source):
    named = source.withColumn("key", F.unix_timestamp("at").cast("string"))
    return named.dropDuplicatesWithinWatermark(["key"]).select("key", F.col("key").alias("value"))
"""


@dataclass(frozen=True)
class Kind:
    transform: Transform
    seconds: Sequence[int]  # event times of the records, in their order; none is late
    output: Sequence[tuple[int, int]]  # key and value


SLIDING = Kind(  # each record is in two windows
    Transform(
        sql="SELECT CAST(unix_timestamp(window.start) AS STRING) AS key, "
        f"{_COUNT} window(at, '10 seconds', '5 seconds')"
    ),
    range(80),
    [(begin, 10 if begin >= 0 else 5) for begin in range(-5, 80, 5) if begin + 10 <= 79 - _DELAY],
)
SESSIONS = Kind(  # records of 6 seconds, and 4 seconds without any
    Transform(
        sql="SELECT CAST(unix_timestamp(session_window.start) AS STRING) AS key, "
        f"{_COUNT} kafka.topic, session_window(at, '3 seconds')"
    ),
    [second for second in range(80) if second % 10 < 6],
    [(begin, 6) for begin in range(0, 80, 10) if begin + 8 <= 75 - _DELAY],
)
WITHIN_WATERMARK = Kind(  # each second once more, behind three others, while its state is there
    Transform(module="first_within_watermark", function="first_records"),
    # From 1 on: 0 is no later than the first watermark.
    [second for later in range(1, 44) for second in (later, later - 3) if 1 <= second <= 40],
    [(second, second) for second in range(1, 41)],
)


@pytest.mark.parametrize("kind", [SLIDING, SESSIONS, WITHIN_WATERMARK], ids=["sliding", "session", "within-watermark"])
def test_each_row_is_output_once_over_kills(kafka: EmbeddedKafka, tmp_path: Path, kind: Kind) -> None:
    job = timed_windows(kafka.bootstrap_servers, f"kinds-{uuid.uuid4().hex[:8]}", tmp_path)
    job = replace(job, transform=kind.transform)
    sink = str(job.sink_of(KafkaSink).topic)
    (tmp_path / "first_within_watermark.py").write_text(_FIRST_RECORDS)
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    half = len(kind.seconds) // 2
    feed_seconds(job, kind.seconds[:half])
    for point in ("evaluated", "batch-end"):  # state is stored and nothing is decided; before Spark's log of commits
        with running(job, tmp_path / point, environment) as driver:
            driver.arrived(driver.arm(point))
            driver.job.kill()
    feed_seconds(job, kind.seconds[half:])
    with running(job, tmp_path / "last", environment) as driver:
        driver.until_position(1, len(kind.seconds), WAIT)
        wait_until(
            lambda: len(read(job.cluster.bootstrap_servers, sink)) >= len(kind.output), "all that has ended is output"
        )
        driver.job.drain()
        assert driver.job.wait(WAIT) == 0, driver.job.failure()
    output = [(int(r.key or b""), int(r.value or b"")) for r in read(job.cluster.bootstrap_servers, sink)]
    assert sorted(output) == sorted(kind.output)
