"""The ends of the source's partitions, by which the lag is counted."""

from __future__ import annotations

import uuid

from confluent_kafka import Producer

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.cluster import Cluster
from ackwright_stream.positions import Lane
from integration.support.new_topics import NewTopicName
from minimal_job import minimal_job
from waiting import ANSWER, wait_until


def test_an_open_transaction_and_what_follows_it_do_not_count(kafka: EmbeddedKafka, topic: NewTopicName) -> None:
    source = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(ANSWER)
    producer.begin_transaction()
    producer.produce(source, b"", partition=0)
    assert producer.flush(ANSWER) == 0
    job = minimal_job(bootstrap=kafka.bootstrap_servers, topics=(source,))
    subject, lane = Cluster(job), Lane(source, 0)
    assert subject.ends([lane]) == {lane: 0} == {lane: subject.topology().latest[lane]}
    producer.commit_transaction(ANSWER)
    wait_until(lambda: subject.ends([lane]) == {lane: 2}, "the transaction's marker is written")
