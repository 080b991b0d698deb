"""The interface of a cluster for tests and interactive use, independent of how the cluster is created."""

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

KUBECONFIG_VARIABLE = "ACKWRIGHT_LAB_KUBECONFIG"


def print_progress(line: str) -> None:
    """Prints one line of progress on standard error."""
    dim, plain = ("\033[2m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{dim}{line}{plain}", file=sys.stderr, flush=True)


class Cluster(ABC):
    """A Kubernetes cluster. Leaving its context removes it, unless it existed before.

    with Cluster.up() as cluster:
        cluster.kubectl("get", "nodes")
    """

    def __init__(self, kubeconfig: Path, programs: Mapping[str, Path], created: bool) -> None:
        """programs: the paths of kubectl and helm. created: whether this process has created the cluster."""
        self.kubeconfig = kubeconfig
        self.created = created
        self._programs = programs

    @staticmethod
    def up(nodes: int = 2, report: Callable[[str], None] = print_progress) -> Cluster:
        """A running cluster. Uses the first of these that is available:

        1. the cluster that ACKWRIGHT_LAB_KUBECONFIG names,
        2. a cluster of kind, if kind is installed and a container engine runs,
        3. a cluster of network namespaces.

        A running one with the same number of nodes is reused. Raises LabError with the remedy if none can be created.
        """
        if path := os.environ.get(KUBECONFIG_VARIABLE):
            return ExternalCluster(Path(path))
        if kind_is_usable():
            from .kind import KindCluster

            return KindCluster.bring_up(nodes, report)
        from .netns import NetnsCluster

        return NetnsCluster.bring_up(nodes, report)

    def kubectl(self, *arguments: str | Path, text: str | None = None, timeout: float = 60) -> str:
        """The output of kubectl, run as the cluster's administrator. text: standard input. Raises LabError."""
        return run(self._programs["kubectl"], "--kubeconfig", self.kubeconfig, *arguments, text=text, timeout=timeout)

    def helm(self, *arguments: str | Path, timeout: float = 300) -> str:
        """The output of helm, run as the cluster's administrator. Raises LabError."""
        return run(self._programs["helm"], "--kubeconfig", self.kubeconfig, *arguments, timeout=timeout)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(self.kubectl("get", "nodes", "--output", "name").replace("node/", "").split())

    @abstractmethod
    def cut(self, host: str) -> None:
        """Disconnects a host from the network in both directions; its processes keep running.

        Established connections hang. host: a node and, in a cluster of namespaces, also a broker ("kafka-1"),
        "control" or "dns".
        """

    @abstractmethod
    def reconnect(self, host: str) -> None:
        """Connects a host again after cut."""

    @property
    @abstractmethod
    def brokers(self) -> Brokers:
        """The Kafka brokers outside the cluster, see brokers.py."""

    @abstractmethod
    def load_image(self, image: Image) -> None:
        """Loads an image on every node that has no image with this name."""

    @abstractmethod
    def tag(self, image: Image, reference: str) -> None:
        """Adds another name to a loaded image on every node."""

    def enforce_policies(self, report: Callable[[str], None] = print_progress) -> bool:
        """Enforces NetworkPolicies from now on, if the lab can do that. Returns whether they are certainly enforced.

        In clusters of others that depends on their network plug-in.
        """
        del report
        return False

    @abstractmethod
    def down(self) -> None:
        """Removes the cluster and everything on it."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.created:
            self.down()


class ExternalCluster(Cluster):
    """An existing cluster, which the lab does not change. It pulls images from a registry."""

    def __init__(self, kubeconfig: Path) -> None:
        if not kubeconfig.is_file():
            raise LabError(
                f"{KUBECONFIG_VARIABLE}={kubeconfig}: the file does not exist; name a kubeconfig, or unset the "
                "variable for a cluster of the lab"
            )
        super().__init__(kubeconfig.resolve(), programs_on_path(), created=False)

    def cut(self, host: str) -> None:
        raise self._refusal(f"{host} cannot be disconnected")

    reconnect = cut

    @property
    def brokers(self) -> Brokers:
        raise self._refusal("the lab has no Kafka brokers")

    def load_image(self, image: Image) -> None:
        raise self._refusal(f"{image.reference} cannot be loaded")

    def tag(self, image: Image, reference: str) -> None:
        raise self._refusal(f"{image.reference} cannot be tagged as {reference}")

    def down(self) -> None:
        raise self._refusal("the cluster cannot be removed")

    def _refusal(self, problem: str) -> LabError:
        return LabError(
            f"{problem}: {KUBECONFIG_VARIABLE} names an external cluster; unset it for a cluster of the lab"
        )


def programs_on_path() -> dict[str, Path]:
    """The paths of the installed kubectl and helm. Raises LabError if one is missing."""
    paths = {program: shutil.which(program) for program in ("kubectl", "helm")}
    if missing := [program for program, path in paths.items() if path is None]:
        raise LabError(f"not on the PATH: {', '.join(missing)}; install them")
    return {program: Path(path) for program, path in paths.items() if path}


def kind_is_usable() -> bool:
    """Whether kind is installed and a container engine runs."""
    if shutil.which("kind") is None or shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode == 0
