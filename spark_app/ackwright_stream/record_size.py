"""Bytes of a record in Kafka's protocol. Source: DefaultRecord and DefaultRecordBatch of Kafka 3 and 4, magic 2."""

from __future__ import annotations

from collections.abc import Iterable

Headers = Iterable[tuple[str, bytes | None]]
BATCH_OVERHEAD = 61  # of a record batch without records
RECORD_OVERHEAD = 21  # at most of a record's length, attributes, timestamp and offset
_ATTRIBUTES = 1
_FIRST_DELTAS = 2  # the time and the offset of a batch's first record, in relation to the batch


def batch_of_one(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The bytes of a batch that has this record alone, uncompressed: what brokers compare with max.message.bytes."""
    body = _ATTRIBUTES + _FIRST_DELTAS + content(key, value, headers)
    return BATCH_OVERHEAD + varint(body) + body


def content(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The bytes of key, value and headers with their lengths."""
    pairs = [_field(name.encode()) + _field(text) for name, text in headers]
    return _field(key) + _field(value) + varint(len(pairs)) + sum(pairs)


def varint(number: int) -> int:
    """The bytes of a number that is not negative, in the encoding zigzag."""
    return max(1, -(-((number << 1).bit_length()) // 7))


def _field(text: bytes | None) -> int:
    return 1 if text is None else varint(len(text)) + len(text)
