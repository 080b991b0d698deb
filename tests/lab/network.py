"""Hosts of the lab, each a network namespace of its own, and the bridge that joins them; a host can be cut off and mended.

The namespaces have no names, so that there is nothing to remove: they are those of one sleeping process per host, and end with the last
process in them. No host has a default route, and this machine forwards nothing: no packet of the lab leaves the machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .processes import Daemon, LabError, run, wait_until

BRIDGE = "ackwright0"
MACHINE = "198.18.0.1"  # this machine, on the bridge
CONTROL_PLANE, NAME_SERVER = "198.18.0.2", "198.18.0.3"
PODS = "198.18.0.0/16"
SERVICES = "198.19.0.0/24"
API_SERVICE, DNS_SERVICE = "198.19.0.1", "198.19.0.10"
MOST_NODES = MOST_BROKERS = 9

_LINK_PREFIX = "ackw-"  # an interface's name has at most 15 characters
_LINKS = Path("/sys/class/net")


def node_address(index: int) -> str:
    return f"198.18.0.{10 + index}"


def pod_subnet(index: int) -> str:
    """The addresses of the pods on one node; nodes count from 1."""
    return f"198.18.{index}.0/24"


def broker_address(index: int) -> str:
    return f"198.18.0.{20 + index}"


@dataclass(frozen=True)
class Host:
    """A machine of the lab. Its name is at most ten characters long."""

    name: str
    address: str

    @property
    def holder(self) -> Daemon:
        """The process whose namespaces these are."""
        return Daemon(f"host-{self.name}")

    @property
    def link(self) -> str:
        """Its interface at the bridge."""
        return f"{_LINK_PREFIX}{self.name}"

    @property
    def enter(self) -> list[str]:
        """The command to put in front of one that is to run on this host."""
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", "--uts", "--"]

    def run(self, *argv: str | Path, timeout: float = 60, text: str | None = None) -> str:
        """Runs a command on this host; see processes.run."""
        return run(*self.enter, *argv, timeout=timeout, text=text)

    def boot(self, pod_routes: Sequence[str], mounts: str = "", arguments: Sequence[str | Path] = ()) -> None:
        """Makes the namespaces and attaches them to the bridge. pod_routes: arguments of `ip route add`. mounts: shell commands that
        prepare the file system as this host sees it; they get the arguments as $1, $2, …"""
        script = f"set -e\necho {self.name} > /proc/sys/kernel/hostname\n{mounts}\nexec sleep infinity"
        self.holder.start(["unshare", "--net", "--mount", "--uts", "--propagation=private", "sh", "-c", script, "sh", *arguments])
        wait_until(self._booted, f"{self.name} has booted", 10, self.holder.last_words)
        run("ip", "-batch", "-", text=_lines(
            f"link add {self.link} type veth peer name eth0 netns {self.holder.pid}",
            f"link set {self.link} master {BRIDGE} up",
        ))  # fmt: skip
        self.run("ip", "-batch", "-", text=_lines(
            "link set lo up",
            f"addr add {self.address}/24 dev eth0",
            "link set eth0 up",
            *(f"route add {route}" for route in pod_routes if not route.endswith(f" {self.address}")),
        ))  # fmt: skip

    def _booted(self) -> bool:
        self.holder.check()
        return Path("/proc", str(self.holder.pid), "comm").read_text().strip() == "sleep"

    def cut(self) -> None:
        """Pulls the cable: all on the host keeps running, and nothing goes in or out."""
        run("ip", "link", "set", self.link, "down")

    def mend(self) -> None:
        """Puts the cable back."""
        run("ip", "link", "set", self.link, "up")

    @property
    def is_cut(self) -> bool:
        return not int((_LINKS / self.link / "flags").read_text(), 16) & 1


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def pod_routes(nodes: int) -> list[str]:
    """How every machine reaches the pods: straight through the node that they are on."""
    return [f"{pod_subnet(i)} via {node_address(i)}" for i in range(1, nodes + 1)]


def create_bridge() -> None:
    run("ip", "-batch", "-", text=_lines(f"link add {BRIDGE} type bridge", f"addr add {MACHINE}/24 dev {BRIDGE}", f"link set {BRIDGE} up"))


def route_to_pods(nodes: int) -> None:
    """So that this machine reaches pods, too. The routes go with the bridge."""
    run("ip", "-batch", "-", text=_lines(*(f"route add {route}" for route in pod_routes(nodes))))


def links() -> list[str]:
    """The lab's interfaces on this machine."""
    return sorted(name for name in os.listdir(_LINKS) if name == BRIDGE or name.startswith(_LINK_PREFIX))


def remove() -> None:
    """Removes them. A host's own interface goes with its peer here, which the kernel may do by itself at the same moment."""
    for name in links():
        try:
            run("ip", "link", "delete", name)
        except LabError:
            if (_LINKS / name).exists():
                raise
