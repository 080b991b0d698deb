"""Rows that are only judged, to learn which of them is larger than the producer sends. Nothing goes to a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

LIBRDKAFKA, JAVA = "message.max.bytes", "max.request.size"  # the limits of the two producers
_BATCH_OVERHEAD = 61  # bytes of a record batch without records (Kafka's RecordBatch, magic 2)
_RECORD_OVERHEAD = 21  # bytes at most of a record's length, attributes, timestamp and offset
_ANY_TOPIC = "ackwright.trial"  # nothing is sent


class TooLarge(Protocol):
    """Whether a producer refuses a record."""

    def __call__(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> bool: ...


class SizeTrial:
    """Rows of the columns key, value and headers against one limit."""

    def __init__(self, setting: str, limit: int, too_large: TooLarge) -> None:
        self._setting, self._limit, self._too_large = setting, limit, too_large

    def refusal(self, rows: pa.Table) -> JobError | None:
        """As in Trial."""
        present = [name for name in ("key", "value", "headers") if name in rows.column_names]
        for row in rows.select(present).to_pylist():
            key, value = row.get("key"), row.get("value")
            headers = [(h["key"], h["value"]) for h in row.get("headers") or ()]
            if self._too_large(key, value, headers):
                return JobError(
                    Reason.ROW_REFUSED,
                    f"its row of {_content(key, value, headers)} bytes is too large for {self._setting}={self._limit}, "
                    "which is the largest max.message.bytes in spec.topics",
                )
        return None


@contextmanager
def size_trial(producer: Mapping[str, str], spark_producer: Mapping[str, str]) -> Iterator[SizeTrial]:
    """The limit of the producer that writes rows: of these settings those that are not empty.

    producer: of librdkafka. spark_producer: of Spark's sink.
    """
    if JAVA in spark_producer:
        limit = int(spark_producer[JAVA])
        yield SizeTrial(JAVA, limit, lambda *record: java_size(*record) > limit)
        return
    limit = int(producer[LIBRDKAFKA])
    # Without brokers: librdkafka judges the size when a record enters its queue, which is emptied again.
    local: Any = Producer({LIBRDKAFKA: str(limit), "log_level": "0"})

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

    yield SizeTrial(LIBRDKAFKA, limit, too_large)


def java_size(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> int:
    """The bytes that Kafka's Java producer compares with max.request.size.

    Source: AbstractRecords.estimateSizeInBytesUpperBound, DefaultRecord.recordSizeUpperBound of Kafka 3 and 4.
    """
    pairs = [_field(name.encode()) + _field(content) for name, content in headers]
    return _BATCH_OVERHEAD + _RECORD_OVERHEAD + _field(key) + _field(value) + _varint(len(headers)) + sum(pairs)


def _field(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """The bytes of a number that is not negative, as Kafka's protocol has it (zigzag)."""
    return max(1, -(-((number << 1).bit_length()) // 7))


def _content(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> int:
    return sum(len(x or b"") for x in (key, value, *(v for _, v in headers))) + sum(len(n.encode()) for n, _ in headers)
