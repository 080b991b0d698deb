"""The client of Kafka without brokers: what it reports of a connection that fails."""

from __future__ import annotations

import pytest

from ackwright.clients import reassignments
from ackwright.clients.kafka import ANSWER_MAX, Kafka
from ackwright.errors import AckwrightError
from ackwright.local.ports import free_ports
from ackwright_stream.jobspec import Cluster, Reason
from hostile_brokers import EndlessBroker


def test_brokers_that_cannot_be_reached_are_reported_with_the_cause() -> None:
    (port,) = free_ports(1)
    kafka = Kafka(Cluster(f"127.0.0.1:{port}"), timeout=3)
    with pytest.raises(AckwrightError, match=f"127.0.0.1:{port} failed: Connection refused; check the address") as e:
        kafka.racks()
    assert e.value.reason is Reason.BROKERS_UNREACHABLE


def test_an_answer_that_is_too_long_is_not_read() -> None:
    broker = EndlessBroker(ANSWER_MAX + (1 << 16))
    kafka = Kafka(Cluster(broker.address), timeout=2)
    with pytest.raises(AckwrightError):
        kafka.racks()
    broker.close()
    assert broker.most < ANSWER_MAX // 2
    assert reassignments._renamed(kafka._settings, 1)["receive_message_max_bytes"] == ANSWER_MAX
