"""Both ways of enqueuing against real brokers: the same records arrive, and none is lost to a full queue."""

from __future__ import annotations

import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.kafka.enqueue import enqueuer
from waiting import ANSWER, WAIT, wait_until

PARTITIONS = 3
Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
WAYS = [pytest.param(False, id="native"), pytest.param(True, id="plain")]


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> str:
    return os.environ.get("ACKWRIGHT_TEST_BROKERS") or str(request.getfixturevalue("kafka").bootstrap_servers)


@pytest.fixture(scope="module")
def new_topic(servers: str) -> Iterator[Callable[[int], str]]:
    admin = AdminClient({"bootstrap.servers": servers})
    created: list[str] = []

    def make(partitions: int) -> str:
        name = f"enqueue-{uuid.uuid4().hex[:12]}"
        admin.create_topics([NewTopic(name, partitions, 3)])[name].result(ANSWER)
        created.append(name)
        return name

    yield make
    for future in admin.delete_topics(created, operation_timeout=ANSWER).values():
        future.result(ANSWER)


@pytest.fixture(scope="module")
def produced(servers: str) -> Callable[..., Producer]:
    def make(**conf: Any) -> Producer:
        named = {name.replace("_", "."): value for name, value in conf.items()}
        return Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random", "linger.ms": 1, **named})

    return make


class Reader:
    """Reads each topic's new records, per partition and in order, as a read_committed consumer sees them."""

    def __init__(self, servers: str) -> None:
        conf = {"bootstrap.servers": servers, "group.id": "enqueue-reader", "enable.auto.commit": False}
        self._consumer = Consumer({**conf, "isolation.level": "read_committed", "fetch.wait.max.ms": 20})
        self._known: dict[str, list[TopicPartition]] = {}
        self._records: dict[tuple[str, int], list[Record]] = defaultdict(list)

    def __call__(self, topic: str) -> dict[int, list[Record]]:
        if topic not in self._known:
            partitions = self._consumer.list_topics(topic, ANSWER).topics[topic].partitions
            self._known[topic] = [TopicPartition(topic, p, 0) for p in partitions]
            self._consumer.incremental_assign(self._known[topic])
        ends = [self._end(p) for p in self._known[topic]]
        deadline = time.monotonic() + ANSWER
        while any(max(p.offset, 0) < end for p, end in zip(self._positions(topic), ends, strict=True)):
            assert time.monotonic() < deadline, f"{topic} was not read up to {ends}"
            for m in self._consumer.consume(1000, 0.02):
                assert m.error() is None
                self._records[m.topic(), m.partition()].append((m.key(), m.value(), tuple(m.headers() or ())))
        return {p.partition: self._records.pop((topic, p.partition), []) for p in self._known[topic]}

    def _end(self, partition: TopicPartition) -> int:
        _, end = wait_until(
            lambda: self._consumer.get_watermark_offsets(partition, ANSWER), f"{partition} has a leader"
        )
        return int(end)

    def _positions(self, topic: str) -> list[TopicPartition]:
        return list(self._consumer.position(self._known[topic]))

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture(scope="module")
def read(servers: str) -> Iterator[Reader]:
    reader = Reader(servers)
    yield reader
    reader.close()


