"""Which Delta tables the sink writes to, and how its errors read."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import pytest
from deltalake.exceptions import DeltaError
from obstore.exceptions import GenericError
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.delta.table import DeltaTableVersion as Table
from ackwright_stream.sinks.staged.table import Place
from ackwright_stream.storage_errors import translate

PLACE = Place("Delta table", "/t", "sink.delta", "path", ())
SCHEMA = StructType([StructField("n", LongType())])


def problems(
    *features: str, version: int = 7, properties: Mapping[str, str] | None = None, schema: StructType = SCHEMA
) -> str:
    table = Table(schema, (), dict(properties or {}), version, frozenset(features))
    return "; ".join(table.problems(PLACE, SCHEMA.fields))


@pytest.mark.parametrize(
    "features", [(), ("appendOnly", "invariants"), ("timestampNtz", "changeDataFeed"), ("checkConstraints",)]
)
def test_features_that_ask_nothing_of_a_writer_that_appends_are_accepted(features: tuple[str, ...]) -> None:
    assert problems(*features, version=7 if features else 2) == ""


@pytest.mark.parametrize(
    "feature",
    [
        *("deletionVectors", "columnMapping", "rowTracking", "inCommitTimestamp", "domainMetadata", "clustering"),
        *("icebergCompatV2", "v2Checkpoint", "typeWidening", "allowColumnDefaults", "a feature of the future"),
    ],
)
def test_every_other_feature_is_refused_by_its_name(feature: str) -> None:
    message = problems("appendOnly", feature)
    assert message.startswith(f"it uses {feature}, which this sink does not support; write to a table without")


@pytest.mark.parametrize("version", [5, 6, 8])
def test_a_writer_version_with_more_duties_is_refused(version: int) -> None:
    assert f"it uses writer version {version}" in problems(version=version)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"delta.invariants": "{}"}, "invariants of columns"),
        ({"delta.generationExpression": "n + 1"}, "generated columns"),
        ({"delta.identity.start": 1}, "identity columns"),
        ({"CURRENT_DEFAULT": "1"}, "column defaults"),
        ({"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}, "columns of type VARCHAR or CHAR"),
    ],
)
def test_a_column_that_asks_something_of_its_writer_is_refused(metadata: dict[str, Any], words: str) -> None:
    """Also one within a struct, an array or a map."""
    asking = StructType([StructField("m", StringType(), metadata=metadata)])
    for kind in (asking, ArrayType(asking), MapType(StringType(), asking), MapType(asking, StringType())):
        schema = StructType([StructField("n", LongType()), StructField("nested", kind)])
        assert f"it uses {words}" in problems(version=4, schema=schema)
    schema = StructType([StructField("n", LongType(), metadata=metadata)])
    assert f"it uses {words}" in problems(version=4, schema=schema)


def test_a_check_constraint_and_a_log_that_forgets_are_refused_together() -> None:
    properties = {"delta.constraints.few": "n < 7", "delta.setTransactionRetentionDuration": "interval 7 days"}
    message = problems(version=3, properties=properties)
    assert "it uses CHECK constraints" in message
    assert "lets the log forget positions" in message


def test_partition_values_count_as_nulls() -> None:
    required = StructType([StructField("day", LongType(), nullable=False)])
    table = Table(required, ("day",), {}, 2, frozenset())
    table.require_values(PLACE, [{"day": 0}])
    with pytest.raises(JobError, match="a row has null in day, which is NOT NULL in /t") as caught:
        table.require_values(PLACE, [{"day": 0}, {"day": 3}])
    assert caught.value.reason is Reason.ROW_REFUSED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Reason.SINK_UNREACHABLE),
        (PermissionError(errno.EACCES, "Permission denied"), Reason.AUTHORIZATION_FAILED),
        (OSError("Generic S3 error: 403 Forbidden: <Code>AccessDenied</Code>"), Reason.AUTHORIZATION_FAILED),
        (OSError("403 Forbidden: <Code>InvalidAccessKeyId</Code>"), Reason.SINK_LOGIN_REFUSED),
        (OSError("x" * 1000 + "SignatureDoesNotMatch" + "x" * 1000), Reason.SINK_LOGIN_REFUSED),
        (DeltaError("Kernel error: the object store did not answer"), Reason.SINK_UNREACHABLE),
        (GenericError("error sending request"), Reason.SINK_UNREACHABLE),
        (ValueError("anything"), Reason.BATCH_FAILED),
        (OverflowError("date value out of range"), Reason.BATCH_FAILED),
    ],
)
def test_an_error_of_a_client_has_a_reason_and_one_line(error: Exception, reason: Reason) -> None:
    translated = translate(error, "writing to /t")
    assert translated.reason is reason
    assert translated.message.startswith("writing to /t: ")
    assert len(translated.message) < 500
    assert "\n" not in translated.message
