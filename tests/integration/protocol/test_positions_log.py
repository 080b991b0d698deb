"""The helper that detects positions which move backwards does detect one."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, Producer, TopicPartition

from ackwright.local.kafka import EmbeddedKafka
from integration.support.new_topics import NewTopicName
from integration.support.pipelines import Watcher
from integration.support.positions_log import committed
from waiting import ANSWER


def test_a_position_that_moves_backwards_is_reported_and_an_aborted_commit_is_not_a_move(
    kafka: EmbeddedKafka, topic: NewTopicName
) -> None:
    name, group = topic(partitions=2), f"g-{uuid.uuid4().hex[:10]}"
    reader = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": group})
    producer.init_transactions(ANSWER)
    for offset, end in ((10, "commit"), (30, "commit"), (5, "abort"), (40, "commit")):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(name, 0, offset)], reader.consumer_group_metadata(), 30)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(30)
    watcher = Watcher(kafka.bootstrap_servers, group, name, name, 2)
    assert committed(kafka.bootstrap_servers, group, name) == {0: [10, 30, 40]}
    assert watcher.backwards == []
    reader.commit(offsets=[TopicPartition(name, 0, 20), TopicPartition(name, 1, 7)], asynchronous=False)
    assert watcher.backwards == [f"{name}-0: 40 -> 20"]
    reader.close()
