"""Failures of an Iceberg table and of its catalog: what is written, and what the error says."""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import NestedField
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ackwright_stream.errors import JobError
from ackwright_stream.iceberg_types import to_iceberg
from ackwright_stream.jobspec import Guarantee, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from ackwright_stream.sinks.staged import parquet
from integration.support.iceberg_stores import Table, job
from integration.support.small_disk import filled
from integration.support.staged_drivers import COLUMNS, PLACES_OF_TEXT, A, Driver, Frame, rows, texts
from integration.support.weaker_outages import WEAKER, deliver_through

ROWS = 200_000  # more than 1 MB in a file that is not compressed


def refused(call: Callable[[], Any], reason: Reason, *words: str) -> str:
    """The message of the JobError that the call raises; asserts its reason and that it is one line with the words."""
    with pytest.raises(JobError) as caught:
        call()
    message = caught.value.message
    assert caught.value.reason is reason, caught.value
    assert "\n" not in message
    for word in words:
        assert word in message, message
    return message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 1 MB."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a file system")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True, timeout=30)
    try:
        yield place
    finally:
        subprocess.run(["/bin/umount", "--lazy", place], check=True, timeout=30)


def test_a_full_disk_stops_the_pipeline_and_loses_and_repeats_nothing(small_disk: Path, tmp_path: Path) -> None:
    table = Table(small_disk / "warehouse")
    table.create(to_iceberg(COLUMNS), properties={"write.parquet.compression-codec": "uncompressed"})
    spec = job(tmp_path, table)
    driver = Driver(spec)
    for _ in range(2):
        refused(
            lambda: driver.deliver(Range(A, 0, ROWS)), Reason.SINK_UNREACHABLE, "No space left on device", "check the"
        )
        assert list(table.directory.rglob("*.parquet")) == [], "what was written is removed"
    assert (table.offsets(), table.position(spec.group)) == ([], 0)
    assert driver.deliver(Range(A, 0, 1000)) == (Outcome.DONE, 1000)
    assert (table.offsets(), table.position(spec.group)) == (list(range(1000)), 1000)


def test_a_disk_that_is_full_at_the_commit_loses_and_repeats_nothing(small_disk: Path, tmp_path: Path) -> None:
    table = Table(small_disk / "warehouse")
    spec = job(tmp_path, table)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 1000))
    full = small_disk / "full"
    with full.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    refused(lambda: driver.commit([Range(A, 0, 1000)], staged), Reason.SINK_UNREACHABLE, "No space left on device")
    full.unlink()
    assert driver.commit([Range(A, 0, 1000)], staged) == (Outcome.DONE, 1000)
    assert (table.offsets(), table.position(spec.group)) == (list(range(1000)), 1000)


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_disk_that_is_full_between_rows_and_positions_keeps_the_weaker_guarantees(
    small_disk: Path, tmp_path: Path, guarantee: Guarantee
) -> None:
    table = Table(small_disk / "warehouse")
    spec = replace(job(tmp_path, table), guarantee=guarantee)
    expected = deliver_through(filled(small_disk), guarantee, lambda: Driver(spec), Reason.SINK_UNREACHABLE)
    assert table.offsets() == expected


def test_a_directory_that_may_not_be_written_any_more(tmp_path: Path) -> None:
    """With an immutable directory, which root obeys, too."""
    table = Table(tmp_path / "warehouse")
    spec = job(tmp_path, table)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    staged = driver.stage(rows(A, 5, 9))
    files = Path(table.metadata["location"])
    with immutable(files / "metadata"):
        refused(lambda: driver.commit([Range(A, 5, 9)], staged), Reason.AUTHORIZATION_FAILED, "not permitted")
    with immutable(files / "data"):
        refused(lambda: driver.stage(rows(A, 5, 9)), Reason.AUTHORIZATION_FAILED, "not permitted", "grant")
    assert (table.offsets(), table.position(spec.group)) == (list(range(5)), 5)
    assert driver.commit([Range(A, 5, 9)], staged) == (Outcome.DONE, 4)
    assert (table.offsets(), table.position(spec.group)) == (list(range(9)), 9)


