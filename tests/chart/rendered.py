"""The chart as helm renders it. helm is the lab's own, built from its module once; that needs Go."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab import binaries

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
    """The program."""
    return binaries.program("helm", lambda line: print(line, file=sys.stderr))


def run(*arguments: str | Path, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs helm; values are its last --values."""
    argv = [str(helm()), *map(str, arguments), "--values", "-"]
    return subprocess.run(argv, input=json.dumps(values or {}), capture_output=True, text=True, timeout=60, check=False)


def text(values: Mapping[str, Any] | None = None) -> str:
    """What is rendered, hooks included. Fails with helm's own words."""
    return _text(json.dumps(values or {}))


@functools.cache
def _text(values: str) -> str:
    done = run(
        "template", "ackwright", CHART, "--namespace", NAMESPACE, "--kube-version", "1.34.0", values=json.loads(values)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(values: Mapping[str, Any] | None = None) -> list[Object]:
    """Every object."""
    return [o for o in yaml.load_all(text(values), yaml.CSafeLoader) if o]


def objects(values: Mapping[str, Any] | None = None) -> dict[tuple[str, str], Object]:
    """Every object, by kind and name: of those that are in several namespaces one."""
    return {(o["kind"], o["metadata"]["name"]): o for o in documents(values)}


def objects_of(kind: str, values: Mapping[str, Any] | None = None) -> list[Object]:
    """The objects of one kind, as often as they are there."""
    return [o for o in documents(values) if o["kind"] == kind]


def refusal(values: Mapping[str, Any]) -> str:
    """What helm says against the values; fails if it takes them."""
    done = run("template", "ackwright", CHART, "--kube-version", "1.34.0", values=values)
    assert done.returncode != 0, "they were accepted"
    return done.stderr
