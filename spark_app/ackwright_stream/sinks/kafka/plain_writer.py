"""Rows that are written outside of transactions, by one producer of a process that is kept between batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ackwright_stream.connection import settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.base import Rows

if TYPE_CHECKING:
    from ackwright_stream.sinks.kafka.sink import TopicSink


class PlainWriter:
    """Connects when it is first used. Not thread-safe."""

    def __init__(self, sink: TopicSink, timeout: float) -> None:
        """timeout: seconds of one operation."""
        self._sink, self._timeout = sink, timeout
        self._producer: tuple[dict[str, Any], Producer] | None = None  # with its settings

    def write(self, rows: Rows, letters: Rows = (), *, acknowledged: bool = False) -> int:
        """As Sink.write(), and as OutputWriter.write()."""
        if acknowledged:
            for batch in letters:  # first: a topic that refuses one would refuse it again, behind rows that repeat
                self._sink.write_dead_letters(batch)
            return self._write_acknowledged(rows)
        producer = self.producer()
        try:
            records = self._sink.enqueue(producer, rows, letters)
        except JobError:
            self._producer = None  # librdkafka may count refused rows for good, and each flush would wait for them
            raise
        producer.flush(self._timeout)
        return records

    def _write_acknowledged(self, rows: Rows) -> int:
        topic = self._sink.spec.topic
        failures: list[KafkaError] = []
        producer = self.producer()
        delivery_s = int(self._sink.job.producer["delivery.timeout.ms"]) / 1000
        try:
            records = self._sink.enqueue_to(producer, topic, rows, on_failure=failures.append)
            if producer.flush(delivery_s + self._timeout):
                raise JobError(Reason.BATCH_FAILED, f"rows for topic {topic} were not acknowledged in time")
            if failures:
                raise _failed(failures[0], topic)
        except BaseException:
            self._producer = None  # its queue may hold rows of this batch, which is evaluated again
            raise
        return records

    def producer(self) -> Producer:
        """The producer, kept while its settings are the same.

        It holds nothing that could confuse a later batch. A new login makes a new producer: without acknowledgements,
        one whose login has expired loses all rows and does not report it.
        """
        sink = self._sink
        current = settings(sink.spec.brokers(sink.job.cluster), sink.job.producer)
        if self._producer is None or self._producer[0] != current:
            self._producer = (current, Producer(dict(current)))
        return self._producer[1]


def _failed(error: KafkaError, topic: str | None) -> JobError:
    failure = translate(error, f"writing the output to {topic}")
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # the topic would refuse it forever
        failure = JobError(
            Reason.ROW_REFUSED, failure.cause, "make the record smaller, or raise max.message.bytes of its topic"
        )
    failure.__cause__ = KafkaException(error)
    return failure
