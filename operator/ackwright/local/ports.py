"""Ports of this machine for servers that are started here."""

from __future__ import annotations

import contextlib
import random
import socket

_claims: list[socket.socket] = []  # held until this process ends


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on, and that no other process gets from here while this one lives. Below the ephemeral range,
    so that no outgoing connection takes one while its broker is down.

    A broker binds its port seconds after it was chosen, and gives it up while it is down. So each port is claimed by a name: that of a
    Unix socket without a file, which goes with its process and is of this network namespace, as the port is (unix(7), abstract)."""
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
    """Whether a server could listen there now; connections of an earlier one that linger are no hindrance."""
    with socket.socket() as candidate, contextlib.suppress(OSError):
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        candidate.bind(("127.0.0.1", port))
        return True
    return False
