"""One lane's transaction in Kafka: the fencing, and rows and position in one commit.

    1  init            InitProducerId of the lane's own transactional.id: fences older owners, ends what they left open
    2  read            the position, only now: nobody else can move it any more without being noticed in 1
    3  decide          not here: lanes.decide()
    4  offsets         the new position into the transaction, before the first row: a fenced owner learns it here
       rows            produced while the offsets are under way
       commit          output and position become visible together
    5  any error       the producer is dropped, never aborted, never used again; the next attempt starts at 1

See docs/protocol.md#lane-transaction; tests/model searches every interleaving of these steps.

One epoch carries one transaction. librdkafka speaks the first transaction protocol, in which a late EndTxn or
TxnOffsetCommit of an epoch acts on that epoch's next transaction (docs/protocol.md#rule-2; variant eo-reuse of the
model). A new producer for each transaction costs connections and metadata, not InitProducerId; handles.py keeps
producers connected.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ackwright_stream.connection import positions_consumer, settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.kafka import librdkafka, offsets
from ackwright_stream.sinks.kafka.handles import Handle, Handles
from ackwright_stream.sinks.kafka.topic import one_of_each_leader, require_writable

# Errors after which the same handle repeats the init.
_PASSING = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError._TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
# Seconds of one call of init. It is repeated until the time is over; short calls show what the coordinator answers.
_PATIENCE_S = 0.005


def transactional_id(job: JobSpec, lane: Lane) -> str:
    """The transactional.id of a lane. One id per lane, one lane per id: transactions of other ids are not fenced."""
    return f"{job.lane_transactional_id_prefix}{lane}"


def record_key(group: str, lane: Lane) -> bytes:
    """The key of a lane's record in the lanes topic."""
    return f"{group}/{lane}".encode()


class LaneTransactions:
    """The lanes' transactions of one pipeline, in one process.

    Thread-safe as long as one thread at a time works on a lane.
    """

    def __init__(
        self,
        job: JobSpec,
        # Settings of the producers; None: those of producers that commit no rows.
        producer: Mapping[str, str] | None = None,
        *,
        # Whether the lane's next handle is connected in advance; for workers, which come back to their lanes.
        keep_warm: bool = False,
    ) -> None:
        self._job = job
        self._keep_warm = keep_warm
        self._timeout = job.operation_timeout_ms / 1000
        self._reader: Consumer = positions_consumer(job)
        self._group: Any = self._reader.consumer_group_metadata()
        chosen = producer or job.positions_producer
        # Settings are computed for each handle, so that each has the current credentials.
        self._handles = Handles(
            lambda name: Handle(settings(job.cluster, chosen, {"transactional.id": name})), self._warm
        )
        self._offsets = ThreadPoolExecutor(4, thread_name_prefix="offsets")

    def fence(self, lane: Lane) -> tuple[Producer, Position | None]:
        """Steps 1 and 2: a producer that owns the lane, good for one transaction, and the lane's position."""
        producer = self._initialised(lane)
        fault_point("after-init", lane)
        return producer, self.read([lane])[lane]

    def read(self, lanes: Iterable[Lane]) -> dict[Lane, Position | None]:
        """The positions, without fencing."""
        return offsets.read(self._reader, lanes, self._timeout)

    def commit(
        self, producer: Producer, lane: Lane, position: Position, write: Callable[[Producer], int] | None = None
    ) -> int:
        """Step 4 with a producer from fence(). `write` produces the rows and returns their number, as this does."""
        target: list[TopicPartition] = [offsets.to_offset(lane, position)]
        committed = False
        try:
            producer.begin_transaction()
            sent = self._offsets.submit(producer.send_offsets_to_transaction, target, self._group, self._timeout)
            rows, refused = 0, None
            try:
                rows = write(producer) if write else 0
            except (JobError, KafkaException) as e:
                refused = e
            failure = sent.exception()  # a commit that overtakes its own offsets would publish rows without a position
            if failure:
                raise failure  # before the error of the rows: both show that the producer is fenced, this one by name
            if refused:
                raise refused
            fault_point("after-offsets", lane)
            fault_point("before-commit", lane)
            producer.commit_transaction(max(self._timeout, self._job.transaction_timeout_ms / 1000))
            committed = True
            fault_point("after-commit", lane)
        except KafkaException as e:
            # Step 5. The outcome may be unknown: the reply to a commit can be lost. An abort now could follow a commit
            # that is still on its way; a new init waits for whichever comes first, and the position tells which it was.
            raise translate(e.args[0], f"the transaction of lane {lane} up to {position.offset}") from e
        finally:
            self.release(producer, lane, committed=committed)
        return rows

    def record(
        self, lane: Lane, position: Position, output_ends: Mapping[str, Any] | None
    ) -> Callable[[Producer], int]:
        """What writes the record that the lane has a first position, to be passed to commit()."""

        def write(producer: Producer) -> int:
            value: dict[str, Any] = {"start": position.offset, "topicId": position.topic_id}
            if output_ends is not None:
                value["sinkBefore"] = output_ends
            producer.produce(self._job.lanes_topic, json.dumps(value).encode(), record_key(self._job.group, lane))
            return 1

        return write

    def release(self, producer: Producer, lane: Lane, *, committed: bool = False) -> None:
        """Drops the producer, used or not. committed: its transaction has ended, and was answered."""
        if committed:
            self._handles.retire(producer)
        else:
            self._handles.drop(producer)
        if self._keep_warm:
            self._handles.prepare(transactional_id(self._job, lane))

    def _initialised(self, lane: Lane) -> Producer:
        """Step 1. A producer whose init was answered.

        If the id's last transaction is still completing (CONCURRENT_TRANSACTIONS), librdkafka repeats the init after
        500 ms, whatever retry.backoff.ms says; a fresh handle asks at once. The handle that it replaces has its
        answer, so none of its requests is on its way that could fence the fresh one.
        """
        name = transactional_id(self._job, lane)
        deadline = time.monotonic() + self._timeout
        producer = self._handles.take(name)
        fault_point("task-start", lane)
        while True:
            left = deadline - time.monotonic()
            try:
                producer.init_transactions(min(_PATIENCE_S, max(left, 0.001)))
                return producer
            except KafkaException as e:
                code = e.args[0].code()
                passing = e.args[0].retriable() or code in _PASSING
                if left <= 0 or not passing:
                    raise translate(e.args[0], f"taking lane {lane}") from e
            if code == KafkaError.CONCURRENT_TRANSACTIONS:
                self._handles.drop(producer)
                producer = self._handles.take(name)

    def _warm(self, producer: Handle) -> None:
        """Connects to the brokers that the rows will go to.

        The group's coordinator, to which the offsets go, is mostly one of them.
        """
        topic = self._job.sink.topic
        try:
            if topic is None:
                producer.list_topics(timeout=self._timeout)
                return
            metadata = require_writable(producer, topic, self._timeout)
            producer.writable = frozenset({topic})
            if not self._job.sink.preserve_partition:  # else one of them is enough, and it is not known here which
                librdkafka.connect(producer, topic, one_of_each_leader(metadata), self._timeout)
        except (JobError, KafkaException):
            return  # it connects when it is used, or fails there with a cause
