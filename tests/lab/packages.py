"""The Debian packages that the lab calls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from .processes import LabError, run

CNI = next(
    (path for path in map(Path, ("/usr/lib/cni", "/opt/cni/bin")) if (path / "ptp").exists()), Path("/usr/lib/cni")
)

# package → a program or file that it brings
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
IMAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}


def need(packages: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Installs what is missing, as root on Debian. Raises LabError that names the packages otherwise."""
    missing = [package for package, brings in packages.items() if shutil.which(brings) is None]
    if not missing:
        return
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise LabError(
            f"the lab needs these Debian packages, and only root can install them: apt-get install {' '.join(missing)}"
        )
    say(f"installing {', '.join(missing)}")
    run("apt-get", "update", "-qq", timeout=600)
    run("env", "DEBIAN_FRONTEND=noninteractive", *command, timeout=1200)
