"""The Debian packages with the programs that the lab runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from .processes import LabError, run

CNI = next(
    (path for path in map(Path, ("/usr/lib/cni", "/opt/cni/bin")) if (path / "ptp").exists()), Path("/usr/lib/cni")
)

# package → a program or file that it contains
CLUSTER = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": str(CNI / "ptp"),
    "iptables": "iptables",
    "conntrack": "conntrack",
    "iproute2": "ip",
    "util-linux": "nsenter",
    "openssl": "openssl",
}
POLICIES = {"ipset": "ipset"}  # kube-router has the pods' addresses in sets
IMAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}


def install_missing(packages: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Installs missing packages, as root on Debian; raises LabError that names them otherwise."""
    missing = [package for package, program in packages.items() if shutil.which(program) is None]
    if not missing:
        return
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise LabError(
            f"Debian packages of the lab are missing; install them as root: apt-get install {' '.join(missing)}"
        )
    report(f"installing {', '.join(missing)}")
    run("apt-get", "update", "-qq", timeout=600)
    run("env", "DEBIAN_FRONTEND=noninteractive", *command, timeout=1200)
