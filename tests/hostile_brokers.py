"""Servers whose answers harm the client that reads them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PIECE = 1 << 16
_ENDS_LIBRDKAFKA = 1 << 17  # bytes of zeros as the answer to ApiVersions, for which librdkafka 2.16 calls abort()


class EndlessBroker:
    """Answers each request with a length and zeros, and counts the bytes that a client takes."""

    def __init__(self, length: int | None) -> None:
        """length: of an answer; None: it never ends."""
        self._length, self.most = length, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=self._listening.accept()[:1], daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, suppress(OSError, struct.error):
            length = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))[0]
            number = client.recv(length, socket.MSG_WAITALL)[4:8]
            client.sendall(struct.pack(">i", self._length or _PIECE) + number)
            sent = 0
            while self._length is None or sent < self._length:
                client.sendall(bytes(_PIECE))
                self.most = max(self.most, sent)
                sent += _PIECE

    def close(self) -> None:
        self._listening.close()


@contextmanager
def broker_that_ends_its_client() -> Iterator[str]:
    """The address of a server that ends each process whose librdkafka connects to it."""
    broker = EndlessBroker(_ENDS_LIBRDKAFKA)
    try:
        yield broker.address
    finally:
        broker.close()
