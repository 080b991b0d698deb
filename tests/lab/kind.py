"""A cluster of kind, for machines with a container engine. Its nodes are containers."""

from __future__ import annotations

import json
from collections.abc import Callable

from ackwright.local.jars import cache_directory

from .brokers import Brokers
from .cluster import Cluster, programs_on_path
from .images import Image
from .processes import LabError, run

NAME = "ackwright-lab"
_NETWORK = "kind"
_TIMEOUT = 900  # seconds; the first start pulls an image of several hundred megabytes


class KindCluster(Cluster):
    """A cluster of kind."""

    @classmethod
    def bring_up(cls, nodes: int, report: Callable[[str], None]) -> KindCluster:
        """The lab's cluster; creates it with this number of nodes if it does not exist."""
        programs = programs_on_path()
        kubeconfig = cache_directory() / "lab" / "kind.kubeconfig"
        kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        created = NAME not in run("kind", "get", "clusters").split()
        if created:
            report(f"creating a cluster of {nodes} nodes with kind")
            roles = [{"role": "control-plane"}, *({"role": "worker"} for _ in range(nodes - 1))]
            config = json.dumps({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": roles})
            run(
                "kind",
                "create",
                "cluster",
                "--name",
                NAME,
                "--config",
                "-",
                "--wait",
                "5m",
                text=config,
                timeout=_TIMEOUT,
            )
        kubeconfig.write_text(run("kind", "get", "kubeconfig", "--name", NAME))
        return cls(kubeconfig, programs, created)

    def cut(self, host: str) -> None:
        run("docker", "network", "disconnect", _NETWORK, host)

    def reconnect(self, host: str) -> None:
        run("docker", "network", "connect", _NETWORK, host)

    @property
    def brokers(self) -> Brokers:
        raise LabError(
            "with a cluster of kind the lab has no Kafka brokers; stop the container engine for a cluster of namespaces"
        )

    def load_image(self, image: Image) -> None:
        tag = image.reference.rpartition(":")[2]
        if any(tag not in run("docker", "exec", node, "crictl", "images") for node in self.nodes):
            run("kind", "load", "image-archive", image.archive, "--name", NAME, timeout=_TIMEOUT)

    def tag(self, image: Image, reference: str) -> None:
        for node in self.nodes:
            run(
                "docker",
                "exec",
                node,
                "ctr",
                "--namespace=k8s.io",
                "images",
                "tag",
                "--force",
                image.reference,
                reference,
            )

    def down(self) -> None:
        run("kind", "delete", "cluster", "--name", NAME, timeout=_TIMEOUT)
