"""The array of messages that librdkafka reads: its layout, and its building from every shape of Arrow buffer. No real
broker."""

from __future__ import annotations

import ctypes
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.kafka import enqueue
from ackwright_stream.sinks.kafka.enqueue import MESSAGE, build_messages, enqueuer, route
from unit.stream.mock_brokers import MockBrokers

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
Bytes = st.lists(st.one_of(st.none(), st.just(b""), st.binary(max_size=40)), max_size=30)


def test_layout_is_that_of_rd_kafka_message_t() -> None:
    class Message(ctypes.Structure):
        _fields_ = (
            ("err", ctypes.c_int),
            ("rkt", ctypes.c_void_p),
            ("partition", ctypes.c_int32),
            ("payload", ctypes.c_void_p),
            ("len", ctypes.c_size_t),
            ("key", ctypes.c_void_p),
            ("key_len", ctypes.c_size_t),
            ("offset", ctypes.c_int64),
            ("_private", ctypes.c_void_p),
        )

    assert MESSAGE.itemsize == ctypes.sizeof(Message) == 72
    fields = dict(MESSAGE.fields or {})
    assert {name: field[1] for name, field in fields.items()} == {
        n: getattr(Message, n).offset for n, _ in Message._fields_
    }
    assert {name: field[0].itemsize for name, field in fields.items()} == {
        n: getattr(Message, n).size for n, _ in Message._fields_
    }


def read(messages: Any, pointer: str, length: str) -> list[bytes | None]:
    return [None if not m[pointer] else ctypes.string_at(int(m[pointer]), int(m[length])) for m in messages]


@given(keys=Bytes, values=Bytes, wide=st.booleans(), data=st.data())
def test_messages_hold_the_rows_of_any_slice(
    keys: list[bytes | None], values: list[bytes | None], wide: bool, data: st.DataObject
) -> None:
    n = min(len(keys), len(values))
    start = data.draw(st.integers(0, n))
    count = data.draw(st.integers(0, n - start))
    kind = pa.large_binary() if wide else pa.binary()
    key_array, value_array = (pa.array(rows[:n], kind).slice(start, count) for rows in (keys, values))
    messages = build_messages(key_array, value_array)
    assert read(messages, "key", "key_len") == keys[:n][start : start + count]
    assert read(messages, "payload", "len") == values[:n][start : start + count]
    assert not messages["err"].any()
    assert not messages["_private"].any()  # confluent_kafka's delivery callback would take it for its own struct
    nothing = messages["payload"] == 0
    assert not messages["len"][nothing].any()


def test_empty_bytes_without_any_data_are_not_null() -> None:
    offsets = pa.py_buffer(np.zeros(3, np.int32).tobytes())
    array = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"")])
    assert read(build_messages(array, array), "payload", "len") == [b"", b""]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary_view(), pa.binary(3)])
def test_other_kinds_of_bytes_are_cast(kind: pa.DataType) -> None:
    rows = ["añ", None, "xyz"] if kind in (pa.string(), pa.large_string(), pa.string_view()) else [b"abc", None, b"xyz"]
    batch = pa.record_batch({"value": pa.array(rows, kind)})
    column = enqueue._bytes(batch, "value")
    expected = [r.encode() if isinstance(r, str) else r for r in rows]
    assert read(build_messages(enqueue._bytes(batch, "key"), column), "payload", "len") == expected


def test_a_column_that_is_not_bytes_is_refused() -> None:
    with pytest.raises(JobError, match="column value is of type double") as e:
        enqueue._bytes(pa.record_batch({"value": pa.array([1.5])}), "value")
    assert e.value.reason is Reason.BATCH_FAILED


@given(topics=st.lists(st.sampled_from(["a", "b", "c", None]), max_size=30), cut=st.integers(0, 10))
def test_route_keeps_every_row_once_and_their_order(topics: list[str | None], cut: int) -> None:
    batch = pa.record_batch({"topic": pa.array(topics, pa.string())}).slice(min(cut, len(topics)))
    rest = [t or "default" for t in topics[cut:]]
    routed = {
        topic: list(range(len(rest))) if rows is None else rows.tolist() for topic, rows in route(batch, "default")
    }
    assert routed == {t: [i for i, x in enumerate(rest) if x == t] for t in set(rest)}


def test_rows_without_a_topic_are_refused() -> None:
    batch = pa.record_batch({"topic": pa.array(["a", None, None])})
    with pytest.raises(JobError, match="2 of 3 rows have no topic"):
        route(batch, None)
    with pytest.raises(JobError, match="2 of 2 rows have no topic"):
        route(pa.record_batch({"value": pa.array([b"x", b"y"])}), None)
    assert route(batch.slice(0, 1), None) == [("a", None)]


