"""A node: a host with its own containerd, kubelet and kube-proxy, which use their default paths.

A node's mount namespace has its own /var/lib, /var/log and /run. Programs therefore need no settings for paths, nodes
do not see each other's files, and no mount outlives the node.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from . import cgroups, packages
from .certificates import CA, kubeconfig
from .network import DNS_SERVICE, PODS, SERVICES, Host, node_address, pod_routes, pod_subnet
from .processes import STATE, Daemon, wait_until

CPUS = 8  # that the kubelet reports: pods that request a CPU each must fit, and share the real ones
PAUSE_IMAGE = "localhost/ackwright-lab-pause:1"

_SETTINGS = Path("/var/lib/kubernetes")  # in the node's mount namespace
# Kernel settings that a kubelet requires, and would change for the whole machine. A node's mounts show them as set.
_KERNEL = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1}
_KERNEL |= {"kernel/keys/root_maxkeys": 1_000_000, "kernel/keys/root_maxbytes": 25_000_000}
# $1 is the directory of the node's files. /var/lib comes last, because that directory is in it.
_MOUNTS = f"""
for setting in {" ".join(_KERNEL)}; do mount --bind "$1/sysctl/$setting" "/proc/sys/$setting"; done
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /sys/devices/system/node
mount --bind "$1/cpu" /sys/devices/system/cpu
mount --bind "$1/log" /var/log
mount --bind "$1/lib" /var/lib
"""


@dataclass(frozen=True)
class Node:
    """One node of the cluster."""

    index: int  # from 1

    @property
    def name(self) -> str:
        """The node's name in Kubernetes."""
        return f"node{self.index}"

    @property
    def host(self) -> Host:
        return Host(self.name, node_address(self.index))

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        return tuple(Daemon(f"{program}-{self.name}") for program in ("containerd", "kubelet", "kube-proxy"))

    @property
    def kubelet(self) -> Daemon:
        return self.daemons[1]

    @property
    def policies(self) -> Daemon:
        """The program that enforces NetworkPolicies, in clusters that do."""
        return Daemon(f"kube-router-{self.name}")

    @property
    def _files(self) -> Path:
        return STATE / self.name

    def boot(self, nodes: int) -> None:
        """Creates the host and starts containerd; returns when it answers. nodes: the total number of nodes."""
        self._write_settings()
        self._write_cpus()
        for name, value in _KERNEL.items():
            setting = self._files / "sysctl" / name
            setting.parent.mkdir(parents=True, exist_ok=True)
            setting.write_text(f"{value}\n")
        (self._files / "log").mkdir(exist_ok=True)
        # kube-proxy redirects packets to services, but the kernel first needs a route for them.
        routes = [*pod_routes(nodes), f"{SERVICES} dev eth0"]
        self.host.boot(routes, _MOUNTS, [self._files])
        self.host.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self.daemons[0].start(["containerd", "--config", _SETTINGS / "containerd.toml"], self.host.enter)
        wait_until(
            lambda: bool(self.ctr("version")), f"containerd answers on {self.name}", 30, self.daemons[0].exit_cause
        )

    def join(self, binaries: Path) -> None:
        """Starts kubelet and kube-proxy."""
        _, kubelet, proxy = self.daemons
        names = ["--hostname-override", self.name]
        settings = ["--config", f"{_SETTINGS}/kubelet.yaml", "--kubeconfig", f"{_SETTINGS}/kubelet.kubeconfig"]
        kubelet.start([binaries / "kubelet", *names, *settings, "--node-ip", self.host.address], self.host.enter)
        settings = ["--kubeconfig", f"{_SETTINGS}/proxy.kubeconfig", "--cluster-cidr", PODS]
        settings += ["--conntrack-max-per-core", "0"]  # the limit belongs to the machine; a namespace cannot set it
        proxy.start([binaries / "kube-proxy", *names, *settings], self.host.enter)

    def enforce_policies(self, program: Path) -> None:
        """Starts kube-router, the program, of which only the part for NetworkPolicies runs."""
        parts = ["--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false"]
        settings = ["--kubeconfig", f"{_SETTINGS}/policies.kubeconfig", "--hostname-override", self.name]
        settings += ["--service-cluster-ip-range", SERVICES]
        self.policies.start([program, *parts, *settings], self.host.enter)

    def ctr(self, *argv: str | Path, timeout: float = 60) -> str:
        """The output of containerd's client, in the kubelet's namespace."""
        return self.host.run("ctr", "--namespace", "k8s.io", *argv, timeout=timeout)

    def images(self) -> set[str]:
        return set(self.ctr("images", "list", "--quiet").split())

    def load(self, archive: Path) -> None:
        """Imports an image archive (OCI or Docker) from any path of this machine."""
        node_copy = self._files / "lib" / "images" / archive.name
        node_copy.parent.mkdir(exist_ok=True)
        try:
            node_copy.hardlink_to(archive)
        except OSError:  # another file system
            shutil.copyfile(archive, node_copy)
        try:
            self.ctr("images", "import", Path("/var/lib/images") / archive.name, timeout=600)
        finally:
            node_copy.unlink()

    def container_log(self, namespace: str, pod: str, uid: str, container: str) -> str:
        """What the containers of this name in a pod have written, from the node's files: also if it is disconnected.

        Each line begins with its time and stream. uid: the pod's.
        """
        directory = self._files / "log" / "pods" / f"{namespace}_{pod}_{uid}" / container
        return "".join(file.read_text(errors="replace") for file in sorted(directory.glob("*.log")))

    def check(self) -> None:
        """Raises DaemonEnded if one of the node's daemons has ended."""
        for daemon in (self.host.holder, *self.daemons):
            daemon.check()

    def _write_settings(self) -> None:
        settings = self._files / "lib" / "kubernetes"
        (settings / "cni").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CA, settings / "ca.crt")
        shutil.copyfile(kubeconfig(self.name), settings / "kubelet.kubeconfig")
        for user in ("proxy", "policies"):
            shutil.copyfile(kubeconfig(user), settings / f"{user}.kubeconfig")
        (settings / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_settings()))
        (settings / "cni" / "pods.conflist").write_text(json.dumps(self._pod_network()))
        (settings / "containerd.toml").write_text(_CONTAINERD)

    def _kubelet_settings(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"x509": {"clientCAFile": str(_SETTINGS / "ca.crt")}, "anonymous": {"enabled": False}},
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroups.create(self.name),
            "failCgroupV1": False,
            "failSwapOn": False,
            "clusterDNS": [DNS_SERVICE],
            "clusterDomain": "cluster.local",
            "resolvConf": "",  # pods ask only the cluster's name server, not this machine's
            "nodeStatusUpdateFrequency": "4s",
            "nodeLeaseDurationSeconds": 12,  # the kubelet renews it after a quarter of that
            "imageGCHighThresholdPercent": 100,  # images come from archives: a removed one cannot be pulled again
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }

    def _pod_network(self) -> dict[str, Any]:
        """The CNI configuration: each pod has a point-to-point link to the node, which routes all its traffic.

        On a bridge without br_netfilter, answers between pods of one node would bypass the node's address translation.
        """
        ranges = {"ranges": [[{"subnet": pod_subnet(self.index)}]], "routes": [{"dst": "0.0.0.0/0"}]}
        plugin = {"type": "ptp", "ipMasq": False, "ipam": {"type": "host-local"} | ranges}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}

    def _write_cpus(self) -> None:
        """Writes the files by which the kubelet counts CPUs, so that the scheduler sees a node of ordinary size.

        CPUs that do not exist belong to no package: the kubelet counts them and does not ask the kernel to use them.
        """
        cpus = self._files / "cpu"
        real = os.sched_getaffinity(0)
        last = max(*real, CPUS - 1)
        for number in range(last + 1):
            topology = cpus / f"cpu{number}" / "topology"
            topology.mkdir(parents=True, exist_ok=True)
            if number in real:
                (topology / "core_id").write_text(f"{number}\n")
                (topology / "physical_package_id").write_text("0\n")
        (cpus / "online").write_text(f"0-{last}\n")


_CONTAINERD = f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{packages.CNI}"
  conf_dir = "{_SETTINGS}/cni"
"""
