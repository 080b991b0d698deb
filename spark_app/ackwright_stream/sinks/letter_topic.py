"""Dead letters that are written to a topic outside of a transaction, and are durable when the call returns.

Kafka's sink writes them so under at-least-once. A sink whose rows are not in Kafka always does, to a compacted topic:
no commit changes both stores, so the order decides (tests/model: letter_topic.py), and what is written again has the
key that it had before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ackwright_stream import dead_letters
from ackwright_stream.connection import settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import Cluster, DeadLetterTopic, JobSpec, Reason
from ackwright_stream.positions import Lane
from ackwright_stream.reasons import REASONS
from ackwright_stream.record_size import batch_of_one
from ackwright_stream.sinks.base import Rows
from ackwright_stream.sinks.topic import require_writable
from ackwright_stream.topic_limits import LARGEST_RECORD, too_large_for_topic

_POLL_S = 0.1
_FRAME_BYTES = 1000  # more than the frame of a batch that has one record


RecordsOf = Callable[[pa.RecordBatch, str], pa.RecordBatch]  # as dead_letters.records()


def records_within_limit(
    letters: Rows, to: DeadLetterTopic, group: str, records_of: RecordsOf = dead_letters.records
) -> Rows:
    """Dead letters (dead_letters.COLUMNS) as records of their topic.

    Raises JobError(ROW_REFUSED) for the first that is larger than the topic takes. Its limit is in the producer's
    settings, where the driver has set it (topic_limits.py).
    """
    limit = int(to.producer[LARGEST_RECORD])
    for batch in letters:
        records = records_of(batch, group)
        # Together they are no larger than one may be, and the size of each takes nearly as long as the rest of the
        # work on it. Twice, because a record has the length of each of its fields as well: up to five bytes, where
        # Arrow has four.
        if 2 * records.nbytes + _FRAME_BYTES <= limit:
            yield records
            continue
        for n, record in enumerate(records.to_pylist()):
            headers = [(h["key"], h["value"]) for h in record["headers"]]
            size = batch_of_one(record["key"], record["value"], headers)
            if size > limit:
                topic, partition, offset = (batch[name][n] for name in ("topic", "partition", "offset"))
                raise JobError(
                    Reason.ROW_REFUSED,
                    f"record {topic}-{partition}@{offset}: "
                    f"its dead letter of {too_large_for_topic(size, to.topic, limit)}",
                    REASONS[Reason.ROW_REFUSED].remedy,
                )
        yield records


class LetterProducer:
    """A producer that knows of each record whether the brokers have acknowledged it. Not thread-safe."""

    def __init__(self, brokers: Cluster, to: DeadLetterTopic, timeout: float) -> None:
        self._brokers, self._to, self._timeout = brokers, to, timeout
        self._producer: tuple[dict[str, Any], Producer] | None = None  # with its settings

    def write(self, batches: Rows) -> None:
        """Writes records with the columns dead_letters.RECORD; returns when all are acknowledged. Raises JobError."""
        failures: list[KafkaError] = []

        def acknowledged(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = self._connected()
        try:
            for record in (record for batch in batches for record in batch.to_pylist()):
                headers = [(h["key"], h["value"]) for h in record["headers"]]
                while True:
                    try:
                        producer.produce(
                            self._to.topic,
                            record["value"],
                            record["key"],
                            headers=headers,
                            on_delivery=acknowledged,
                        )
                        break
                    except BufferError:
                        producer.poll(_POLL_S)
                    except KafkaException as e:  # not for its size: records_within_limit() refuses such a record before
                        raise translate(e.args[0], f"writing a dead letter to {self._to.topic}") from e
            delivery_s = int(self._to.producer["delivery.timeout.ms"]) / 1000
            if producer.flush(delivery_s + self._timeout):
                raise JobError(Reason.BATCH_FAILED, f"dead letters for {self._to.topic} were not acknowledged in time")
            if failures:
                raise translate(failures[0], f"writing dead letters to {self._to.topic}")
        except BaseException:
            self._producer = None  # its queue may hold records of this attempt
            raise

    def _connected(self) -> Producer:
        """The producer, a new one after a new login."""
        current = settings(self._brokers, self._to.producer)
        if self._producer is None or self._producer[0] != current:
            producer = Producer(dict(current))
            require_writable(producer, self._to.topic, self._timeout)
            self._producer = (current, producer)
        return self._producer[1]


class LetterTopic:
    """The dead letters of a pipeline whose rows are not in Kafka, in a topic of the source's brokers.

    Not thread-safe. Connects when there is a first dead letter.
    """

    def __init__(self, job: JobSpec, to: DeadLetterTopic | None) -> None:
        """to: None for a pipeline without dead letters."""
        self._group, self._to = job.group, to
        self._producer = LetterProducer(job.cluster, to, job.operation_timeout_ms / 1000) if to else None
        self.topics = (to.topic,) if to else ()

    def write(self, letters: pa.RecordBatch) -> None:
        """Writes dead letters (dead_letters.COLUMNS); returns when all are acknowledged. Raises JobError."""
        if self._producer is None or self._to is None:
            raise JobError(Reason.UNEXPECTED, "this pipeline has no dead-letter topic; report this")
        self._producer.write(records_within_limit([letters], self._to, self._group, dead_letters.keyed_records))

    def write_all(self, letters: Rows, lanes: Iterable[Lane]) -> None:
        """Writes all dead letters of a task with these lanes, as write() does."""
        written = False
        for batch in letters:
            self.write(batch)
            written = True
        if written:  # a claim has none, and the dead letters of its task follow
            fault_point("letters-written", *lanes)
