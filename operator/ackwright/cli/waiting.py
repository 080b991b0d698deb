"""A line on stderr while a command waits for a server or for Spark."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

import click

from ackwright.cli.failures import Failures

AFTER_S = 2.0
_INTERVAL_S = 1.0


@contextlib.contextmanager
def waiting(what: str, *, after: float | None = None) -> Iterator[None]:
    """Prints what the command waits for, once that takes longer than `after` seconds (AFTER_S).

    On a terminal the line shows the seconds and disappears at the end; elsewhere it is printed once. With -o json or
    yaml nothing is printed: stderr may be collected together with the document.
    """
    context = click.get_current_context(silent=True)
    failures = context.find_root().ensure_object(Failures) if context else Failures()
    if failures.output != "table":
        yield
        return
    started, done = time.monotonic(), threading.Event()
    thread = threading.Thread(
        target=_show, args=(what, started, AFTER_S if after is None else after, done), name="waiting", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show(what: str, started: float, after: float, done: threading.Event) -> None:
    if done.wait(after):
        return
    if not sys.stderr.isatty():
        click.echo(f"{what} ...", err=True)
        return
    while True:
        click.echo(f"\r{what} ... {time.monotonic() - started:.0f} s\x1b[K", nl=False, err=True)
        if done.wait(_INTERVAL_S):
            click.echo("\r\x1b[K", nl=False, err=True)
            return
