"""The audit judges the windows of a stateful pipeline in tables of Delta and Iceberg, and in files.

A job writes them; delta-rs, pyiceberg and pyarrow damage them. See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.audit_report import Report
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.reports import Verdict
from integration.support.files_stores import Files
from integration.support.iceberg_stores import Table
from integration.support.pipelines import running
from integration.support.stateful_windows import feed_seconds, summed_windows, timed_windows
from waiting import WAIT, wait_until

LATE = 3  # records


def faults(report: Report) -> tuple[int, int, int]:
    """Lost, duplicated and unexpected rows, of a report that judges them."""
    result = (report.lost, report.duplicated, report.unexpected)
    assert report.verdict is (Verdict.BROKEN if any(result) else Verdict.HELD), report
    return result


def delivered(job: JobSpec, directory: Path, rows: Callable[[], int]) -> None:
    """A driver delivers until it is drained; some records are late. rows: in the sink."""
    feed_seconds(job, range(60))
    with running(job, directory / "1") as driver:
        driver.until_position(1, 60, WAIT)
        feed_seconds(job, [1, 2, 3, *range(60, 80)])
        driver.until_position(1, 80 + LATE, WAIT)
        wait_until(lambda: rows() >= 7, "the windows up to 70 are in the sink")
        driver.job.drain()
        driver.job.wait(WAIT)


def test_windows_in_a_delta_table_are_compared(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> None:
    table = tmp_path / "table"
    sink = {"delta": {"path": str(table), "createTable": True}}
    job = timed_windows(kafka.bootstrap_servers, f"lake-{uuid.uuid4().hex[:8]}", tmp_path, sink)
    delivered(job, tmp_path, lambda: DeltaTable(table).to_pyarrow_table().num_rows)
    report = audit(spark, job)
    assert faults(report) == (0, 0, 0)
    assert any("3 records were late" in note for note in report.notes)

    right = DeltaTable(table).version()
    damages: list[tuple[Callable[[], object], tuple[int, int, int]]] = [
        (lambda: DeltaTable(table).delete("key = '10'"), (1, 0, 0)),
        (lambda: write_deltalake(table, pa.table({"key": ["10"], "value": ["10"]}), mode="append"), (0, 1, 0)),
        (lambda: write_deltalake(table, pa.table({"key": ["70"], "value": ["10"]}), mode="append"), (0, 0, 1)),
        (lambda: DeltaTable(table).update({"value": "'11'"}, predicate="key = '0'"), (1, 0, 1)),
    ]
    for damage, expected in damages:
        damage()
        assert faults(audit(spark, job)) == expected
        DeltaTable(table).restore(right)
    assert faults(audit(spark, job)) == (0, 0, 0)

    DeltaTable(table).create_checkpoint()
    entries = sorted((table / "_delta_log").glob("*.json"))
    first = next(n for n, entry in enumerate(entries) if f"ackwright/{job.group}/decision" in entry.read_text())
    for entry in entries[: first + 1]:
        entry.unlink()
    report = audit(spark, job)
    assert report.verdict is Verdict.UNPROVEN
    assert any("compacted or deleted" in doubt for doubt in report.doubts)


def test_sums_of_fractions_in_a_delta_table_are_compared_within_a_tolerance(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    table = tmp_path / "table"
    sink = {"delta": {"path": str(table), "createTable": True}}
    job = summed_windows(kafka.bootstrap_servers, f"lake-{uuid.uuid4().hex[:8]}", tmp_path, sink)
    delivered(job, tmp_path, lambda: DeltaTable(table).to_pyarrow_table().num_rows)
    assert faults(audit(spark, job)) == (0, 0, 0)
    DeltaTable(table).update({"value": "value * (1 + 1e-12)"})
    assert faults(audit(spark, job)) == (0, 0, 0)
    DeltaTable(table).update({"value": "value * (1 + 1e-6)"}, predicate="key = '10'")
    assert faults(audit(spark, job)) == (1, 0, 1)


def test_windows_in_files_are_compared(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> None:
    """The decisions are in the files, so none of them is compacted as long as its rows are there."""
    path = tmp_path / "files"
    job = timed_windows(
        kafka.bootstrap_servers, f"lake-{uuid.uuid4().hex[:8]}", tmp_path, {"files": {"path": str(path)}}
    )
    delivered(job, tmp_path, lambda: len(Files(path).rows()))
    report = audit(spark, job)
    assert faults(report) == (0, 0, 0)
    assert report.expected == report.delivered == 7
    assert any("3 records were late" in note for note in report.notes)

    batches = sorted((path / "batches").iterdir())
    tables = {file: pq.read_table(file) for file in batches}
    file, table = next((f, t) for f, t in tables.items() if "10" in t["key"].to_pylist())
    one = table.filter(pc.equal(table["key"], "10"))
    others = table.filter(pc.not_equal(table["key"], "10"))
    altered = one.set_column(1, "value", pa.array(["11"]))
    foreign = one.set_column(0, "key", pa.array(["70"]))
    damages: list[tuple[list[pa.Table], tuple[int, int, int]]] = [
        ([others], (1, 0, 0)),
        ([table, one], (0, 1, 0)),
        ([table, foreign], (0, 0, 1)),
        ([others, altered], (1, 0, 1)),
    ]
    for parts, expected in damages:
        damaged = pa.concat_tables([part.cast(table.schema) for part in parts])
        pq.write_table(damaged.replace_schema_metadata(table.schema.metadata), file)
        assert faults(audit(spark, job)) == expected
    pq.write_table(table, file)
    assert faults(audit(spark, job)) == (0, 0, 0)

    # The last one, whose decision the driver has recorded when it drained; one between others; all.
    for removed in (batches[-1:], [file], batches):
        for batch in removed:
            batch.rename(tmp_path / batch.name)
        report = audit(spark, job)
        assert report.verdict is Verdict.UNPROVEN
        assert any("files were removed" in doubt for doubt in report.doubts), report.doubts
        for batch in removed:
            (tmp_path / batch.name).rename(batch)


def test_windows_in_an_iceberg_table_are_compared(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> None:
    """The summaries of the snapshots have the decisions, until the snapshots expire."""
    table = Table(tmp_path / "warehouse")
    catalog = {"uri": table.uri, "warehouse": table.warehouse}
    sink = {"iceberg": {"catalog": catalog, "table": table.name, "createTable": True}}
    job = timed_windows(kafka.bootstrap_servers, f"lake-{uuid.uuid4().hex[:8]}", tmp_path, sink)
    with pytest.raises(JobError, match="has decided no batch yet"):
        audit(spark, job)
    delivered(job, tmp_path, lambda: table.handle().scan().to_arrow().num_rows)
    report = audit(spark, job)
    assert faults(report) == (0, 0, 0)
    assert report.expected == report.delivered == 7
    assert any("3 records were late" in note for note in report.notes)

    right = table.metadata["current-snapshot-id"]
    types = table.handle().schema().as_arrow()

    def row(key: str, value: str) -> pa.Table:
        return pa.table({"key": [key], "value": [value]}).cast(types)

    def altered() -> None:
        table.handle().delete("key = '0'")
        table.handle().append(row("0", "11"))

    damages: list[tuple[Callable[[], object], tuple[int, int, int]]] = [
        (lambda: table.handle().delete("key = '10'"), (1, 0, 0)),
        (lambda: table.handle().append(row("10", "10")), (0, 1, 0)),
        (lambda: table.handle().append(row("70", "10")), (0, 0, 1)),
        (altered, (1, 0, 1)),
    ]
    for damage, expected in damages:
        damage()
        assert faults(audit(spark, job)) == expected
        table.roll_back(right)
    assert faults(audit(spark, job)) == (0, 0, 0)
    of_decisions = [
        s["snapshot-id"] for s in table.metadata["snapshots"] if f"ackwright/{job.group}/decision" in s["summary"]
    ]
    table.roll_back(of_decisions[0])
    assert faults(audit(spark, job)) == (7, 0, 0)
    table.roll_back(right)

    # The first decision; all decisions, behind a snapshot of another program, with the one that they are in.
    table.handle().maintenance.expire_snapshots().by_ids(of_decisions[:1]).commit()
    report = audit(spark, job)
    assert report.verdict is Verdict.UNPROVEN
    assert any("compacted or deleted" in doubt for doubt in report.doubts)
    table.handle().append(row("0", "10").slice(0, 0))
    table.handle().maintenance.expire_snapshots().by_ids(of_decisions[1:]).commit()
    report = audit(spark, job)
    assert (report.verdict, report.lost, report.unjudged) == (Verdict.UNPROVEN, 0, 7)
    assert any("no decision of the pipeline is left" in doubt for doubt in report.doubts)
