"""Lanes: the one primitive of all guarantees, a fenced compare-and-advance of a position in a Kafka transaction.

A lane's transaction (tests/model searches every interleaving of it; the step numbers are those of design section 3):

    1  init            InitProducerId of the lane's own transactional.id: fences every older owner, ends what it left open
    2  read            the position, only now: nobody else can move it any more without being noticed in 1
    3  decide          position = from: go on; at or above until: skip; anything else: fail
    4  offsets         the new position into the transaction, before the first row: a fenced owner learns it here
       rows            produced while 4 is under way
       commit          output and position become visible together
    5  any error       the producer is dropped, never aborted, never used again; the next attempt starts at 1

One epoch carries one transaction: librdkafka speaks the first transaction protocol, in which a late EndTxn or TxnOffsetCommit of an
epoch would act on that epoch's next transaction (rule 2; variant eo-reuse of the model). The cost of a new producer for each transaction
is in its connections and metadata, not in InitProducerId; so handles are kept warm (see handles.py), which brokers do not notice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ackwright_stream import positions
from ackwright_stream.connection import positions_consumer, settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.handles import Handle, Handles
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.points import reach
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks import librdkafka
from ackwright_stream.sinks.topic import one_of_each_leader, require_writable

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
)  # of an init: the same handle goes on asking
_PATIENCE_S = (
    0.005  # of one call of init: it is asked again until the time is over, and tells what the coordinator answered
)


class Outcome(StrEnum):
    """What became of a lane's range."""

    DONE = "done"
    SKIPPED = "skipped"  # it had been committed before


@dataclass(frozen=True)
class Range:
    """The offsets [start, until) of one lane in one batch. They bound records, they do not count them. (rule 13)"""

    lane: Lane
    start: int
    until: int


def transactional_id(job: JobSpec, lane: Lane) -> str:
    """One id per lane and one lane per id: a transaction of another id is not fenced. (Kafka's TransactionCoordinator)"""
    return f"{job.lane_transactional_id_prefix}{lane}"


def decide(found: Position | None, wanted: Range) -> Outcome | None:
    """Step 3: None means go on. Raises JobError for a position at which this range must not be committed. (rule 3)"""
    if found is None:
        raise JobError(
            Reason.POSITION_LOST,
            f"lane {wanted.lane} has no position although it was initialised: it expired (offsets.retention.minutes) or the group was "
            "deleted; nothing is written, for it cannot be known what was delivered",
        )
    if found.offset >= wanted.until:
        return Outcome.SKIPPED
    if found.offset == wanted.start:
        return None
    raise JobError(
        Reason.POSITION_CONFLICT,
        f"lane {wanted.lane} is at {found.offset}, not at {wanted.start} where [{wanted.start}, {wanted.until}) begins: another driver "
        "cut its batches elsewhere; this one starts again from the positions",
    )


