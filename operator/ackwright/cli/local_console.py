"""The option --console of commands that run on this machine: a page shows what they do, while they do it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from ackwright.apply.topics import Ensured
from ackwright.cli.console import serving
from ackwright.cli.foreground import Interrupts
from ackwright.cli.run_output import Display
from ackwright.console.activity import Activity, LocalSource
from ackwright.wording import counted
from ackwright_stream.reports import Failure, ProgressReport

F = TypeVar("F", bound=Callable[..., Any])


def console_option(command: F) -> F:
    """Adds --console, passed as `with_console`."""
    return click.option(
        "--console",
        "with_console",
        is_flag=True,
        help="Serve a page that shows what happens while it happens, and after the end until Ctrl-C.",
    )(command)


@contextlib.contextmanager
def served(activity: Activity | None, interrupted: Interrupts) -> Iterator[None]:
    """Serves the activity, and after the block until an interrupt, unless one has ended the block. None: nothing."""
    if activity is None:
        yield
        return
    with serving(LocalSource(activity), 0) as server:
        click.echo(f"console: {server.url}", err=True)
        yield
        interrupted.deferred = True
        if not interrupted.count:
            click.echo(f"the console stays at {server.url}; Ctrl-C ends it", err=True)
        while not interrupted.count:
            interrupted.wait(3600)


class ConsoleDisplay:
    """A display of `ackwright run` that also writes to the console."""

    def __init__(self, inner: Display, activity: Activity) -> None:
        self._inner, self._activity = inner, activity
        self._error: Failure | None = None
        self._state = ""
        self._restarts = 0

    def brokers(self, address: str, directory: Path, keep: bool) -> None:
        self._activity.event(f"three brokers answer at {address}")
        self._inner.brokers(address, directory, keep)

    def topics(self, ensured: Ensured) -> None:
        if ensured.created:
            self._activity.event(f"created {', '.join(ensured.created)}")
        for difference in ensured.differences:
            self._activity.event(f"differs: {difference}; left as it is")
        self._inner.topics(ensured)

    def progress(self, report: ProgressReport) -> None:
        self._activity.report(report)
        doing = report.starting.shown if report.starting else ""
        self._activity.progress(
            report.records, report.records + report.lag, report.records_per_second, report.lag, doing
        )
        if report.state != self._state:
            self._state = report.state
            self._activity.event(f"driver {report.driver}: {report.state}")
        if report.restarts > self._restarts:
            self._activity.event(
                f"the query has restarted: {counted(report.restarts, 'restart')} since the driver started"
            )
        self._restarts = report.restarts
        if report.last_error and report.last_error != self._error:
            self._activity.failure(str(report.last_error))
        self._error = report.last_error
        self._inner.progress(report)

    def takeover(self, code: int) -> None:
        self._activity.kill(f"a driver was killed (exit code {code}); the other one delivers")
        self._inner.takeover(code)

    def stopping(self, last: bool) -> None:
        self._activity.event("killing the job" if last else "stopping: the running batch ends first")
        self._inner.stopping(last)

    def end(self, code: int, cause: Failure | str | None, log: Path) -> None:
        if code:
            self._activity.failure(f"the job ended with exit code {code}: {cause or f'see {log}'}")
        self._activity.end()
        self._inner.end(code, cause, log)

    def __enter__(self) -> ConsoleDisplay:
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._inner.__exit__(*exception)
