"""A job whose transaction times out: it says so, continues with smaller batches, and has large ones again later."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import JobSpec, KafkaSink
from chaos.quotas import WRITES, quota
from integration.support.pipelines import Verdict, create_topics, document, feed, hanging, job_of, judge, read, running
from minimal_job import with_positions
from waiting import ANSWER, wait_until

ALL = 30_000
DECLARED = 8000
SLOW_BATCH = 4000
BYTES = 4_000_000  # of SLOW_BATCH records, more than one request of a producer has
SHORT = {"transaction.timeout.ms": "15000", "delivery.timeout.ms": "15000"}


def short_transactions(servers: str, name: str, place: Path, batch: int) -> JobSpec:
    """From the topic <name>-in to <name>-out."""
    described = document(servers, name, "exactly-once", f"{name}-in", f"{name}-out", trigger={"interval": "10ms"})
    described["spec"]["source"]["maxOffsetsPerTrigger"] = batch
    spec = job_of(described, place)
    of_positions = {**spec.sink_of(KafkaSink).positions.producer, **SHORT}
    return with_positions(replace(spec, producer={**spec.producer, **SHORT}), producer=of_positions)


def test_after_a_transaction_time_out_batches_are_smaller_until_they_are_quick(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    servers, name = kafka.bootstrap_servers, f"timeout-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=1)
    feed(servers, source, 1, 0, ALL)
    spec = short_transactions(servers, name, tmp_path, DECLARED)
    points = tmp_path / "points"
    points.mkdir()
    (points / "mid-produce").write_text("hang")  # of the first batch
    with running(spec, tmp_path) as job:
        job.arrived(points / "mid-produce.hit")
        wait_until(lambda: hanging(servers, sink), "the transaction's rows are in the log")
        wait_until(lambda: not hanging(servers, sink), "the coordinator ends the transaction")
        job.release("mid-produce")
        job.until_position(1, ALL)
        log = job.job.log.read_text()
    assert "TransactionTimedOut" in log
    assert "its transaction may have exceeded transaction.timeout.ms (15000)" in log
    assert "has taken over" not in log
    sizes = [int(line.split(" offsets")[0].split()[-1]) for line in log.splitlines() if "the next batches have" in line]
    assert sizes == [2000, 4000, 8000]
    assert judge(read(servers, sink), 1, ALL) == Verdict(0, 0, 0, 0)


def test_a_sink_that_is_too_slow_for_a_batch_gets_smaller_ones(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Nothing fences that producer: its rows wait in the queue until their time is over."""
    servers, name = kafka.bootstrap_servers, f"slow-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=1)
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(SLOW_BATCH):
        producer.produce(source, os.urandom(BYTES // SLOW_BATCH), partition=0)
    assert producer.flush(ANSWER) == 0
    spec = short_transactions(servers, name, tmp_path, SLOW_BATCH)
    # What a quota allows in ten seconds, it allows at once.
    with quota(servers, BYTES // 50, [WRITES]), running(spec, tmp_path) as job:
        wait_until(lambda: "TransactionTimedOut" in job.job.log.read_text(), "the first batch fails")
        log = job.job.log.read_text()
    assert "TransactionTimedOut" in log
    assert "BrokersUnreachable" not in log
    assert f"the next batches have at most {SLOW_BATCH // 4} offsets" in log
