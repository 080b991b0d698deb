"""A connection to a server of S3 that loses answers to requests that create a file."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """The next answers to PUT that are lost."""

    address: tuple[str, int]
    lost: int = 0
    requests: int = 0  # PUT, as they arrived
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def takes_answer(self) -> bool:
        with self._lock:
            self.requests += 1
            self.lost -= 1
            return self.lost >= 0


@contextlib.contextmanager
def losing_answers(endpoint: str) -> Iterator[tuple[str, Proxy]]:
    """The address of a proxy, and how many answers it loses. The server executes each request."""
    host, _, port = endpoint.removeprefix("http://").partition(":")
    proxy = Proxy((host, int(port)))
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=_serve, args=(client, proxy), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", proxy
    finally:
        listener.close()


def _serve(client: socket.socket, proxy: Proxy) -> None:
    server = socket.create_connection(proxy.address)
    is_cut = threading.Event()

    def answers() -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if is_cut.is_set():  # the server has executed the request
                    break
                client.sendall(data)
        for connection in (client, server):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    threading.Thread(target=answers, daemon=True).start()
    with contextlib.suppress(OSError):
        while data := client.recv(65536):
            if data.startswith(b"PUT ") and proxy.takes_answer():
                is_cut.set()
            server.sendall(data)
