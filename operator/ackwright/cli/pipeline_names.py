"""The argument NAME of commands, with completion in shells: names in the cluster, else in files of this directory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

# A shell waits for the completion, and the user for the shell.
TIME_LIMIT_S = 2.0
_MAX_FILES = 100


def name_argument(*, required: bool = True) -> Callable[[Any], Any]:
    """Adds the argument NAME, the name of a pipeline, passed as `name`."""
    return click.argument("name", required=required, shell_complete=_complete)


def _complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = _within(TIME_LIMIT_S, lambda: in_cluster(context.params))
    if names is None:
        names = in_directory(Path())
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _within(seconds: float, read: Callable[[], Sequence[str]]) -> Sequence[str] | None:
    """What `read` returns; None if it fails, or takes longer. A failure is not shown: it would disturb the prompt."""
    names: list[Sequence[str]] = []

    def run() -> None:
        try:
            names.append(read())
        except Exception:  # no cluster, no rights, a malformed kubeconfig: there is nothing to complete from
            return

    # Daemon: a connection that hangs does not keep the process alive.
    thread = threading.Thread(target=run, name="completion", daemon=True)
    thread.start()
    thread.join(seconds)
    return names[0] if names else None


def in_cluster(options: Mapping[str, Any]) -> list[str]:
    """The names of the pipelines in the namespace that a command's options choose. Raises AckwrightError."""
    from ackwright.clients.kubernetes import GROUP, VERSION, connect, default_namespace

    kubeconfig, context = options.get("kubeconfig"), options.get("context")
    namespace = options.get("namespace") or default_namespace(kubeconfig, context)
    connection = connect(kubeconfig, context).with_timeout((TIME_LIMIT_S, TIME_LIMIT_S))
    pipelines = connection.objects(f"{GROUP}/{VERSION}", "DeliveryPipeline", namespace)
    return sorted(pipeline["metadata"]["name"] for pipeline in pipelines)


def in_directory(directory: Path) -> list[str]:
    """The names of the pipelines in a directory's YAML files. Files that are no pipelines are left out."""
    from ackwright.api import document
    from ackwright.errors import AckwrightError

    names = set()
    for file in sorted(directory.glob("*.y*ml"))[:_MAX_FILES]:
        try:
            value = document.read(file)
        except AckwrightError:
            continue
        if isinstance(value, Mapping) and value.get("kind") == "DeliveryPipeline":
            metadata = value.get("metadata")
            name = metadata.get("name") if isinstance(metadata, Mapping) else None
            names |= {name} if isinstance(name, str) else set()
    return sorted(names)
