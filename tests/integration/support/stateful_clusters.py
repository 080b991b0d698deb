"""Stateful pipelines from one Kafka cluster to another: with drivers as processes, and with drivers without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from ackwright_stream import driver
from ackwright_stream.decisions import Decision
from ackwright_stream.jobspec import Guarantee, JobSpec, KafkaSink
from ackwright_stream.ownership import take
from ackwright_stream.positions import Lane
from ackwright_stream.sinks.kafka.sink import for_driver
from integration.support.pipelines import job_of
from integration.support.stateful_pipelines import create_decisions
from integration.support.two_clusters import TwoClusters
from integration.support.weaker_state import WeakerPipeline
from sql_texts import COUNTS_WITH_MARKS


def stateful_job(
    clusters: TwoClusters, directory: Path, guarantee: Guarantee, *, partitions: int = 2, sql: str = COUNTS_WITH_MARKS
) -> JobSpec:
    """The jobspec of a pipeline from one to the other, whose topics it creates. partitions: of the source."""
    name = f"between-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    clusters.create_topics(source, sink, partitions)
    create_decisions(clusters.sink.bootstrap_servers, replication=1)
    declared = clusters.document(
        name,
        guarantee.value,
        source,
        sink,
        transform={"sql": sql},
        state={"partitions": 2, "outputMode": "update"},
        checkpoint={"volume": {"size": "1Gi"}},
    )
    declared["spec"]["source"]["maxOffsetsPerTrigger"] = 700
    del declared["spec"]["sink"]["kafka"]["preservePartition"]
    job = job_of(declared, directory)
    assert job.state is not None
    return replace(job, state=replace(job.state, checkpoint=str(directory / "state")))


@contextmanager
def pipeline_between(
    clusters: TwoClusters, directory: Path, guarantee: Guarantee, *, sql: str = COUNTS_WITH_MARKS
) -> Iterator[WeakerPipeline]:
    """A pipeline from one to the other, and 500 records in each partition of its source."""
    job = stateful_job(clusters, directory, guarantee, sql=sql)
    created = WeakerPipeline(clusters.source.bootstrap_servers, directory, job, 2, state=directory / "state")
    created.feed()
    yield created


class DecidingDriver:
    """A driver in this process, without Spark, that has taken its pipeline. Its batches have a row for each record."""

    def __init__(self, spec: JobSpec) -> None:
        brokers = driver.check(spec)
        self._sink = for_driver(spec, brokers)
        self.owned = take(spec, brokers, self._sink)
        self.decision = self.owned.decision
        self._positions = dict(self.owned.positions)

    @property
    def offsets(self) -> dict[int, int]:
        """Where each partition of the one source topic is."""
        return {lane.partition: offset for lane, offset in self._positions.items()}

    def decide(self, until: Mapping[int, int]) -> Decision:
        """Decides the next batch, up to these offsets of the partitions. Raises JobError."""
        [topic] = {lane.topic for lane in self._positions}
        targets = {**self._positions, **{Lane(topic, p): offset for p, offset in until.items()}}
        records = sum(targets.values()) - sum(self._positions.values())
        decision = Decision(
            batch=self.decision.batch + 1 if self.decision else 0,
            driver=self.owned.driver,
            directory="d",
            query="q",
            starts=self._positions,
            positions=targets,
            watermark_ms=0,
            state={},
            records=records,
            digest="",
            offsets_before=None,
            offsets="",
            accepted_loss=self.owned.accepted_loss,
        )
        rows = pa.RecordBatch.from_pydict({"value": [f"{decision.batch}:{n}".encode() for n in range(records)]})
        self.owned.lanes.decide_batch(self._positions, targets, [rows], decision.batch, decision.to_json())
        self._positions, self.decision = targets, decision
        return decision

    def leave(self) -> None:
        """Ends the membership in the group, as the end of the process does."""
        if self._sink._member is not None:
            self._sink._member.release()


def at_source(spec: JobSpec, servers: str) -> JobSpec:
    """The job with another address of its source."""
    return replace(spec, cluster=replace(spec.cluster, bootstrap_servers=servers))


def topics_of(spec: JobSpec) -> tuple[str, str]:
    """The topics of source and sink."""
    return spec.source.topics[0], str(spec.sink_of(KafkaSink).topic)
