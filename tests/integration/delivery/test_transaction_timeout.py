"""A job whose transaction times out: it says so, continues with smaller batches, and has large ones again later."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import KafkaSink
from integration.support.pipelines import Verdict, create_topics, document, feed, hanging, job_of, judge, read, running
from minimal_job import with_positions
from waiting import wait_until

ALL = 30_000
DECLARED = 8000
SHORT = {"transaction.timeout.ms": "15000", "delivery.timeout.ms": "15000"}


def test_after_a_transaction_time_out_batches_are_smaller_until_they_are_quick(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    servers, name = kafka.bootstrap_servers, f"timeout-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=1)
    feed(servers, source, 1, 0, ALL)
    described = document(servers, name, "exactly-once", source, sink, trigger={"interval": "10ms"})
    described["spec"]["source"]["maxOffsetsPerTrigger"] = DECLARED
    spec = job_of(described, tmp_path)
    of_positions = {**spec.sink_of(KafkaSink).positions.producer, **SHORT}
    spec = with_positions(replace(spec, producer={**spec.producer, **SHORT}), producer=of_positions)
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
