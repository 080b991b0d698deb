"""From the columns of a transform's output to those of Kafka's records: key, value, topic, headers."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, NullType, StringType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.formats import format_of
from ackwright_stream.formats.base import column, type_problems
from ackwright_stream.jobspec import KafkaSink, Reason
from ackwright_stream.positions import SOURCE, UNMERGED
from ackwright_stream.source import HEADERS

_RESERVED = ("key", "topic", "headers")  # columns of the output that are not part of the value
_ABSENT = "ackwright.absent"  # metadata of a column that the transform does not return


def to_sink_columns(output: DataFrame, sink: KafkaSink) -> DataFrame:
    """The records that the output describes, as key, value (both BINARY), topic (STRING) and headers (HEADERS).

    The sink's format decides which columns make the value. Without a column `topic`, or where it is null, the topic is
    the sink's. Raises JobError(INVALID_TRANSFORM) with everything that is wrong.
    """
    fields = {f.name.lower(): f for f in output.schema.fields}
    value = value_columns(output)
    record_format = format_of(sink.format)
    names = [f.name.lower() for f in output.schema.fields]
    problems = [f"column {name!r} appears twice" for name in sorted({n for n in names if names.count(n) > 1})]
    problems += record_format.value_problems(value)
    problems += type_problems("key", fields.get("key"), (StringType, BinaryType))
    problems += type_problems("topic", fields.get("topic"), (StringType,))
    problems += _header_problems(fields.get("headers"))
    if "topic" not in fields and sink.topic is None:
        problems.append("there is neither sink.kafka.topic nor a column topic; give one of them")
    if problems:
        raise JobError(Reason.INVALID_TRANSFORM, "; ".join(problems))
    null = F.lit(None)
    absent = {name: {_ABSENT: True} if name not in fields else {} for name in _RESERVED}
    return output.select(
        (column(fields["key"]) if "key" in fields else null).cast("binary").alias("key", metadata=absent["key"]),
        record_format.to_value(value, sink.output_schema).cast("binary").alias("value"),
        _topic(fields.get("topic"), sink).alias("topic", metadata=absent["topic"]),
        (column(fields["headers"]) if "headers" in fields else null)
        .cast(HEADERS)
        .alias("headers", metadata=absent["headers"]),
    )


def value_columns(output: DataFrame) -> list[StructField]:
    """The columns of an output that make the value."""
    fields = {f.name.lower(): f for f in output.schema.fields}
    return [f for name, f in fields.items() if name not in _RESERVED]


def present_columns(records: DataFrame, sink: KafkaSink) -> DataFrame:
    """The columns of to_sink_columns() without those that the transform does not return and that hold a constant.

    With the column SOURCE, if the sink keeps records in their partitions.
    """
    present = records.select(*(f.name for f in records.schema.fields if not f.metadata.get(_ABSENT)))
    return present.withColumn(SOURCE, F.spark_partition_id()) if sink.preserve_partition else present


def worker_columns(records: DataFrame, sink: KafkaSink) -> DataFrame:
    """The columns of to_sink_columns() that a Python worker needs: the present ones, with empty headers for null ones.

    The column SOURCE is UNMERGED, until a task knows its lanes.

    Spark computes the size of an Arrow batch after each of its rows (BatchedPythonArrowInput), and for a list column
    arrow-java then visits all nulls since the last list (ListVector.setValueCount). 10,000 null headers took most of a
    batch's time. A record without headers and one with empty headers are the same.
    """
    present = present_columns(records, sink).withColumnRenamed(SOURCE, UNMERGED)
    empty = F.array().cast(HEADERS)
    return present.select(
        *(F.coalesce("headers", empty).alias("headers") if name == "headers" else name for name in present.columns)
    )


def chooses_topic(records: DataFrame) -> bool:
    """Whether the transform itself names the topic of the records of to_sink_columns()."""
    return not records.schema["topic"].metadata.get(_ABSENT)


def _topic(field: StructField | None, sink: KafkaSink) -> Column:
    if field is None:
        return F.lit(sink.topic)
    missing = (
        "MalformedRecord: the transform returns a record whose topic is null, and there is no sink.kafka.topic; "
        "set one of them"
    )
    default = F.raise_error(F.lit(missing)).cast("string") if sink.topic is None else F.lit(sink.topic)
    return F.coalesce(column(field).cast("string"), default)


def _header_problems(field: StructField | None) -> list[str]:
    if field is None or isinstance(field.dataType, NullType):
        return []
    entry = field.dataType.elementType if isinstance(field.dataType, ArrayType) else None
    if (
        isinstance(entry, StructType)
        and [n.lower() for n in entry.names] == ["key", "value"]
        and isinstance(entry.fields[0].dataType, StringType)
        and isinstance(entry.fields[1].dataType, StringType | BinaryType)
    ):
        return []
    return [
        f"column 'headers' is {field.dataType.simpleString()}, not array<struct<key: string, value: binary>>; write "
        "array(named_struct('key', 'name', 'value', CAST(x AS BINARY))) AS headers"
    ]
