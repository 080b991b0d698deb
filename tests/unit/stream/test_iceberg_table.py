"""Which Iceberg tables the sink writes to, their types, and how its errors read."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import pytest
import requests
from pyiceberg import exceptions
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql.types import ArrayType, LongType, ShortType, StringType, StructField, StructType, TimestampType
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ackwright_stream.errors import JobError
from ackwright_stream.iceberg_catalog import translate
from ackwright_stream.iceberg_types import FIELD_ID, to_iceberg, to_spark
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.iceberg.columns import to_sink_columns
from ackwright_stream.sinks.iceberg.table import IcebergTableVersion
from ackwright_stream.sinks.staged.table import Place

COLUMNS = StructType([StructField("n", LongType())])
PLACE = Place("Iceberg table", "shop.rows", "sink.iceberg", "table", ())


def problems(
    properties: Mapping[str, str] | None = None,
    version: int = 2,
    transforms: tuple[str, ...] = (),
    location: str = "s3://lake/rows",
) -> str:
    columns = None if transforms else ()
    table = IcebergTableVersion(COLUMNS, columns, dict(properties or {}), location, version, transforms)
    return "; ".join(table.problems(PLACE, COLUMNS.fields))


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.format.default": "PARQUET", "write.parquet.compression-codec": "gzip"},
        {"write.wap.enabled": "false", "write.distribution-mode": "hash", "commit.retry.num-retries": "10"},
        {"write.object-storage.enabled": "true", "write.data.path": "s3://lake/data", "ackwright/a/driver": "1"},
    ],
)
def test_properties_that_ask_nothing_of_this_writer_are_accepted(properties: dict[str, str]) -> None:
    assert problems(properties) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.format.default", "avro"),
        ("write.parquet.compression-codec", "lzo"),
        ("write.parquet.compression-level", "high"),
        ("write.wap.enabled", "TRUE"),
        ("write.upsert.enabled", "true"),
        ("write.location-provider.impl", "com.example.Locations"),
        ("write.py-location-provider.impl", "os.system"),
        ("py-io-impl", "os.system"),
        ("encryption.key-id", "k"),
    ],
)
def test_every_property_that_asks_more_is_refused_by_its_name(name: str, value: str) -> None:
    assert problems({name: value}) == (
        f"it has the properties {name}={value}, which this sink does not support; remove them"
    )


def test_versions_and_computed_partitions_are_refused_together() -> None:
    message = problems(version=3, transforms=("bucket[16](n)",))
    assert "its format version is 3, and this sink writes version 2; write to a table of version 2" in message
    assert "it is partitioned by bucket[16](n), and this sink partitions by columns as they are" in message
    assert "set the table property format-version to 2" in problems(version=1)


@pytest.mark.parametrize("location", ["/lake/rows", "file:///lake/rows", "file:/lake/rows", "s3a://lake/rows"])
def test_locations_in_directories_and_s3_are_accepted(location: str) -> None:
    assert problems(location=location) == ""


@pytest.mark.parametrize("location", ["gs://lake/rows", "abfss://lake@account/rows", "hdfs://name/rows"])
def test_other_locations_are_refused(location: str) -> None:
    assert f"its files are in {location.partition(':')[0]}:, and this sink writes to" in problems(location=location)


def test_columns_have_the_types_of_spark_and_the_ids_of_the_table() -> None:
    schema = Schema(
        NestedField(3, "at", iceberg.TimestamptzType(), required=True),
        NestedField(4, "many", iceberg.ListType(5, iceberg.LongType(), element_required=True)),
        NestedField(6, "u", iceberg.UUIDType()),
        NestedField(7, "m", iceberg.MapType(8, iceberg.StringType(), 9, iceberg.StringType())),
    )
    columns = to_spark(schema, ids=True)
    assert [field.metadata[FIELD_ID] for field in columns.fields] == [3, 4, 6, 7]
    assert columns["at"].dataType == TimestampType()
    assert not columns["at"].nullable
    assert columns["many"].dataType == ArrayType(LongType(), containsNull=False)
    assert columns["u"].dataType.simpleString() == "uuid"
    assert columns["m"].dataType.simpleString() == "map<string, string>"
    assert to_spark(schema).fields[0].metadata == {}


def test_a_new_table_has_the_columns_of_the_output() -> None:
    output = StructType(
        [
            StructField("n", ShortType(), nullable=False),
            StructField("many", ArrayType(StructType([StructField("a", StringType(), nullable=False)]))),
        ]
    )
    schema = to_iceberg(output)
    assert len(set(schema.field_ids)) == len(schema.field_ids) == 4
    assert [str(schema.find_type(name)) for name in ("n", "many.element.a")] == ["int", "string"]
    assert not any(field.required for field in schema.fields)


def test_a_name_with_a_dot_is_refused_and_a_table_of_partition_columns_is_not() -> None:
    sink: Any = type("Sink", (), {"partition_columns": ("a b",)})
    good = StructType([StructField("a b", LongType())])
    to_sink_columns(_output(good), sink)
    with pytest.raises(JobError, match=r"column 'a\.b' has a dot, which separates the names of nested"):
        to_sink_columns(_output(StructType([*good.fields, StructField("a.b", LongType())])), sink)


def _output(schema: StructType) -> Any:
    return type("Output", (), {"columns": schema.names, "schema": schema})


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (exceptions.UnauthorizedError("401"), Reason.SINK_LOGIN_REFUSED),
        (exceptions.OAuthError("unauthorized_client"), Reason.SINK_LOGIN_REFUSED),
        (exceptions.ForbiddenError("may not"), Reason.AUTHORIZATION_FAILED),
        (
            exceptions.ForbiddenError("The request signature we calculated does not match the signature you provided."),
            Reason.SINK_LOGIN_REFUSED,
        ),
        (
            exceptions.ForbiddenError("The security token included in the request is expired"),
            Reason.SINK_LOGIN_REFUSED,
        ),
        (exceptions.ServiceUnavailableError("later"), Reason.SINK_UNREACHABLE),
        (exceptions.CommitStateUnknownException("403 is no sign here"), Reason.SINK_UNREACHABLE),
        (requests.ConnectionError("refused"), Reason.SINK_UNREACHABLE),
        (OperationalError("INSERT", {}, Exception("database is locked")), Reason.SINK_UNREACHABLE),
        (
            OperationalError("INSERT", {}, Exception("attempt to write a readonly database")),
            Reason.AUTHORIZATION_FAILED,
        ),
        (OSError(errno.ENOSPC, "No space left on device"), Reason.SINK_UNREACHABLE),
        (OSError("AWS Error ACCESS_DENIED during PutObject operation"), Reason.AUTHORIZATION_FAILED),
        (OSError("AWS Error INVALID_ACCESS_KEY_ID during PutObject operation"), Reason.SINK_LOGIN_REFUSED),
        (exceptions.NoSuchTableError("Table does not exist"), Reason.SINK_UNREACHABLE),
        (PoolTimeout("QueuePool limit"), Reason.SINK_UNREACHABLE),
        (ValueError("x\n" * 1000), Reason.BATCH_FAILED),
    ],
)
def test_an_error_of_a_client_has_a_reason_and_one_line(error: Exception, reason: Reason) -> None:
    translated = translate(error, "committing to shop.rows")
    assert translated.reason is reason
    assert translated.message.startswith("committing to shop.rows: ")
    assert len(translated.message) < 500
    assert "\n" not in translated.message
