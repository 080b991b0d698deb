"""Moves an Arrow batch into the producer's queue, every row or an error: the hot path of every lane.

`Producer.produce_batch` returns how many rows it accepted and nothing about the rest, so a full queue loses rows
silently (docs/protocol.md#rule-12). All rows of the job are enqueued here: count, poll, retry until a deadline, else
raise.

There are two ways with the same behaviour. *plain* converts the rows to Python objects. *native* does not: numpy fills
an array of `rd_kafka_message_t` (rdkafka.h) with addresses inside the Arrow buffers, for `rd_kafka_produce_batch` of
the same librdkafka that confluent_kafka is linked with. librdkafka copies each row (RD_KAFKA_MSG_F_COPY), because the
batch is freed long before a broker answers. native is used where its assumptions hold (see `_is_native`); plain
otherwise, and for batches with headers, which `rd_kafka_produce_batch` cannot carry. ACKWRIGHT_PLAIN_ENQUEUE=1 in the
environment forces plain.

Delivery reports: librdkafka counts a row as queued until its report is polled, so each call polls. native leaves
`_private` NULL, for which confluent_kafka's callback returns at once; for the rows of plain it takes the GIL, once per
row. Reports of failed rows are ignored: they fail the transaction (commit_transaction raises), and without a
transaction, under at-most-once, a row may be lost. *reported* is plain with a report of each row, for those that have
to be acknowledged outside of a transaction.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import confluent_kafka
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.kafka import librdkafka
from ackwright_stream.sinks.topic import require_writable

# rd_kafka_message_t of librdkafka 2.x; align=True gives the padding of a C compiler.
MESSAGE = np.dtype(
    [
        ("err", np.int32),
        ("rkt", np.uintp),
        ("partition", np.int32),
        ("payload", np.uintp),
        ("len", np.uintp),
        ("key", np.uintp),
        ("key_len", np.uintp),
        ("offset", np.int64),
        ("_private", np.uintp),
    ],
    align=True,
)

PARTITION = "partition"  # the column that names each row's partition
_ANY_PARTITION = -1  # RD_KAFKA_PARTITION_UA: the producer's partitioner decides
_COPY = 0x2  # RD_KAFKA_MSG_F_COPY
_EACH_PARTITION = 0x8  # RD_KAFKA_MSG_F_PARTITION: each message names its partition
_EMPTY = ctypes.create_string_buffer(1)  # NULL means null to librdkafka, so empty bytes need an address
_POLL_SECONDS = 0.1


OnFailure = Callable[[KafkaError], None]


class Enqueue(Protocol):
    """Enqueues batches."""

    name: str  # native, plain or reported

    def __call__(self, batch: pa.RecordBatch) -> int:
        """Enqueues every row, in order per partition; returns their number.

        Raises JobError. Some of the rows may then be in the queue, so the producer has to be dropped.
        """

    def close(self) -> None:
        """Releases the producer, which stays open."""


def enqueuer(
    producer: confluent_kafka.Producer,
    topic: str | None,
    *,
    timeout: float = 60.0,
    plain: bool = False,
    on_failure: OnFailure | None = None,
) -> Enqueue:
    """Returns what enqueues batches with the columns key, value (bytes), topic (text), headers (list of key, value) and
    partition (int32).

    Each column is nullable, and may be absent, which means null; partition is absent or has no null. topic: for rows
    whose topic is null. Without partition the producer's partitioner decides. timeout: seconds that one call may spend
    on a full queue, and on the first check of a topic. Not to be used while another thread closes the producer.
    on_failure: called for each row that the brokers have not accepted, while the producer is polled or flushed.
    """
    if on_failure is not None:  # rows of native have no reports
        return _Reported(producer, topic, timeout, on_failure)
    if not plain and os.environ.get("ACKWRIGHT_PLAIN_ENQUEUE") != "1" and _is_native(producer):
        return _Native(producer, topic, timeout)
    return _Plain(producer, topic, timeout)


class _Plain:
    name = "plain"

    def __init__(self, producer: Any, topic: str | None, timeout: float) -> None:
        self._producer = producer
        self._topic = topic
        self._timeout = timeout
        self._usable: set[str] = set(getattr(producer, "writable", ()))
        self._report: dict[str, Any] = {}  # of each row that is produced alone

    def __call__(self, batch: pa.RecordBatch) -> int:
        if self._producer is None:
            raise RuntimeError("enqueue after close")
        deadline = time.monotonic() + self._timeout
        routes = route(batch, self._topic)
        for topic, _ in routes:
            # librdkafka accepts rows for any topic, and reports 30 s later, without a cause, that it is missing. It
            # needs the same metadata before it can partition the rows, so this check hardly costs time.
            if topic not in self._usable:
                require_writable(self._producer, topic, self._timeout)
                self._usable.add(topic)
        if _has_headers(batch):
            self._one_by_one(batch, deadline)
        else:
            self._in_bulk(batch, routes, deadline)
        self._producer.poll(0)
        return int(batch.num_rows)

    def close(self) -> None:
        self._producer = None

    def _in_bulk(self, batch: pa.RecordBatch, routes: Routes, deadline: float) -> None:
        keys, values = _bytes(batch, "key").to_pylist(), _bytes(batch, "value").to_pylist()
        partitions = _partitions(batch)
        for topic, rows in routes:
            numbers = np.arange(len(keys)) if rows is None else rows
            # A call for each partition: produce_batch ignores a message's own (confluent-kafka 2.16.1).
            for partition in np.unique(partitions[numbers]).tolist():
                row_numbers = numbers[partitions[numbers] == partition].tolist()
                messages = [{"key": keys[i], "value": values[i]} for i in row_numbers]
                self._produce_messages(topic, partition, messages, batch.num_rows, deadline)

    def _produce_messages(
        self, topic: str, partition: int, messages: list[dict[str, Any]], rows: int, deadline: float
    ) -> None:
        while messages:
            if self._producer.produce_batch(topic, messages, partition) == len(messages):
                break
            # produce_batch leaves an error in each message that it did not accept
            codes = np.array([m.pop("_error").code() if "_error" in m else 0 for m in messages], dtype=np.int32)
            first = _first_refused(codes)
            if codes[first] != KafkaError._QUEUE_FULL:
                _refused(topic, int(codes[first]), _size(messages[first]))
            messages = messages[first:]
            self._wait(deadline, topic, len(messages), rows)

    def _one_by_one(self, batch: pa.RecordBatch, deadline: float) -> None:
        keys, values = _bytes(batch, "key").to_pylist(), _bytes(batch, "value").to_pylist()
        topics = _topics(batch, self._topic).to_pylist()
        headers = batch.column("headers").to_pylist() if "headers" in batch.schema.names else [None] * len(keys)
        partitions = _partitions(batch)
        for i, (key, value, target) in enumerate(zip(keys, values, topics, strict=True)):
            pairs = [(h["key"], h["value"]) for h in headers[i] or ()]
            if any(name is None for name, _ in pairs):
                raise JobError(
                    Reason.BATCH_FAILED,
                    f"a record for topic {target!r} has a header whose key is null, which Kafka does not allow: "
                    "give every header a key, or leave it out",
                )
            while True:
                try:
                    self._producer.produce(
                        target, value, key, int(partitions[i]), headers=pairs or None, **self._report
                    )
                    break
                except BufferError:
                    self._wait(deadline, target, len(keys) - i, len(keys))
                except KafkaException as e:
                    size = _size({"key": key, "value": value}) + sum(len(k.encode()) + len(v or b"") for k, v in pairs)
                    _refused(target, e.args[0].code(), size)

    def _wait(self, deadline: float, topic: str, left: int, rows: int) -> None:
        """Serves delivery reports, which empties the queue, or raises after the deadline."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise JobError(
                Reason.BATCH_FAILED,
                f"the producer's queue stayed full for {self._timeout:g} s: {left} rows for topic {topic!r} out of a "
                f"batch of {rows} could not be enqueued; check why the brokers do not acknowledge",
            ) from KafkaException(KafkaError(KafkaError._QUEUE_FULL))
        self._producer.poll(min(remaining, _POLL_SECONDS))


