"""Hosts of the lab, each a separate network namespace, and the switch that connects them.

The namespaces have no names: they belong to one sleeping process per host, and end with their last process. The switch
is also such a host, so this machine has only one interface of the lab, and its firewall does not filter traffic between
hosts. No host has a route to anything else: no packet leaves the machine.
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
MAX_NODES = MAX_BROKERS = 9

_BRIDGE = "bridge"


def node_address(index: int) -> str:
    return f"198.18.0.{10 + index}"


def pod_subnet(index: int) -> str:
    """The addresses of the pods on one node. index: from 1."""
    return f"198.18.{index}.0/24"


def broker_address(index: int) -> str:
    return f"198.18.0.{20 + index}"


@dataclass(frozen=True)
class Host:
    """A machine of the lab."""

    name: str  # also of the switch's interface to it, hence at most 15 characters
    address: str

    @property
    def holder(self) -> Daemon:
        """The process that owns the namespaces."""
        return Daemon(f"host-{self.name}")

    @property
    def enter(self) -> list[str]:
        """The command prefix that runs a command on this host."""
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", "--uts", "--"]

    def run(self, *argv: str | Path, timeout: float = 60, text: str | None = None) -> str:
        """The output of a command that runs on this host; see processes.run."""
        return run(*self.enter, *argv, timeout=timeout, text=text)

    def boot(self, pod_routes: Sequence[str], mounts: str = "", arguments: Sequence[str | Path] = ()) -> None:
        """Creates the namespaces and connects them to the switch.

        pod_routes: arguments of `ip route add`. mounts: shell commands that prepare the host's file system; they get
        `arguments` as $1, $2, …
        """
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
        """Creates the namespaces; see boot."""
        script = f"set -e\necho {self.name} > /proc/sys/kernel/hostname\n{mounts}\nexec sleep infinity"
        self.holder.start(
            ["unshare", "--net", "--mount", "--uts", "--propagation=private", "sh", "-c", script, "sh", *arguments]
        )
        wait_until(self._booted, f"{self.name} has booted", 10, self.holder.exit_cause)

    def ip(self, *commands: str) -> None:
        """Runs commands of ip(8) on this host."""
        self.run("ip", "-batch", "-", text="".join(f"{command}\n" for command in commands))

    def _booted(self) -> bool:
        self.holder.check()
        return Path("/proc", str(self.holder.pid), "comm").read_text().strip() == "sleep"

    def cut(self) -> None:
        """Disconnects the host from the switch; its processes keep running."""
        SWITCH.ip(f"link set {self.name} down")

    def reconnect(self) -> None:
        """Connects the host to the switch again."""
        SWITCH.ip(f"link set {self.name} up")

    @property
    def is_cut(self) -> bool:
        (link,) = json.loads(SWITCH.run("ip", "-json", "link", "show", self.name))
        return "UP" not in link["flags"]


SWITCH = Host("switch", "")


def pod_routes(nodes: int) -> list[str]:
    """The routes to the pods: directly through their nodes."""
    return [f"{pod_subnet(i)} via {node_address(i)}" for i in range(1, nodes + 1)]


def create(nodes: int) -> None:
    """Creates the switch and connects this machine to it, so that it reaches hosts and pods."""
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
    """Removes this machine's interface and its routes. The kernel may remove them at the same time, with their peer."""
    try:
        if exists():
            run("ip", "link", "delete", INTERFACE)
    except LabError:
        if exists():
            raise