class immutable:
    """A directory in which nothing can be created."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> None:
        if os.getuid() != 0:
            self._directory.chmod(0o500)
            return
        done = subprocess.run(["chattr", "+i", self._directory], check=False, capture_output=True, timeout=30)
        if done.returncode:
            pytest.skip("this file system knows no immutable directories")

    def __exit__(self, *_: object) -> None:
        if os.getuid() != 0:
            self._directory.chmod(0o700)
        else:
            subprocess.run(["chattr", "-i", self._directory], check=True, timeout=30)


def test_files_that_the_driver_does_not_find_are_not_committed(table: Table, tmp_path: Path) -> None:
    """As with executors that have another directory of this name, or after orphan files were removed too early."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 9))
    (orphan,) = table.orphans()
    Path(orphan).unlink()
    refused(lambda: driver.commit([Range(A, 0, 9)], staged), Reason.TABLE_UNSUITABLE, "not in this driver's directory")
    assert (table.offsets(), table.position(spec.group)) == ([], 0)


def frame(**columns: Any) -> Any:
    return Frame(StructType([StructField(name, kind) for name, kind in columns.items()]))


def test_a_missing_table_is_refused_unless_it_is_to_be_created(table: Table, tmp_path: Path) -> None:
    store = IcebergStore(job(tmp_path, table, create_table=False))
    refused(store.check, Reason.TABLE_UNSUITABLE, "there is no Iceberg table shop", "set createTable: true")
    refused(lambda: store.prepare(frame(n=LongType())), Reason.TABLE_UNSUITABLE, "there is no Iceberg table shop")
    IcebergStore(job(tmp_path, table)).check()
    assert not table.directory.exists(), "a check creates nothing"


def test_a_table_is_created_with_the_columns_of_the_output(table: Table, tmp_path: Path) -> None:
    columns = {
        "n": LongType(),
        "at": TimestampType(),
        "local": TimestampNTZType(),
        "d": DecimalType(12, 2),
        "many": ArrayType(StructType([StructField("a", ShortType())])),
        "day": DateType(),
    }
    spec = job(tmp_path, table, partition_columns=("day",))
    for _ in range(2):
        IcebergStore(spec).prepare(frame(**columns))
    created = table.handle()
    assert [(f.name, str(f.field_type), f.required) for f in created.schema().fields] == [
        ("n", "long", False),
        ("at", "timestamptz", False),
        ("local", "timestamp", False),
        ("d", "decimal(12, 2)", False),
        ("many", str(created.schema().find_type("many")), False),
        ("day", "date", False),
    ]
    assert str(created.schema().find_type("many.element.a")) == "int"
    assert [(f.name, str(f.transform)) for f in created.spec().fields] == [("day", "identity")]
    assert created.metadata.format_version == 2


def test_every_problem_of_the_columns_is_reported_at_once(table: Table, tmp_path: Path) -> None:
    table.create(
        Schema(
            NestedField(1, "a", iceberg.IntegerType()),
            NestedField(2, "B", iceberg.StringType()),
            NestedField(3, "c", iceberg.StringType(), required=True),
            NestedField(4, "u", iceberg.UUIDType()),
        )
    )
    store = IcebergStore(job(tmp_path, table, partition_columns=("d",)))
    output = frame(a=LongType(), b=StringType(), d=StringType(), u=StringType())
    for call in (lambda: store.prepare(output), lambda: store.check(output)):
        refused(
            call,
            Reason.TABLE_UNSUITABLE,
            "it is partitioned by []; write sink.iceberg.partitionColumns: []",
            "column 'a' is bigint in the output and int in the table; cast it in the transform",
            "the table's column is 'B' and the output's 'b': write the same letters",
            "the table has no column 'd'; add it (string)",
            "column 'u' is string in the output and uuid in the table",
            "column 'c' of the table is NOT NULL, and the transform does not return it",
        )


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"write.format.default": "orc"}, "it has the properties write.format.default=orc, which this sink does not"),
        ({"write.wap.enabled": "true", "write.upsert.enabled": "true"}, "write.upsert.enabled=true, write.wap.enabled"),
    ],
)
def test_a_table_that_asks_more_of_its_writers_is_refused(
    table: Table, tmp_path: Path, properties: dict[str, str], words: str
) -> None:
    """tests/unit/stream/test_iceberg_table.py has the rest."""
    columns = Schema(NestedField(1, "lane", iceberg.IntegerType()), NestedField(2, "n", iceberg.LongType()))
    table.create(columns, properties=properties)
    store = IcebergStore(job(tmp_path, table))
    refused(lambda: store.prepare(frame(lane=IntegerType(), n=LongType())), Reason.TABLE_UNSUITABLE, words)
    refused(store.check, Reason.TABLE_UNSUITABLE, words)


