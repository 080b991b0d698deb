"""A declared stateful pipeline whose drivers are killed: its windows, with late records, are those of the audit.

See docs/stateful.md.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import JobSpec, KafkaSink
from ackwright_stream.reports import Verdict
from integration.support.pipelines import create_topics, document, job_of, read, running
from integration.support.stateful_pipelines import create_decisions
from waiting import ANSWER, WAIT, wait_until

SQL = """
    SELECT CAST(unix_timestamp(window.start) AS STRING) AS key, CAST(count(*) AS STRING) AS value
    FROM source GROUP BY window(at, '10 seconds')
"""


def declared(servers: str, name: str, directory: Path) -> JobSpec:
    """The jobspec of the pipeline, with its topics."""
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
        "transform": {"sql": SQL},
        "state": {"partitions": 2},
        "sink": {"kafka": {"topic": sink}},
        "checkpoint": {"volume": {"size": "1Gi"}},
    }
    stateful = document(servers, name, "exactly-once", source, sink)
    stateful["spec"] |= spec
    job = job_of(stateful, directory)
    assert job.state is not None
    return replace(job, state=replace(job.state, checkpoint=str(directory / "state")))


def feed(job: JobSpec, seconds: Iterable[int]) -> None:
    """Sends a record for each of these seconds."""
    producer = Producer({"bootstrap.servers": job.cluster.bootstrap_servers, "acks": "all", "linger.ms": 0})
    for second in seconds:
        value = json.dumps({"at": f"1970-01-01T00:{second // 60:02}:{second % 60:02}Z"})
        producer.produce(job.source.topics[0], value.encode(), partition=0)
    assert producer.flush(ANSWER) == 0


def test_windows_with_late_records_over_kills(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> None:
    """Control: the audit finds one record too many."""
    job = declared(kafka.bootstrap_servers, f"late-{uuid.uuid4().hex[:8]}", tmp_path)
    sink = str(job.sink_of(KafkaSink).topic)
    feed(job, range(60))
    with running(job, tmp_path / "1") as first:
        first.until_position(1, 60, WAIT)
        assert (progress := first.job.progress()) is not None
        assert progress.late_rows == 0
        hit = first.arm("evaluated")
        feed(job, [1, 2, 3, 60, 61, *range(62, 82)])  # the first three are late
        first.arrived(hit)
        first.job.kill()
    with running(job, tmp_path / "2") as second:
        second.until_position(1, 85, WAIT)
        assert (progress := second.job.progress()) is not None
        assert progress.late_rows == 1, "three records of one window are one row"
        hit = second.arm("batch-end")
        feed(job, [5, 200])
        second.arrived(hit)
        second.job.kill()
    with running(job, tmp_path / "3") as third:
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
