"""Looks for planted secrets in everything that a run on a cluster leaves behind, but the Secrets themselves: every object that can be
listed, with its managed fields, Events among them; logs; arguments and environment of every process in a pod; what `ackwright` prints.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

from e2e.pipelines import NAMESPACE, SYSTEM, Installation, Pipeline
from integration.support.pipelines import read
from lab.processes import LabError

_PROCESSES = (
    'for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do echo "$f"; tr "\\000" "\\n" < "$f" 2>/dev/null; done'
)
_READ_S = 60.0
_START = "from ackwright.cli.main import main; main()"


def forms(secret: str) -> dict[str, str]:
    """The ways in which a secret may stand somewhere, by name: also inside of something longer that was encoded as a whole."""
    raw = secret.encode()
    found = {
        "plain": secret,
        "backwards": secret[::-1],
        "in JSON": json.dumps(secret)[1:-1],
        "in JSON in JSON": json.dumps(json.dumps(secret)[1:-1])[1:-1],
        "in a path": quote(secret),
        "in a URL": quote(secret, safe=""),
        "in a form": quote_plus(secret),
        "in hexadecimal": raw.hex(),
    }
    for shift in range(3):  # characters that the bytes before and after take part in are left out
        coded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        whole = (shift + len(raw)) % 3 == 0
        found[f"in base64, {shift} bytes in"] = coded[(0, 2, 3)[shift] : None if whole else -1]
    return found


def leaks(texts: Mapping[str, str], secrets: Mapping[str, str]) -> list[str]:
    """Where which secret is found, and in which form. secrets: by a name that may be told; the values are not repeated."""
    return [
        f"{name} {form} in {where}"
        for where, text in texts.items()
        for name, secret in secrets.items()
        for form, written in forms(secret).items()
        if written in text
    ]


def everything(installation: Installation, pipelines: Iterable[Pipeline], directory: Path) -> dict[str, str]:
    """All that can be had at this moment, by where it is from."""
    pipelines = list(pipelines)
    found = dict(_objects(installation))
    for namespace in (SYSTEM, NAMESPACE):
        for pod in installation.get("pods", namespace=namespace):
            found |= _of_pod(
                installation, namespace, pod["metadata"]["name"], [c["name"] for c in pod["spec"]["containers"]]
            )
    for p in pipelines:
        found |= _told(p, directory)
        found[f"records of {p.sink}"] = _records(installation.kafka, p.sink)
    found["records of ackwright-lanes"] = _records(installation.kafka, "ackwright-lanes")
    return found


def _objects(installation: Installation) -> Iterator[tuple[str, str]]:
    kinds = installation.cluster.kubectl("api-resources", "--verbs=list", "--output", "name").split()
    assert {"pods", "events", "configmaps", "statefulsets.apps", "deliverypipelines.ackwright.io"} <= set(kinds)
    for kind in kinds:
        if kind != "secrets":
            argv = ("get", kind, "--all-namespaces", "--output", "yaml", "--show-managed-fields")
            yield kind, installation.cluster.kubectl(*argv, timeout=120)


def _of_pod(installation: Installation, namespace: str, pod: str, containers: Iterable[str]) -> dict[str, str]:
    found = {}
    for container in containers:
        of = ("--namespace", namespace, pod, "--container", container)
        for what, argv in {
            f"log of {container} in {pod}": ("logs", *of),
            f"previous log of {container} in {pod}": ("logs", *of, "--previous"),
            f"processes of {container} in {pod}": ("exec", *of, "--", "sh", "-c", _PROCESSES),
        }.items():
            try:
                found[what] = installation.cluster.kubectl(*argv, timeout=120)
            except LabError:
                continue  # it has no previous one, or has ended
    return found


def _told(pipeline: Pipeline, directory: Path) -> dict[str, str]:
    """What `ackwright` says of a pipeline, errors and stack traces included; and its support bundle, unpacked. directory: has secrets/."""
    file = directory / f"{pipeline.name}.json"
    file.write_text(json.dumps(pipeline.document))
    archive = directory / f"{pipeline.name}.tar.gz"
    archive.unlink(missing_ok=True)
    place = ("--namespace", NAMESPACE)
    brokers = (
        "--secrets",
        directory / "secrets",
        "--bootstrap-servers",
        pipeline.installation.cluster.brokers.secure_bootstrap_servers,
    )
    commands = (
        ("plan", "-f", file, "--against", "cluster", *place),
        ("explain", "-f", file),
        ("diff", "-f", file, *place, *brokers),
        ("check", "-v", "-f", file, *brokers),
        ("status", pipeline.name, *place),
        ("audit", "-v", pipeline.name, *place),
        ("support-bundle", pipeline.name, *place, "--output", archive, "--operator-namespace", SYSTEM),
    )
    found = {}
    for command in commands:
        argv = [sys.executable, "-c", _START, *map(str, command)]
        environment = {**_environment(), "KUBECONFIG": str(pipeline.installation.cluster.kubeconfig)}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, env=environment)
        assert "Usage:" not in done.stderr, f"{command} was not understood: {done.stderr}"
        found[f"ackwright {command[0]} of {pipeline.name}"] = done.stdout + done.stderr
    with tarfile.open(archive) as bundle:
        for member in bundle.getmembers():
            content = bundle.extractfile(member)
            found[f"{member.name} of the support bundle"] = content.read().decode() if content else ""
    return found


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": ":".join(p for p in sys.path if p)}


def _records(bootstrap: str, topic: str) -> str:
    """Keys, values and headers of a topic's records, of aborted transactions too."""
    found = read(bootstrap, topic, isolation="read_uncommitted", timeout=_READ_S)
    return b"\n".join(b" ".join((r.key or b"", r.value or b"", repr(r.headers).encode())) for r in found).decode(
        errors="replace"
    )
