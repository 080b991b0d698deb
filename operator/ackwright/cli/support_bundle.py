"""ackwright support-bundle: collects everything that helps to analyse a pipeline in one archive, without secrets."""

from __future__ import annotations

import base64
import io
import platform
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console

from ackwright.api.spec import DeliveryPipeline
from ackwright.cli import explain, status
from ackwright.cli.output import document
from ackwright.cli.pipeline_names import name_argument
from ackwright.cli.redaction import Redaction
from ackwright.cli.target import Target, target_options
from ackwright.controller import CHILDREN
from ackwright.errors import AckwrightError
from ackwright.planning.declared import parse_resource
from ackwright.planning.plan import plan
from ackwright.render.names import PIPELINE_LABEL
from ackwright.render.pods import secret_names
from ackwright_stream.jobspec import ExitCode, Reason

_OPERATOR = {"app.kubernetes.io/name": "ackwright"}  # as the chart labels it
_PUBLIC = frozenset({"username", "ca.crt"})  # keys of Secrets that are kept: brokers name users in their messages
_ABOUT = """The files that `ackwright support-bundle {name}` collected about the pipeline {namespace}/{name}.

pipeline.yaml          the resource, with its status and conditions
status.txt             the same, as `ackwright status {name}` shows it
plan.yaml explain.yaml the delivery plan
children/              the objects that the operator has created for it, with pods
events.yaml            Kubernetes' events about all of these
logs/                  of the driver, the executors and the operator; *.previous.log: of the container before
versions.yaml          of all components
missing.txt            what could not be collected, and why

It contains no Secrets. Their content, and everything that looks like a password, a token or a private key, is
replaced by REDACTED{unread}.
Logs may contain what a transform prints, and the resource contains its SQL: check the files before you pass them on.
"""


