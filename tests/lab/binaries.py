"""The lab's programs, built from the Go modules under tools/ and cached outside of the tree, keyed by modules and Go version."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ackwright.local.jars import cache_directory

from .processes import LabError, run

TOOLS = Path(__file__).parent / "tools"
_GO_NEEDED = (1, 24)
_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
# What each module gives: program → package.
_PROGRAMS = {
    "pause": {"pause": "."},
    "etcd": {"etcd": "go.etcd.io/etcd/server/v3"},
    "coredns": {"coredns": "."},
    "helm": {"helm": "helm.sh/helm/v3/cmd/helm"},
    "kubernetes": {command: f"k8s.io/kubernetes/cmd/{command}" for command in _COMMANDS},
    "kstatus": {"kstatus": "."},
    "promtool": {"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
}
_ALONE = frozenset({"kstatus", "promtool"})  # no part of a cluster
_LARGE = frozenset(
    {"kubernetes", "promtool"}
)  # promtool brings the client of every cloud in which Prometheus finds targets
_KUBERNETES = "k8s.io/kubernetes"
_TIMEOUT = 3600  # seconds, for one module; Kubernetes takes 5 minutes on two idle cores


def directory(say: Callable[[str], None]) -> Path:
    """The directory that holds a cluster's as links; builds what is missing. Raises LabError if Go is missing, too old, or fails."""
    modules = {module: programs for module, programs in _PROGRAMS.items() if module not in _ALONE}
    built = {program: _module(module, say) / program for module, programs in modules.items() for program in programs}
    key = hashlib.sha256(repr(sorted(built.items())).encode()).hexdigest()[:16]
    target = lab_cache() / "bin" / key
    target.mkdir(parents=True, exist_ok=True)
    for program, path in built.items():
        if not (target / program).exists():
            fresh = target / f".{program}.{os.getpid()}"
            fresh.symlink_to(path)
            fresh.rename(target / program)
    return target


def program(name: str, say: Callable[[str], None]) -> Path:
    """One of them, with no more than its own module built. Raises LabError likewise."""
    return _module(next(module for module, programs in _PROGRAMS.items() if name in programs), say) / name


def lab_cache() -> Path:
    """What the lab keeps between clusters."""
    return cache_directory() / "lab"


def _module(name: str, say: Callable[[str], None]) -> Path:
    """The directory of one module's programs; builds them if they are not there yet."""
    source = TOOLS / name
    arguments = ["-trimpath", f"-ldflags=-s -w{_version_flag(source)}"]
    identity = hashlib.sha256("\n".join([_go_version(), *arguments, *_PROGRAMS[name].values()]).encode())
    for path in sorted(source.iterdir()):
        identity.update(path.read_bytes())
    target = lab_cache() / "bin" / f"{name}-{identity.hexdigest()[:16]}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    started = time.monotonic()
    say(f"building {', '.join(_PROGRAMS[name])} (once{'; some minutes' if name in _LARGE else ''})")
    try:
        for program, package in _PROGRAMS[name].items():
            _build(source, ["go", "build", *arguments, "-o", str(fresh / program), package])
        fresh.chmod(0o755)
        try:
            fresh.rename(target)  # the only step that makes them visible
        except OSError:  # another process was faster
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    say(f"built {name} in {time.monotonic() - started:.0f} s")
    return target


def _build(source: Path, argv: list[str]) -> None:
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    done = subprocess.run(
        argv, cwd=source, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading")] or ["no output"]
        raise LabError(f"go build {argv[-1]} failed: {' | '.join(lines[-3:])}")


def _version_flag(source: Path) -> str:
    """Kubernetes takes its own version from the linker; without it every node says v0.0.0."""
    found = re.search(rf"^\s*(?:require )?{_KUBERNETES} (v\S+)", (source / "go.mod").read_text(), re.MULTILINE)
    return f" -X k8s.io/component-base/version.gitVersion={found[1]}" if found else ""


def _go_version() -> str:
    needed = ".".join(map(str, _GO_NEEDED))
    remedy = f"install Go {needed} or newer (Debian 13: apt-get install golang-go; elsewhere: Go's own download)"
    if shutil.which("go") is None:
        raise LabError(f"Go is needed to build Kubernetes, and there is none on the PATH: {remedy}")
    found = run("go", "env", "GOVERSION").strip()
    number = re.match(r"go(\d+)\.(\d+)", found)
    if number and (int(number[1]), int(number[2])) < _GO_NEEDED:
        raise LabError(f"{found} is too old to build Kubernetes: {remedy}")
    return found
