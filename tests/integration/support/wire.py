"""A raw Kafka client for requests that no client library sends twice, late, or under another name.

It speaks version 0 of the transactional requests and sends each to its own coordinator. To a broker they mean the same
as librdkafka's (transaction protocol v1, KIP-98). Errors are returned as Kafka's codes, for a test to assert on. It
also ends a static membership, which librdkafka never does, and sends requests that it does not have.
"""

from __future__ import annotations

import socket
import struct
import time
from types import TracebackType
from typing import NamedTuple, Self

NOT_COORDINATOR = 16
FENCED = 47  # INVALID_PRODUCER_EPOCH
INVALID_TXN_STATE = 48
WAITS = frozenset(
    {14, 15, NOT_COORDINATOR, 51}
)  # coordinator loading, not available, elsewhere; CONCURRENT_TRANSACTIONS
FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 10, 22, 25, 26, 28
LEAVE_GROUP = 13
GROUP, TRANSACTION = 0, 1  # kinds of coordinators


class Owner(NamedTuple):
    """The owner of a transactional.id: the answer of InitProducerId."""

    transactional_id: str
    producer_id: int
    epoch: int


class Wire:
    """Connections to the coordinators of one cluster. timeout: seconds for one request, its repetitions included."""

    def __init__(self, bootstrap_servers: str, timeout: float = 30) -> None:
        host, port = bootstrap_servers.split(",", 1)[0].rsplit(":", 1)
        self._timeout = timeout
        self._bootstrap = (host, int(port))
        self._connections: dict[tuple[str, int], socket.socket] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    def init(self, transactional_id: str) -> Owner:
        """InitProducerId: fences the id's older owners, and waits until their transaction has ended."""
        body = text(transactional_id) + struct.pack(">i", 60_000)
        answer = self._ask((TRANSACTION, transactional_id), INIT_PRODUCER_ID, body, error_at=slice(4, 6))
        code, producer_id, epoch = struct.unpack(">hqh", answer[4:16])
        assert code == 0, f"InitProducerId({transactional_id}) failed with {code}"
        return Owner(transactional_id, producer_id, epoch)

    def add_offsets(self, owner: Owner, group: str) -> int:
        """AddOffsetsToTxn; the error code."""
        body = text(owner.transactional_id) + struct.pack(">qh", *owner[1:]) + text(group)
        return self._code((TRANSACTION, owner.transactional_id), ADD_OFFSETS, body)

    def commit_offset(self, owner: Owner, group: str, topic: str, offset: int) -> int:
        """TxnOffsetCommit of partition 0; the error code."""
        body = text(owner.transactional_id) + text(group) + struct.pack(">qhi", *owner[1:], 1)
        body += text(topic) + struct.pack(">iiqh", 1, 0, offset, -1)
        return self._code((GROUP, group), TXN_OFFSET_COMMIT, body)

    def end(self, owner: Owner) -> int:
        """EndTxn(commit); the error code."""
        body = text(owner.transactional_id) + struct.pack(">qhb", *owner[1:], 1)
        return self._code((TRANSACTION, owner.transactional_id), END_TXN, body)

    def leave(self, group: str, instance_id: str) -> int:
        """LeaveGroup (version 3, KIP-345) of a static member; the error code of the group."""
        body = text(group) + struct.pack(">i", 1) + text("") + text(instance_id)
        code = slice(4, 6)
        return _error(self._ask((GROUP, group), LEAVE_GROUP, body, code, version=3), code)

    def to_any_broker(self, api: int, body: bytes, error_at: slice) -> None:
        """Sends version 0 of a request that every broker forwards to the controller. Asserts that it succeeded."""
        code = _error(self._call(self._bootstrap, api, 0, body), error_at)
        assert code == 0, f"the brokers refused the request {api} with {code}"

    def _code(self, coordinator: tuple[int, str], api: int, body: bytes) -> int:
        return _error(self._ask(coordinator, api, body, error_at=slice(-2, None)), slice(-2, None))

    def _ask(self, coordinator: tuple[int, str], api: int, body: bytes, error_at: slice, version: int = 0) -> bytes:
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self._call(self._find(coordinator, deadline), api, version, body)
            code = _error(answer, error_at)
            if code not in WAITS or time.monotonic() > deadline:
                return answer
            if code == NOT_COORDINATOR:
                del self._coordinators[coordinator]
            time.sleep(0.02)

    def _find(self, coordinator: tuple[int, str], deadline: float) -> tuple[str, int]:
        kind, key = coordinator
        while coordinator not in self._coordinators:
            answer = self._call(self._bootstrap, FIND_COORDINATOR, 1, text(key) + struct.pack(">b", kind))
            if _error(answer, slice(4, 6)) == 0:
                message = max(0, struct.unpack(">h", answer[6:8])[0])
                rest = answer[8 + message + 4 :]
                length = struct.unpack(">h", rest[:2])[0]
                port = struct.unpack(">i", rest[2 + length : 6 + length])[0]
                self._coordinators[coordinator] = (rest[2 : 2 + length].decode(), port)
            elif time.monotonic() > deadline:
                raise TimeoutError(f"no coordinator for {key}")
            else:
                time.sleep(0.05)
        return self._coordinators[coordinator]

    def _call(self, address: tuple[str, int], api: int, version: int, body: bytes) -> bytes:
        """One request; the answer without its correlation id."""
        if address not in self._connections:
            connection = socket.create_connection(address, self._timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[address] = connection
        connection = self._connections[address]
        self._correlation += 1
        request = struct.pack(">hhi", api, version, self._correlation) + text("wire") + body
        connection.sendall(struct.pack(">i", len(request)) + request)
        return _read(connection, struct.unpack(">i", _read(connection, 4))[0])[4:]


def _read(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise ConnectionError("the broker closed the connection: it does not know this request or its version")
        received += part
    return received


def text(value: str) -> bytes:
    """A string as the protocol has it."""
    return struct.pack(">h", len(value)) + value.encode()


def _error(answer: bytes, at: slice) -> int:
    return int(struct.unpack(">h", answer[at])[0])
