"""ackwright console: a page with all pipelines, served to this user's browser, read with this user's kubeconfig."""

from __future__ import annotations

import json
import secrets
import threading
import webbrowser
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from ackwright.api.status import format_time
from ackwright.cli.foreground import Interrupts
from ackwright.cli.target import Target, target_options
from ackwright.console.server import HOST, Server
from ackwright.console.source import RecordedSource, Source, record
from ackwright.errors import AckwrightError
from ackwright.wording import counted
from ackwright_stream.jobspec import ExitCode, Reason


@click.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="Show the pipelines of every namespace.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port on loopback. Default: any free port.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the default browser.")
@click.option("--state", type=click.Path(path_type=Path), help="Show a recorded state instead of a cluster.")
@click.option(
    "--record",
    "record_to",
    type=click.Path(path_type=Path),
    help="Write the present state of all pipelines into a new file, and serve nothing.",
)
@target_options
def console(
    *,
    all_namespaces: bool,
    port: int,
    opens: bool,
    state: Path | None,
    record_to: Path | None,
    target: Callable[[], Target],
) -> int:
    """Show the pipelines of a namespace in the browser: guarantee, chain, lanes, topics, conditions, audits.

    Prints the address of the page, and serves it on this machine until it is interrupted. It reads the cluster with
    your kubeconfig, as `ackwright status` does, and writes nothing there.
    """
    if state and record_to:
        raise click.UsageError("--record reads a cluster, and --state is a recorded one; give only one of them")
    source = RecordedSource(state) if state else _cluster(target, all_namespaces, watch=record_to is None)
    if record_to:
        _write(record_to, source)
        return ExitCode.OK
    with Interrupts() as interrupted:
        interrupted.deferred = True
        _serve(source, port, opens, interrupted)
    return ExitCode.OK


def _serve(source: Source, port: int, opens: bool, interrupted: Interrupts) -> None:
    with serving(source, port) as server:
        click.echo(f"{server.url}\n{source.title}; read only; Ctrl-C ends it")
        if opens:
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        while not interrupted.count:
            interrupted.wait(3600)


def serving(source: Source, port: int) -> Server:
    """The server of the console with a new token. Raises AckwrightError if the port is in use."""
    try:
        return Server(source, secrets.token_urlsafe(24), port)
    except OSError as e:
        raise AckwrightError(
            Reason.UNEXPECTED, f"the console cannot listen on {HOST}:{port}: {e.strerror}; choose another --port, or 0"
        ) from e


def _cluster(target: Callable[[], Target], all_namespaces: bool, *, watch: bool) -> Source:
    from ackwright.console.cluster import ClusterSource

    place = target()
    namespace = None if all_namespaces else place.namespace
    title = "all namespaces" if namespace is None else f"namespace {namespace}"
    source = ClusterSource(place.kubernetes, namespace, title)
    if watch:
        source.watch()
    return source


def _write(path: Path, source: Source) -> None:
    """Writes the recorded state, for its owner only. Raises AckwrightError if it exists or cannot be written."""
    recorded = record(source, format_time(datetime.now(UTC)))
    try:
        with path.open("x") as file:
            path.chmod(0o600)
            json.dump(recorded, file, indent=1, ensure_ascii=False)
    except OSError as e:
        raise AckwrightError(
            Reason.UNEXPECTED, f"the state {path} cannot be written: {e.strerror}; choose another path after --record"
        ) from e
    click.echo(
        f"{path}: {counted(len(recorded['resources']), 'pipeline')}; it has their specs, with the SQL of transforms"
    )
