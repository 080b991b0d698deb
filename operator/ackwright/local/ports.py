"""Ports of this machine for servers that are started here."""

from __future__ import annotations

import contextlib
import random
import socket


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on. Below the ephemeral range, so that no outgoing connection takes one while its broker
    is down; found by binding, all at once, so that no two are the same."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            candidate = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                candidate.bind(("127.0.0.1", random.randint(20_000, 32_000)))  # noqa: S311 - nothing secret
                ports.append(candidate.getsockname()[1])
        return ports
