"""A proxy between a client and the brokers that holds requests of one kind and their replies until a test decides.

A real client therefore loses a request, or an acknowledgement, exactly where the test says. In replies it replaces the
brokers' addresses by its own: the bytes of host and port are the same in every version of Metadata and FindCoordinator.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ackwright.local.kafka import Broker
from waiting import wait_until

PRODUCE, END_TRANSACTION = 0, 26  # keys of the protocol


@dataclass(eq=False)
class Connection:
    """A client's connection, and the one to its broker."""

    client: socket.socket
    server: socket.socket
    to_client: threading.Lock = field(default_factory=threading.Lock)
    to_server: threading.Lock = field(default_factory=threading.Lock)
    open: bool = True

    def close(self) -> None:
        self.open = False
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@dataclass(eq=False)
class Held:
    """A request, or the reply to one."""

    connection: Connection
    frame: bytes
    correlation: int

    def forward_request(self) -> None:
        with self.connection.to_server:
            self.connection.server.sendall(self.frame)

    def forward_reply(self) -> None:
        with self.connection.to_client:
            self.connection.client.sendall(self.frame)


class HoldingProxy:
    """Listens once for each broker. `requests` and `replies` are in the order of their arrival."""

    def __init__(self, brokers: Sequence[Broker], holds: int | None = PRODUCE) -> None:
        """holds: the key of the requests that are held from now on; None: none, until the test sets it."""
        self.holds = holds
        self.listeners = {b.port: socket.create_server(("127.0.0.1", 0)) for b in brokers}
        self.connections: list[Connection] = []
        self._requests: list[Held] = []
        self._replies: list[Held] = []
        self._expected: set[tuple[Connection, int]] = set()
        for port, listener in self.listeners.items():
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self.listeners.values():
            listener.close()
        for connection in self.connections:
            connection.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{listener.getsockname()[1]}" for listener in self.listeners.values())

    def requests(self) -> list[Held]:
        """The held requests whose connection is open."""
        return [h for h in self._requests if h.connection.open]

    def replies(self) -> list[Held]:
        return [h for h in self._replies if h.connection.open]

    def next_request(self, exclude: Sequence[Held] = ()) -> Held:
        """The first held request, once there is one. It is no longer held."""
        held = wait_until(lambda: next((h for h in self.requests() if h not in exclude), None), "a request arrives")
        self._requests.remove(held)
        return held

    def next_reply(self) -> Held:
        held = wait_until(lambda: next(iter(self.replies()), None), "the broker has answered")
        self._replies.remove(held)
        return held

    def _accept(self, listener: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", port), timeout=5)
                except OSError:  # the broker is dead
                    client.close()
                    continue
                server.settimeout(None)
                connection = Connection(client, server)
                self.connections.append(connection)
                for serve in (self._serve_requests, self._serve_replies):
                    threading.Thread(target=self._until_closed, args=(serve, connection), daemon=True).start()

    @staticmethod
    def _until_closed(serve: Callable[[Connection], None], connection: Connection) -> None:
        with contextlib.suppress(OSError):
            serve(connection)
        connection.close()

    def _serve_requests(self, c: Connection) -> None:
        while frame := _read_frame(c.client):
            api, _, correlation = struct.unpack_from(">hhi", frame, 4)
            held = Held(c, frame, correlation)
            if api == self.holds:
                self._expected.add((c, correlation))
                self._requests.append(held)
            else:
                held.forward_request()

    def _serve_replies(self, c: Connection) -> None:
        while frame := _read_frame(c.server):
            (correlation,) = struct.unpack_from(">i", frame, 4)
            for port, listener in self.listeners.items():
                ours = listener.getsockname()[1]
                host = b"127.0.0.1"
                frame = frame.replace(host + struct.pack(">i", port), host + struct.pack(">i", ours))
            held = Held(c, frame, correlation)
            if (c, correlation) in self._expected:
                self._replies.append(held)
            else:
                held.forward_reply()


def _read_frame(connection: socket.socket) -> bytes:
    """One message with its length; empty at the end of the stream."""
    size = _read(connection, 4)
    return size and size + _read(connection, struct.unpack(">i", size)[0])


def _read(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            return b""
        received += part
    return received
