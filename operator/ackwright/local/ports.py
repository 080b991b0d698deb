"""Free TCP ports of this machine."""

from __future__ import annotations

import contextlib
import random
import socket

_claims: list[socket.socket] = []  # each reserves one port until this process ends


def free_ports(count: int) -> list[int]:
    """Loopback ports without a listener, reserved against other calls of this function until this process ends.

    They are below the ephemeral range, so that no outgoing connection uses one while its broker is down.

    A broker binds its port seconds after the choice, and releases it while it is down. An abstract Unix socket
    (unix(7)) therefore reserves each port: it has no file, ends with its process, and belongs to the network namespace.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.randint(20_000, 32_000)  # noqa: S311 - nothing secret
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0ackwright-port-{port}")
        except OSError:
            claim.close()
            continue
        if is_free(port):
            _claims.append(claim)
            ports.append(port)
        else:
            claim.close()
    return ports


def is_free(port: int) -> bool:
    """Whether a server can listen on the port now; connections in TIME_WAIT do not count."""
    with socket.socket() as candidate, contextlib.suppress(OSError):
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        candidate.bind(("127.0.0.1", port))
        return True
    return False
