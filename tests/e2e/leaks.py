"""Searches for planted secrets in everything that a run on a cluster leaves behind, except for the Secrets.

That is: every object that can be listed, including Events and managed fields; logs; arguments and environment of every
process in a pod; the output of `ackwright`; and records.
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

from command import ACKWRIGHT
from e2e.pipelines import NAMESPACE, SYSTEM, Installation, Pipeline
from integration.support.pipelines import read
from lab.processes import LabError

_PROCESSES = (
    'for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do echo "$f"; tr "\\000" "\\n" < "$f" 2>/dev/null; done'
)
_READ_TIMEOUT = 60.0  # seconds


def forms(secret: str) -> dict[str, str]:
    """The encodings of a secret by name, including those of a longer text that contains it."""
    raw = secret.encode()
    encoded = {
        "plain": secret,
        "backwards": secret[::-1],
        "in JSON": json.dumps(secret)[1:-1],
        "in JSON in JSON": json.dumps(json.dumps(secret)[1:-1])[1:-1],
        "in a path": quote(secret),
        "in a URL": quote(secret, safe=""),
        "in a form": quote_plus(secret),
        "in hexadecimal": raw.hex(),
    }
    for shift in range(3):  # without the characters that also encode bytes before or after the secret
        text = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        ends_at_boundary = (shift + len(raw)) % 3 == 0
        encoded[f"in base64, {shift} bytes in"] = text[(0, 2, 3)[shift] : None if ends_at_boundary else -1]
    return encoded


def leaks(texts: Mapping[str, str], secrets: Mapping[str, str]) -> list[str]:
    """A line for each secret in each text: its name, its form and the name of the text, without its value.

    texts, secrets: by name.
    """
    return [
        f"{name} {form} in {where}"
        for where, text in texts.items()
        for name, secret in secrets.items()
        for form, encoded in forms(secret).items()
        if encoded in text
    ]


def collect_texts(installation: Installation, pipelines: Iterable[Pipeline], directory: Path) -> dict[str, str]:
    """All texts that the run has left behind up to now, by origin. directory: contains secrets/."""
    pipelines = list(pipelines)
    texts = dict(_objects(installation))
    for namespace in (SYSTEM, NAMESPACE):
        for pod in installation.get("pods", namespace=namespace):
            texts |= _pod_texts(
                installation, namespace, pod["metadata"]["name"], [c["name"] for c in pod["spec"]["containers"]]
            )
    for p in pipelines:
        texts |= _command_outputs(p, directory)
        texts[f"records of {p.sink}"] = _records(installation.kafka, p.sink)
    texts["records of ackwright-lanes"] = _records(installation.kafka, "ackwright-lanes")
    return texts


def _objects(installation: Installation) -> Iterator[tuple[str, str]]:
    kinds = installation.cluster.kubectl("api-resources", "--verbs=list", "--output", "name").split()
    assert {"pods", "events", "configmaps", "statefulsets.apps", "deliverypipelines.ackwright.io"} <= set(kinds)
    for kind in kinds:
        if kind != "secrets":
            argv = ("get", kind, "--all-namespaces", "--output", "yaml", "--show-managed-fields")
            yield kind, installation.cluster.kubectl(*argv, timeout=120)


def _pod_texts(installation: Installation, namespace: str, pod: str, containers: Iterable[str]) -> dict[str, str]:
    texts = {}
    for container in containers:
        of = ("--namespace", namespace, pod, "--container", container)
        for origin, argv in {
            f"log of {container} in {pod}": ("logs", *of),
            f"previous log of {container} in {pod}": ("logs", *of, "--previous"),
            f"processes of {container} in {pod}": ("exec", *of, "--", "sh", "-c", _PROCESSES),
        }.items():
            try:
                texts[origin] = installation.cluster.kubectl(*argv, timeout=120)
            except LabError:
                continue  # there is no previous container, or the container has ended
    return texts


def _command_outputs(pipeline: Pipeline, directory: Path) -> dict[str, str]:
    """The output of `ackwright` for a pipeline, including errors and stack traces, and its unpacked support bundle."""
    file = directory / f"{pipeline.name}.json"
    file.write_text(json.dumps(pipeline.document))
    archive = directory / f"{pipeline.name}.tar.gz"
    archive.unlink(missing_ok=True)
    namespace = ("--namespace", NAMESPACE)
    brokers = (
        "--secrets",
        directory / "secrets",
        "--bootstrap-servers",
        pipeline.installation.cluster.brokers.secure_bootstrap_servers,
    )
    commands = (
        ("plan", "-f", file, "--against", "cluster", *namespace),
        ("explain", "-f", file),
        ("diff", "-f", file, *namespace, *brokers),
        ("check", "-v", "-f", file, *brokers),
        ("status", pipeline.name, *namespace),
        ("audit", "-v", pipeline.name, *namespace),
        ("support-bundle", pipeline.name, *namespace, "--output", archive, "--operator-namespace", SYSTEM),
    )
    texts = {}
    for command in commands:
        argv = [*ACKWRIGHT, *map(str, command)]
        environment = {**_environment(), "KUBECONFIG": str(pipeline.installation.cluster.kubeconfig)}
        completed = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, env=environment)
        assert "Usage:" not in completed.stderr, f"{command} has bad arguments: {completed.stderr}"
        texts[f"ackwright {command[0]} of {pipeline.name}"] = completed.stdout + completed.stderr
    with tarfile.open(archive) as bundle:
        for member in bundle.getmembers():
            content = bundle.extractfile(member)
            texts[f"{member.name} of the support bundle"] = content.read().decode() if content else ""
    return texts


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": ":".join(p for p in sys.path if p)}


def _records(bootstrap: str, topic: str) -> str:
    """Keys, values and headers of a topic's records, including those of aborted transactions."""
    records = read(bootstrap, topic, isolation="read_uncommitted", timeout=_READ_TIMEOUT)
    lines = [b" ".join((r.key or b"", r.value or b"", repr(r.headers).encode())) for r in records]
    return b"\n".join(lines).decode(errors="replace")
