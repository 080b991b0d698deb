"""The cluster whose nodes are network namespaces: what it consists of, in which order it comes up, and how it goes without a trace."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from . import binaries, certificates, cgroups, control_plane, name_server, network, packages, pause
from .brokers import Brokers
from .cluster import GIVEN, Cluster
from .images import Image
from .network import Host
from .nodes import PAUSE_IMAGE, Node
from .processes import STATE, Ended, LabError, kill_all, wait_until

KUBECONFIG = STATE / "kubeconfig"
_RECORD = STATE / "lab.json"  # written last: a lab without it was never complete
_SETTLED = 120  # seconds until the nodes are Ready


class NetnsCluster(Cluster):
    """A cluster that this or an earlier process made here."""

    def __init__(self, programs: Path, nodes: int, created: bool) -> None:
        super().__init__(KUBECONFIG, {name: programs / name for name in ("kubectl", "helm")}, created)
        self.programs = programs
        self.members = tuple(Node(i) for i in range(1, nodes + 1))
        self._brokers = Brokers()

    @classmethod
    def bring_up(cls, nodes: int, say: Callable[[str], None]) -> NetnsCluster:
        """The one that runs, with what has failed since mended, or else a new one. Raises LabError."""
        if os.geteuid() != 0:
            raise LabError(f"only root can make network namespaces: run it as root, or name a cluster in {GIVEN}")
        if not 1 <= nodes <= network.MOST_NODES:
            raise LabError(f"{nodes} nodes: between 1 and {network.MOST_NODES} are possible")
        packages.need(packages.CLUSTER, say)
        programs = binaries.directory(say)
        with _lock():
            found = cls._found()
            if found and found.programs == programs and len(found.members) == nodes and found.problem() is None:
                found._revive()
                return found
            _remove()
            fresh = cls(programs, nodes, created=True)
            try:
                with cgroups.joined():
                    fresh._create(say)
            except BaseException:
                _keep_logs(say)
                _remove()
                raise
            return fresh

    @classmethod
    def find(cls) -> NetnsCluster:
        """The one that an earlier process made. Raises LabError if there is none."""
        found = cls._found()
        if found is None:
            raise LabError("no cluster runs here: start one with `make cluster`")
        return found

    @classmethod
    def _found(cls) -> NetnsCluster | None:
        try:
            record = json.loads(_RECORD.read_text())
        except FileNotFoundError:
            return None
        return cls(Path(record["programs"]), record["nodes"], created=False)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.members)

    @property
    def brokers(self) -> Brokers:
        return self._brokers

    @property
    def hosts(self) -> dict[str, Host]:
        """Every host of the lab by name."""
        found = (
            control_plane.HOST,
            name_server.HOST,
            *(node.host for node in self.members),
            *self._brokers.hosts.values(),
        )
        return {host.name: host for host in found}

    def cut(self, host: str) -> None:
        self._host(host).cut()

    def mend(self, host: str) -> None:
        self._host(host).mend()

    def _host(self, name: str) -> Host:
        try:
            return self.hosts[name]
        except KeyError:
            raise LabError(f"there is no host {name!r}; there are {', '.join(self.hosts)}") from None

    def load_image(self, image: Image) -> None:
        lacking = [node for node in self.members if image.reference not in node.images()]
        with ThreadPoolExecutor(len(self.members)) as pool:
            list(pool.map(lambda node: node.load(image.archive), lacking))

    def tag(self, image: Image, reference: str) -> None:
        for node in self.members:
            node.ctr("images", "tag", "--force", image.reference, reference)

    def down(self) -> None:
        remove()

    def problem(self) -> str | None:
        """Why this cluster cannot be used any more, if so. Brokers that were killed and hosts that were cut off are no reason."""
        daemons = [
            *control_plane.DAEMONS,
            name_server.DAEMON,
            network.SWITCH.holder,
            *(host.holder for host in self.hosts.values()),
        ]
        try:
            for daemon in [*daemons, *(d for node in self.members for d in node.daemons)]:
                daemon.check()
        except Ended as e:
            return str(e)
        return None

    def _revive(self) -> None:
        for host in self.hosts.values():
            host.mend()
        for broker in self._brokers.brokers:
            if broker.alive:
                broker.resume()
        self._brokers.start()
        self._wait_until_ready()

    def _create(self, say: Callable[[str], None]) -> None:
        started = time.monotonic()

        def done(what: str) -> None:
            say(f"{what} ({time.monotonic() - started:.1f} s)")

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
        _RECORD.write_text(json.dumps({"programs": str(self.programs), "nodes": count}))

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

        wait_until(ready, f"{', '.join(self.nodes)} are Ready", _SETTLED, self.members[0].daemons[1].last_words)

    def ready_nodes(self) -> list[str]:
        """The nodes that Kubernetes calls Ready."""
        items = json.loads(self.kubectl("get", "nodes", "--output", "json"))["items"]
        return [item["metadata"]["name"] for item in items if _is_ready(item)]


def _is_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))


def remove() -> None:
    """Removes whatever there is of a lab on this machine, complete or not."""
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


def traces() -> list[str]:
    """What there is of a lab on this machine: nothing after `down`."""
    found = [f"process {pid}" for pid in cgroups.members()]
    found += [f"interface {network.INTERFACE}"] if network.exists() else []
    found += ["control groups"] if cgroups.exist() else []
    return found + ([str(STATE)] if STATE.exists() else [])


def _keep_logs(say: Callable[[str], None]) -> None:
    kept = binaries.lab_cache() / "failed"
    shutil.rmtree(kept, ignore_errors=True)
    with contextlib.suppress(OSError):
        shutil.copytree(STATE / "log", kept)
        say(f"the logs are in {kept}")


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """One at a time makes or removes the lab. The lock is on the state directory, which goes when nothing is left in it."""
    while True:
        STATE.mkdir(parents=True, exist_ok=True)
        handle = os.open(STATE, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(STATE).st_ino == os.fstat(handle).st_ino:
                break
        os.close(handle)  # somebody removed it while we waited
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            STATE.rmdir()
        os.close(handle)
