"""A jobspec for tests that need any valid one, rendered from a plan as the operator renders it."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any

from ackwright.api.spec import parse
from ackwright.planning.plan import plan
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import Cluster, Format, Guarantee, JobSpec, KafkaSink, Source
from ackwright_stream.reports import ProgressReport, State

NOBODY = "127.0.0.1:1"  # an address without a broker


def minimal_job(
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    *,
    group: str = "ops.flights",
    bootstrap: str = NOBODY,
    **changes: Any,
) -> JobSpec:
    """The jobspec of the pipeline ops/flights, from the topic `in` to the topic `out`.

    `changes` are fields of JobSpec or of its source.
    """
    job = _rendered(guarantee, group)
    of_source = {name: changes.pop(name) for name in [f.name for f in fields(Source)] if name in changes}
    if isinstance(sink := changes.get("sink"), KafkaSink):
        changes["sink"] = replace(sink, positions=job.sink_of(KafkaSink).positions)
    cluster = Cluster(**{**vars(job.cluster), "bootstrap_servers": bootstrap})
    return replace(job, **{"cluster": cluster, "source": replace(job.source, **of_source), **changes})


def with_positions(job: JobSpec, **changes: Any) -> JobSpec:
    """The jobspec of a Kafka sink with other values of KafkaPositions."""
    sink = job.sink_of(KafkaSink)
    return replace(job, sink=replace(sink, positions=replace(sink.positions, **changes)))


def with_member(job: JobSpec, **changes: str) -> JobSpec:
    """The jobspec of a Kafka sink with other settings of the driver's membership; underscores in place of dots."""
    dotted = {name.replace("_", "."): value for name, value in changes.items()}
    return with_positions(job, member={**job.sink_of(KafkaSink).positions.member, **dotted})


def kafka_sink(topic: str | None, format_: Format = Format.BINARY, *, preserve_partition: bool = False) -> KafkaSink:
    """The Kafka sink of a jobspec; minimal_job() gives it the positions of its group."""
    sink = minimal_job().sink_of(KafkaSink)
    return replace(sink, topic=topic, format=format_, preserve_partition=preserve_partition)


@cache
def _rendered(guarantee: Guarantee, group: str) -> JobSpec:
    spec = {
        "guarantee": guarantee.value,
        "kafka": {"bootstrapServers": NOBODY},
        "source": {"topics": ["in"], "groupId": group},
        "transform": {"sql": "SELECT key, value FROM source"},
        "sink": {"kafka": {"topic": "out"}},
    }
    metadata = {"name": "flights", "namespace": "ops"}
    document = {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": metadata, "spec": spec}
    return jobspec(plan(parse(document)), master="local[2]", secrets=None)


def minimal_report(**changes: Any) -> ProgressReport:
    """The report of a running driver that has delivered nothing yet. changes: other fields."""
    values: dict[str, Any] = {
        "pipeline": "ops/flights",
        "guarantee": "exactly-once",
        "state": State.RUNNING,
        "driver": 1,
        "batch_id": 0,
        "batch_seconds": 0.0,
        "last_batch_at": None,
        "positions": {},
        "lag": 0,
        "records": 0,
        "batches": 1,
        "restarts": 0,
        "abandoned_records": 0,
        "expired_records": 0,
        "malformed_records": 0,
        "dead_letters": 0,
        "skipped_lanes": 0,
        "records_per_second": 0.0,
    }
    return ProgressReport(**values | changes)
