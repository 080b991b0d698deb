"""Records as Spark's Kafka source returns them, for tests of transforms without a broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import transform
from ackwright_stream.jobspec import JobSpec, KafkaSink, Transform
from ackwright_stream.sinks.kafka.columns import to_sink_columns
from minimal_job import minimal_job

RAW = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
JOB = minimal_job()
SINK = JOB.sink_of(KafkaSink)
SCHEMA = "a STRING, n INT, o STRUCT<x: INT>"


@contextlib.contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def raw(spark: SparkSession, *values: bytes | None, key: bytes | None = b"k") -> DataFrame:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    rows = [
        (
            bytearray(key) if key is not None else None,
            bytearray(v) if v is not None else None,
            "in",
            3,
            i,
            now,
            0,
            [("h", bytearray(b"1"))],
        )
        for i, v in enumerate(values)
    ]
    return spark.createDataFrame(rows, RAW)


def job(sql: str = "SELECT key, value FROM source", sink: KafkaSink = SINK, **more: object) -> JobSpec:
    return replace(JOB, transform=Transform(sql=sql), sink=sink, source=replace(JOB.source, **more))  # type: ignore[arg-type]


def sink_columns(spark: SparkSession, df: DataFrame, spec: JobSpec) -> DataFrame:
    """What the Kafka sink gets of a job's records."""
    return to_sink_columns(transform.apply_transform(spark, df, spec), spec.sink_of(KafkaSink))


def values(df: DataFrame) -> list[bytes | None]:
    return [None if r.value is None else bytes(r.value) for r in df.collect()]
