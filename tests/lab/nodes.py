"""A node: a host with its own containerd, kubelet and kube-proxy, each with everything at its usual place.

A node's mount namespace has its own /var/lib, /var/log and /run. So programs need no settings about paths, nodes do not see one
another's files, and no mount outlives the node.
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

CPUS = 8  # as the kubelet reports them: pods that request a CPU each must fit, and share what there is
PAUSE_IMAGE = "localhost/ackwright-lab-pause:1"

_SETTINGS = Path("/var/lib/kubernetes")  # as the node sees it
# What a kubelet wants the kernel's settings to be, and else makes them, for the whole machine. On a node it finds them so.
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
    """Number index of the cluster's nodes, from 1; its name in Kubernetes is name."""

    index: int

    @property
    def name(self) -> str:
        return f"node{self.index}"

    @property
    def host(self) -> Host:
        return Host(self.name, node_address(self.index))

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        return tuple(Daemon(f"{program}-{self.name}") for program in ("containerd", "kubelet", "kube-proxy"))

    @property
    def _files(self) -> Path:
        return STATE / self.name

    def boot(self, nodes: int) -> None:
        """Makes the host and starts containerd; returns when that answers. nodes: how many there are in all."""
        self._write_settings()
        self._write_cpus()
        for name, value in _KERNEL.items():
            setting = self._files / "sysctl" / name
            setting.parent.mkdir(parents=True, exist_ok=True)
            setting.write_text(f"{value}\n")
        (self._files / "log").mkdir(exist_ok=True)
        routes = [
            *pod_routes(nodes),
            f"{SERVICES} dev eth0",
        ]  # kube-proxy redirects these, but without a route there is nothing to redirect
        self.host.boot(routes, _MOUNTS, [self._files])
        self.host.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self.daemons[0].start(["containerd", "--config", _SETTINGS / "containerd.toml"], self.host.enter)
        wait_until(
            lambda: bool(self.ctr("version")), f"containerd answers on {self.name}", 30, self.daemons[0].last_words
        )

    def join(self, binaries: Path) -> None:
        """Starts kubelet and kube-proxy."""
        _, kubelet, proxy = self.daemons
        names = ["--hostname-override", self.name]
        settings = ["--config", f"{_SETTINGS}/kubelet.yaml", "--kubeconfig", f"{_SETTINGS}/kubelet.kubeconfig"]
        kubelet.start([binaries / "kubelet", *names, *settings, "--node-ip", self.host.address], self.host.enter)
        settings = ["--kubeconfig", f"{_SETTINGS}/proxy.kubeconfig", "--cluster-cidr", PODS]
        settings += ["--conntrack-max-per-core", "0"]  # the limit is the machine's; a namespace may not set it
        proxy.start([binaries / "kube-proxy", *names, *settings], self.host.enter)

    def ctr(self, *argv: str | Path, timeout: float = 60) -> str:
        """Runs containerd's client in the namespace that the kubelet uses."""
        return self.host.run("ctr", "--namespace", "k8s.io", *argv, timeout=timeout)

    def images(self) -> set[str]:
        return set(self.ctr("images", "list", "--quiet").split())

    def load(self, archive: Path) -> None:
        """Imports an image archive (OCI or Docker), wherever it is: the node need not see the file."""
        mine = self._files / "lib" / "images" / archive.name
        mine.parent.mkdir(exist_ok=True)
        try:
            mine.hardlink_to(archive)
        except OSError:  # another file system
            shutil.copyfile(archive, mine)
        try:
            self.ctr("images", "import", Path("/var/lib/images") / archive.name, timeout=600)
        finally:
            mine.unlink()

    def check(self) -> None:
        """Raises Ended if one of the node's daemons has ended."""
        for daemon in (self.host.holder, *self.daemons):
            daemon.check()

    def _write_settings(self) -> None:
        settings = self._files / "lib" / "kubernetes"
        (settings / "cni").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CA, settings / "ca.crt")
        shutil.copyfile(kubeconfig(self.name), settings / "kubelet.kubeconfig")
        shutil.copyfile(kubeconfig("proxy"), settings / "proxy.kubeconfig")
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
            "resolvConf": "",  # nothing of this machine's: pods ask the cluster's name server alone
            "nodeStatusUpdateFrequency": "4s",
            "nodeLeaseDurationSeconds": 12,  # renewed every quarter of it
            "imageGCHighThresholdPercent": 100,  # images come from archives: one that is collected is not pulled again
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }

    def _pod_network(self) -> dict[str, Any]:
        """Every pod has a cable of its own to the node, and all is routed: on a bridge, answers between pods of one node would take a
        short cut past the node's address translation, unless the kernel has br_netfilter."""
        ranges = {"ranges": [[{"subnet": pod_subnet(self.index)}]], "routes": [{"dst": "0.0.0.0/0"}]}
        plugin = {"type": "ptp", "ipMasq": False, "ipam": {"type": "host-local"} | ranges}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}

    def _write_cpus(self) -> None:
        """What the kubelet counts CPUs by. The scheduler then sees a node of ordinary size; the kernel shares the real cores out. Those
        that are made up are in no package: so the kubelet counts them, and does not tell the kernel to use them."""
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
