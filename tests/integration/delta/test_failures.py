"""Failures of a Delta table and of its directory: what is written, and what the error says."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ackwright_stream import ownership
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.delta.sink import DeltaStore
from ackwright_stream.sinks.staged import parquet
from integration.support.delta_stores import Table, job
from integration.support.small_disk import filled
from integration.support.staged_drivers import PLACES_OF_TEXT, A, Driver, Frame, rows, texts
from integration.support.weaker_outages import WEAKER, deliver_through

ROWS = 400_000  # 2 MB in a file


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


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
    table = Table(small_disk / "table")
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    for _ in range(2):
        refused(
            lambda: driver.deliver(Range(A, 0, ROWS)), Reason.SINK_UNREACHABLE, "No space left on device", "check the"
        )
        assert list(table.path.glob("*.parquet")) == [], "what was written is removed"
    assert (table.offsets(), table.position(spec.group)) == ([], 0)
    assert driver.deliver(Range(A, 0, 1000)) == (Outcome.DONE, 1000)
    assert (table.offsets(), table.position(spec.group)) == (list(range(1000)), 1000)


def test_a_disk_that_is_full_at_the_commit_loses_and_repeats_nothing(small_disk: Path, tmp_path: Path) -> None:
    table = Table(small_disk / "table")
    spec = job(tmp_path, table.path)
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
    assert not [p for p in (table.path / "_delta_log").iterdir() if p.suffix == ".tmp"]


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_disk_that_is_full_between_rows_and_positions_keeps_the_weaker_guarantees(
    small_disk: Path, tmp_path: Path, guarantee: Guarantee
) -> None:
    table = Table(small_disk / "table")
    spec = replace(job(tmp_path, table.path), guarantee=guarantee)
    expected = deliver_through(filled(small_disk), guarantee, lambda: Driver(spec), Reason.SINK_UNREACHABLE)
    assert table.offsets() == expected


def test_a_directory_that_may_not_be_written_any_more(table: Table, tmp_path: Path) -> None:
    """With an immutable directory, which root obeys, too."""
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    staged = driver.stage(rows(A, 5, 9))
    log = table.path / "_delta_log"
    with immutable(log):
        refused(lambda: driver.commit([Range(A, 5, 9)], staged), Reason.AUTHORIZATION_FAILED, "not permitted")
    with immutable(table.path):
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
    """As with executors that have another directory of this name, or after a VACUUM without retention."""
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 9))
    (orphan,) = table.orphans()
    (table.path / orphan).unlink()
    refused(lambda: driver.commit([Range(A, 0, 9)], staged), Reason.TABLE_UNSUITABLE, "not in this driver's directory")
    assert (table.offsets(), table.position(spec.group)) == ([], 0)


def frame(**columns: Any) -> Any:
    return Frame(StructType([StructField(name, kind) for name, kind in columns.items()]))


def test_a_missing_table_is_refused_unless_it_is_to_be_created(table: Table, tmp_path: Path) -> None:
    store = DeltaStore(job(tmp_path, table.path, create_table=False))
    refused(store.check, Reason.TABLE_UNSUITABLE, "there is no Delta table /", "set createTable: true")
    refused(lambda: store.prepare(frame(n=LongType())), Reason.TABLE_UNSUITABLE, "there is no Delta table /")
    DeltaStore(job(tmp_path, table.path)).check()
    assert not table.path.exists(), "a check creates nothing"


def test_no_table_is_created_for_a_pipeline_that_has_delivered(table: Table, tmp_path: Path) -> None:
    """As after an edit of the endpoint: what is missing at another server has the positions here."""
    spec = replace(job(tmp_path, table.path), expects_positions=True)
    for call in (DeltaStore(spec).check, lambda: DeltaStore(spec).prepare(frame(n=LongType()))):
        refused(call, Reason.TABLE_UNSUITABLE, "there is no Delta table /", "correct the address in sink.delta")
    assert not table.path.exists()
    Driver(job(tmp_path, table.path))
    ownership.require_known(spec, DeltaStore(spec))


def test_a_table_without_the_positions_of_a_pipeline_that_has_delivered_is_refused(
    table: Table, tmp_path: Path
) -> None:
    spec = replace(job(tmp_path, table.path), expects_positions=True)
    DeltaStore(job(tmp_path, table.path)).prepare(frame(n=LongType()))
    what = "has delivered, and sink.delta has no positions of it"
    refused(lambda: ownership.require_known(spec, DeltaStore(spec), [A]), Reason.POSITION_LOST, what)


def test_a_table_is_created_with_the_columns_of_the_output(table: Table, tmp_path: Path) -> None:
    columns = {
        "n": LongType(),
        "at": TimestampType(),
        "local": TimestampNTZType(),
        "d": DecimalType(12, 2),
        "day": DateType(),
        "parts": ArrayType(StructType([StructField("a", LongType(), nullable=False)]), containsNull=False),
    }
    spec = job(tmp_path, table.path, partition_columns=("day",))
    for _ in range(2):
        DeltaStore(spec).prepare(frame(**columns))
    created = DeltaTable(str(table.path))
    *fields, parts = created.schema().fields
    assert "false" not in parts.to_json(), "Spark's own reader refuses parts that are NOT NULL beside TIMESTAMP_NTZ"
    assert [(f.name, str(f.type.type), f.nullable) for f in fields] == [
        ("n", "long", True),
        ("at", "timestamp", True),
        ("local", "timestamp_ntz", True),
        ("d", "decimal(12,2)", True),
        ("day", "date", True),
    ]
    assert created.metadata().partition_columns == ["day"]


def test_every_problem_of_the_columns_is_reported_at_once(table: Table, tmp_path: Path) -> None:
    fields = [
        Field("a", PrimitiveType("integer")),
        Field("B", PrimitiveType("string")),
        Field("c", PrimitiveType("string"), nullable=False),
    ]
    DeltaTable.create(str(table.path), Schema(fields))
    store = DeltaStore(job(tmp_path, table.path, partition_columns=("d",)))
    output = frame(a=LongType(), b=StringType(), d=StringType())
    for call in (lambda: store.prepare(output), lambda: store.check(output)):
        refused(
            call,
            Reason.TABLE_UNSUITABLE,
            "it is partitioned by []; write sink.delta.partitionColumns: []",
            "column 'a' is bigint in the output and int in the table; cast it in the transform",
            "the table's column is 'B' and the output's 'b': write the same letters",
            "the table has no column 'd'; add it (string)",
            "column 'c' of the table is NOT NULL, and the transform does not return it",
        )


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 7 days"}, "lets the log forget positions"),
        ({"delta.enableDeletionVectors": "true"}, "deletion vectors"),
        ({"delta.columnMapping.mode": "name"}, "column mapping"),
    ],
)
def test_a_table_with_a_feature_of_writers_is_refused(
    table: Table, tmp_path: Path, configuration: dict[str, str], words: str
) -> None:
    """tests/unit/stream/test_delta_table.py has the features of which delta-rs creates no table."""
    schema = Schema([Field("lane", PrimitiveType("integer")), Field("n", PrimitiveType("long"))])
    DeltaTable.create(str(table.path), schema, configuration=configuration)
    store = DeltaStore(job(tmp_path, table.path))
    refused(lambda: store.prepare(frame(lane=IntegerType(), n=LongType())), Reason.TABLE_UNSUITABLE, words)
    refused(store.check, Reason.TABLE_UNSUITABLE, words)


def test_a_check_constraint_that_is_added_stops_the_pipeline(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    other = DeltaTable(str(table.path))
    other.alter.add_constraint({"few": "n < 7"})
    refused(lambda: written_by(driver, Range(A, 5, 9)), Reason.TABLE_UNSUITABLE, "CHECK constraints")
    assert (table.offsets(), table.position(spec.group)) == (list(range(5)), 5)
    DeltaTable(str(table.path)).alter.drop_constraint("few")
    assert written_by(driver, Range(A, 5, 9)) == (Outcome.DONE, 4)


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_table_that_changes_for_a_while_keeps_the_weaker_guarantees(
    table: Table, tmp_path: Path, guarantee: Guarantee
) -> None:
    spec = replace(job(tmp_path, table.path), guarantee=guarantee)

    def new_driver() -> Driver:
        driver = Driver(spec)
        driver.sink._written = Frame().schema  # of its query
        return driver

    @contextmanager
    def changed() -> Iterator[None]:
        DeltaTable(str(table.path)).alter.add_constraint({"few": "n < 7"})
        yield
        DeltaTable(str(table.path)).alter.drop_constraint("few")

    expected = deliver_through(changed(), guarantee, new_driver, Reason.TABLE_UNSUITABLE, hits_rows=True)
    assert table.offsets() == expected


def written_by(driver: Driver, batch: Range) -> tuple[Outcome, int]:
    """A batch of a query that has checked the table before."""
    driver.sink._written = Frame().schema
    return driver.deliver(batch)


def test_a_column_whose_type_has_changed_while_the_query_ran(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    driver.sink._written = Frame().schema
    staged = driver.stage(rows(A, 0, 5))
    changed = pa.table({"lane": pa.array([], pa.int64()), "n": pa.array([], pa.int64())})
    write_deltalake(str(table.path), changed, mode="overwrite", schema_mode="overwrite")
    refused(lambda: driver.commit([Range(A, 0, 5)], staged), Reason.TABLE_UNSUITABLE, "the type of lane has changed")
    assert table.position(spec.group) == 0


def test_a_null_in_a_column_that_is_not_null_is_refused(table: Table, tmp_path: Path) -> None:
    fields = [Field("lane", PrimitiveType("integer")), Field("n", PrimitiveType("long"), nullable=False)]
    DeltaTable.create(str(table.path), Schema(fields))
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    batch = pa.record_batch({"lane": pa.array([0, 0], pa.int32()), "n": pa.array([1, None], pa.int64())})
    staged = driver.stage([batch])
    refused(
        lambda: driver.commit([Range(A, 0, 2)], staged), Reason.ROW_REFUSED, "a row has null in n, which is NOT NULL"
    )
    assert (table.offsets(), table.position(spec.group)) == ([], 0)


@pytest.mark.parametrize("place", [*PLACES_OF_TEXT, "partition"])
def test_text_that_is_not_utf8_is_refused(table: Table, tmp_path: Path, place: str) -> None:
    """The next row is written."""
    kind, column = PLACES_OF_TEXT["column" if place == "partition" else place]
    columns = StructType([StructField("n", LongType()), StructField("s", kind)])
    by = ("s",) if place == "partition" else ()
    driver = Driver(job(tmp_path, table.path, partition_columns=by), columns=columns)
    bad, good = (pa.record_batch({"n": [1], "s": column(texts(text))}) for text in (b"\xff", "ü".encode()))
    refused(lambda: driver.stage([bad]), Reason.ROW_REFUSED, "column 's' has text that is not UTF-8", "as BINARY")
    assert list(table.path.rglob("*.parquet")) == []
    with driver.sink.trial() as trial:
        refusal = trial.refusal(pa.Table.from_batches([bad]))
        assert trial.refusal(pa.Table.from_batches([good])) is None
    assert refusal is not None
    assert refusal.reason is Reason.ROW_REFUSED
    assert driver.commit([Range(A, 0, 1)], driver.stage([good])) == (Outcome.DONE, 1)
    assert [row["n"] for row in table.rows()] == [1]


def test_control_text_that_is_not_utf8_makes_the_table_unreadable(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check the rows are committed, and an engine refuses the file: the good row cannot be read either."""
    monkeypatch.setattr(parquet, "require_utf8", lambda batch: None)
    driver = Driver(
        job(tmp_path, table.path), columns=StructType([StructField("n", LongType()), StructField("s", StringType())])
    )
    rows = pa.record_batch({"n": [1, 2], "s": texts(b"good", b"\xff")})
    assert driver.commit([Range(A, 0, 2)], driver.stage([rows])) == (Outcome.DONE, 2)
    engine = QueryBuilder().register("rows", DeltaTable(str(table.path)))
    with pytest.raises(Exception, match=r"(?i)utf-?8"):
        engine.execute("SELECT s FROM rows").read_all()


