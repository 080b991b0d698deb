"""Stateful pipelines: the jobspec of their drivers, and whether their output is that of one run.

The transform counts the records of groups of 100, and marks each group with a random number when it sees its first
record. The mark is in the state: output that was computed from the state of another evaluation has another mark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions, NewTopic

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.decisions import Decision
from ackwright_stream.jobspec import JobSpec, KafkaSink, StateSettings
from ackwright_stream.jobspec_values import STATE
from integration.support.driver_lives import DriverLives
from integration.support.pipelines import assert_nothing_hangs, create_topics, document, job_of, read
from sql_texts import COUNTS_WITH_MARKS
from waiting import ANSWER, wait_until

PARTITIONS = 3
OF_GROUP = 100
DECISIONS = "ackwright-decisions"

# As a driver would be that believes Spark's logs, and does not compare the state from which a batch was computed.
_BELIEVES_LOGS = """
from ackwright_stream import decisions, state_log


def state_of(entries, operators, batch, partitions, before):
    ids = {(e.operator, e.partition): e.ids for e in entries}
    return {o: tuple(ids[o, p] for p in range(partitions)) for o in operators}


state_log._rebuild = lambda *_, **__: None
decisions.state_of = state_of
"""


def with_state(job: JobSpec, directory: Path, partitions: int = 2) -> JobSpec:
    """The same job with state in a directory."""
    state = StateSettings(
        partitions=partitions,
        checkpoint=str(directory),
        output_mode="update",
        event_time=None,
        watermark_delay=None,
        batch_bytes=64 * 1024 * 1024,
    )
    required = {name: value for name, (value, _) in STATE.items()}
    spark = {**job.spark, **required, "spark.sql.shuffle.partitions": str(partitions)}
    if isinstance(sink := job.sink, KafkaSink):
        job = replace(job, sink=replace(sink, positions=replace(sink.positions, decisions_topic=DECISIONS)))
    return replace(job, state=state, spark=spark, stream_options={})


@dataclass
class Counted:
    """What is wrong with the output."""

    missing: int = 0  # records that no final count has
    surplus: int = 0  # records that a final count has beyond those of the group
    marks: int = 0  # groups with more than one mark
    backwards: int = 0  # counts that are not higher than the one before of the same group


def judge_counts(counts: dict[str, list[tuple[int, str]]], partitions: int, fed: int) -> Counted:
    """What is wrong with the counts and marks of each group, in the order of the output.

    partitions, fed: of the source, and how many records each was fed.
    """
    result = Counted()
    for p in range(partitions):
        for group in range(-(-fed // OF_GROUP)):
            expected = min(OF_GROUP, fed - group * OF_GROUP)
            of_group = counts.pop(f"p{p}/{group}", [(0, "")])
            result.missing += max(0, expected - of_group[-1][0])
            result.surplus += max(0, of_group[-1][0] - expected)
            result.marks += len({mark for _, mark in of_group}) > 1
            result.backwards += sum(after <= before for (before, _), (after, _) in pairwise(of_group))
    assert not counts, f"groups of no record: {sorted(counts)[:5]}"
    return result


@dataclass
class StatefulPipeline(DriverLives):
    """One pipeline over several runs of its driver."""

    state: Path

    @property
    def sink(self) -> str:
        return str(self.spec.sink_of(KafkaSink).topic)

    @property
    def sink_servers(self) -> str:
        """The brokers of output, positions and decisions."""
        return self.spec.sink_of(KafkaSink).brokers(self.spec.cluster).bootstrap_servers

    def add_partitions(self, partitions: int) -> None:
        """Adds partitions to the source, with as many records as each of the others has."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_partitions([NewPartitions(self.source, partitions)])[self.source].result(30)

        producer, errors = Producer({"bootstrap.servers": self.servers, "acks": "all"}), list[object]()

        def send(partition: int, numbers: range) -> bool:
            """Whether the records were written: not all brokers know of a new partition at once."""
            producer.list_topics(self.source, timeout=ANSWER)  # or it would learn of the partition after 5 minutes
            errors.clear()
            for n in numbers:
                value, key = f"{partition}:{n}".encode(), f"p{partition}".encode()
                try:
                    producer.produce(self.source, value, key, partition, on_delivery=lambda e, _: errors.append(e))
                except KafkaException as e:
                    errors.append(e)
            return producer.flush(60) == 0 and not any(errors)

        for added in range(self.partitions, partitions):
            wait_until(partial(send, added, range(1)), f"{self.source}-{added} has a record")
            assert send(added, range(1, self.fed)), errors[:1]
        self.partitions = partitions

    def killed_at(self, point: str, count: int = 500) -> None:
        """A run that is killed at the fault point, in the first batch of so many further records per partition."""
        with self.life() as job:
            self.caught_up(job)
            hit = job.arm(point)
            self.feed(count)
            job.arrived(hit)
            job.job.kill()

    def killed_in_first_batch(self, point: str) -> None:
        """A run that is killed at the fault point, in its first batch."""
        with self.life() as job:
            job.arrived(job.arm(point))
            job.job.kill()

    def drained(self) -> None:
        """A run that delivers every record and ends by SIGTERM."""
        with self.life() as job:
            self.caught_up(job)
            self.drain(job)

    def stored_last(self) -> dict[int, str]:
        """By partition, the id of the state with the highest version. The query has one operator with one store."""
        files = [f for f in self.state.glob("*/state/0/*/*.changelog") if f.stem.count("_") == 1]
        newest = {
            int(f.parent.name): f for f in sorted(files, key=lambda f: (int(f.stem.split("_")[0]), f.stat().st_mtime))
        }
        return {partition: f.stem.split("_")[1] for partition, f in newest.items()}

    def write(self, name: str, text: str) -> None:
        """Replaces a file of the state."""
        (self.state / name).write_text(text)

    def last_decision(self) -> Decision:
        """The last decision of the pipeline."""
        of_pipeline = [r for r in read(self.sink_servers, DECISIONS) if r.key == self.spec.group.encode()]
        return Decision.of_json((of_pipeline[-1].value or b"").decode())

    def counted(self) -> Counted:
        """Compares the output with the input."""
        assert_nothing_hangs(self.sink_servers, self.sink)
        counts: dict[str, list[tuple[int, str]]] = {}
        for record in read(self.sink_servers, self.sink):
            assert record.key is not None
            assert record.value is not None
            count, _, mark = record.value.decode().partition(" ")
            counts.setdefault(record.key.decode(), []).append((int(count), mark))
        return judge_counts(counts, self.partitions, self.fed)


