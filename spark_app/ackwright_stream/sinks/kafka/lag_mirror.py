"""Copies the positions to the source's cluster, where lag tools compare them with the ends of the source.

The positions are on the sink's cluster, as offsets of empty topics, of which no tool can tell the lag. The copies are
plain commits of another group, some seconds late. Nothing ever reads them: no position depends on one, and a copy that
fails is repeated with the next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ackwright_stream.connection import settings
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, KafkaSink
from ackwright_stream.positions import Lane, Position

_EVERY_S = 5.0
_ALL_EVERY_S = 3600.0  # brokers drop an offset that nobody has committed for offsets.retention.minutes
_ANSWER_S = 5.0
_POLL_S = 0.1
log = logging.getLogger(__name__)


class LagMirror:
    """Copies positions from a thread, until stop()."""

    def __init__(
        self,
        job: JobSpec,
        read: Callable[[Iterable[Lane]], Mapping[Lane, Position | None]],  # the positions. Raises JobError
        lanes: Iterable[Lane],
    ) -> None:
        self._job, self._read = job, read
        self._names = job.sink_of(KafkaSink).positions
        self._lanes = frozenset(lanes)
        self._copied: dict[Lane, int] = {}
        self._all_at = time.monotonic()  # when all were last copied
        self._consumer: Consumer | None = None
        self._answers: list[KafkaError | None] = []  # to the last commit
        self._end = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="lag", daemon=True).start()

    def add(self, lanes: Iterable[Lane]) -> None:
        """Copies the positions of these lanes as well."""
        self._lanes |= frozenset(lanes)

    def stop(self, last: Mapping[Lane, int] | None = None) -> None:
        """Ends the thread, and copies these positions."""
        self._end.set()
        if last:
            self._copy(last, final=True)

    def _run(self) -> None:
        while not self._end.wait(_EVERY_S):
            try:
                read = self._read(self._lanes)
            except JobError as e:
                log.debug("the positions could not be read for lag tools: %s", e.message)
                continue
            self._copy({lane: position.offset for lane, position in read.items() if position})

    def _copy(self, offsets: Mapping[Lane, int], *, final: bool = False) -> None:
        # The thread may be waiting for brokers that do not answer. The driver that stops it must not wait for them.
        if not self._lock.acquire(timeout=_ANSWER_S):
            return
        try:
            if self._end.is_set() and not final:
                return  # the thread has read them before the final ones were copied
            if time.monotonic() - self._all_at > _ALL_EVERY_S:
                self._copied.clear()
                self._all_at = time.monotonic()
            news = {lane: offset for lane, offset in offsets.items() if self._copied.get(lane) != offset}
            partitions = [TopicPartition(lane.topic, lane.partition, offset) for lane, offset in news.items()]
            if partitions and self._commit(partitions):
                self._copied.update(news)
        except (KafkaException, JobError) as e:
            log.debug("the positions could not be copied for lag tools: %s", e)
        finally:
            self._lock.release()

    def _commit(self, offsets: list[TopicPartition]) -> bool:
        """Whether the brokers have answered that they took the offsets.

        Within a limit, which a synchronous commit does not have: a driver must not wait for the source's brokers here.
        """
        # A connection that failed is not used again, so that the next has the present credentials.
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            lag_settings = settings(self._job.cluster, self._names.lag_consumer)
            consumer = Consumer({**lag_settings, "on_commit": self._answered})
        self._answers.clear()
        consumer.commit(offsets=offsets, asynchronous=True)
        deadline = time.monotonic() + _ANSWER_S
        while not self._answers and time.monotonic() < deadline:
            consumer.poll(_POLL_S)
        if self._answers and self._answers[0] is None:
            self._consumer = consumer
            return True
        return False

    def _answered(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self._answers.append(error or next((x.error for x in offsets if x.error is not None), None))