FULL, LARGE = KafkaError._QUEUE_FULL, KafkaError.MSG_SIZE_TOO_LARGE


@pytest.mark.parametrize(
    ("codes", "row"), [([0, 0, FULL, FULL], 2), ([FULL], 0), ([0, LARGE, 0, FULL], 1), ([FULL, FULL, LARGE], 2)]
)
def test_the_row_that_decides(codes: list[int], row: int) -> None:
    assert enqueue._first_refused(np.array(codes, np.int32)) == row


@pytest.mark.parametrize("codes", [[0, FULL, 0], [0, 0]])
def test_rows_taken_behind_a_full_queue_are_an_error(codes: list[int]) -> None:
    with pytest.raises(JobError, match="out of order"):
        enqueue._first_refused(np.array(codes, np.int32))


def test_which_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = confluent_kafka.Producer(NOWHERE)
    assert enqueuer(producer, "t").name == "native"
    assert enqueuer(producer, "t", plain=True).name == "plain"
    monkeypatch.setenv("ACKWRIGHT_PLAIN_ENQUEUE", "1")
    assert enqueuer(producer, "t").name == "plain"
    monkeypatch.delenv("ACKWRIGHT_PLAIN_ENQUEUE")
    monkeypatch.setattr(confluent_kafka, "__version__", "2.17.0")
    assert enqueuer(producer, "t").name == "plain"


def test_a_subclass_is_the_same_producer_and_a_consumer_is_none() -> None:
    class Mine(confluent_kafka.Producer):  # type: ignore[misc]
        pass

    consumer = confluent_kafka.Consumer({**NOWHERE, "group.id": "g"})
    try:
        assert enqueuer(Mine(NOWHERE), "t").name == "native"
        assert not enqueue._is_native(consumer)
        assert not enqueue._is_native(object())
    finally:
        consumer.close()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("topic", ["", "..", "a b", "a\0b", "x" * 250])
def test_a_name_that_cannot_be_a_topic_is_refused_before_librdkafka_sees_it(topic: str, plain: bool) -> None:
    enqueue_batch = enqueuer(confluent_kafka.Producer(NOWHERE), topic, plain=plain)
    with pytest.raises(JobError, match="cannot be the name of a topic"):
        enqueue_batch(pa.record_batch({"value": pa.array([b"x"])}))


@pytest.mark.parametrize("plain", [False, True])
def test_an_empty_batch_and_the_end(plain: bool) -> None:
    enqueue_batch = enqueuer(confluent_kafka.Producer(NOWHERE), None, plain=plain)
    assert enqueue_batch(pa.record_batch({"value": pa.array([], pa.binary())})) == 0
    enqueue_batch.close()
    with pytest.raises(RuntimeError, match="after close"):
        enqueue_batch(pa.record_batch({"value": pa.array([], pa.binary())}))


@pytest.mark.parametrize("plain", [False, True], ids=["native", "plain"])
@pytest.mark.parametrize("headers", [False, True])
def test_a_row_goes_to_the_partition_that_it_names(plain: bool, headers: bool) -> None:
    """Rows of one key: the partitioner would put all of them into one partition."""
    brokers = MockBrokers()
    topic, rows = brokers.topic("out"), 12
    columns = {
        "key": pa.array([b"same"] * rows),
        "value": pa.array([b"x"] * rows),
        "partition": pa.array([i % 3 for i in range(rows)], pa.int32()),
    }
    if headers:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        columns["headers"] = pa.array([[{"key": "h", "value": b"v"}]] * rows, kind)
    client = {"bootstrap.servers": brokers.servers, "log_level": 0}
    producer, consumer = confluent_kafka.Producer(client), confluent_kafka.Consumer({**client, "group.id": "g"})
    try:
        assert enqueuer(producer, topic, plain=plain)(pa.record_batch(columns)) == rows
        assert producer.flush(20) == 0
        ends = [consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, p), 20)[1] for p in range(4)]
        assert ends == [4, 4, 4, 0]
        with pytest.raises(JobError, match="give the topic as many partitions as the source has") as e:
            enqueuer(producer, topic, plain=plain)(
                pa.record_batch({**columns, "partition": pa.array([7] * rows, pa.int32())})
            )
        assert e.value.reason is Reason.BATCH_FAILED
    finally:
        consumer.close()
