"""Which code delivers to which kind of sink, and where a new kind is registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from pyspark.sql import DataFrame

from ackwright_stream import jobspec
from ackwright_stream.cluster import Cluster
from ackwright_stream.jobspec import DeltaSink, FilesSink, IcebergSink, JobSpec, KafkaSink, PostgresSink
from ackwright_stream.sinks.base import Sink
from ackwright_stream.sinks.kafka import columns as kafka_columns
from ackwright_stream.sinks.kafka import sink as kafka


class ForTasks(Protocol):
    """Creates a sink for the tasks of one worker.

    transactional: whether rows go through transactions, or through Sink.write().
    """

    def __call__(self, job: JobSpec, *, transactional: bool) -> Sink: ...


class Factory(NamedTuple):
    """How sinks of one kind are created. Creating one connects to nothing."""

    for_driver: Callable[[JobSpec, Cluster | None], Sink]  # the source's cluster is None without access to brokers
    for_tasks: ForTasks


def _postgres_for_driver(job: JobSpec, cluster: Cluster | None) -> Sink:
    from ackwright_stream.sinks.postgres.sink import PostgresStore  # its client takes a while to import

    return PostgresStore(job)


def _postgres_for_tasks(job: JobSpec, *, transactional: bool) -> Sink:
    from ackwright_stream.sinks.postgres.sink import PostgresStore

    return PostgresStore(job)


def _delta_for_driver(job: JobSpec, cluster: Cluster | None) -> Sink:
    from ackwright_stream.sinks.delta.sink import DeltaStore

    return DeltaStore(job)


def _delta_for_tasks(job: JobSpec, *, transactional: bool) -> Sink:
    from ackwright_stream.sinks.delta.sink import DeltaStore

    return DeltaStore(job)


def _iceberg_for_driver(job: JobSpec, cluster: Cluster | None) -> Sink:
    from ackwright_stream.sinks.iceberg.sink import IcebergStore

    return IcebergStore(job)


def _iceberg_for_tasks(job: JobSpec, *, transactional: bool) -> Sink:
    from ackwright_stream.sinks.iceberg.sink import IcebergStore

    return IcebergStore(job)


def _files_for_driver(job: JobSpec, cluster: Cluster | None) -> Sink:
    from ackwright_stream.sinks.files.sink import FilesStore

    return FilesStore(job)


def _files_for_tasks(job: JobSpec, *, transactional: bool) -> Sink:
    from ackwright_stream.sinks.files.sink import FilesStore

    return FilesStore(job)


_FACTORIES: dict[type[Any], Factory] = {
    KafkaSink: Factory(kafka.for_driver, kafka.for_tasks),
    PostgresSink: Factory(_postgres_for_driver, _postgres_for_tasks),
    DeltaSink: Factory(_delta_for_driver, _delta_for_tasks),
    IcebergSink: Factory(_iceberg_for_driver, _iceberg_for_tasks),
    FilesSink: Factory(_files_for_driver, _files_for_tasks),
}


def register(spec: type[Any], factory: Factory) -> None:
    """Makes a kind of sink known, by its class in the jobspec.

    Call it in the module of that class: workers import it from there.
    """
    jobspec.register_sink(spec)
    _FACTORIES[spec] = factory


def for_driver(job: JobSpec, cluster: Cluster | None) -> Sink:
    """The sink of the job, for its driver. cluster: None without access to brokers."""
    return _FACTORIES[type(job.sink)].for_driver(job, cluster)


def for_tasks(job: JobSpec, *, transactional: bool) -> Sink:
    """The sink of the job, for the tasks of one worker."""
    return _FACTORIES[type(job.sink)].for_tasks(job, transactional=transactional)


def chooses_topic(job: JobSpec, rows: DataFrame) -> bool:
    """Whether rows, as the sink's to_sink_columns() returns them, name their topics of Kafka themselves."""
    return isinstance(job.sink, KafkaSink) and kafka_columns.chooses_topic(rows)
