"""Rows that are only judged, to learn which is larger than its topic takes or the producer sends. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.record_size import BATCH_OVERHEAD, RECORD_OVERHEAD, batch_of_one, content
from ackwright_stream.topic_limits import LARGEST_RECORD, LARGEST_REQUEST, too_large_for_topic

_ANY_TOPIC = "ackwright.trial"  # nothing is sent
# The limit of a topic in bytes; None: it is not known.
LimitOf = Callable[[str], int | None]


class TooLarge(Protocol):
    """Whether a producer refuses a record."""

    def __call__(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> bool: ...


class SizeTrial:
    """Rows of the columns key, value, headers and topic against the limits of their topics and of the producer."""

    def __init__(
        self, setting: str, limit: int, too_large: TooLarge, limit_of: LimitOf, topic: str | None = None
    ) -> None:
        """topic: of rows that name none."""
        self._setting, self._limit, self._too_large = setting, limit, too_large
        self._limit_of, self._topic = limit_of, topic

    def refusal(self, rows: pa.Table) -> JobError | None:
        """As in Trial."""
        present = [name for name in ("key", "value", "headers", "topic") if name in rows.column_names]
        for row in rows.select(present).to_pylist():
            headers = [(h["key"], h["value"]) for h in row.get("headers") or ()]
            why = self._refusal(row.get("topic") or self._topic, row.get("key"), row.get("value"), headers)
            if why is not None:
                return JobError(Reason.ROW_REFUSED, f"its row of {why}")
        return None

    def _refusal(
        self, topic: str | None, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> str | None:
        limit = self._limit_of(topic) if topic else None
        in_topic = batch_of_one(key, value, headers)
        if topic and limit is not None and in_topic > limit:
            return too_large_for_topic(in_topic, topic, limit)
        if self._too_large(key, value, headers):
            return (
                f"{_bytes(key, value, headers)} bytes is too large for {self._setting}={self._limit}, "
                "the limit with which this driver started: declare a larger max.message.bytes in spec.topics, or start "
                "the driver again if it was raised since"
            )
        return None


@contextmanager
def size_trial(
    producer: Mapping[str, str],
    spark_producer: Mapping[str, str],
    limit_of: LimitOf = lambda topic: None,
    topic: str | None = None,
) -> Iterator[SizeTrial]:
    """The limits of topics, and that of the producer that writes rows: of these settings those that are not empty.

    producer: of librdkafka. spark_producer: of Spark's sink. topic: of rows that name none.
    """
    if LARGEST_REQUEST in spark_producer:
        limit = int(spark_producer[LARGEST_REQUEST])
        yield SizeTrial(LARGEST_REQUEST, limit, lambda *record: java_size(*record) > limit, limit_of, topic)
        return
    limit = int(producer[LARGEST_RECORD])
    # Without brokers: librdkafka judges the size when a record enters its queue, which is emptied again.
    local: Any = Producer({LARGEST_RECORD: str(limit), "log_level": "0"})

    def too_large(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> bool:
        try:
            local.produce(_ANY_TOPIC, value, key, headers=headers or None)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            return True
        local.purge()
        local.poll(0)
        return False

    yield SizeTrial(LARGEST_RECORD, limit, too_large, limit_of, topic)


def java_size(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> int:
    """The bytes that Kafka's Java producer compares with max.request.size.

    Source: AbstractRecords.estimateSizeInBytesUpperBound, DefaultRecord.recordSizeUpperBound of Kafka 3 and 4.
    """
    return BATCH_OVERHEAD + RECORD_OVERHEAD + content(key, value, headers)


def _bytes(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> int:
    return sum(len(x or b"") for x in (key, value, *(v for _, v in headers))) + sum(len(n.encode()) for n, _ in headers)
