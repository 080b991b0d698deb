"""Hosts of the lab, each a network namespace of its own, and the switch that joins them; a host can be cut off and mended.

The namespaces have no names, so that there is nothing to remove: they are those of one sleeping process per host, and end with the last
process in them. The switch is such a host, too: this machine has one interface of the lab's, and its firewall has no say between hosts.
No host has a route to anything else: no packet of the lab leaves the machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .processes import Daemon, LabError, run, wait_until

INTERFACE = "ackwright0"  # of this machine
MACHINE = "198.18.0.1"
CONTROL_PLANE, NAME_SERVER = "198.18.0.2", "198.18.0.3"
PODS = "198.18.0.0/16"
SERVICES = "198.19.0.0/24"
API_SERVICE, DNS_SERVICE = "198.19.0.1", "198.19.0.10"
MOST_NODES = MOST_BROKERS = 9

_BRIDGE = "bridge"


def node_address(index: int) -> str:
    return f"198.18.0.{10 + index}"


def pod_subnet(index: int) -> str:
    """The addresses of the pods on one node; nodes count from 1."""
    return f"198.18.{index}.0/24"


def broker_address(index: int) -> str:
    return f"198.18.0.{20 + index}"


@dataclass(frozen=True)
class Host:
    """A machine of the lab. The switch's interface to it has its name, which has at most 15 characters therefore."""

    name: str
    address: str

    @property
    def holder(self) -> Daemon:
        """The process whose namespaces these are."""
        return Daemon(f"host-{self.name}")

    @property
    def enter(self) -> list[str]:
        """The command to put in front of one that is to run on this host."""
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", "--uts", "--"]

    def run(self, *argv: str | Path, timeout: float = 60, text: str | None = None) -> str:
        """Runs a command on this host; see processes.run."""
        return run(*self.enter, *argv, timeout=timeout, text=text)

    def boot(self, pod_routes: Sequence[str], mounts: str = "", arguments: Sequence[str | Path] = ()) -> None:
        """Makes the namespaces and attaches them to the switch. pod_routes: arguments of `ip route add`. mounts: shell commands that
        prepare the file system as this host sees it; they get the arguments as $1, $2, …"""
        self.hold(mounts, arguments)
        SWITCH.ip(
            f"link add {self.name} type veth peer name eth0 netns {self.holder.pid}",
            f"link set {self.name} master {_BRIDGE} up",
        )
        self.ip(
            "link set lo up",
            f"addr add {self.address}/24 dev eth0",
            "link set eth0 up",
            *(f"route add {route}" for route in pod_routes if not route.endswith(f" {self.address}")),
        )

    def hold(self, mounts: str = "", arguments: Sequence[str | Path] = ()) -> None:
        """Makes the namespaces; see boot."""
        script = f"set -e\necho {self.name} > /proc/sys/kernel/hostname\n{mounts}\nexec sleep infinity"
        self.holder.start(
            ["unshare", "--net", "--mount", "--uts", "--propagation=private", "sh", "-c", script, "sh", *arguments]
        )
        wait_until(self._booted, f"{self.name} has booted", 10, self.holder.last_words)

    def ip(self, *commands: str) -> None:
        """Runs ip(8) with each of these on this host."""
        self.run("ip", "-batch", "-", text="".join(f"{command}\n" for command in commands))

    def _booted(self) -> bool:
        self.holder.check()
        return Path("/proc", str(self.holder.pid), "comm").read_text().strip() == "sleep"

    def cut(self) -> None:
        """Pulls the cable: all on the host keeps running, and nothing goes in or out."""
        SWITCH.ip(f"link set {self.name} down")

    def mend(self) -> None:
        """Puts the cable back."""
        SWITCH.ip(f"link set {self.name} up")

    @property
    def is_cut(self) -> bool:
        (found,) = json.loads(SWITCH.run("ip", "-json", "link", "show", self.name))
        return "UP" not in found["flags"]


SWITCH = Host("switch", "")


def pod_routes(nodes: int) -> list[str]:
    """How every machine reaches the pods: straight through the node that they are on."""
    return [f"{pod_subnet(i)} via {node_address(i)}" for i in range(1, nodes + 1)]


def create(nodes: int) -> None:
    """Makes the switch and connects this machine to it, so that it reaches hosts and pods."""
    SWITCH.hold()
    SWITCH.ip(f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up")
    run("ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", "machine", "netns", str(SWITCH.holder.pid))
    SWITCH.ip(f"link set machine master {_BRIDGE} up")
    commands = [
        f"addr add {MACHINE}/24 dev {INTERFACE}",
        f"link set {INTERFACE} up",
        *(f"route add {route}" for route in pod_routes(nodes)),
    ]
    run("ip", "-batch", "-", text="".join(f"{command}\n" for command in commands))


def exists() -> bool:
    """Whether this machine has the lab's interface."""
    return Path("/sys/class/net", INTERFACE).exists()


def remove() -> None:
    """Removes this machine's interface, and its routes with it. The kernel may do so by itself at the same moment: its peer has gone."""
    try:
        if exists():
            run("ip", "link", "delete", INTERFACE)
    except LabError:
        if exists():
            raise
