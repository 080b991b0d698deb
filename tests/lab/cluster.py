"""What tests and people see of a cluster, whichever way it came to be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from .brokers import Brokers
from .images import Image
from .processes import LabError, run

GIVEN = "ACKWRIGHT_LAB_KUBECONFIG"


def say(line: str) -> None:
    """The default for progress: one line on standard error."""
    dim, plain = ("\033[2m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{dim}{line}{plain}", file=sys.stderr, flush=True)


class Cluster(ABC):
    """A Kubernetes cluster. As a context manager it is taken down at the end, unless it was there before.

    with Cluster.up() as cluster:
        cluster.kubectl("get", "nodes")
    """

    def __init__(self, kubeconfig: Path, programs: Mapping[str, Path], created: bool) -> None:
        """programs: where kubectl and helm are. created: whether this process made the cluster."""
        self.kubeconfig = kubeconfig
        self.created = created
        self._programs = programs

    @staticmethod
    def up(nodes: int = 2, say: Callable[[str], None] = say) -> Cluster:
        """The cluster that ACKWRIGHT_LAB_KUBECONFIG names; else one of kind's, where a container engine runs and kind is there; else one
        of network namespaces. One that runs already, with as many nodes, is used. Raises LabError with the remedy if it cannot be made."""
        if path := os.environ.get(GIVEN):
            return GivenCluster(Path(path))
        if kind_is_usable():
            from .kind import KindCluster

            return KindCluster.bring_up(nodes, say)
        from .netns import NetnsCluster

        return NetnsCluster.bring_up(nodes, say)

    def kubectl(self, *arguments: str | Path, text: str | None = None, timeout: float = 60) -> str:
        """Runs kubectl as the cluster's administrator and returns what it printed. text: its standard input. Raises LabError."""
        return run(self._programs["kubectl"], "--kubeconfig", self.kubeconfig, *arguments, text=text, timeout=timeout)

    def helm(self, *arguments: str | Path, timeout: float = 300) -> str:
        """Runs helm, likewise."""
        return run(self._programs["helm"], "--kubeconfig", self.kubeconfig, *arguments, timeout=timeout)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(self.kubectl("get", "nodes", "--output", "name").replace("node/", "").split())

    @abstractmethod
    def cut(self, host: str) -> None:
        """Cuts a host off the network, both ways: a node, and where the lab has them a broker ("kafka-1"), "control" or "dns".
        All that runs on it keeps running. Established connections hang, as with a broken cable."""

    @abstractmethod
    def mend(self, host: str) -> None:
        """Undoes cut."""

    @property
    @abstractmethod
    def brokers(self) -> Brokers:
        """The Kafka brokers beside the cluster: see brokers.py."""

    @abstractmethod
    def load_image(self, image: Image) -> None:
        """Brings an image to every node that has none of this name yet."""

    @abstractmethod
    def tag(self, image: Image, reference: str) -> None:
        """Gives a loaded image another name on every node."""

    @abstractmethod
    def down(self) -> None:
        """Removes the cluster with everything on it."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.created:
            self.down()


class GivenCluster(Cluster):
    """Somebody's own cluster. It is used as it is: images must come from a registry that it knows, and its nodes stay untouched."""

    def __init__(self, kubeconfig: Path) -> None:
        if not kubeconfig.is_file():
            raise LabError(
                f"{GIVEN}={kubeconfig}: there is no such file; name a kubeconfig, or unset it for a cluster of the lab's own"
            )
        super().__init__(kubeconfig.resolve(), programs_on_path(), created=False)

    def cut(self, host: str) -> None:
        raise self._refusal(f"{host} cannot be cut off")

    mend = cut

    @property
    def brokers(self) -> Brokers:
        raise self._refusal("there are no brokers beside it")

    def load_image(self, image: Image) -> None:
        raise self._refusal(f"{image.reference} cannot be loaded into it")

    def tag(self, image: Image, reference: str) -> None:
        raise self._refusal(f"{image.reference} cannot be called {reference}")

    def down(self) -> None:
        raise self._refusal("it is not taken down")

    def _refusal(self, what: str) -> LabError:
        return LabError(f"{what}: the cluster is the one that {GIVEN} names; unset it for a cluster of the lab's own")


def programs_on_path() -> dict[str, Path]:
    """kubectl and helm as installed. Raises LabError if one is missing."""
    found = {program: shutil.which(program) for program in ("kubectl", "helm")}
    if missing := [program for program, path in found.items() if path is None]:
        raise LabError(f"not on the PATH: {', '.join(missing)}; install them")
    return {program: Path(path) for program, path in found.items() if path}


def kind_is_usable() -> bool:
    """Whether a container engine runs and kind is installed."""
    if shutil.which("kind") is None or shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode == 0
