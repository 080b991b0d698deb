"""Shows which packets a cut drops: a server that answers each request, and a client. Runs in a network namespace."""

from __future__ import annotations

import contextlib
import socket
import threading

from chaos import network

SECONDS = 0.5  # in which an answer comes on a loopback interface


def check() -> None:
    """Prints for each request whether it arrived at the server, and its answer at the client."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()

        def answer() -> None:
            while request := accepted.recv(100):
                requests.append(request)
                accepted.sendall(request)

        threading.Thread(target=answer, daemon=True).start()

        def ask(name: str) -> None:
            client.settimeout(SECONDS)
            client.sendall(name.encode())
            answered = False
            with contextlib.suppress(TimeoutError):
                answered = client.recv(100) == name.encode()
            print(
                f"{name}: {'arrived' if name.encode() in requests else 'not arrived'}, "
                f"{'answered' if answered else 'not answered'}"
            )

        ask("1")
        directions: tuple[network.Direction, ...] = ("from", "to")
        for number, direction in enumerate(directions, 2):
            with network.cut(port, direction):
                ask(direction)
            client.settimeout(30)
            client.recv(100)  # TCP sends it again
            ask(str(number))