class _Reported(_Plain):
    name = "reported"

    def __init__(self, producer: Any, topic: str | None, timeout: float, on_failure: OnFailure) -> None:
        super().__init__(producer, topic, timeout)

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                on_failure(error)

        self._report = {"on_delivery": report}

    def _in_bulk(self, batch: pa.RecordBatch, routes: Routes, deadline: float) -> None:
        self._one_by_one(batch, deadline)


class _Native(_Plain):
    name = "native"

    def _in_bulk(self, batch: pa.RecordBatch, routes: Routes, deadline: float) -> None:
        keys, values = _bytes(batch, "key"), _bytes(batch, "value")  # hold the buffers until every row is copied
        messages = build_messages(keys, values)
        flags = _COPY
        if PARTITION in batch.schema.names:
            messages["partition"] = _partitions(batch)
            flags |= _EACH_PARTITION
        for topic, rows in routes:
            self._produce(topic, messages if rows is None else messages[rows], flags, batch.num_rows, deadline)

    def _produce(self, topic: str, messages: npt.NDArray[np.void], flags: int, rows: int, deadline: float) -> None:
        lib = librdkafka.library()
        handle = librdkafka.pointer(self._producer)
        if not handle:
            raise RuntimeError("enqueue after the producer was closed")
        # This only looks up a name. If the topic's handle outlived this call, it would have to be destroyed before the
        # producer, and producers are dropped at any failure.
        rkt = lib.rd_kafka_topic_new(handle, topic.encode(), None)
        if not rkt:
            _refused(topic, lib.rd_kafka_last_error(), 0)
        try:
            start = 0
            while start < len(messages):
                rest = messages[start:]
                if lib.rd_kafka_produce_batch(rkt, _ANY_PARTITION, flags, rest.ctypes.data, len(rest)) == len(rest):
                    break
                first = _first_refused(rest["err"])
                if rest["err"][first] != KafkaError._QUEUE_FULL:
                    _refused(topic, int(rest["err"][first]), int(rest["len"][first] + rest["key_len"][first]))
                start += first
                self._wait(deadline, topic, len(messages) - start, rows)
        finally:
            lib.rd_kafka_topic_destroy(rkt)


