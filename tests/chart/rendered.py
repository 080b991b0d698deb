"""The chart as helm renders it. Building helm once needs Go."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab import binaries
from lab.cluster import print_progress

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "ackwright"
NAMESPACE = "ackwright-system"
ALL: Mapping[str, Any] = {
    "podMonitor": {"enabled": True, "drivers": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "networkPolicy": {"enabled": True},
}


@functools.cache
def helm() -> Path:
    """The path of helm."""
    return binaries.program("helm", print_progress)


def run(*arguments: str | Path, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs helm with the values as its last --values."""
    argv = [str(helm()), *map(str, arguments), "--values", "-"]
    return subprocess.run(argv, input=json.dumps(values or {}), capture_output=True, text=True, timeout=60, check=False)


def text(values: Mapping[str, Any] | None = None) -> str:
    """The rendered manifests, including hooks. Fails with helm's message."""
    return _text(json.dumps(values or {}))


@functools.cache
def _text(values: str) -> str:
    completed = run(
        "template", "ackwright", CHART, "--namespace", NAMESPACE, "--kube-version", "1.34.0", values=json.loads(values)
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def documents(values: Mapping[str, Any] | None = None) -> list[Object]:
    """All rendered objects."""
    return [o for o in yaml.load_all(text(values), yaml.CSafeLoader) if o]


def objects(values: Mapping[str, Any] | None = None) -> dict[tuple[str, str], Object]:
    """The rendered objects by kind and name. Of an object that exists in several namespaces it contains one."""
    return {(o["kind"], o["metadata"]["name"]): o for o in documents(values)}


def objects_of(kind: str, values: Mapping[str, Any] | None = None) -> list[Object]:
    """All rendered objects of one kind."""
    return [o for o in documents(values) if o["kind"] == kind]


def refusal(values: Mapping[str, Any]) -> str:
    """helm's message for refused values; fails if helm accepts them."""
    completed = run("template", "ackwright", CHART, "--kube-version", "1.34.0", values=values)
    assert completed.returncode != 0, "helm has accepted the values"
    return completed.stderr
