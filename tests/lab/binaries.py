"""The lab's programs, built from the Go modules under tools/ and cached per content of the module and version of Go."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ackwright.local.jars import cache_directory

from .processes import LabError, run

TOOLS = Path(__file__).parent / "tools"
_MIN_GO = (1, 24)
_API_SERVER = ("kube-apiserver", "kubectl")
_OTHERS = ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
# Name → its programs (program → package). The name is that of the module under tools/, except for those in _MODULES.
_PROGRAMS = {
    "pause": {"pause": "."},
    "etcd": {"etcd": "go.etcd.io/etcd/server/v3"},
    "coredns": {"coredns": "."},
    "helm": {"helm": "helm.sh/helm/v3/cmd/helm"},
    "api-server": {command: f"k8s.io/kubernetes/cmd/{command}" for command in _API_SERVER},
    "kubernetes": {command: f"k8s.io/kubernetes/cmd/{command}" for command in _OTHERS},
    "kstatus": {"kstatus": "."},
    "kube-router": {"kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"},
    "promtool": {"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
}
_MODULES = {"api-server": "kubernetes"}  # tests without nodes need only these two programs, and etcd
_STANDALONE = frozenset({"kstatus", "kube-router", "promtool"})  # not part of every cluster
_LARGE = frozenset(
    {"api-server", "kubernetes", "kube-router", "promtool"}
)  # promtool depends on the clients of all clouds that Prometheus supports
_KUBERNETES = "k8s.io/kubernetes"
_TIMEOUT = 3600  # seconds per module; Kubernetes takes 5 minutes on two idle cores


def directory(report: Callable[[str], None]) -> Path:
    """A directory with links to the programs of a cluster; builds missing ones.

    Raises LabError if Go is missing, too old, or fails.
    """
    return _linked([name for name in _PROGRAMS if name not in _STANDALONE], report)


def api_server(report: Callable[[str], None]) -> Path:
    """A directory with etcd, kube-apiserver and kubectl only; builds missing ones. Raises as directory()."""
    return _linked(["etcd", "api-server"], report)


def _linked(names: Sequence[str], report: Callable[[str], None]) -> Path:
    """A directory with links to the programs of these names."""
    built = {program: _module(name, report) / program for name in names for program in _PROGRAMS[name]}
    key = hashlib.sha256(repr(sorted(built.items())).encode()).hexdigest()[:16]
    target = lab_cache() / "bin" / key
    target.mkdir(parents=True, exist_ok=True)
    for program, path in built.items():
        if not (target / program).exists():
            link = target / f".{program}.{os.getpid()}"
            link.symlink_to(path)
            link.rename(target / program)
    return target


def program(name: str, report: Callable[[str], None]) -> Path:
    """The path of one program; builds only its module. Raises LabError if Go is missing, too old, or fails."""
    return _module(next(module for module, programs in _PROGRAMS.items() if name in programs), report) / name


def lab_cache() -> Path:
    """The directory for files that outlive a cluster."""
    return cache_directory() / "lab"


def _module(name: str, report: Callable[[str], None]) -> Path:
    """The directory of one module's programs; builds them if they are not in the cache."""
    source = TOOLS / _MODULES.get(name, name)
    arguments = ["-trimpath", f"-ldflags=-s -w{_version_flag(source)}"]
    identity = hashlib.sha256("\n".join([_go_version(), *arguments, *_PROGRAMS[name].values()]).encode())
    for path in sorted(source.iterdir()):
        identity.update(path.read_bytes())
    target = lab_cache() / "bin" / f"{name}-{identity.hexdigest()[:16]}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    started_at = time.monotonic()
    report(f"building {', '.join(_PROGRAMS[name])} (once{'; takes some minutes' if name in _LARGE else ''})")
    try:
        for program, package in _PROGRAMS[name].items():
            _build(source, ["go", "build", *arguments, "-o", str(unfinished / program), package])
        unfinished.chmod(0o755)
        try:
            unfinished.rename(target)  # atomic: an interrupted build leaves no incomplete target
        except OSError:  # another process has created the target in the meantime
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    report(f"built {name} in {time.monotonic() - started_at:.0f} s")
    return target


def _build(source: Path, argv: list[str]) -> None:
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    completed = subprocess.run(
        argv, cwd=source, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if completed.returncode:
        output = completed.stderr.splitlines()
        lines = [line for line in output if not line.startswith("go: downloading")] or ["no output"]
        raise LabError(f"go build {argv[-1]} failed: {' | '.join(lines[-3:])}")


def _version_flag(source: Path) -> str:
    """The linker flag that sets Kubernetes' version; without it every node reports v0.0.0."""
    version = re.search(rf"^\s*(?:require )?{_KUBERNETES} (v\S+)", (source / "go.mod").read_text(), re.MULTILINE)
    return f" -X k8s.io/component-base/version.gitVersion={version[1]}" if version else ""


def _go_version() -> str:
    minimum = ".".join(map(str, _MIN_GO))
    remedy = f"install Go {minimum} or newer (Debian 13: apt-get install golang-go; elsewhere: from go.dev)"
    if shutil.which("go") is None:
        raise LabError(f"Go is not on the PATH, and Kubernetes is built with it; {remedy}")
    version = run("go", "env", "GOVERSION").strip()
    number = re.match(r"go(\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < _MIN_GO:
        raise LabError(f"{version} is too old to build Kubernetes; {remedy}")
    return version
