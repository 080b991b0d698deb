"""A declared stateful pipeline whose drivers are killed: its windows, with late records, are those of the audit.

See docs/stateful.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import KafkaSink
from ackwright_stream.reports import Verdict
from integration.support.pipelines import read, running
from integration.support.stateful_windows import feed_seconds, timed_windows
from waiting import ANSWER, WAIT, wait_until


def test_windows_with_late_records_over_kills(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> None:
    """Control: the audit finds one record too many."""
    job = timed_windows(kafka.bootstrap_servers, f"late-{uuid.uuid4().hex[:8]}", tmp_path)
    sink = str(job.sink_of(KafkaSink).topic)
    feed_seconds(job, range(60))
    with running(job, tmp_path / "1") as first:
        first.until_position(1, 60, WAIT)
        assert (progress := first.job.progress()) is not None
        assert progress.late_rows == 0
        assert progress.watermark == 54, "the newest event time less 5 s"
        hit = first.arm("evaluated")
        feed_seconds(job, [1, 2, 3, 60, 61, *range(62, 82)])  # the first three are late
        first.arrived(hit)
        first.job.kill()
    with running(job, tmp_path / "2") as second:
        second.until_position(1, 85, WAIT)
        assert (progress := second.job.progress()) is not None
        assert progress.late_rows == 1, "three records of one window are one row"
        hit = second.arm("batch-end")
        feed_seconds(job, [5, 200])
        second.arrived(hit)
        second.job.kill()
    with running(job, tmp_path / "3") as third:
        third.until(lambda p: p["watermark"] == 195, "the watermark of the last decision is reported")
        third.until_position(1, 87, WAIT)
        wait_until(
            lambda: len(read(job.cluster.bootstrap_servers, sink)) >= 9, "all windows that have ended are output"
        )
        third.job.drain()
        assert third.job.wait(WAIT) == 0, third.job.failure()
    report = audit(spark, job)
    assert report.verdict is Verdict.HELD, report
    assert report.expected == report.delivered == 9
    assert any("4 records were late" in note for note in report.notes)
    output = read(job.cluster.bootstrap_servers, sink)
    producer = Producer({"bootstrap.servers": job.cluster.bootstrap_servers})
    producer.produce(sink, output[0].value, output[0].key, partition=output[0].partition)
    assert producer.flush(ANSWER) == 0
    assert (again := audit(spark, job)).verdict is Verdict.BROKEN, again
    assert (again.lost, again.duplicated, again.unexpected) == (0, 1, 0)


def test_the_delay_of_the_watermark_may_change(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> None:
    """A longer one leaves the watermark where it is, a shorter one moves it on, and no window is output twice."""
    job = timed_windows(kafka.bootstrap_servers, f"delay-{uuid.uuid4().hex[:8]}", tmp_path)
    assert job.state is not None
    fed, sink = 0, str(job.sink_of(KafkaSink).topic)

    def delivered(delay_s: int, seconds: Iterable[int], windows: int) -> float | None:
        """The watermark behind these further records, once so many windows are output."""
        nonlocal fed, job
        assert job.state is not None
        job = replace(job, state=replace(job.state, watermark_delay=f"{delay_s} seconds"))
        feed_seconds(job, numbers := list(seconds))
        fed += len(numbers)
        with running(job, tmp_path / str(fed)) as driver:
            driver.until_position(1, fed, WAIT)
            wait_until(
                lambda: len(read(job.cluster.bootstrap_servers, sink)) >= windows, f"{windows} windows are output"
            )
            progress = driver.job.progress()
            driver.job.drain()
            assert driver.job.wait(WAIT) == 0, driver.job.failure()
        assert progress is not None
        return progress.watermark

    assert delivered(5, range(60), windows=5) == 54
    assert delivered(30, [*range(60, 70), 55, 45], windows=5) == 54  # the last one is late
    assert delivered(1, range(70, 100), windows=9) == 98
    report = audit(spark, job)
    assert report.verdict is Verdict.HELD, report
    assert report.expected == report.delivered == 9
    assert any("1 record was late" in note for note in report.notes), report.notes
