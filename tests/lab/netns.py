"""A cluster whose hosts are network namespaces: its parts, the order in which they start, and its complete removal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from . import binaries, certificates, cgroups, control_plane, name_server, network, packages, pause, policies
from .brokers import Brokers
from .cluster import KUBECONFIG_VARIABLE, Cluster, print_progress
from .images import Image
from .network import Host
from .nodes import PAUSE_IMAGE, Node
from .processes import STATE, DaemonEnded, LabError, kill_all, wait_until

KUBECONFIG = STATE / "kubeconfig"
_CLUSTER_FILE = STATE / "lab.json"  # written last: without it the lab is incomplete
_READY_TIMEOUT = 120  # seconds until the nodes are Ready


class NetnsCluster(Cluster):
    """A cluster that this or an earlier process has created on this machine."""

    def __init__(self, programs: Path, nodes: int, created: bool) -> None:
        super().__init__(KUBECONFIG, {name: programs / name for name in ("kubectl", "helm")}, created)
        self.programs = programs
        self.members = tuple(Node(i) for i in range(1, nodes + 1))
        self._brokers = Brokers()

    @classmethod
    def bring_up(cls, nodes: int, report: Callable[[str], None]) -> NetnsCluster:
        """The running cluster, with hosts reconnected, kubelets resumed and brokers restarted, or a new one.

        Raises LabError.
        """
        if os.geteuid() != 0:
            raise LabError(
                f"only root can create network namespaces; run as root, or name a cluster in {KUBECONFIG_VARIABLE}"
            )
        if not 1 <= nodes <= network.MAX_NODES:
            raise LabError(f"a cluster cannot have {nodes} nodes; choose between 1 and {network.MAX_NODES}")
        packages.install_missing(packages.CLUSTER, report)
        programs = binaries.directory(report)
        with _lock():
            existing = cls._existing()
            if (
                existing
                and existing.programs == programs
                and len(existing.members) == nodes
                and existing.problem() is None
            ):
                existing._recover()
                return existing
            _remove()
            created = cls(programs, nodes, created=True)
            try:
                with cgroups.joined():
                    created._create(report)
            except BaseException:
                _save_logs(report)
                _remove()
                raise
            return created

    @classmethod
    def find(cls) -> NetnsCluster:
        """The cluster that an earlier process has created. Raises LabError if there is none."""
        existing = cls._existing()
        if existing is None:
            raise LabError("no cluster runs on this machine; start one with `make cluster`")
        return existing

    @classmethod
    def _existing(cls) -> NetnsCluster | None:
        try:
            cluster = json.loads(_CLUSTER_FILE.read_text())
        except FileNotFoundError:
            return None
        return cls(Path(cluster["programs"]), cluster["nodes"], created=False)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.members)

    @property
    def brokers(self) -> Brokers:
        return self._brokers

    def node(self, name: str) -> Node:
        """The node of this name."""
        return next(node for node in self.members if node.name == name)

    @property
    def hosts(self) -> dict[str, Host]:
        """All hosts of the lab by name."""
        hosts = (
            control_plane.HOST,
            name_server.HOST,
            *(node.host for node in self.members),
            *self._brokers.hosts.values(),
        )
        return {host.name: host for host in hosts}

    def cut(self, host: str) -> None:
        self._host(host).cut()

    def reconnect(self, host: str) -> None:
        self._host(host).reconnect()

    def _host(self, name: str) -> Host:
        try:
            return self.hosts[name]
        except KeyError:
            raise LabError(f"the lab has no host {name!r}; its hosts are {', '.join(self.hosts)}") from None

    def load_image(self, image: Image) -> None:
        lacking = [node for node in self.members if image.reference not in node.images()]
        with ThreadPoolExecutor(len(self.members)) as pool:
            list(pool.map(lambda node: node.load(image.archive), lacking))

    def tag(self, image: Image, reference: str) -> None:
        for node in self.members:
            node.ctr("images", "tag", "--force", image.reference, reference)

    def enforce_policies(self, report: Callable[[str], None] = print_progress) -> bool:
        packages.install_missing(packages.POLICIES, report)
        program = binaries.program("kube-router", report)
        self.kubectl("apply", "--filename", "-", text=json.dumps(policies.objects()))
        for node in self.members:
            if not node.policies.alive():
                node.enforce_policies(program)
        return True

    def down(self) -> None:
        remove()

    def problem(self) -> str | None:
        """Why this cluster can no longer be used, or None. Killed brokers and disconnected hosts do not count."""
        daemons = [
            *control_plane.DAEMONS,
            name_server.DAEMON,
            network.SWITCH.holder,
            *(host.holder for host in self.hosts.values()),
        ]
        try:
            for daemon in [*daemons, *(d for node in self.members for d in node.daemons)]:
                daemon.check()
        except DaemonEnded as e:
            return str(e)
        return None

    def _recover(self) -> None:
        for host in self.hosts.values():
            host.reconnect()
        for node in self.members:
            node.kubelet.send_signal(signal.SIGCONT)
        for broker in self._brokers.brokers:
            if broker.alive:
                broker.resume()
        self._brokers.start()
        self._wait_until_ready()

    def _create(self, report: Callable[[str], None]) -> None:
        started_at = time.monotonic()

        def done(what: str) -> None:
            report(f"{what} ({time.monotonic() - started_at:.1f} s)")

        count = len(self.members)
        certificates.create(count)
        network.create(count)
        for host in (control_plane.HOST, name_server.HOST):
            host.boot(network.pod_routes(count))
        pause_image = STATE / "pause.tar"
        pause.write(self.programs / "pause", PAUSE_IMAGE, pause_image)
        with ThreadPoolExecutor() as pool:
            booting = [pool.submit(self._boot, node, pause_image) for node in self.members]
            kafka: Future[None] = pool.submit(self._launch_brokers)
            control_plane.start(self.programs)
            done("control plane")
            for node, boot in zip(self.members, booting, strict=True):
                boot.result()
                node.join(self.programs)
            name_server.start(self.programs, self._brokers.names)
            done("name server")
            shutil.copyfile(certificates.kubeconfig("admin"), KUBECONFIG)
            KUBECONFIG.chmod(0o600)
            self._wait_until_ready()
            done(f"nodes {', '.join(self.nodes)}")
            kafka.result()
            self._brokers.start()
            done(f"brokers {self._brokers.bootstrap_servers}")
        _CLUSTER_FILE.write_text(json.dumps({"programs": str(self.programs), "nodes": count}))

    def _boot(self, node: Node, pause_image: Path) -> None:
        node.boot(len(self.members))
        node.load(pause_image)

    def _launch_brokers(self) -> None:
        self._brokers.boot(len(self.members))
        self._brokers.launch()

    def _wait_until_ready(self) -> None:
        def ready() -> bool:
            for node in self.members:
                node.check()
            return set(self.ready_nodes()) == set(self.nodes)

        cause = self.members[0].kubelet.exit_cause
        wait_until(ready, f"{', '.join(self.nodes)} are Ready", _READY_TIMEOUT, cause)

    def ready_nodes(self) -> list[str]:
        """The names of the nodes whose condition Ready is True."""
        items = json.loads(self.kubectl("get", "nodes", "--output", "json"))["items"]
        return [item["metadata"]["name"] for item in items if _is_ready(item)]


def _is_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))


def remove() -> None:
    """Removes the lab from this machine, complete or not."""
    if os.geteuid() != 0:
        raise LabError("only root can remove the cluster")
    with _lock():
        _remove()


def _remove() -> None:
    kill_all()
    network.remove()
    cgroups.remove()
    for entry in STATE.iterdir() if STATE.exists() else ():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def leftovers() -> list[str]:
    """The processes, interfaces, control groups and files of a lab on this machine; empty after `down`."""
    parts = [f"process {pid}" for pid in cgroups.members()]
    parts += [f"interface {network.INTERFACE}"] if network.exists() else []
    parts += ["control groups"] if cgroups.exist() else []
    return parts + ([str(STATE)] if STATE.exists() else [])


def _save_logs(report: Callable[[str], None]) -> None:
    logs = binaries.lab_cache() / "failed"
    shutil.rmtree(logs, ignore_errors=True)
    with contextlib.suppress(OSError):
        shutil.copytree(STATE / "log", logs)
        report(f"the logs are in {logs}")


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Allows one process at a time to create or remove the lab, by a lock on the state directory.

    Removes the directory at the end if it is empty.
    """
    while True:
        STATE.mkdir(parents=True, exist_ok=True)
        handle = os.open(STATE, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(STATE).st_ino == os.fstat(handle).st_ino:
                break
        os.close(handle)  # another process has removed the directory in the meantime
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            STATE.rmdir()
        os.close(handle)
