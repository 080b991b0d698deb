"""What a value does that Parquet cannot hold: it is no fault of the server, which would be tried again forever."""

from __future__ import annotations

import errno
import io
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from pyspark.sql.types import DateType, LongType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.delta import files as delta
from ackwright_stream.sinks.delta.table import DeltaTableVersion
from ackwright_stream.sinks.files.trial import RowTrial as FilesTrial
from ackwright_stream.sinks.parquet_columns import encoding
from ackwright_stream.sinks.staged import parquet
from ackwright_stream.sinks.staged.parquet import FileFormat, InMemory
from ackwright_stream.sinks.staged.table import Place
from ackwright_stream.sinks.staged.trial import RowTrial

AFTER_9999 = pa.array([0, 2932897], pa.int32()).cast(pa.date32())  # 10000-01-01, which Spark has and Python lacks
SCHEMA = StructType([StructField("n", LongType()), StructField("day", DateType())])
FORMAT = FileFormat(delta.to_partition, keeps_partitions=False)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array([1, 2], pa.int64()), **columns})


def refused(rows: list[pa.RecordBatch], partition_columns: tuple[str, ...] = (), form: FileFormat = FORMAT) -> JobError:
    with pytest.raises(JobError) as caught:
        parquet.write(rows, partition_columns, InMemory(), form)
    return caught.value


def test_a_date_that_python_lacks_is_refused_as_a_partition_and_written_as_a_column() -> None:
    error = refused([batch(day=AFTER_9999)], ("day",))
    assert error.reason is Reason.ROW_REFUSED
    assert "rows cannot be partitioned by day: date value out of range" in error.message
    (file,) = parquet.write([batch(day=AFTER_9999)], (), InMemory(), FORMAT)
    assert file.rows == 2


def test_a_value_that_does_not_fit_the_type_of_the_file_is_refused() -> None:
    def narrowed(rows: pa.Table) -> pa.Table:
        return rows.cast(pa.schema([("n", pa.int8())]))

    form = FileFormat(delta.to_partition, keeps_partitions=False, to_columns=narrowed)
    error = refused([pa.record_batch({"n": pa.array([300], pa.int64())})], form=form)
    assert error.reason is Reason.ROW_REFUSED
    assert "Integer value 300 not in range" in error.message


def test_a_type_that_parquet_lacks_is_refused() -> None:
    union = pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])])
    assert refused([batch(u=union)]).reason is Reason.ROW_REFUSED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Reason.SINK_UNREACHABLE),
        (ValueError("negative seek value"), Reason.BATCH_FAILED),
    ],
)
def test_an_error_of_the_file_is_none_of_a_value(error: Exception, reason: Reason) -> None:
    class Failing(io.BytesIO):
        def write(self, _: Any) -> int:
            raise error

    class Files(InMemory):
        def create(self, path: str) -> BinaryIO:
            return Failing()

    with pytest.raises(JobError) as caught:
        parquet.write([batch()], (), Files(), FORMAT)
    assert caught.value.reason is reason, caught.value
    assert ("No space left" if isinstance(error, OSError) else f"ValueError: {error}") in caught.value.message


def test_a_trial_refuses_what_a_task_refuses() -> None:
    """So that the driver can name the record."""
    table = DeltaTableVersion(SCHEMA, ("day",), {}, 2, frozenset())
    place = Place("Delta table", "/t", "sink.delta", "path", ("day",))
    trial = RowTrial(place, table, FORMAT)
    rows = pa.Table.from_batches([batch(day=AFTER_9999)])
    error = trial.refusal(rows)
    assert error is not None
    assert error.reason is Reason.ROW_REFUSED
    assert trial.refusal(rows.slice(0, 1)) is None
    assert FilesTrial().refusal(rows) is None, "a single file has no partitions"


def test_only_errors_of_values_are_taken_for_them() -> None:
    for error in (pa.ArrowInvalid("no"), pa.ArrowNotImplementedError("no"), OverflowError("no")):
        with pytest.raises(JobError, match="rows cannot be written as Parquet: no") as caught, encoding():
            raise error
        assert caught.value.reason is Reason.ROW_REFUSED
    with pytest.raises(ValueError, match="no"), encoding():
        raise ValueError("no")


@pytest.mark.parametrize("name", ["größe", "a.b", ".a", "[0]", 'q"x', "b`t"])
def test_rows_are_partitioned_by_a_column_whatever_its_name(name: str) -> None:
    rows = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64()), name: pa.array(["a", "b", "a"])})
    files = parquet.write([rows], (name,), InMemory(), FORMAT)
    assert [(file.partition, file.rows) for file in files] == [({name: "a"}, 2), ({name: "b"}, 1)]
