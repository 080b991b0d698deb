"""The pipeline's membership in its consumer group: the fence between drivers.

A driver joins as a static member (KIP-345) whose group.instance.id is the same for every driver of the pipeline. The
group's coordinator gives each join a new member id and refuses the offsets of the one before (FENCED_INSTANCE_ID), also
those that a transaction sends (KIP-447). A group with a live member also refuses offsets that are set by hand, and
keeps the offsets of the topics that the member subscribes to (KIP-211).

The member consumes nothing: it assigns itself no partition.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ackwright_stream.connection import settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, KafkaSink
from ackwright_stream.sinks.kafka.markers import Markers, membership_with

_POLL_S = 0.2
_ONE_CLUSTER = Markers()
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


class Member:
    """A live member. Joining takes about 0.1 s; a thread keeps the membership until release().

    Raises JobError if the group cannot be joined in time.
    """

    def __init__(self, job: JobSpec, markers: Markers = _ONE_CLUSTER) -> None:
        self._joined = threading.Event()
        self._ended = threading.Event()
        sink = job.sink_of(KafkaSink)
        self._consumer: Any = Consumer(settings(sink.brokers(job.cluster), sink.positions.member))
        try:
            self._await_join(job, [markers.topic(topic) for topic in job.source.topics])
            # Fixed for the life of the query: after a rejoin the coordinator refuses it, so tasks of a driver that was
            # gone for a while cannot commit beside those of the driver that was there meanwhile.
            self.membership = membership_with(markers, self._consumer.consumer_group_metadata())
            self.id = str(self._consumer.memberid())
        except (JobError, KafkaException) as e:
            self._destroy()  # a join that is answered later would end the membership of the next driver
            raise e if isinstance(e, JobError) else translate(e.args[0], f"joining group {job.group}") from e
        self._keeper = threading.Thread(target=self._keep, name="member", daemon=True)
        self._keeper.start()

    @property
    def is_current(self) -> bool:
        """Whether nothing is known that has ended the membership."""
        return not self._ended.is_set()

    def release(self) -> None:
        """Stops keeping the membership. The group still has it until session.timeout.ms is over, or another joins."""
        self._ended.set()

    def _await_join(self, job: JobSpec, topics: list[str]) -> None:
        deadline = time.monotonic() + job.operation_timeout_ms / 1000
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        error: KafkaError | None = None
        while not self._joined.is_set():
            message = self._consumer.poll(_POLL_S / 4)
            error = message.error() if message is not None else error
            if error is not None and error.code() == KafkaError._FATAL:
                # Another driver has joined while this one waited for the coordinator's answer. librdkafka reports it as
                # _FATAL; a consumer of a classic group has no other fatal error (librdkafka's INTRODUCTION.md).
                raise translate(KafkaError(KafkaError.FENCED_INSTANCE_ID, error.str()), f"joining group {job.group}")
            if error is not None and error.code() not in _PASSING | {KafkaError._PARTITION_EOF}:
                raise translate(error, f"joining group {job.group}")
            if time.monotonic() > deadline:
                raise translate(error or KafkaError(KafkaError._TIMED_OUT), f"joining group {job.group}")

    def _keep(self) -> None:
        try:
            while not self._ended.is_set():
                message = self._consumer.poll(_POLL_S)
                if message is not None and message.error() and message.error().code() not in _PASSING:
                    return
        except KafkaException:
            return
        finally:
            self._ended.set()
            self._destroy()

    def _destroy(self) -> None:
        """Destroys the consumer, which leaves the group as it is: a static member does not leave when it ends.

        Without close(): if the group's side of the consumer ends while close() delivers the last rebalance, librdkafka
        never answers the callback's assign(). confluent-kafka waits for that answer without a limit, and with Python's
        global lock, so that the whole process would stand still.
        """
        self._consumer = None

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign([])
        if self._joined.is_set():  # a second assignment is a rejoin: the coordinator knows another generation now
            self._ended.set()
        self._joined.set()

    def _revoked(self, consumer: Consumer, partitions: Any) -> None:
        self._ended.set()
