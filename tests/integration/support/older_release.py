"""The lane transaction of earlier releases, for tests of an upgrade: fenced by transactional ids alone.

Each lane had a separate transactional.id. Offsets were committed without a membership, with metadata that names no
slots. Each step is a method, so that a test can take the pipeline over between two of them. Under at-most-once the
transaction is the claim, and the row follows it outside of the transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import KafkaException, Producer, TopicPartition

from ackwright_stream.connection import positions_consumer, translate
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, KafkaSink, Reason
from ackwright_stream.positions import Lane
from ackwright_stream.sinks.kafka import offsets
from waiting import ANSWER

_METADATA = re.compile(r"^ackwright/1 topic=(?P<topic>\S*) driver=(?P<driver>\d+)$")


class OldTask:
    """One task of one lane, whose steps are init, decide, send_offsets, write and commit. Each raises JobError."""

    def __init__(self, job: JobSpec, lane: Lane, topic_id: str, driver: int, producer: Producer | None = None) -> None:
        """producer: initialised; None: one with the lane's transactional.id."""
        self._job, self._lane, self._topic_id = job, lane, topic_id
        self.driver = driver  # the driver's number
        name = f"{job.sink_of(KafkaSink).positions.lane_transactional_id_prefix}{lane}"
        servers = {"bootstrap.servers": job.cluster.bootstrap_servers}
        self._producer = producer or Producer({**servers, "transactional.id": name})
        self._claims = job.guarantee == "at-most-once"
        self._row_producer = Producer({**servers, "acks": "1", "retries": 0}) if self._claims else self._producer

    def steps(self, until: int, value: bytes) -> list[Callable[[], None]]:
        """The steps that deliver one row and move the lane from 0, in the order of the pipeline's guarantee."""
        take = [self.init, lambda: self.decide(0), lambda: self.send_offsets(until)]
        write = partial(self.write, value)
        return [*take, self.commit, write] if self._claims else [*take, write, self.commit]

    def init(self) -> None:
        self._producer.init_transactions(ANSWER)

    def read(self) -> tuple[int, int]:
        """The position and the number of the driver that committed it; offset 0 and number 0 if there is none."""
        (committed,) = offsets.read_committed(positions_consumer(self._job), [self._lane], ANSWER)
        metadata = _METADATA.match(committed.metadata or "")
        if metadata and metadata["topic"] != self._topic_id:
            raise JobError(Reason.TOPIC_REPLACED, f"{metadata['topic']} is not {self._topic_id}")
        return max(0, committed.offset), int(metadata["driver"]) if metadata else 0

    def decide(self, start: int) -> None:
        offset, driver = self.read()
        if driver > self.driver:
            raise JobError(Reason.SUPERSEDED, f"driver {driver} is newer than {self.driver}")
        if offset != start:
            raise JobError(Reason.POSITION_CONFLICT, f"the lane is at {offset}, not at {start}")

    def send_offsets(self, until: int) -> None:
        group = positions_consumer(self._job).consumer_group_metadata()
        metadata = f"ackwright/1 topic={self._topic_id} driver={self.driver}"
        target = TopicPartition(self._lane.topic, self._lane.partition, until, metadata)
        try:
            self._producer.begin_transaction()
            self._producer.send_offsets_to_transaction([target], group, ANSWER)
        except KafkaException as e:
            raise translate(e.args[0], "the offsets of an old task") from e

    def write(self, value: bytes) -> None:
        """Writes a row; returns when it is in the log or refused."""
        try:
            self._row_producer.produce(str(self._job.sink_of(KafkaSink).topic), value, b"k")
            self._row_producer.flush(ANSWER)
        except KafkaException as e:
            raise translate(e.args[0], "the row of an old task") from e

    def commit(self) -> None:
        try:
            self._producer.commit_transaction(ANSWER)
        except KafkaException as e:
            raise translate(e.args[0], "the commit of an old task") from e


class OldDriver:
    """A driver that has taken every lane in a separate transaction."""

    def __init__(self, job: JobSpec, lanes: Iterable[Lane], topic_id: str) -> None:
        """Raises JobError, as the steps of a task do."""
        self._job, self._topic_id = job, topic_id
        name = job.sink_of(KafkaSink).positions.driver_transactional_id
        own = {"bootstrap.servers": job.cluster.bootstrap_servers, "transactional.id": name}
        self._producer = Producer(own)
        self._producer.init_transactions(ANSWER)
        tasks = [OldTask(job, lane, topic_id, 0) for lane in lanes]
        for task in tasks:
            task.init()
        committed = [task.read() for task in tasks]
        self.number = 1 + max(driver for _, driver in committed)
        for task, (offset, _) in zip(tasks, committed, strict=True):
            task.driver = self.number
            task.send_offsets(offset)
            task.commit()

    def advance(self, lane: Lane, until: int) -> list[Callable[[], None]]:
        """The steps that move the lane from 0 under at-least-once, behind the rows: it was initialised at the start."""
        task = OldTask(self._job, lane, self._topic_id, self.number, self._producer)
        return [partial(task.decide, 0), partial(task.send_offsets, until), task.commit]

    def task(self, lane: Lane) -> OldTask:
        """A task of this driver that has not begun."""
        return OldTask(self._job, lane, self._topic_id, self.number)
