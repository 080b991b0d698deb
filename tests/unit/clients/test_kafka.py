"""The client of Kafka without brokers: what it reports of a connection that fails."""

from __future__ import annotations

import pytest

from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.local.ports import free_ports
from ackwright_stream.jobspec import Cluster, Reason


def test_brokers_that_cannot_be_reached_are_reported_with_the_cause() -> None:
    (port,) = free_ports(1)
    kafka = Kafka(Cluster(f"127.0.0.1:{port}"), timeout=3)
    with pytest.raises(AckwrightError, match=f"127.0.0.1:{port} failed: Connection refused; check the address") as e:
        kafka.racks()
    assert e.value.reason is Reason.BROKERS_UNREACHABLE