Routes = list[tuple[str, "npt.NDArray[np.intp] | None"]]


def route(batch: pa.RecordBatch, default: str | None) -> Routes:
    """Each topic with its rows in their order, None for all rows. Raises JobError for rows without a topic."""
    if batch.num_rows == 0:
        return []
    if default is not None and (
        "topic" not in batch.schema.names or batch.column("topic").null_count == batch.num_rows
    ):
        return [(default, None)]
    encoded = _topics(batch, default).dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        return [(topics[0], None)]
    codes = encoded.indices.to_numpy()
    return [(topic, np.flatnonzero(codes == code)) for code, topic in enumerate(topics)]


def _topics(batch: pa.RecordBatch, default: str | None) -> pa.Array:
    """The topic of each row, as string without nulls."""
    present = "topic" in batch.schema.names
    column = batch.column("topic").cast(pa.string()) if present else pa.nulls(batch.num_rows, pa.string())
    if column.null_count == 0:
        return column
    if default is None:
        raise JobError(
            Reason.BATCH_FAILED,
            f"{column.null_count} of {batch.num_rows} rows have no topic: "
            "give the column topic a value in every row, or set sink.kafka.topic",
        )
    return pc.fill_null(column, default)


def build_messages(keys: pa.Array, values: pa.Array) -> npt.NDArray[np.void]:
    """The rd_kafka_message_t of each row. keys and values: binary or large_binary; they must outlive the messages."""
    messages = np.zeros(len(values), MESSAGE)
    for array, pointer, length in ((keys, "key", "key_len"), (values, "payload", "len")):
        if array.null_count == len(array):
            continue
        wide = pa.types.is_large_binary(array.type)
        _, offsets_buffer, data = array.buffers()
        dtype = np.dtype(np.int64 if wide else np.int32)
        # Arrow columnar format: a slice starts at array.offset of the offsets; these count from the start of the data.
        offsets = np.frombuffer(offsets_buffer, dtype, len(array) + 1, array.offset * dtype.itemsize).astype(
            np.int64, copy=False
        )
        start = data.address if data is not None and data.address else ctypes.addressof(_EMPTY)
        messages[pointer] = offsets[:-1] + start
        messages[length] = np.diff(offsets)
        if array.null_count:
            nulls = array.is_null().to_numpy(zero_copy_only=False)
            messages[pointer][nulls] = 0
            messages[length][nulls] = 0
    return messages


