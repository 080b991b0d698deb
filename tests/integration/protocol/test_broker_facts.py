"""Facts about brokers and librdkafka on which the protocol rests.

Each test carries the number of the rule that it supports (docs/protocol.md#evidence). The same facts are transitions of
the model in tests/model/brokers.py. When a new Kafka or librdkafka breaks a test here, the protocol has lost a premise,
or a rule its reason.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from ackwright_stream.admin_client import AdminClient
from integration.support.members import delete_group, join
from integration.support.wire import FENCED, INVALID_TXN_STATE, Owner, Wire
from waiting import ANSWER, wait_until

MISSING = -1001  # what committed() answers for a partition without a position (RD_KAFKA_OFFSET_INVALID)
STABLE, UNSTABLE = {"isolation.level": "read_committed"}, {"isolation.level": "read_uncommitted"}


@pytest.fixture(scope="module")
def servers(kafka: Any) -> str:
    return str(kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def source(admin: AdminClient) -> str:
    return create(admin, f"facts-source-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def group() -> str:
    return f"facts-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def wire(servers: str) -> Iterator[Wire]:
    with Wire(servers) as w:
        yield w


@pytest.fixture
def lane(servers: str, group: str, source: str) -> Lane:
    return Lane(servers, group, source)


class Lane:
    """The calls that the job makes for one lane, by librdkafka."""

    def __init__(self, servers: str, group: str, topic: str, partition: int = 0) -> None:
        self.servers, self.group, self.topic, self.partition = servers, group, topic, partition
        self.transactional_id = f"{group}/{topic}-{partition}"

    def at(self, offset: int, metadata: str = "") -> list[TopicPartition]:
        return [TopicPartition(self.topic, self.partition, offset, metadata)]

    def consumer(self, **settings: str) -> Consumer:
        base = {"bootstrap.servers": self.servers, "group.id": self.group, "enable.auto.commit": False}
        return Consumer({**base, **STABLE, **settings})

    def producer(self, **settings: Any) -> Producer:
        base = {"bootstrap.servers": self.servers, "transactional.id": self.transactional_id, "retry.backoff.ms": 5}
        producer = Producer({**base, **settings})
        producer.init_transactions(ANSWER)
        return producer

    def pend(self, producer: Producer, offset: int, metadata: str = "") -> None:
        """Begins a transaction with an offset that stays pending until the transaction ends."""
        producer.begin_transaction()
        metadata_of_group = self.consumer().consumer_group_metadata()
        producer.send_offsets_to_transaction(self.at(offset, metadata), metadata_of_group, ANSWER)

    def advance(self, offset: int, before_end: Callable[[], object] = lambda: None, metadata: str = "") -> None:
        """A transaction of the lane without rows."""
        producer = self.producer()
        self.pend(producer, offset, metadata)
        before_end()
        producer.commit_transaction(ANSWER)

    def committed(self, timeout: float = ANSWER, **settings: str) -> TopicPartition:
        consumer = self.consumer(**settings)
        try:
            return consumer.committed(self.at(0), timeout=timeout)[0]
        finally:
            consumer.close()

    def position(self, **settings: str) -> int:
        return int(self.committed(ANSWER, **settings).offset)


def create(admin: AdminClient, topic: str, partitions: int = 3) -> str:
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(ANSWER)

    def known() -> bool:
        metadata = admin.list_topics(timeout=ANSWER).topics.get(topic)
        return (
            metadata is not None
            and len(metadata.partitions) == partitions
            and all(p.leader >= 0 for p in metadata.partitions.values())
        )

    wait_until(known, f"topic {topic} has leaders")
    return topic


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(ANSWER)
    wait_until(lambda: topic not in admin.list_topics(timeout=ANSWER).topics, f"topic {topic} is gone")


def test_rule_1_a_plain_commit_inside_a_transaction_wins_over_it(lane: Lane) -> None:
    lane.advance(10)
    plain = lane.consumer()
    lane.advance(20, before_end=lambda: plain.commit(offsets=lane.at(10), asynchronous=False))
    assert lane.position() == 10  # though the transaction to 20 was committed, with its rows


def test_rule_1_without_a_plain_commit_the_transaction_moves_the_position(lane: Lane) -> None:
    lane.advance(10)
    lane.advance(20)
    assert lane.position() == 20


def test_rule_2_within_one_epoch_a_late_offset_commit_counts_in_the_next_transaction(
    wire: Wire, lane: Lane, source: str
) -> None:
    owner = wire.init(lane.transactional_id)
    for offset in (1, 2):
        assert wire.add_offsets(owner, lane.group) == 0
        assert wire.commit_offset(owner, lane.group, source, offset) == 0
        if offset == 2:
            assert wire.commit_offset(owner, lane.group, source, 1) == 0  # the late copy
        assert wire.end(owner) == 0
    assert lane.position() == 1


def test_rule_2_within_one_epoch_a_late_end_ends_the_next_transaction(wire: Wire, lane: Lane, source: str) -> None:
    owner = wire.init(lane.transactional_id)
    transaction(wire, owner, lane, 1)
    assert wire.add_offsets(owner, lane.group) == 0
    assert wire.end(owner) == 0  # the late copy, before the offset of the second transaction
    assert wire.commit_offset(owner, lane.group, source, 2) == INVALID_TXN_STATE
    assert lane.position() == 1


def test_rule_2_from_an_older_epoch_late_copies_are_refused(wire: Wire, lane: Lane, source: str) -> None:
    old = wire.init(lane.transactional_id)
    transaction(wire, old, lane, 1)
    new = wire.init(lane.transactional_id)
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
    assert wire.add_offsets(new, lane.group) == 0
    assert wire.commit_offset(new, lane.group, source, 4) == 0
    assert wire.commit_offset(old, lane.group, source, 1) == FENCED
    assert wire.add_offsets(old, lane.group) == FENCED
    assert wire.end(old) == FENCED
    assert wire.end(new) == 0
    assert lane.position() == 4


def transaction(wire: Wire, owner: Owner, lane: Lane, offset: int) -> None:
    assert wire.add_offsets(owner, lane.group) == 0
    assert wire.commit_offset(owner, lane.group, lane.topic, offset) == 0
    assert wire.end(owner) == 0


def test_rule_3_init_ends_what_the_old_owner_left_open_before_the_position_is_read(lane: Lane) -> None:
    lane.advance(1)
    old = lane.producer()
    lane.pend(old, 2)
    lane.producer()
    assert lane.position() == 1
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(ANSWER)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert lane.position() == 1


def test_rule_4_first_position_and_record_in_the_ledger_come_together(admin: AdminClient, lane: Lane) -> None:
    ledger = create(admin, f"facts-ledger-{uuid.uuid4().hex[:8]}", 1)
    for end, position, records in (
        (Producer.abort_transaction, MISSING, []),
        (Producer.commit_transaction, 0, [b"lane"]),
    ):
        producer = lane.producer()
        lane.pend(producer, 0)
        producer.produce(ledger, key=b"lane", value=b"{}")
        end(producer, ANSWER)
        assert lane.position() == position
        assert keys(lane, ledger) == records


def test_rule_4_an_open_transaction_hides_later_records_of_the_ledger(
    admin: AdminClient, servers: str, lane: Lane, source: str
) -> None:
    """PARTITION_EOF reports the last stable offset to a read_committed reader, so a reader has to wait for the end."""
    ledger = create(admin, f"facts-ledger-{uuid.uuid4().hex[:8]}", 1)
    other = Lane(servers, f"{lane.group}-other", source)
    holding = other.producer()
    holding.begin_transaction()
    holding.produce(ledger, key=b"other", value=b"{}")
    assert holding.flush(ANSWER) == 0
    producer = lane.producer()
    lane.pend(producer, 0)
    producer.produce(ledger, key=b"lane", value=b"{}")
    producer.commit_transaction(ANSWER)
    assert lane.position() == 0
    assert keys(lane, ledger) == []
    end = TopicPartition(ledger, 0)
    assert lane.consumer().get_watermark_offsets(end, ANSWER)[1] == 0  # this is the last stable offset, too
    assert lane.consumer(**UNSTABLE).get_watermark_offsets(end, ANSWER)[1] >= 2
    holding.abort_transaction(ANSWER)
    wait_until(lambda: keys(lane, ledger) == [b"lane"], "the record can be read")


def keys(lane: Lane, topic: str) -> list[bytes | None]:
    """The keys of partition 0, read_committed, to its end."""
    consumer = lane.consumer(**{"enable.partition.eof": "true"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    keys_: list[bytes | None] = []
    while True:
        message = consumer.poll(ANSWER)
        assert message is not None, f"{topic} has no end"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return keys_
        keys_.append(message.key())


def test_rule_8_metadata_comes_back_with_the_position(lane: Lane) -> None:
    lane.advance(1, metadata="topic=abc driver=7")
    position = lane.committed()
    assert (position.offset, position.metadata) == (1, "topic=abc driver=7")


def test_rule_8_an_old_task_can_commit_into_a_recreated_topic(admin: AdminClient, servers: str, group: str) -> None:
    lane = Lane(servers, group, create(admin, f"{group}-recreated", 1))

    def recreate() -> None:
        delete(admin, lane.topic)
        create(admin, lane.topic, 1)
        wait_until(lambda: lane.position(**UNSTABLE) == MISSING, "the deleted topic's positions are gone")

    lane.advance(1000)
    recreate()
    lane.advance(1010)
    assert lane.position() == 1010
    lane.advance(1020, before_end=recreate)  # a pending offset is deleted with the topic, and the commit succeeds
    assert lane.position() == MISSING


def test_rule_8_deleting_the_group_deletes_a_pending_offset(admin: AdminClient, lane: Lane) -> None:
    lane.advance(5)
    lane.advance(7, before_end=lambda: delete_group(admin, lane.group))
    assert lane.position() == MISSING


def test_rule_9_a_pending_offset_hides_the_position_from_read_committed_alone(lane: Lane) -> None:
    lane.advance(1)
    producer = lane.producer()
    lane.pend(producer, 9)
    assert lane.position(**UNSTABLE) == 1
    with pytest.raises(KafkaException) as caught:
        lane.committed(timeout=2)
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT
    producer.commit_transaction(ANSWER)
    assert lane.position() == 9


def test_rule_9_the_admin_call_must_name_the_partitions_and_check_their_errors(
    admin: AdminClient, servers: str, group: str, source: str
) -> None:
    committed, both, pending = (Lane(servers, group, source, partition) for partition in range(3))
    committed.advance(1)
    both.advance(1)
    producers = [lane.producer() for lane in (both, pending)]
    for lane, producer in zip((both, pending), producers, strict=True):
        lane.pend(producer, 9)

    def listed(partitions: list[TopicPartition] | None) -> dict[int, tuple[int, int | None]]:
        asked = [ConsumerGroupTopicPartitions(group, partitions)]
        answer = wait_until(
            lambda: admin.list_consumer_group_offsets(asked, require_stable=True)[group].result(ANSWER),
            "the coordinator answers",
        )
        return {p.partition: (p.offset, p.error and p.error.code()) for p in answer.topic_partitions}

    unstable = (MISSING, KafkaError.UNSTABLE_OFFSET_COMMIT)
    assert listed([TopicPartition(source, i) for i in range(3)]) == {0: (1, None), 1: unstable, 2: unstable}
    assert listed(None) == {0: (1, None), 1: unstable}  # the partition that has only a pending offset is not there
    for producer in producers:
        producer.abort_transaction(ANSWER)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rule_10_a_group_with_a_member_takes_transactional_commits_beside_it(lane: Lane, protocol: str) -> None:
    member = lane.consumer(**{"group.protocol": protocol})
    join(member, lane.topic)
    try:
        lane.advance(10)
        assert lane.position() == 10
        member.commit(offsets=lane.at(3), asynchronous=False)
        assert lane.position() == 3
    finally:
        member.close()


def test_rule_11_the_broker_verifies_that_a_transaction_is_under_way(wire: Wire, lane: Lane, source: str) -> None:
    """Without verification the offset would be pending, and nothing would ever end it."""
    owner = wire.init(lane.transactional_id)
    transaction(wire, owner, lane, 1)
    assert (
        lane.position() == 1
    )  # the marker is written; before it, the late offset would still belong to that transaction
    assert wire.commit_offset(owner, lane.group, source, 2) == INVALID_TXN_STATE
    assert lane.position() == 1


def test_rule_12_rows_that_a_full_queue_refused_do_not_hinder_the_commit(admin: AdminClient, lane: Lane) -> None:
    sink = create(admin, f"facts-sink-{uuid.uuid4().hex[:8]}", 1)
    producer = lane.producer(**{"queue.buffering.max.messages": 100, "linger.ms": 1000})
    lane.pend(producer, 250)
    rows: list[dict[str, Any]] = [{"value": b"%d" % i} for i in range(250)]
    accepted = producer.produce_batch(sink, rows)
    producer.commit_transaction(ANSWER)
    assert (accepted, sum("_error" in row for row in rows)) == (100, 150)
    assert lane.position() == 250


def test_rule_13_offsets_count_more_than_rows(admin: AdminClient, lane: Lane) -> None:
    sink = create(admin, f"facts-sink-{uuid.uuid4().hex[:8]}", 1)
    producer = lane.producer()
    producer.begin_transaction()
    producer.produce(sink, b"one row")
    producer.commit_transaction(ANSWER)
    wait_until(lambda: lane.consumer().get_watermark_offsets(TopicPartition(sink, 0), ANSWER) == (0, 2), "the marker")
    assert keys(lane, sink) == [None]
