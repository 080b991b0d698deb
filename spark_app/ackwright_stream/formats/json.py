"""Format json: a value is one JSON object, whose fields are columns."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StringType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.formats.base import METADATA, Parsed, column, is_utf8
from ackwright_stream.jobspec import OutputSchema, Reason, SchemaRegistry, Source

# Spark's defaults accept 'single quotes' and NaN; a record that other readers refuse is malformed here too.
_STRICT = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_WHITESPACE = " \t\r\n"  # of JSON (RFC 8259)
# Spark reads microseconds, and by default writes milliseconds. No brackets as in Spark's own patterns, because
# timeParserPolicy LEGACY would write them.
_MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def parse(records: DataFrame, source: Source, registry: SchemaRegistry | None = None) -> Parsed:
    """The columns of the schema; the key is in kafka.key.

    A record is malformed if its value is not exactly one JSON object, or if a field does not fit its column. A STRING
    column takes any JSON value, as its text; a missing field is null. A tombstone (value null) is well-formed, and its
    columns are null.
    """
    schema = _schema(source.schema)
    # `last` and `corrupt` are different in each query, and in no record. Without the words, Spark would read some of
    # them as numbers, such as 12345678d.
    last, corrupt = f"last_{secrets.token_hex(8)}", f"corrupt_{secrets.token_hex(8)}"
    options = {**_STRICT, "columnNameOfCorruptRecord": corrupt}
    text, alone = F.col("text"), F.col("alone")
    # Spark's parser stops after the first value of a text, so {"a": 1} {"a": 2} would pass as the first. If the first
    # closing brace is the last character, nothing follows the object.
    is_alone = text.startswith("{") & (F.instr(text, "}") == F.length(text))
    # A text that begins or ends otherwise is no object, and is not parsed: Spark's parser refuses a text by exceptions,
    # which takes five times as long as reading an object.
    may_be_object = _any(text.startswith(c) for c in f"{{{_WHITESPACE}") & _any(
        text.endswith(c) for c in f"}}{_WHITESPACE}"
    )
    with_corrupt = StructType([*schema, StructField(corrupt, StringType())])
    # Any other text is parsed at twice the cost: as an entry of a map, the value is followed by the next entry. A text
    # may close that map and open another one, but it cannot name the last entry.
    wrapped = StructType([StructField(last, MapType(StringType(), schema)), StructField(corrupt, StringType())])
    followed = F.concat(F.lit(f'{{"{last}":{{"":'), text, F.lit(f',"{last}":null}}}}'))
    entries = F.col(f"followed.{last}")
    first = F.get(F.map_values(entries), F.lit(0))
    is_first_of_two = (
        F.col(f"followed.{corrupt}").isNull()
        & (F.size(entries) == 2)
        & (F.get(F.map_keys(entries), F.lit(1)) == last)
        & first.isNotNull()
    )
    rows = records.select(METADATA, F.col(f"{METADATA}.value").cast("string").alias("text")).select(
        METADATA,
        "text",
        F.when(is_alone, F.from_json(text, with_corrupt, options)).alias("alone"),
        F.when(~is_alone & may_be_object, F.from_json(followed, wrapped, options)).alias("followed"),
    )
    one_object = F.when(alone.isNotNull(), alone[corrupt].isNull()).otherwise(is_first_of_two)
    record = F.when(alone.isNotNull(), alone.dropFields(corrupt)).otherwise(first)
    return Parsed(
        rows,
        lambda rows: rows.select(record.alias("record"), METADATA).select("record.*", METADATA),
        malformed=text.isNotNull() & ~(is_utf8("text") & F.coalesce(one_object, F.lit(False))),
        expected="a JSON object that fits source.schema",
    )


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions)


def _schema(ddl: str | None) -> StructType:
    if not ddl:
        raise JobError(
            Reason.INVALID_SPEC,
            'source.format is json but source.schema is missing; add one, such as "id BIGINT, name STRING"',
        )
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as e:
        message = (e.getMessage() or "").strip().splitlines()[0]
        raise JobError(
            Reason.INVALID_SPEC, f"source.schema = {ddl!r} is not a list of columns in Spark's DDL: {message}"
        ) from e
    if not isinstance(schema, StructType):
        raise JobError(
            Reason.INVALID_SPEC, f'source.schema = {ddl!r} is one type; give columns, such as "id BIGINT, name STRING"'
        )
    if any(name.lower() == METADATA for name in schema.names):
        raise JobError(
            Reason.INVALID_SPEC, f"source.schema has a column {METADATA!r}, which is the record's metadata; rename it"
        )
    return schema


def value_problems(fields: Sequence[StructField]) -> list[str]:
    if fields:
        return []
    return ["the transform lacks columns for the value; select at least one besides key, topic and headers"]


def to_value(fields: Sequence[StructField], schema: OutputSchema | None = None) -> Column:
    """The columns as one object, in which a null is explicit: a consumer can tell it from a field that is absent.

    A single struct or map named `value` is the value itself; if it is null, the record is a tombstone.
    """
    single = len(fields) == 1 and fields[0].name.lower() == "value"
    if single and isinstance(fields[0].dataType, StructType | MapType):
        value = column(fields[0])
    else:
        value = F.struct(*(column(f) for f in fields))
    return to_text(value, omit_nulls=False)


def to_text(value: Column, *, omit_nulls: bool) -> Column:
    """The text of a struct or map. omit_nulls: whether a field that is null is absent, and not an explicit null."""
    return F.to_json(value, {"ignoreNullFields": str(omit_nulls).lower(), **_MICROSECONDS})
