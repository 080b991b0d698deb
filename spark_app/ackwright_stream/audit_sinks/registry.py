"""Which reader the audit uses for which kind of sink, and where a new kind is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyspark.sql import SparkSession

from ackwright_stream.audit_kafka import KafkaView
from ackwright_stream.audit_sinks import letter_topic
from ackwright_stream.audit_sinks.base import SinkReader
from ackwright_stream.audit_sinks.kafka import KafkaReader
from ackwright_stream.jobspec import DeltaSink, FilesSink, IcebergSink, JobSpec, KafkaSink, PostgresSink

# Opens a reader. The arguments are those of reader().
Factory = Callable[[SparkSession, JobSpec, KafkaView, Iterable[str]], AbstractContextManager[SinkReader]]


def _kafka(
    spark: SparkSession, job: JobSpec, view: KafkaView, routes: Iterable[str]
) -> AbstractContextManager[SinkReader]:
    return nullcontext(KafkaReader(spark, job, view, routes))


def _postgres(
    spark: SparkSession, job: JobSpec, view: KafkaView, routes: Iterable[str]
) -> AbstractContextManager[SinkReader]:
    from ackwright_stream.audit_sinks.postgres import TableReader  # its client takes a while to import

    return TableReader(job)


def _delta(
    spark: SparkSession, job: JobSpec, view: KafkaView, routes: Iterable[str]
) -> AbstractContextManager[SinkReader]:
    from ackwright_stream.audit_sinks.delta import DeltaReader

    return DeltaReader(spark, job, letter_topic.reader(spark, job, view, job.sink_of(DeltaSink).dead_letters))


def _iceberg(
    spark: SparkSession, job: JobSpec, view: KafkaView, routes: Iterable[str]
) -> AbstractContextManager[SinkReader]:
    from ackwright_stream.audit_sinks.iceberg import IcebergReader

    return IcebergReader(spark, job, letter_topic.reader(spark, job, view, job.sink_of(IcebergSink).dead_letters))


def _files(
    spark: SparkSession, job: JobSpec, view: KafkaView, routes: Iterable[str]
) -> AbstractContextManager[SinkReader]:
    from ackwright_stream.audit_sinks.files import FilesReader

    return FilesReader(spark, job, letter_topic.reader(spark, job, view, job.sink_of(FilesSink).dead_letters))


_FACTORIES: dict[type[Any], Factory] = {
    KafkaSink: _kafka,
    PostgresSink: _postgres,
    DeltaSink: _delta,
    IcebergSink: _iceberg,
    FilesSink: _files,
}


def register(spec: type[Any], factory: Factory) -> None:
    """Makes the reader of a kind of sink known, by the sink's class in the jobspec."""
    _FACTORIES[spec] = factory


def reader(
    spark: SparkSession, job: JobSpec, view: KafkaView, routes: Iterable[str]
) -> AbstractContextManager[SinkReader]:
    """The reader of the job's sink.

    view: the source's brokers. routes: topics to which the transform may route records.
    """
    return _FACTORIES[type(job.sink)](spark, job, view, routes)