def test_a_table_of_format_version_1_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse")
    table.create(to_iceberg(COLUMNS), properties={"format-version": "1"})
    refused(IcebergStore(job(tmp_path, table)).check, Reason.TABLE_UNSUITABLE, "its format version is 1, and this sink")


def test_partitions_that_are_computed_are_refused_by_name(table: Table, tmp_path: Path) -> None:
    columns = Schema(NestedField(1, "at", iceberg.TimestampType()), NestedField(2, "n", iceberg.LongType()))
    table.create(
        columns,
        partition_spec=PartitionSpec(
            PartitionField(1, 1000, DayTransform(), "at_day"), PartitionField(2, 1001, BucketTransform(16), "n_bucket")
        ),
    )
    message = refused(
        IcebergStore(job(tmp_path, table)).check,
        Reason.TABLE_UNSUITABLE,
        "it is partitioned by day(at), bucket[16](n), and this sink partitions by columns as they are",
    )
    assert "partitionColumns" not in message


def test_a_property_that_is_set_while_the_query_runs_stops_the_pipeline(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    with table.handle().transaction() as change:
        change.set_properties({"write.wap.enabled": "true"})
    refused(lambda: written_by(driver, Range(A, 5, 9)), Reason.TABLE_UNSUITABLE, "write.wap.enabled")
    assert (table.offsets(), table.position(spec.group)) == (list(range(5)), 5)
    with table.handle().transaction() as change:
        change.remove_properties("write.wap.enabled")
    assert written_by(driver, Range(A, 5, 9)) == (Outcome.DONE, 4)


def written_by(driver: Driver, batch: Range) -> tuple[Outcome, int]:
    """A batch of a query that has checked the table before."""
    driver.sink._written = Frame().schema
    return driver.deliver(batch)


def test_a_column_that_was_replaced_while_the_query_ran(table: Table, tmp_path: Path) -> None:
    """It has the same name and another id: readers would see null."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 5))
    with table.handle().update_schema() as schema:
        schema.delete_column("n")
    with table.handle().update_schema() as schema:
        schema.add_column("n", iceberg.LongType())
    refused(lambda: driver.commit([Range(A, 0, 5)], staged), Reason.TABLE_UNSUITABLE, "its columns have changed")
    assert table.position(spec.group) == 0
    assert driver.deliver(Range(A, 0, 5)) == (Outcome.DONE, 5)
    assert table.handle().scan().to_arrow()["n"].to_pylist() == list(range(5))


def test_a_column_whose_type_has_changed_while_the_query_ran(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    driver.sink._written = COLUMNS
    staged = driver.stage(rows(A, 0, 5))
    with table.handle().update_schema() as schema:
        schema.update_column("lane", iceberg.LongType())
    refused(lambda: driver.commit([Range(A, 0, 5)], staged), Reason.TABLE_UNSUITABLE, "the type of lane has changed")
    assert table.position(spec.group) == 0


def test_a_column_that_is_added_while_the_query_runs_changes_nothing(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    driver.sink._written = COLUMNS
    staged = driver.stage(rows(A, 0, 5))
    with table.handle().update_schema() as schema:
        schema.add_column("more", iceberg.StringType())
    assert driver.commit([Range(A, 0, 5)], staged) == (Outcome.DONE, 5)
    assert (table.offsets(), table.position(spec.group)) == (list(range(5)), 5)


def test_partitions_that_changed_while_the_query_ran(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 5))
    with table.handle().update_spec() as change:
        change.add_identity("lane")
    refused(lambda: driver.commit([Range(A, 0, 5)], staged), Reason.TABLE_UNSUITABLE, "its partitions have changed")
    assert (table.offsets(), table.position(spec.group)) == ([], 0)


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_table_that_changes_for_a_while_keeps_the_weaker_guarantees(
    table: Table, tmp_path: Path, guarantee: Guarantee
) -> None:
    spec = replace(job(tmp_path, table), guarantee=guarantee)

    @contextmanager
    def changed() -> Iterator[None]:
        with table.handle().update_spec() as change:
            change.add_identity("lane")
        yield
        with table.handle().update_spec() as change:
            change.remove_field("lane")

    expected = deliver_through(changed(), guarantee, lambda: Driver(spec), Reason.TABLE_UNSUITABLE, hits_rows=True)
    assert table.offsets() == expected


def test_a_null_in_a_column_that_is_not_null_is_refused(table: Table, tmp_path: Path) -> None:
    table.create(
        Schema(NestedField(1, "lane", iceberg.IntegerType()), NestedField(2, "n", iceberg.LongType(), required=True))
    )
    spec = job(tmp_path, table)
    driver = Driver(spec)
    batch = pa.record_batch({"lane": pa.array([0, 0], pa.int32()), "n": pa.array([1, None], pa.int64())})
    refused(lambda: driver.stage([batch]), Reason.ROW_REFUSED, "a row has null in n, which is NOT NULL")
    assert list(table.directory.rglob("*.parquet")) == []
    with driver.sink.trial() as trial:
        assert trial.refusal(pa.Table.from_batches([batch.slice(0, 1)])) is None
        error = trial.refusal(pa.Table.from_batches([batch.slice(1, 1)]))
    assert error is not None
    assert error.reason is Reason.ROW_REFUSED
    assert driver.deliver(Range(A, 0, 2)) == (Outcome.DONE, 2)


@pytest.mark.parametrize("place", [*PLACES_OF_TEXT, "partition"])
def test_text_that_is_not_utf8_is_refused(table: Table, tmp_path: Path, place: str) -> None:
    """The next row is written."""
    kind, column = PLACES_OF_TEXT["column" if place == "partition" else place]
    columns = StructType([StructField("n", LongType()), StructField("s", kind)])
    by = ("s",) if place == "partition" else ()
    driver = Driver(job(tmp_path, table, partition_columns=by), columns=columns)
    bad, good = (pa.record_batch({"n": [1], "s": column(texts(text))}) for text in (b"\xff", "ü".encode()))
    refused(lambda: driver.stage([bad]), Reason.ROW_REFUSED, "column 's' has text that is not UTF-8", "as BINARY")
    assert list(table.directory.rglob("*.parquet")) == []
    with driver.sink.trial() as trial:
        refusal = trial.refusal(pa.Table.from_batches([bad]))
        assert trial.refusal(pa.Table.from_batches([good])) is None
    assert refusal is not None
    assert refusal.reason is Reason.ROW_REFUSED
    assert driver.commit([Range(A, 0, 1)], driver.stage([good])) == (Outcome.DONE, 1)
    assert [row["n"] for row in table.rows()] == [1]


def test_a_date_that_bounds_cannot_have_is_refused(table: Table, tmp_path: Path) -> None:
    """PyIceberg has the bounds of a column as dates of Python, which end with the year 9999."""
    columns = StructType([StructField("n", LongType()), StructField("day", DateType())])
    driver = Driver(job(tmp_path, table), columns=columns)
    bad, good = (
        pa.record_batch({"n": [1], "day": pa.array([day], pa.int32()).cast(pa.date32())}) for day in (2932897, 2932896)
    )
    message = "the table's metadata cannot have the bounds of a column: date value out of range"
    refused(lambda: driver.stage([bad]), Reason.ROW_REFUSED, message)
    with driver.sink.trial() as trial:
        refusal = trial.refusal(pa.Table.from_batches([bad]))
        assert trial.refusal(pa.Table.from_batches([good])) is None
    assert refusal is not None
    assert driver.commit([Range(A, 0, 1)], driver.stage([good])) == (Outcome.DONE, 1)


def test_control_without_the_check_the_error_names_no_column(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds of a column in the manifest are text, which PyIceberg fails to decode."""
    monkeypatch.setattr(parquet, "require_utf8", lambda batch: None)
    driver = Driver(
        job(tmp_path, table), columns=StructType([StructField("n", LongType()), StructField("s", StringType())])
    )
    with pytest.raises(JobError, match="describing a file: UnicodeDecodeError") as caught:
        driver.stage([pa.record_batch({"n": [1], "s": texts(b"\xff")})])
    assert caught.value.reason is Reason.BATCH_FAILED


def test_rows_are_in_files_of_their_partition_values(table: Table, tmp_path: Path) -> None:
    columns = StructType(
        [
            StructField("lane", IntegerType()),
            StructField("n", LongType()),
            StructField("day", DateType()),
            StructField("s", StringType()),
            StructField("b", BooleanType()),
        ]
    )
    driver = Driver(job(tmp_path, table, partition_columns=("lane", "day", "s", "b")), columns=columns)
    days = [datetime.date(2026, 1, 2), None, datetime.date(1969, 12, 31)]
    batch = pa.record_batch(
        {
            "lane": pa.array([0, 0, 1], pa.int32()),
            "n": pa.array([1, 2, 3]),
            "day": pa.array(days),
            "s": pa.array(["", "ü/=", None]),
            "b": pa.array([True, None, False]),
        }
    )
    assert driver.commit([Range(A, 0, 3)], driver.stage([batch, batch])) == (Outcome.DONE, 6)
    of_files = sorted((file["partition"] for file in table.files().values()), key=lambda p: (p["lane"], str(p["day"])))
    assert of_files == [
        {"lane": 0, "day": days[0], "s": "", "b": True},
        {"lane": 0, "day": None, "s": "ü/=", "b": None},
        {"lane": 1, "day": days[2], "s": None, "b": False},
    ]
    read = table.handle().scan().to_arrow().sort_by([("n", "ascending")])
    assert read.column("day").to_pylist() == [days[0], days[0], None, None, days[2], days[2]]
    for condition in ("s = ''", "day = '2026-01-02'", "b = true", "s = 'ü/='", "day is null", "lane = 1"):
        assert table.handle().scan(condition).to_arrow().num_rows == 2, condition


def test_names_of_columns_that_are_not_ascii(table: Table, tmp_path: Path) -> None:
    columns = StructType([StructField("größe", LongType()), StructField("straße", StringType())])
    driver = Driver(job(tmp_path, table, partition_columns=("straße",)), columns=columns)
    batch = pa.record_batch({"größe": pa.array([1, 2]), "straße": pa.array(["ä/ö", None])})
    assert driver.commit([Range(A, 0, 2)], driver.stage([batch])) == (Outcome.DONE, 2)
    expected = [{"größe": 1, "straße": "ä/ö"}, {"größe": 2, "straße": None}]
    read = table.handle().scan().to_arrow().sort_by([("größe", "ascending")])
    for rows_read in (sorted(table.rows(), key=lambda row: row["größe"]), read.to_pylist()):
        assert rows_read == expected


def test_rows_of_many_megabytes(table: Table, tmp_path: Path) -> None:
    columns = StructType([StructField("n", LongType()), StructField("s", StringType())])
    driver = Driver(job(tmp_path, table), columns=columns)
    texts_of_rows = [chr(97 + n) * (24 << 20) for n in range(4)]  # more than a task keeps in memory
    batches = [pa.record_batch({"n": [n], "s": [text]}) for n, text in enumerate(texts_of_rows)]
    assert driver.commit([Range(A, 0, 4)], driver.stage(batches)) == (Outcome.DONE, 4)
    assert sorted((row["n"], row["s"]) for row in table.rows()) == list(enumerate(texts_of_rows))


def test_a_table_that_is_not_there_any_more(table: Table, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, table))
    staged = driver.stage(rows(A, 0, 5))
    table.catalog().drop_table(table.name)
    refused(lambda: driver.commit([Range(A, 0, 5)], staged), Reason.TABLE_UNSUITABLE, "there is no Iceberg table")


