"""The client of Kafka without brokers: what it reports of a connection that fails."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

import pytest

from ackwright.clients import reassignments
from ackwright.clients.kafka import ANSWER_MAX, Kafka
from ackwright.errors import AckwrightError
from ackwright.local.ports import free_ports
from ackwright_stream.jobspec import Cluster, Reason


def test_brokers_that_cannot_be_reached_are_reported_with_the_cause() -> None:
    (port,) = free_ports(1)
    kafka = Kafka(Cluster(f"127.0.0.1:{port}"), timeout=3)
    with pytest.raises(AckwrightError, match=f"127.0.0.1:{port} failed: Connection refused; check the address") as e:
        kafka.racks()
    assert e.value.reason is Reason.BROKERS_UNREACHABLE


class EndlessBroker:
    """Answers each request with a length and zeros, and counts the bytes that a client takes."""

    def __init__(self, length: int) -> None:
        self._length, self.most = length, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=self._listening.accept()[:1], daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            length = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))[0]
            number = client.recv(length, socket.MSG_WAITALL)[4:8]
            client.sendall(struct.pack(">i", self._length) + number)
            for sent in range(0, self._length, 1 << 16):
                client.sendall(bytes(1 << 16))
                self.most = max(self.most, sent)

    def close(self) -> None:
        self._listening.close()


def test_an_answer_that_is_too_long_is_not_read() -> None:
    broker = EndlessBroker(ANSWER_MAX + (1 << 16))
    kafka = Kafka(Cluster(broker.address), timeout=2)
    with pytest.raises(AckwrightError):
        kafka.racks()
    broker.close()
    assert broker.most < ANSWER_MAX // 2
    assert reassignments._renamed(kafka._settings, 1)["receive_message_max_bytes"] == ANSWER_MAX