Maybe = st.one_of(st.none(), st.just(b""), st.binary(max_size=20))
Key = st.one_of(Maybe, st.text(max_size=8).map(str.encode))
Headers: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.just([]), st.lists(st.tuples(st.sampled_from(["h", "ключ"]), Maybe), min_size=1, max_size=2)
)
Row = st.tuples(Key, Maybe, st.sampled_from([0, 1, None]), Headers, st.integers(0, PARTITIONS - 1))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("named", [False, True])
def test_both_ways_deliver_the_same(
    named: bool, new_topic: Callable[[int], str], produced: Callable[..., Producer], read: Reader
) -> None:
    """named: whether rows name their partitions."""
    ways = []
    for plain in (False, True):
        topics = [new_topic(PARTITIONS), new_topic(PARTITIONS)]
        producer = produced()
        ways.append((topics, producer, enqueuer(producer, topics[0], plain=plain)))
    assert [way[2].name for way in ways] == ["native", "plain"]

    @settings(max_examples=25, suppress_health_check=list(HealthCheck), database=None)
    @given(
        rows=st.lists(Row, max_size=25),
        cut=st.integers(0, 5),
        wide=st.booleans(),
        with_headers=st.booleans(),
        with_topics=st.booleans(),
    )
    def check(rows: list[Any], cut: int, wide: bool, with_headers: bool, with_topics: bool) -> None:
        delivered_by = []
        for topics, producer, enqueue in ways:
            columns = {
                "key": pa.array([r[0] for r in rows], pa.large_binary() if wide else pa.binary()),
                "value": pa.array([r[1] for r in rows], pa.binary()),
            }
            if with_topics:
                columns["topic"] = pa.array([None if r[2] is None else topics[r[2]] for r in rows], pa.string())
            if with_headers:
                pairs = [None if r[3] is None else [{"key": k, "value": v} for k, v in r[3]] for r in rows]
                columns["headers"] = pa.array(pairs, HEADERS)
            if named:
                columns["partition"] = pa.array([r[4] for r in rows], pa.int32())
            batch = pa.record_batch(columns).slice(min(cut, len(rows)))
            assert enqueue(batch) == len(rows[cut:])
            assert producer.flush(ANSWER) == 0
            delivered_by.append([read(topic) for topic in topics])
        for native, plain, index in zip(*delivered_by, (0, 1), strict=True):
            to_topic = [r for r in rows[cut:] if ((r[2] or 0) if with_topics else 0) == index]
            expected: list[Record] = [(r[0], r[1], tuple(r[3] or ()) if with_headers else ()) for r in to_topic]
            for delivered in (native, plain):
                everything = [record for records in delivered.values() for record in records]
                assert sorted(everything, key=repr) == sorted(expected, key=repr)
                for records in delivered.values():  # the order of the rows, thinned out
                    rest = iter(expected)
                    assert all(record in rest for record in records)
            for p in native:
                if named:
                    own = [record for record, r in zip(expected, to_topic, strict=True) if r[4] == p]
                    assert native[p] == plain[p] == own
                else:  # keyed rows go where the partitioner says; null keys anywhere
                    assert [r for r in native[p] if r[0] is not None] == [r for r in plain[p] if r[0] is not None]

    check()


ROWS = 2_000  # many times the queue
TINY_QUEUE = {"queue_buffering_max_messages": 100, "linger_ms": 0}


def numbered(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array([b"%d" % i for i in range(rows)]), "value": pa.array([b"x"] * rows)})


@pytest.mark.parametrize("plain", WAYS)
def test_a_full_queue_loses_nothing(
    plain: bool, new_topic: Callable[[int], str], produced: Callable[..., Producer], read: Reader
) -> None:
    topic, producer = new_topic(1), produced(**TINY_QUEUE)
    assert enqueuer(producer, topic, plain=plain, timeout=WAIT)(numbered(ROWS)) == ROWS
    assert producer.flush(ANSWER) == 0
    assert [key for key, _, _ in read(topic)[0]] == [b"%d" % i for i in range(ROWS)]


@pytest.mark.parametrize("plain", WAYS)
def test_rows_with_headers_wait_for_the_queue_too(
    plain: bool, new_topic: Callable[[int], str], produced: Callable[..., Producer], read: Reader
) -> None:
    topic, producer, rows = new_topic(1), produced(**TINY_QUEUE), 500
    batch = numbered(rows).append_column("headers", pa.array([[{"key": "h", "value": None}]] * rows, HEADERS))
    assert enqueuer(producer, topic, plain=plain)(batch) == rows
    assert producer.flush(ANSWER) == 0
    assert [(key, h) for key, _, h in read(topic)[0]] == [(b"%d" % i, (("h", None),)) for i in range(rows)]


def test_control_produce_batch_alone_loses_rows(
    new_topic: Callable[[int], str], produced: Callable[..., Producer], read: Reader
) -> None:
    topic, producer = new_topic(1), produced(**TINY_QUEUE)
    producer.produce_batch(topic, numbered(ROWS).select(["key", "value"]).to_pylist())
    assert producer.flush(ANSWER) == 0
    assert 0 < len(read(topic)[0]) < ROWS


@pytest.mark.parametrize("plain", WAYS)
def test_a_queue_that_stays_full_is_an_error_with_the_count(
    plain: bool, new_topic: Callable[[int], str], produced: Callable[..., Producer]
) -> None:
    topic, producer = new_topic(1), produced(queue_buffering_max_messages=100, linger_ms=60_000)
    with pytest.raises(JobError, match=r"900 rows for topic .* out of a batch of 1000") as e:
        enqueuer(producer, topic, timeout=1.0, plain=plain)(numbered(1000))
    assert e.value.reason is Reason.BATCH_FAILED
    producer.purge()
    producer.poll(0)


