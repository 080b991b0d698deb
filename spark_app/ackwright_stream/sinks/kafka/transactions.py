"""One task's transaction in Kafka: the fencing of its earlier attempts, and rows and positions in one commit.

    1  init            InitProducerId of the slot's transactional.id: fences the task's earlier attempts, ends what they
                       left open
    2  read            the positions, only now: an earlier attempt can no longer move them
    3  decide          not here: lanes.decide()
    4  offsets         the new positions into the transaction, with the driver's membership: the coordinator refuses
                       them after another driver has joined, or a later query of the same driver
       rows            produced while the offsets are under way
       commit          output and positions become visible together
    5  any error       the producer is dropped, never aborted, never used again; the next attempt starts at 1

See docs/protocol.md#transaction; tests/model searches every interleaving of these steps.

One epoch carries one transaction. librdkafka speaks the first transaction protocol, in which a late EndTxn or
TxnOffsetCommit of an epoch acts on that epoch's next transaction (docs/protocol.md#rule-2; variant eo-reuse of the
model). A new producer for each transaction costs connections and metadata, not InitProducerId; handles.py keeps
producers connected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ackwright_stream.connection import positions_consumer, settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec, KafkaSink, Reason
from ackwright_stream.positions import Lane
from ackwright_stream.sinks.base import Membership
from ackwright_stream.sinks.kafka import librdkafka, offsets
from ackwright_stream.sinks.kafka.handles import Handle, Handles
from ackwright_stream.sinks.kafka.markers import Markers, of_membership
from ackwright_stream.sinks.kafka.sent_offsets import SentOffsets
from ackwright_stream.sinks.topic import one_of_each_leader, require_writable

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


def transactional_id(job: JobSpec, slot: int) -> str:
    """The transactional.id of a slot: the tasks with this number in their batches, one after the other."""
    return f"{job.sink_of(KafkaSink).positions.slot_transactional_id_prefix}{slot}"


class SlotTransactions:
    """The transactions of one pipeline's tasks, in one process.

    Thread-safe as long as one thread at a time works on a slot.
    """

    def __init__(
        self,
        job: JobSpec,
        # Settings of the producers; None: those of producers that commit no rows.
        producer: Mapping[str, str] | None = None,
        *,
        # Whether the slot's next handle is connected in advance; for workers, which come back to their slots.
        keep_warm: bool = False,
    ) -> None:
        self._job = job
        self._keep_warm = keep_warm
        self._timeout = job.operation_timeout_ms / 1000
        sink = job.sink_of(KafkaSink)
        brokers = sink.brokers(job.cluster)
        self._reader: Consumer = positions_consumer(job, brokers)
        producer_settings = producer or sink.positions.producer
        self._carries_rows = producer is not None
        # Settings are computed for each handle, so that each has the current credentials.
        self._handles = Handles(
            lambda name: Handle(settings(brokers, producer_settings, {"transactional.id": name})), self._warm
        )

    def open(self, slot: int, lanes: Sequence[Lane], markers: Markers) -> tuple[Producer, dict[Lane, TopicPartition]]:
        """Steps 1 and 2: a producer that owns the slot, good for one transaction, and the lanes' committed offsets."""
        producer = self.initialised(transactional_id(self._job, slot), lanes)
        try:
            fault_point("after-init", *lanes)
            return producer, self.committed(lanes, markers)
        except JobError:
            self.release(producer)
            raise

    def committed(self, lanes: Iterable[Lane], markers: Markers) -> dict[Lane, TopicPartition]:
        """The committed offsets, negative where there is none. Waits for those of transactions that have not ended."""
        answers = offsets.read_committed(self._reader, lanes, self._timeout, markers)
        return {Lane(x.topic, x.partition): x for x in answers}

    def commit(
        self,
        producer: Producer,
        target: Sequence[TopicPartition],
        membership: Membership,
        write: Callable[[Producer], int] | None = None,
        *,
        next_slot: int | None = None,  # of which a handle is prepared afterwards
        # Whether nothing is written before the coordinator has accepted the offsets. Rows need not wait for that.
        offsets_first: bool = False,
    ) -> int:
        """Step 4 with a producer from open(). `write` produces the rows and returns their number, as this does.

        target: the lanes' offsets, see offsets.to_offset().
        """
        lanes = [Lane(x.topic, x.partition) for x in target]
        markers, group = of_membership(self._job, membership)
        committed = False
        failure: BaseException | None = None
        refused: JobError | KafkaException | None = None
        try:
            producer.begin_transaction()
            # To the cluster of the rows, also if the source is on another: on two clusters a crash between the commit
            # of the rows and that of the offsets would repeat or lose the rows.
            places = markers.committed(target)
            sent = SentOffsets(producer, places, group, self._timeout)
            if offsets_first:
                sent.wait()
            rows = 0
            try:
                rows = write(producer) if write else 0
            except (JobError, KafkaException) as e:
                refused = e
            failure = sent.failure()  # a commit that overtakes its own offsets would publish rows without a position
            if failure:
                raise failure  # before the error of the rows: both show that the producer is fenced, this one by name
            if refused:
                raise _broken(producer) or refused
            fault_point("after-offsets", *lanes)
            fault_point("before-commit", *lanes)
            producer.commit_transaction(max(self._timeout, self._job.transaction_timeout_ms / 1000))
            committed = True
            fault_point("after-commit", *lanes)
        except KafkaException as e:
            # Step 5. The outcome may be unknown: the reply to a commit can be lost. An abort now could follow a commit
            # that is still on its way; a new init waits for whichever comes first, and the position tells which it was.
            raise _failed((_refusal(producer) or e).args[0], target) from e
        finally:
            self.release(producer, next_slot, committed=committed)
            # Tracebacks of the errors have this frame, which has the errors: until Python collected such a cycle, the
            # producer in it would keep its threads and a queue of rows.
            failure = refused = None
            del producer
        return rows

    def release(self, producer: Producer, next_slot: int | None = None, *, committed: bool = False) -> None:
        """Drops the producer, used or not. committed: its transaction has ended, and was answered."""
        if committed:
            self._handles.retire(producer)
        else:
            self._handles.drop(producer)
        if self._keep_warm and next_slot is not None:
            self._handles.prepare(transactional_id(self._job, next_slot))

    def initialised(self, name: str, lanes: Sequence[Lane] = ()) -> Producer:
        """Step 1. A producer with this transactional.id whose init was answered. lanes: for the fault point.

        If the id's last transaction is still completing (CONCURRENT_TRANSACTIONS), librdkafka repeats the init after
        500 ms, whatever retry.backoff.ms says; a fresh handle sends it at once. The handle that it replaces has its
        answer, so none of its requests is on its way that could fence the fresh one.
        """
        deadline = time.monotonic() + self._timeout
        producer = self._handles.take(name)
        pauses = pauses_between_handles()
        fault_point("task-start", *lanes)
        while True:
            left = deadline - time.monotonic()
            try:
                producer.init_transactions(min(_PATIENCE_S, max(left, 0.001)))
                return producer
            except KafkaException as e:
                code = e.args[0].code()
                passing = e.args[0].retriable() or code in _PASSING
                if left <= 0 or not passing:
                    self._handles.drop(producer)
                    raise translate(e.args[0], f"taking the transactional.id {name}") from e
            if code == KafkaError.CONCURRENT_TRANSACTIONS:
                replaced = [producer]
                del producer  # otherwise it would be destroyed by this thread, and only behind the pause
                self._handles.drop_all(replaced)
                time.sleep(min(next(pauses), max(left, 0)))
                producer = self._handles.take(name)

    def _warm(self, producer: Handle) -> None:
        """Connects to the brokers that the rows will go to.

        The group's coordinator, to which the offsets go, is mostly one of them.
        """
        sink = self._job.sink_of(KafkaSink)
        topics = sink.named_topics if self._carries_rows else ()
        try:
            if not topics:
                producer.list_topics(timeout=self._timeout)
            for topic in topics:
                metadata = require_writable(producer, topic, self._timeout)
                producer.writable |= {topic}
                if topic == sink.topic:  # a slot's rows may go to any partition; few dead letters follow them
                    librdkafka.connect(producer, topic, one_of_each_leader(metadata), self._timeout)
        except (JobError, KafkaException):
            return  # it connects when it is used, or fails there with a cause


