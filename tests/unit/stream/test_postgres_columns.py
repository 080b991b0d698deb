"""Which columns fit into a table, and how those that do not are reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.postgres.columns import TableColumn, created_type, problems_with, to_sink_columns


def column(kind: str, declared: str = "", **more: bool | int) -> TableColumn:
    return TableColumn(kind, declared or kind, **{"required": False, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "table", "fits"),
    [
        (IntegerType(), column("int4"), True),
        (IntegerType(), column("int8"), True),
        (IntegerType(), column("int2"), False),
        (LongType(), column("int4"), False),
        (LongType(), column("numeric"), True),
        (FloatType(), column("float8"), True),
        (DoubleType(), column("float4"), False),
        (DecimalType(10, 2), column("numeric"), True),
        (DecimalType(10, 2), column("numeric", scale=2), True),
        (DecimalType(10, 2), column("numeric", scale=1), False),  # PostgreSQL would round
        (IntegerType(), column("numeric", scale=0), True),
        (IntegerType(), column("numeric", scale=-2), False),
        (StringType(), column("jsonb"), True),
        (StringType(), column("uuid"), False),
        (TimestampType(), column("timestamp"), False),
    ],
)
def test_a_column_takes_every_value_of_a_type_or_is_refused(kind: DataType, table: TableColumn, fits: bool) -> None:
    assert (problems_with([StructField("c", kind)], {"c": table}) == []) is fits


def test_every_problem_is_named_with_its_remedy() -> None:
    fields = [StructField("a", LongType()), StructField("B", StringType()), StructField("c", StringType())]
    table = {
        "a": column("int4", "integer"),
        "b": column("text"),
        "d": column("text", required=True),
        "e": column("text", generated=True),
    }
    assert problems_with(fields, table) == [
        "column 'a' is bigint in the output and integer in the table; cast it in the transform, or make the column "
        "int8",
        "the table's column is 'b' and the output's 'B': write the same letters",
        "the table has no column 'c'; add it (text), or leave it out of the transform",
        "column 'd' of the table is NOT NULL without a default, and the transform does not return it",
    ]
    (problem,) = problems_with([StructField("e", StringType())], {"e": table["e"]})
    assert problem == "column 'e' is computed by the server; leave it out of the transform"


def test_a_column_is_created_with_a_type_that_takes_every_value() -> None:
    kinds = [IntegerType(), DecimalType(12, 2), StringType(), TimestampType()]
    assert [created_type(kind) for kind in kinds] == ["int4", "numeric(12,2)", "text", "timestamptz"]


def test_a_reserved_column_is_refused() -> None:
    schema = StructType([StructField("__Ackwright_partition", LongType())])
    output: Any = SimpleNamespace(columns=schema.names, schema=schema)
    sink: Any = SimpleNamespace(key=(), version_column=None, deleted_column=None)
    with pytest.raises(JobError, match="'__Ackwright_partition' begins with __ackwright, which is reserved; rename it"):
        to_sink_columns(output, sink)


def test_each_column_of_an_upsert_that_the_transform_does_not_return_is_named() -> None:
    schema = StructType([StructField("id", LongType()), StructField("text", StringType())])
    output: Any = SimpleNamespace(columns=schema.names, schema=schema)
    sink: Any = SimpleNamespace(key=("id", "shop"), version_column="at", deleted_column="gone")
    with pytest.raises(JobError) as caught:
        to_sink_columns(output, sink)
    assert caught.value.reason is Reason.INVALID_TRANSFORM
    assert caught.value.message.split("; it returns id, text") == [
        "sink.postgres.key names the column 'shop', which the transform does not return",
        "; sink.postgres.versionColumn names the column 'at', which the transform does not return",
        "; sink.postgres.deletedColumn names the column 'gone', which the transform does not return",
        "",
    ]


@pytest.mark.parametrize(
    ("name", "words"), [("ü" * 32, "has 64 bytes; PostgreSQL cuts names off after 63"), ("ü" * 31, "")]
)
def test_a_name_that_postgresql_cuts_off_is_refused(name: str, words: str) -> None:
    schema = StructType([StructField(name, LongType())])
    output: Any = SimpleNamespace(columns=schema.names, schema=schema)
    sink: Any = SimpleNamespace(key=(), version_column=None, deleted_column=None)
    if not words:
        assert to_sink_columns(output, sink) is output
        return
    with pytest.raises(JobError, match=words):
        to_sink_columns(output, sink)