def test_a_table_that_was_recreated_is_not_taken_for_the_old_one(table: Table, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, table))
    driver.deliver(Range(A, 0, 5))
    table.catalog().drop_table(table.name)
    table.create(to_iceberg(COLUMNS))
    with pytest.raises(JobError, match="are no longer in the Iceberg table"):
        driver.sink.join([A])


def test_a_catalog_in_a_file_is_for_one_machine(tmp_path: Path) -> None:
    spec = job(tmp_path, Table(tmp_path / "warehouse"))
    in_cluster = replace(spec, spark={**spec.spark, "spark.master": "k8s://https://kubernetes.default.svc"})
    refused(IcebergStore(in_cluster).check, Reason.INVALID_SPEC, "which the pods of a cluster cannot share safely")


def test_a_catalog_in_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse")
    spec = job(tmp_path, table)
    driver = Driver(spec)
    catalog = table.directory / "catalog.db"
    content = catalog.read_bytes()
    catalog.write_bytes(b"no database" * 1000)
    refused(lambda: driver.sink.peek([A]), Reason.SINK_UNREACHABLE, "file is not a database")
    catalog.write_bytes(content)
    assert driver.deliver(Range(A, 0, 5)) == (Outcome.DONE, 5)


def test_a_number_that_is_none_is_named(table: Table, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, table))
    name = f"ackwright/{driver.lanes.job.group}/generation"
    with table.handle().transaction() as change:
        change.set_properties({name: "two"})
    refused(lambda: driver.deliver(Range(A, 0, 5)), Reason.TABLE_UNSUITABLE, f"its property {name} is 'two'")