def _failed(error: KafkaError, target: Sequence[TopicPartition]) -> JobError:
    """Why a transaction has failed. A topic that refuses a record would refuse it forever."""
    failure = translate(error, f"the transaction of {described(target)}")
    if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return failure
    remedy = (
        "make the record smaller, or raise max.message.bytes of its topic; if the limit was lowered, start the driver "
        "again"
    )
    return JobError(Reason.ROW_REFUSED, failure.cause, remedy)


def _refusal(producer: Producer) -> KafkaException | None:
    """The topic's refusal of a record, if there was one.

    The rows behind such a record are never sent, so that other calls may report that their time is over (observed).
    """
    broken = _broken(producer)
    return broken if broken and broken.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE else None


def _broken(producer: Producer) -> KafkaException | None:
    """The error that made the producer or its transaction unusable; None: there was none.

    It is for instance a fencing, or a record that its topic refuses. The rows that follow are refused with _FATAL or
    _STATE, which do not name it. Transactional calls do, without a request.
    """
    try:
        producer.begin_transaction()  # refused in any case: a transaction is open
    except KafkaException as e:
        # Without the traceback, which has this frame and so the producer.
        return e.with_traceback(None) if e.args[0].fatal() or e.args[0].txn_requires_abort() else None
    return None


def pauses_between_handles() -> Iterator[float]:
    """Seconds before each fresh handle repeats the init.

    Most transactions complete within milliseconds. One whose markers wait for a partition without a leader does not,
    and every slot would open connections as fast as it can to brokers that are in trouble.
    """
    yield 0.0
    pause = 0.01
    while True:
        yield pause
        pause = min(2 * pause, 0.25)


def described(target: Sequence[TopicPartition]) -> str:
    """Some lanes and how far they move, for a message."""
    some = ", ".join(f"{x.topic}-{x.partition} to {x.offset}" for x in target[:3])
    return some + (f" and {len(target) - 3} more lanes" if len(target) > 3 else "")