class Lanes:
    """The lanes' transactions of one pipeline, in one process. Thread-safe as long as one thread at a time works on a lane.

    producer: settings of the producers; None: those of producers that commit positions and no rows. keep_warm: after a transaction a
    handle for the lane's next one is made ready; for workers, which come back to the same lanes.
    """

    def __init__(
        self,
        job: JobSpec,
        driver: int,
        topic_ids: Mapping[str, str],
        producer: Mapping[str, str] | None = None,
        *,
        keep_warm: bool = False,
    ) -> None:
        self._job = job
        self._keep_warm = keep_warm
        self._driver = driver
        self._topic_ids = topic_ids
        self._timeout = job.operation_timeout_ms / 1000
        self._reader: Consumer = positions_consumer(job)
        self._group: Any = self._reader.consumer_group_metadata()
        chosen = producer or job.positions_producer
        # Settings are made for each handle: they have the credentials as they are then.
        self._handles = Handles(
            lambda name: Handle(settings(job.cluster, chosen, {"transactional.id": name})), self._warm
        )
        self._offsets = ThreadPoolExecutor(4, thread_name_prefix="offsets")

    def for_driver(self, driver: int, topic_ids: Mapping[str, str]) -> None:
        """Which driver's positions this process commits from now on."""
        self._driver, self._topic_ids = driver, topic_ids

    def _warm(self, producer: Handle) -> None:
        """Connects to the brokers that the rows will go to; mostly the group's coordinator, to which the offsets go, is one of them."""
        topic = self._job.sink.topic
        try:
            if topic is None:
                producer.list_topics(timeout=self._timeout)
                return
            found = require_writable(producer, topic, self._timeout)
            producer.writable = frozenset({topic})
            if not self._job.sink.preserve_partition:  # else one of them is enough, and which is not known here
                librdkafka.connect(producer, topic, one_of_each_leader(found), self._timeout)
        except (JobError, KafkaException):
            return  # it will connect when it is used, or fail there with a cause

    def _initialised(self, lane: Lane) -> Producer:
        """Step 1. An init that meets the id's last transaction still completing (CONCURRENT_TRANSACTIONS) is repeated by librdkafka after
        500 ms, whatever retry.backoff.ms says; a fresh handle asks at once. The one that is given up was answered, so no request of it is
        on its way that could fence the fresh one."""
        name = transactional_id(self._job, lane)
        deadline = time.monotonic() + self._timeout
        producer = self._handles.take(name)
        reach("task-start", lane)
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

    def fence(self, lane: Lane) -> tuple[Producer, Position | None]:
        """Steps 1 and 2: the lane is ours, and this is its position, one of a topic that was given up counting as none. The producer is
        good for one transaction."""
        producer = self._initialised(lane)
        reach("after-init", lane)
        found = self.read([lane])[lane]
        found = positions.standing(
            lane, found, self._topic_ids.get(lane.topic, ""), self._job.accepted_losses.get(lane.topic)
        )
        if found is not None:
            positions.check_incarnation(lane, found, self._driver)
        reach("after-read", lane)
        return producer, found

    def read(self, lanes: Iterable[Lane]) -> dict[Lane, Position | None]:
        """Positions as they are, of whichever topic, without taking the lanes."""
        return positions.read(self._reader, lanes, self._timeout)

    def advance(self, wanted: Range, write: Callable[[Producer], int] | None = None) -> tuple[Outcome, int]:
        """Moves the lane from wanted.start to wanted.until, in one transaction with what `write` produces; write returns its number of
        rows. Skips if that was done before. Raises JobError: then nothing is known, and the producer is gone."""
        producer, found = self.fence(wanted.lane)
        done = decide(found, wanted)
        if done is not None:
            self.release(producer, wanted.lane)
            return done, 0
        return Outcome.DONE, self.commit(producer, wanted.lane, wanted.until, write)

    def commit(self, producer: Producer, lane: Lane, until: int, write: Callable[[Producer], int] | None = None) -> int:
        """Step 4 with a producer from fence(). Returns the number of rows."""
        target = Position(until, self._topic_ids.get(lane.topic, ""), self._driver)
        offsets = [TopicPartition(lane.topic, lane.partition, until, target.metadata())]
        committed = False
        try:
            producer.begin_transaction()
            sent = self._offsets.submit(producer.send_offsets_to_transaction, offsets, self._group, self._timeout)
            rows, refused = 0, None
            try:
                rows = write(producer) if write else 0
            except (JobError, KafkaException) as e:
                refused = e
            failure = sent.exception()  # a commit that overtook its own offsets would publish rows without a position
            if failure:
                raise failure  # before what the rows met: being fenced shows in both, and here by its name
            if refused:
                raise refused
            reach("after-offsets", lane)
            reach("before-commit", lane)
            producer.commit_transaction(max(self._timeout, self._job.transaction_timeout_ms / 1000))
            committed = True
            reach("after-commit", lane)
        except KafkaException as e:
            # Step 5. The outcome may be unknown (a commit whose reply was lost). An abort now could follow a commit that is still on its
            # way; a new init waits for whichever won, and the position tells.
            raise translate(e.args[0], f"the transaction of lane {lane} up to {until}") from e
        finally:
            self.release(producer, lane, committed=committed)
        return rows

    def release(self, producer: Producer, lane: Lane, *, committed: bool = False) -> None:
        """Gives the producer up, used or not. committed: it has had its transaction, and the answer to it."""
        if committed:
            self._handles.retire(producer)
        else:
            self._handles.drop(producer)
        if self._keep_warm:
            self._handles.prepare(transactional_id(self._job, lane))

    def initialise(
        self, producer: Producer, lane: Lane, start: int, sink_before: Mapping[str, Any] | None = None
    ) -> Position:
        """The first position of a lane that is ours, and the record that it has one, in one transaction: there is no moment at which one
        exists without the other, so a recorded lane without a position has lost it. (rule 4) Reads again, so that the broker's answer is
        what counts. sink_before: for the audit, where the sink ended when a topic that was made anew was begun."""

        def record(p: Producer) -> int:
            value: dict[str, Any] = {"start": start, "topicId": self._topic_ids.get(lane.topic, "")}
            if sink_before is not None:
                value["sinkBefore"] = sink_before
            p.produce(self._job.lanes_topic, json.dumps(value).encode(), record_key(self._job.group, lane))
            return 1

        self.commit(producer, lane, start, record)
        found = self.read([lane])[lane]
        if found is None:
            raise JobError(Reason.POSITION_LOST, f"the first position of lane {lane} was committed but cannot be read")
        return found


def record_key(group: str, lane: Lane) -> bytes:
    """The key of a lane's record in the lanes topic."""
    return f"{group}/{lane}".encode()