def test_rows_are_in_files_of_their_partition_values(table: Table, tmp_path: Path) -> None:
    columns = StructType(
        [StructField("lane", IntegerType()), StructField("n", LongType()), StructField("day", DateType())]
    )
    driver = Driver(job(tmp_path, table.path, partition_columns=("lane", "day")), columns=columns)
    days = [datetime.date(2026, 1, 2), None, datetime.date(2026, 1, 2)]
    batch = pa.record_batch({"lane": pa.array([0, 0, 1], pa.int32()), "n": pa.array([1, 2, 3]), "day": pa.array(days)})
    assert driver.commit([Range(A, 0, 3)], driver.stage([batch, batch])) == (Outcome.DONE, 6)
    assert sorted(table.files().values(), key=lambda v: (v["lane"], str(v["day"]))) == [
        {"lane": "0", "day": "2026-01-02"},
        {"lane": "0", "day": None},
        {"lane": "1", "day": "2026-01-02"},
    ]
    read = DeltaTable(str(table.path)).to_pyarrow_table().sort_by([("n", "ascending")])
    assert read.column("day").to_pylist() == [days[0], days[0], None, None, days[2], days[2]]


def test_names_of_columns_that_are_not_ascii(table: Table, tmp_path: Path) -> None:
    columns = StructType([StructField("größe", LongType()), StructField("straße", StringType())])
    driver = Driver(job(tmp_path, table.path, partition_columns=("straße",)), columns=columns)
    batch = pa.record_batch({"größe": pa.array([1, 2]), "straße": pa.array(["ä/ö", None])})
    assert driver.commit([Range(A, 0, 2)], driver.stage([batch])) == (Outcome.DONE, 2)
    expected = [{"größe": 1, "straße": "ä/ö"}, {"größe": 2, "straße": None}]
    read = DeltaTable(str(table.path)).to_pyarrow_table().sort_by([("größe", "ascending")])
    for rows_read in (sorted(table.rows(), key=lambda row: row["größe"]), read.to_pylist()):
        assert rows_read == expected


