"""Which columns fit into a Delta table, and how those that do not are reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.delta.columns import to_sink_columns
from ackwright_stream.sinks.staged.columns import problems_with

STRINGS, STRINGS_WITHOUT_NULL = ArrayType(StringType()), ArrayType(StringType(), containsNull=False)
NARROW, WIDE = (StructType([StructField("a", kind)]) for kind in (IntegerType(), LongType()))


@pytest.mark.parametrize(
    ("kind", "table", "fits"),
    [
        (IntegerType(), IntegerType(), True),
        (ShortType(), LongType(), True),
        (LongType(), IntegerType(), False),
        (IntegerType(), DecimalType(12, 0), False),
        (FloatType(), DoubleType(), True),
        (DoubleType(), FloatType(), False),
        (DecimalType(10, 2), DecimalType(12, 4), True),
        (DecimalType(10, 2), DecimalType(12, 1), False),
        (DecimalType(10, 2), DecimalType(10, 4), False),
        (StringType(), LongType(), False),
        (TimestampType(), TimestampNTZType(), False),
        (STRINGS_WITHOUT_NULL, STRINGS, True),
        (STRINGS, STRINGS_WITHOUT_NULL, False),
        (NARROW, WIDE, True),
        (WIDE, NARROW, False),
        (NARROW, StructType([StructField("b", IntegerType())]), False),
    ],
)
def test_a_column_takes_every_value_of_a_type_or_is_refused(kind: DataType, table: DataType, fits: bool) -> None:
    schema = StructType([StructField("c", table)])
    assert (problems_with([StructField("c", kind)], schema) == []) is fits


def refused(schema: StructType, *partition_columns: str) -> str:
    output: Any = SimpleNamespace(columns=schema.names, schema=schema)
    sink: Any = SimpleNamespace(partition_columns=partition_columns)
    with pytest.raises(JobError) as caught:
        to_sink_columns(output, sink)
    assert caught.value.reason is Reason.INVALID_TRANSFORM
    return caught.value.message


def test_every_problem_of_the_output_is_reported_at_once() -> None:
    message = refused(
        StructType(
            [
                StructField("a", LongType()),
                StructField("A", LongType()),
                StructField("b c", StringType()),
                StructField("__ackwright_x", StringType()),
                StructField("m", MapType(StringType(), StringType())),
                StructField("n", NullType()),
                StructField("d", DoubleType()),
            ]
        ),
        "d",
        "day",
    )
    for words in (
        "column 'a' appears twice",
        "column 'b c' has a space or one of",
        "column '__ackwright_x' begins with __ackwright, which is reserved; rename it",
        "column 'm' is map<string,string>, which this sink does not write; convert it with to_json",
        "column 'n' is void, which this sink does not write; cast it",
        "the partition column 'd' is double; cast it to a string, a date",
        "names the column 'day', which the transform does not return",
    ):
        assert words in message


def test_a_table_needs_a_column_that_files_hold() -> None:
    assert "every column is a partition column" in refused(StructType([StructField("a", LongType())]), "a")