def believe_logs(environment: dict[str, str], directory: Path) -> None:
    """Lets drivers with these variables believe Spark's logs. directory: for the code that does so."""
    (directory / "sitecustomize.py").write_text(_BELIEVES_LOGS)
    environment["PYTHONPATH"] = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])


def counted_behind_another_log(pipeline: StatefulPipeline, directory: Path, *, believes: bool) -> Counted:
    """The output of a driver whose log of commits names the state of an evaluation that was not decided.

    believes: as believe_logs().
    """
    if believes:
        believe_logs(pipeline.environment, directory)
    pipeline.killed_at("evaluated", 150)
    undecided = pipeline.stored_last()
    pipeline.killed_in_first_batch("batch-end")
    last = pipeline.last_decision()
    assert {ids[0] for ids in last.state[0]}.isdisjoint(undecided.values())
    other = replace(last, state={0: tuple((undecided[p],) for p in sorted(undecided))})
    pipeline.write(f"{last.directory}/commits/{last.batch}", other.commit)
    pipeline.feed(150)
    pipeline.drained()
    return pipeline.counted()


@contextmanager
def stateful_pipeline(
    kafka: EmbeddedKafka, directory: Path, name: str, limit: int = 700, partitions: int = PARTITIONS
) -> Iterator[StatefulPipeline]:
    """A pipeline with its topics. limit: offsets of a batch. partitions: of the source."""
    servers = kafka.bootstrap_servers
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=partitions)
    create_decisions(servers)
    stateless = document(servers, name, "exactly-once", source, sink)
    stateless["spec"]["source"]["maxOffsetsPerTrigger"] = limit
    del stateless["spec"]["sink"]["kafka"]["preservePartition"]
    job = job_of(stateless, directory)
    job = replace(job, transform=replace(job.transform, sql=COUNTS_WITH_MARKS))
    created = StatefulPipeline(
        servers, directory, with_state(job, directory / "state"), partitions, state=directory / "state"
    )
    created.feed()
    yield created


def create_decisions(servers: str, replication: int = 3) -> None:
    """Creates the topic of decisions unless it exists."""
    admin = AdminClient({"bootstrap.servers": servers})
    if DECISIONS in admin.list_topics(timeout=ANSWER).topics:
        return
    new = NewTopic(DECISIONS, 1, replication, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([new])[DECISIONS].result(ANSWER)
    except Exception as e:
        if "ALREADY_EXISTS" not in str(e):
            raise