@click.command("support-bundle")
@name_argument()
@target_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The archive; default: ackwright-NAME-TIME.tar.gz. It must not exist.",
)
@click.option(
    "--operator-namespace",
    default="ackwright-system",
    show_default=True,
    help="The namespace of the operator, for its logs.",
)
@click.option(
    "--tail", type=click.IntRange(1), default=20_000, show_default=True, help="Lines of each log, from the end."
)
def support_bundle(
    *, name: str, target: Callable[[], Target], output: Path | None, operator_namespace: str, tail: int
) -> int:
    """Collect everything that helps to analyse a pipeline into a tar.gz: resource, children, events, logs, plan,
    versions.

    Passwords, tokens and keys are removed. To find them, it reads the Secrets that the pipeline names, if you may read
    them; their content is not in the archive. The archive lists what could not be collected.
    """
    place = target()
    resource = place.pipeline(name)
    bundle = Bundle(place, resource)
    bundle.collect(operator_namespace, tail)
    path = output or Path(f"ackwright-{name}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    _write(path, path.name.removesuffix(".tar.gz"), bundle.files)
    click.echo(f"{path}: {len(bundle.files)} files; check them before you pass them on")
    for line in bundle.missing:
        click.echo(f"not collected: {line}", err=True)
    return ExitCode.OK


class Bundle:
    """The files of one archive."""

    def __init__(self, target: Target, resource: Mapping[str, Any]) -> None:
        self._target, self._resource, self._name = target, resource, resource["metadata"]["name"]
        self.files: dict[str, str] = {}  # redacted texts, by path
        self.missing: list[str] = []  # what could not be collected, and why
        self._pipeline, self._violations = parse_resource(resource)
        self._redaction = Redaction(self._secrets())

    def collect(self, operator_namespace: str, tail: int) -> None:
        """Collects everything that can be read."""
        self._put("pipeline.yaml", self._resource)
        self._put("status.txt", self._status())
        if self._pipeline:
            self._plan(self._pipeline)
        else:
            self.missing.append(f"plan and explain: the spec is invalid: {'; '.join(map(str, self._violations))}")
        pods = self._children(tail)
        operators = self._operator(operator_namespace, tail)
        with self._noting_failure("versions.yaml"):
            self._put("versions.yaml", self._versions([*pods, *operators]))
        unread = " (the Secrets could not be read, so only their form was searched for)" if self._unread else ""
        about = _ABOUT.format(name=self._name, namespace=self._target.namespace, unread=unread)
        self.files = {"README.txt": about, **self.files}
        if self.missing:
            self._put("missing.txt", "".join(f"{line}\n" for line in self.missing))

    # -- contents --------------------------------------------------------------------------------------------------

    def _secrets(self) -> list[str]:
        """The contents of the pipeline's Secrets, for the redaction to search for."""
        self._unread = self._pipeline is None
        contents: list[str] = []
        for name in secret_names(self._pipeline) if self._pipeline else ():
            try:
                data = (self._target.kubernetes.get("v1", "Secret", self._target.namespace, name) or {}).get(
                    "data"
                ) or {}
            except AckwrightError:
                self._unread = True
                continue
            for key, value in data.items():
                if key not in _PUBLIC:
                    contents += [value, base64.b64decode(value).decode(errors="ignore")]
        return contents

    def _status(self) -> str:
        out = io.StringIO()
        status.show(self._resource, Console(file=out, width=160, highlight=False, force_terminal=False))
        return out.getvalue()

    def _plan(self, pipeline: DeliveryPipeline) -> None:
        delivery_plan = plan(pipeline)
        self._put("plan.yaml", document(delivery_plan))
        self._put("explain.yaml", document(explain.described(delivery_plan)))

    def _children(self, tail: int) -> Sequence[Mapping[str, Any]]:
        """Collects the children. Returns the pods."""
        pods: list[Mapping[str, Any]] = []
        names = {self._name}
        for api_version, kind in CHILDREN:
            with self._noting_failure(f"children of kind {kind}"):
                children = self._target.kubernetes.objects(
                    api_version, kind, self._target.namespace, {PIPELINE_LABEL: self._name}
                )
                for child in children:
                    names.add(child["metadata"]["name"])
                    self._put(f"children/{kind}-{child['metadata']['name']}.yaml", child)
                pods += children if kind == "Pod" else []
        for pod in pods:
            self._logs(self._target.namespace, pod, "logs", tail)
        with self._noting_failure("events.yaml"):
            events = self._target.kubernetes.objects("v1", "Event", self._target.namespace)
            self._put("events.yaml", [e for e in events if e.get("involvedObject", {}).get("name") in names])
        return pods

    def _operator(self, namespace: str, tail: int) -> Sequence[Mapping[str, Any]]:
        """Collects the operator's pods and logs. Returns the pods."""
        with self._noting_failure(f"the operator in namespace {namespace}"):
            pods = self._target.kubernetes.objects("v1", "Pod", namespace, _OPERATOR)
            if not pods:
                self.missing.append(f"the operator: it has no pod in namespace {namespace}; set --operator-namespace")
            for pod in pods:
                self._put(f"operator/Pod-{pod['metadata']['name']}.yaml", pod)
                self._logs(namespace, pod, "logs/operator", tail)
            return pods
        return []

    def _logs(self, namespace: str, pod: Mapping[str, Any], directory: str, tail: int) -> None:
        name = pod["metadata"]["name"]
        restarted = {s["name"] for s in pod.get("status", {}).get("containerStatuses", ()) if s.get("restartCount")}
        for container in (c["name"] for c in pod["spec"]["containers"]):
            for previous in (False, True) if container in restarted else (False,):
                with self._noting_failure(f"the{' previous' if previous else ''} log of {container} in pod {name}"):
                    answer = self._target.kubernetes.logs(
                        namespace, name, container=container, follow=False, tail=tail, previous=previous
                    )
                    text = answer.read().decode(errors="replace")
                    self._put(f"{directory}/{name}-{container}{'.previous' if previous else ''}.log", text)

    def _versions(self, pods: list[Mapping[str, Any]]) -> dict[str, Any]:
        installed = {}
        for package in ("ackwright", "click", "confluent-kafka", "kafka-python", "kopf", "kubernetes", "pydantic"):
            try:
                installed[package] = version(package)
            except PackageNotFoundError:
                continue
        statuses = [s for p in pods for s in p.get("status", {}).get("containerStatuses", ())]
        return {
            "collectedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "commandLine": {
                "python": platform.python_version(),
                "platform": platform.platform(),
                "packages": installed,
            },
            "kubernetes": self._target.kubernetes.version(),
            "images": sorted({f"{s.get('image')} {s.get('imageID', '')}".strip() for s in statuses}),
        }

    # -- writing ---------------------------------------------------------------------------------------------------

    def _put(self, path: str, content: Any) -> None:
        """Adds a file, redacted. Nothing else adds files."""
        if not isinstance(content, str):
            content = yaml.safe_dump(
                self._redaction.document(content), sort_keys=False, allow_unicode=True, width=1_000
            )
            self.files[path] = content
        else:
            self.files[path] = self._redaction.text(content)

    @contextmanager
    def _noting_failure(self, what: str) -> Iterator[None]:
        """Notes as missing what the block fails to collect."""
        try:
            yield
        except AckwrightError as e:
            self.missing.append(f"{what}: {e.reason}: {e.message}")
        except OSError as e:
            self.missing.append(f"{what}: {e}")


def _write(path: Path, root: str, files: Mapping[str, str]) -> None:
    """Writes the archive, readable by its owner only. Raises AckwrightError if it cannot be written, or exists."""
    try:
        with path.open("xb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            path.chmod(0o600)
            for name, text in files.items():
                data = text.encode(errors="backslashreplace")
                entry = tarfile.TarInfo(f"{root}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
                archive.addfile(entry, io.BytesIO(data))
    except OSError as e:
        raise AckwrightError(
            Reason.UNEXPECTED, f"the archive {path} cannot be written: {e.strerror}; choose another path with -o"
        ) from e
