"""A connection to PostgreSQL that breaks when a commit is sent: before the server has it, or before its reply."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def cutting_commits(host: str, port: int, *, arrives: bool) -> Iterator[int]:
    """The port of a proxy that closes a connection at its first COMMIT. arrives: the server executes it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=_serve, args=(client, (host, port), arrives), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def _serve(client: socket.socket, address: tuple[str, int], arrives: bool) -> None:
    server = socket.create_connection(address)
    is_cut = threading.Event()

    def replies() -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if is_cut.is_set():  # the reply to the commit: the server has executed it
                    break
                client.sendall(data)
        _close(client, server)

    threading.Thread(target=replies, daemon=True).start()
    with contextlib.suppress(OSError):
        while data := client.recv(65536):
            if b"COMMIT\0" in data:
                if not arrives:
                    break
                is_cut.set()
            server.sendall(data)
    if not is_cut.is_set():
        _close(client, server)


def _close(*connections: socket.socket) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
