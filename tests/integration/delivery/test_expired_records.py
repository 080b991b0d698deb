"""Retention removes records that a running query has not read: at-most-once counts them, the others halt."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import ExitCode, JobSpec, KafkaSink
from integration.support.pipelines import Running, create_topics, document, feed, job_of, read, running
from waiting import ANSWER, WAIT

READ, EXPIRED, ALL = 100, 150, 200  # offsets of each of two partitions


def pipeline(kafka: EmbeddedKafka, guarantee: str, directory: Path) -> JobSpec:
    servers, name = kafka.bootstrap_servers, f"expired-{uuid.uuid4().hex[:8]}"
    create_topics(servers, f"{name}-in", f"{name}-out", partitions=2)
    feed(servers, f"{name}-in", 2, 0, READ)
    return job_of(document(servers, name, guarantee, f"{name}-in", f"{name}-out"), directory)


def expire_between_batches(job: Running, admin: AdminClient) -> None:
    """Half of the records that come after the first ones are gone before the job can read them."""
    job.until_position(2, READ)
    job.suspend()
    (source,) = job.spec.source.topics
    feed(job.spec.cluster.bootstrap_servers, source, 2, READ, ALL - READ)
    for answer in admin.delete_records([TopicPartition(source, p, EXPIRED) for p in range(2)]).values():
        answer.result(ANSWER)
    job.resume()


def test_records_that_expire_while_the_query_runs_are_counted_at_most_once(
    kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path
) -> None:
    spec = pipeline(kafka, "at-most-once", tmp_path)
    with running(spec, tmp_path) as job:
        expire_between_batches(job, admin)
        job.until_position(2, ALL)
        report = job.until(lambda p: p["expiredRecords"], "the expired records are counted")
        assert report["expiredRecords"] == 2 * (EXPIRED - READ)
        assert report["restarts"] == 0
        feed(kafka.bootstrap_servers, spec.source.topics[0], 2, ALL, 10)
        job.until_position(2, ALL + 10)
        assert job.progress()["expiredRecords"] == 2 * (EXPIRED - READ)
    values = {f"{p}:{n}".encode() for p in range(2) for n in (*range(READ), *range(EXPIRED, ALL + 10))}
    assert {r.value for r in read(kafka.bootstrap_servers, str(spec.sink_of(KafkaSink).topic))} == values


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_records_that_expire_while_the_query_runs_halt(
    kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path, guarantee: str
) -> None:
    spec = pipeline(kafka, guarantee, tmp_path)
    with running(spec, tmp_path) as job:
        expire_between_batches(job, admin)
        assert job.job.wait(WAIT) == ExitCode.HALTED
        assert "DataExpired" in str(job.job.failure())
    assert len(read(kafka.bootstrap_servers, str(spec.sink_of(KafkaSink).topic))) == 2 * READ