def _bytes(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The column as binary or large_binary; nulls if it is absent."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.binary())
    column = batch.column(name)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column
    try:
        return column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise JobError(
            Reason.BATCH_FAILED,
            f"column {name} is of type {column.type}, which is not bytes: cast it to BINARY or STRING in the transform",
        ) from e


def _partitions(batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """The partition of each row; any, if there is no such column."""
    if PARTITION not in batch.schema.names:
        return np.full(batch.num_rows, _ANY_PARTITION, np.int32)
    return np.asarray(batch.column(PARTITION).to_numpy(zero_copy_only=False), dtype=np.int32)


def _has_headers(batch: pa.RecordBatch) -> bool:
    if "headers" not in batch.schema.names:
        return False
    column = batch.column("headers")
    return column.null_count < len(column) and bool(pc.any(pc.greater(pc.list_value_length(column), 0)).as_py())


def _size(message: dict[str, Any]) -> int:
    return len(message["key"] or b"") + len(message["value"] or b"")


def _first_refused(codes: npt.NDArray[np.int32]) -> int:
    """The first row with a lasting error, else the first row that met a full queue.

    Raises JobError if a row after a full queue was accepted, because a retry would change the order. librdkafka refuses
    all rows after a full queue.
    """
    lasting = np.flatnonzero((codes != 0) & (codes != KafkaError._QUEUE_FULL))
    if lasting.size:
        return int(lasting[0])
    full = np.flatnonzero(codes)
    if not full.size or full[0] + full.size != len(codes):
        errors = dict(Counter(codes.tolist()))
        raise JobError(
            Reason.UNEXPECTED,
            f"the producer accepted rows of a batch out of order (rows by error code: {errors}): report this",
        )
    return int(full[0])


def _refused(topic: str, code: int, size: int) -> NoReturn:
    """Raises JobError. Its cause is the KafkaException, which distinguishes a fenced producer from a large record."""
    error = KafkaError(code)
    remedy = {
        KafkaError.MSG_SIZE_TOO_LARGE: "declare a larger max.message.bytes in spec.topics, or make the record smaller",
        KafkaError._UNKNOWN_TOPIC: "create the topic",
        KafkaError._UNKNOWN_PARTITION: "give the topic as many partitions as the source has, "
        "or do not set preservePartition",
    }.get(code, "the producer has to be replaced")
    # The same row would be refused forever. Its batch need not be, after any other error.
    raise JobError(
        Reason.ROW_REFUSED if code == KafkaError.MSG_SIZE_TOO_LARGE else Reason.BATCH_FAILED,
        f"a record of {size} bytes for topic {topic!r} was refused ({error.name()}: {error.str()}): {remedy}",
    ) from KafkaException(error)


def _is_native(producer: Any) -> bool:
    """Whether the assumptions of native hold: a platform of 64 bits, and a known librdkafka."""
    return MESSAGE.itemsize == 72 and librdkafka.is_known(producer)