@pytest.mark.parametrize("plain", WAYS)
@pytest.mark.parametrize("headers", [False, True])
def test_a_record_that_is_too_large_is_an_error(
    plain: bool, headers: bool, new_topic: Callable[[int], str], produced: Callable[..., Producer]
) -> None:
    topic, producer = new_topic(1), produced(message_max_bytes=2000)
    batch = pa.record_batch({"key": pa.array([b"k", b"k", b"k"]), "value": pa.array([b"a", b"b" * 3000, b"c"])})
    if headers:
        batch = batch.append_column("headers", pa.array([[{"key": "h", "value": b"v"}]] * 3, HEADERS))
    with pytest.raises(JobError, match=f"a record of {3003 if headers else 3001} bytes for topic '{topic}'") as e:
        enqueuer(producer, topic, plain=plain)(batch)
    assert e.value.reason is Reason.ROW_REFUSED
    assert isinstance(e.value.__cause__, KafkaException)
    assert e.value.__cause__.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert producer.flush(ANSWER) == 0


@pytest.mark.parametrize("plain", WAYS)
def test_a_missing_topic_is_an_error(plain: bool, produced: Callable[..., Producer]) -> None:
    with pytest.raises(JobError, match="topic 'enqueue-nowhere' cannot be written"):
        enqueuer(produced(), "enqueue-nowhere", plain=plain)(numbered(1))


@pytest.mark.parametrize("plain", WAYS)
@pytest.mark.parametrize("headers", [False, True])
def test_an_unknown_partition_is_an_error_with_a_remedy(
    plain: bool, headers: bool, new_topic: Callable[[int], str], produced: Callable[..., Producer]
) -> None:
    producer, topic = produced(), new_topic(2)
    batch = numbered(3).append_column("partition", pa.array([1, 7, 0], pa.int32()))
    if headers:
        batch = batch.append_column("headers", pa.array([[{"key": "h", "value": b"v"}]] * 3, HEADERS))
    expected = rf"topic '{topic}' was refused \(_UNKNOWN_PARTITION.*give the topic as many partitions as the source has"
    with pytest.raises(JobError, match=expected) as e:
        enqueuer(producer, topic, plain=plain)(batch)
    assert e.value.reason is Reason.BATCH_FAILED
    assert isinstance(e.value.__cause__, KafkaException)
    assert e.value.__cause__.args[0].code() == KafkaError._UNKNOWN_PARTITION


@pytest.mark.parametrize("plain", WAYS)
@pytest.mark.parametrize("headers", [False, True])
def test_each_row_goes_to_its_partition_in_order_also_past_a_full_queue(
    plain: bool, headers: bool, new_topic: Callable[[int], str], produced: Callable[..., Producer], read: Reader
) -> None:
    """Rows of one key go to several partitions, so no partitioner chose them."""
    topics, producer, rows = [new_topic(PARTITIONS), new_topic(PARTITIONS)], produced(**TINY_QUEUE), 1200
    columns = {
        "key": pa.array([b"same"] * rows),
        "value": pa.array([b"%d" % i for i in range(rows)]),
        "partition": pa.array([i % PARTITIONS for i in range(rows)], pa.int32()),
        "topic": pa.array([topics[i // PARTITIONS % 2] for i in range(rows)]),
    }
    if headers:
        columns["headers"] = pa.array([[{"key": "h", "value": None}]] * rows, HEADERS)
    assert enqueuer(producer, topics[0], plain=plain)(pa.record_batch(columns)) == rows
    assert producer.flush(ANSWER) == 0
    for number, topic in enumerate(topics):
        delivered = {p: [int(value or b"") for _, value, _ in records] for p, records in read(topic).items()}
        assert delivered == {
            p: [i for i in range(rows) if i % PARTITIONS == p and i // PARTITIONS % 2 == number]
            for p in range(PARTITIONS)
        }


@pytest.mark.parametrize("plain", WAYS)
def test_a_transaction_commits_every_row(
    plain: bool, new_topic: Callable[[int], str], produced: Callable[..., Producer], read: Reader
) -> None:
    topics, rows = [new_topic(1), new_topic(1)], 2000
    producer = produced(transactional_id=f"enqueue-{uuid.uuid4()}")
    enqueue = enqueuer(producer, topics[0], plain=plain)
    batch = numbered(rows).append_column("topic", pa.array([topics[i % 2] for i in range(rows)]))
    producer.init_transactions(ANSWER)
    with pytest.raises(JobError, match="_STATE"):  # not begun
        enqueue(batch)
    producer.begin_transaction()
    assert enqueue(batch) == rows
    assert not any(read(topic)[0] for topic in topics)
    producer.commit_transaction(ANSWER)
    for remainder, topic in enumerate(topics):
        records: list[Record] = []
        deadline = time.monotonic() + ANSWER
        while len(records) < rows // 2 and time.monotonic() < deadline:  # the brokers write the markers after the reply
            records += read(topic)[0]
        assert [key for key, _, _ in records] == [b"%d" % i for i in range(remainder, rows, 2)]