def test_rows_of_many_megabytes(table: Table, tmp_path: Path) -> None:
    columns = StructType([StructField("n", LongType()), StructField("s", StringType())])
    driver = Driver(job(tmp_path, table.path), columns=columns)
    texts_of_rows = [chr(97 + n) * (24 << 20) for n in range(4)]  # more than a task keeps in memory
    batches = [pa.record_batch({"n": [n], "s": [text]}) for n, text in enumerate(texts_of_rows)]
    assert driver.commit([Range(A, 0, 4)], driver.stage(batches)) == (Outcome.DONE, 4)
    assert sorted((row["n"], row["s"]) for row in table.rows()) == list(enumerate(texts_of_rows))


def test_empty_text_in_a_partition_column_is_refused(table: Table, tmp_path: Path) -> None:
    columns = StructType([StructField("n", LongType()), StructField("s", StringType())])
    driver = Driver(job(tmp_path, table.path, partition_columns=("s",)), columns=columns)
    batch = pa.record_batch({"n": pa.array([1, 2]), "s": pa.array(["a", ""])})
    refused(lambda: driver.stage([batch]), Reason.ROW_REFUSED, "'s' is empty text, which Delta reads as null")
    assert list(table.path.glob("*.parquet")) == []


def test_a_row_that_is_written_is_read_by_other_programs_as_it_was(table: Table, tmp_path: Path) -> None:
    """They take the types from the log, and the values from the files."""
    columns = StructType(
        [
            StructField("at", TimestampType()),
            StructField("local", TimestampNTZType()),
            StructField("d", DecimalType(12, 2)),
        ]
    )
    driver = Driver(job(tmp_path, table.path), columns=columns)
    at = datetime.datetime(2026, 3, 8, 7, 30, 0, 1)
    batch = pa.record_batch(
        {
            "at": pa.array([at], pa.timestamp("us", "UTC")),
            "local": pa.array([at], pa.timestamp("us")),
            "d": pa.array(["1.50"]).cast(pa.decimal128(12, 2)),
        }
    )
    driver.commit([Range(A, 0, 1)], driver.stage([batch]))
    assert DeltaTable(str(table.path)).to_pyarrow_table().to_pylist() == [
        {"at": at.replace(tzinfo=datetime.UTC), "local": at, "d": batch.column("d")[0].as_py()}
    ]


def test_a_directory_in_which_there_is_no_table_any_more(table: Table, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, table.path))
    staged = driver.stage(rows(A, 0, 5))
    shutil.rmtree(table.path)
    with pytest.raises(JobError):
        driver.commit([Range(A, 0, 5)], staged)
    assert not table.path.exists()
