"""SQL that fails at one record on every attempt, takes the memory of the JVM, or makes a row that the sink refuses.

No record of that batch is delivered; after a correction every record is.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode, JobSpec, Restart
from integration.support.pipelines import (
    Verdict,
    assert_nothing_hangs,
    create_topics,
    document,
    feed,
    job_of,
    judge,
    positions_of,
    read,
    running,
)
from waiting import WAIT

POISON = 57  # the record of each partition at which the SQL divides by zero
SQL = (
    "SELECT key, value FROM source WHERE 1 / (CAST(split_part(CAST(value AS STRING), ':', 2) AS INT) - 57) IS NOT NULL"
)
# The same record takes more memory than the JVM has.
HUGE = (
    "SELECT key, value FROM source WHERE length(repeat(CAST(value AS STRING), "
    "IF(CAST(split_part(CAST(value AS STRING), ':', 2) AS INT) = 57, 400000000, 1))) > 0"
)
# The same record makes a row that is larger than the producer sends.
LARGE = (
    "SELECT key, IF(CAST(split_part(CAST(value AS STRING), ':', 2) AS INT) = 57, "
    "CAST(repeat('x', 2000000) AS BINARY), value) AS value FROM source"
)
CAUSES = {SQL: "DIVIDE_BY_ZERO", HUGE: "Spark's JVM ran out of memory; raise spec.spark.driver.memory"}
RESTART = Restart(initial_ms=100, max_ms=200, forgive_after_ms=60_000, max_attempts=3)
BEFORE = 40  # batches of 20 records a partition: the third one has the poison
ALL = 100


@pytest.fixture
def name() -> str:
    return f"poison-{uuid.uuid4().hex[:8]}"


def poisoned(kafka: EmbeddedKafka, name: str, guarantee: str, directory: Path, sql: str = SQL) -> JobSpec:
    servers, source = kafka.bootstrap_servers, f"{name}-in"
    described = document(
        servers, name, guarantee, source, f"{name}-out", transform={"sql": sql}, trigger={"availableNow": True}
    )
    described["spec"]["source"]["maxOffsetsPerTrigger"] = 40
    return dataclasses.replace(job_of(described, directory), restart=RESTART)


@pytest.mark.parametrize(
    ("guarantee", "sql"),
    [("at-least-once", SQL), ("exactly-once", SQL), ("exactly-once", HUGE)],
    ids=["at-least-once", "exactly-once", "exactly-once-out-of-memory"],
)
def test_poison_sql_stops_before_the_record_and_resumes_when_corrected(
    kafka: EmbeddedKafka, tmp_path: Path, name: str, guarantee: str, sql: str
) -> None:
    servers, source, sink = kafka.bootstrap_servers, f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=2)
    feed(servers, source, 2, 0, ALL)
    spec = poisoned(kafka, name, guarantee, tmp_path / "poisoned", sql)
    with running(spec, tmp_path / "poisoned") as job:
        assert job.job.wait(WAIT) == ExitCode.FAILED
        assert CAUSES[sql] in str(job.job.failure())
    assert positions_of(servers, spec.group, source, 2) == {0: BEFORE, 1: BEFORE}
    assert_nothing_hangs(servers, sink)
    so_far = judge(read(servers, sink), 2, ALL)
    if guarantee == "exactly-once":
        assert so_far == Verdict(lost=2 * (ALL - BEFORE), duplicated=0, unexpected=0, disordered=0)

    corrected = job_of(
        document(servers, name, guarantee, source, sink, trigger={"availableNow": True}), tmp_path / "corrected"
    )
    with running(corrected, tmp_path / "corrected") as job:
        assert job.job.wait(WAIT) == ExitCode.OK
    verdict = judge(read(servers, sink), 2, ALL)
    assert (verdict.lost, verdict.unexpected) == (0, 0)
    if guarantee == "exactly-once":
        assert verdict == Verdict(0, 0, 0, 0)
    assert positions_of(servers, spec.group, source, 2) == {0: ALL, 1: ALL}


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_the_record_whose_row_is_too_large_for_the_sink_is_named(
    kafka: EmbeddedKafka, tmp_path: Path, name: str, guarantee: str
) -> None:
    """The pipeline halts, and continues when the transform is corrected."""
    servers, source, sink = kafka.bootstrap_servers, f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=2)
    feed(servers, source, 2, 0, ALL)
    spec = poisoned(kafka, name, guarantee, tmp_path / "large", LARGE)
    with running(spec, tmp_path / "large") as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason == "RowRefused"
    setting = "max.request.size" if guarantee == "at-least-once" else "message.max.bytes"
    size = r"its row of 20000\d\d bytes is too large for " + re.escape(setting) + "=1048588"
    assert re.match(rf"record {source}-[01]@{POISON}: {size}, .*; change the transform", failure.message)
    at = BEFORE + 20 if guarantee == "at-most-once" else BEFORE  # the batch of the record is abandoned
    assert positions_of(servers, spec.group, source, 2) == {0: at, 1: at}
    assert_nothing_hangs(servers, sink)
    if guarantee == "exactly-once":
        assert judge(read(servers, sink), 2, ALL) == Verdict(2 * (ALL - BEFORE), 0, 0, 0)

    corrected = job_of(
        document(servers, name, guarantee, source, sink, trigger={"availableNow": True}), tmp_path / "corrected"
    )
    with running(corrected, tmp_path / "corrected") as job:
        assert job.job.wait(WAIT) == ExitCode.OK
    final = judge(read(servers, sink), 2, ALL)
    assert final.unexpected == 0
    assert final.lost <= 40 if guarantee == "at-most-once" else final.lost == 0
    assert final.duplicated == 0 or guarantee == "at-least-once"
    assert positions_of(servers, spec.group, source, 2) == {0: ALL, 1: ALL}


def test_poison_sql_costs_at_most_once_its_batch(kafka: EmbeddedKafka, tmp_path: Path, name: str) -> None:
    servers, source, sink = kafka.bootstrap_servers, f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=2)
    feed(servers, source, 2, 0, ALL)
    spec = poisoned(kafka, name, "at-most-once", tmp_path)
    with running(spec, tmp_path) as job:
        assert job.job.wait(WAIT) == ExitCode.OK
    final = read(servers, sink)
    verdict = judge(final, 2, ALL)
    assert (verdict.duplicated, verdict.unexpected) == (0, 0)
    assert {f"{p}:{POISON}".encode() for p in range(2)}.isdisjoint(r.value for r in final)
    assert 2 <= verdict.lost <= 40  # of the batch with the poison
    assert positions_of(servers, spec.group, source, 2) == {0: ALL, 1: ALL}
