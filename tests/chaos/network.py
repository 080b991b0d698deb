"""One-way cuts of the network: in a network namespace that belongs to this process, without a firewall.

Policy routing drops packets by their port (`ip rule`, only iproute2 is needed). The namespace has a separate loopback
interface, so no other program on the machine is affected.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

VARIABLE = "ACKWRIGHT_CHAOS_NAMESPACE"  # is set in the process that runs in its namespace
_LOCAL_PREFERENCE = "100"  # of the rule for local addresses, which otherwise comes before every other rule
_CUT_PREFERENCE = "10"

Direction = Literal["from", "to"]


def unavailable() -> str | None:
    """Why this process cannot have a network namespace, or None."""
    missing = [program for program in ("unshare", "ip") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing (util-linux, iproute2)"
    if os.geteuid() != 0:
        return "only root can create a network namespace"
    tried = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    return None if tried.returncode == 0 else f"unshare --net failed: {tried.stderr.decode().strip()}"


def is_private() -> bool:
    """Whether this process runs in its own namespace."""
    return VARIABLE in os.environ


def enter(argv: Sequence[str]) -> None:
    """Replaces this process by one that runs the command in a new network namespace. Does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    script = (
        f'ip link set lo up && ip rule add pref {_LOCAL_PREFERENCE} lookup local && ip rule delete pref 0 && exec "$@"'
    )
    os.execvpe(  # noqa: S606
        "unshare", ["unshare", "--net", "--", "sh", "-c", script, "sh", *argv], {**os.environ, VARIABLE: "1"}
    )


@contextmanager
def cut(port: int, direction: Direction) -> Iterator[None]:
    """Drops every packet from the port, or every packet to it. The other direction works."""
    if not is_private():
        raise RuntimeError("packets are only dropped in a separate network namespace")
    selector = ["pref", _CUT_PREFERENCE, "ipproto", "tcp", "sport" if direction == "from" else "dport", str(port)]
    subprocess.run(["ip", "rule", "add", *selector, "blackhole"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "rule", "delete", *selector], check=True)
