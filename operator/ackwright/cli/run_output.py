"""What `ackwright run` prints: a bar on a terminal, elsewhere a line every few seconds, or JSON objects."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ackwright.api.status import time_of
from ackwright.apply.topics import Ensured
from ackwright.cli.output import console, document
from ackwright.wording import counted
from ackwright_stream.reports import Failure, ProgressReport

_EVERY_S = 3.0  # between plain lines


class Display(Protocol):
    """Prints what happens; entered while the job runs."""

    def brokers(self, address: str, directory: Path, keep: bool) -> None: ...
    def topics(self, ensured: Ensured) -> None: ...
    def progress(self, report: ProgressReport) -> None: ...
    def takeover(self, code: int) -> None: ...
    def stopping(self, last: bool) -> None: ...
    def end(self, code: int, cause: Failure | str | None, log: Path) -> None: ...
    def __enter__(self) -> object: ...
    def __exit__(self, *_: object) -> None: ...


def display(output: str) -> Display:
    """The display for -o text|json."""
    return JsonDisplay() if output == "json" else TextDisplay(console())


class JsonDisplay:
    """One JSON object per line, whose `event` names its subject. Progress is printed when it changes."""

    def __init__(self) -> None:
        self._last: object = None

    def brokers(self, address: str, directory: Path, keep: bool) -> None:
        _line("brokers", bootstrapServers=address, directory=str(directory), kept=keep)

    def topics(self, ensured: Ensured) -> None:
        _line("topics", created=ensured.created, differences=document(ensured.differences))

    def progress(self, report: ProgressReport) -> None:
        batch = report.replay_batch if report.replay_batch is not None else report.batch_id
        current = (report.state, report.starting, batch, report.lag, report.restarts, report.last_error)
        if current != self._last:
            self._last = current
            _line("progress", **report.as_json())

    def takeover(self, code: int) -> None:
        _line("takeover", exitCode=code)

    def stopping(self, last: bool) -> None:
        _line("stopping", how="kill" if last else "drain")

    def end(self, code: int, cause: Failure | str | None, log: Path) -> None:
        failure = cause.as_json() if isinstance(cause, Failure) else None  # the tail of a log has no reason
        _line("end", exitCode=code, error=None if cause is None else str(cause), failure=failure)
        if code:
            _print_failure(code, cause, log)

    def __enter__(self) -> JsonDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        return


def _line(event: str, **more: object) -> None:
    click.echo(json.dumps({"event": event, **more}, ensure_ascii=False))


class TextDisplay:
    """Text for people."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock  # seconds
        self._next = 0.0  # when the next plain line is due
        self._report: ProgressReport | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._error: Failure | None = None

    def brokers(self, address: str, directory: Path, keep: bool) -> None:
        afterwards = "kept" if keep else "removed at the end"
        self._print(f"three brokers at {address}, data in {directory} ({afterwards})")

    def topics(self, ensured: Ensured) -> None:
        if ensured.created:
            self._print(f"created {', '.join(ensured.created)}")
        for difference in ensured.differences:
            self._print(f"differs: {difference}; left as it is")

    def progress(self, report: ProgressReport) -> None:
        self._report = report
        if report.last_error and report.last_error != self._error:
            self._print(str(report.last_error))
        self._error = report.last_error
        if self._bar is not None:
            # The end of a stream moves: the bar shows which part of what exists now has been delivered.
            total = float(report.records + report.lag)
            self._bar.update(
                self._task, completed=float(report.records), total=total or None, description=summary(report)
            )
        elif self._clock() >= self._next:
            self._next = self._clock() + _EVERY_S
            self._print(summary(report))

    def takeover(self, code: int) -> None:
        self._print(f"a driver was killed (exit code {code}); the other one delivers, and a new one will stand by")

    def stopping(self, last: bool) -> None:
        self._print(
            "killing the job" if last else "stopping: the running batch ends first; interrupt again to kill the job"
        )

    def end(self, code: int, cause: Failure | str | None, log: Path) -> None:
        if code == 0:
            self._print(f"done: {summary(self._report)}" if self._report else "done")
            return
        _print_failure(code, cause, log)

    def __enter__(self) -> TextDisplay:
        if self._out.is_terminal:
            columns = (
                SpinnerColumn(),
                BarColumn(bar_width=30),
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=self._out)
            self._task = self._bar.add_task("starting Spark", total=None)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, text: str) -> None:
        self._out.print(text, markup=False, soft_wrap=True)


def summary(report: ProgressReport) -> str:
    """One line of a job's progress; counters of what went wrong appear once they are not zero."""
    parts = [
        _state(report),
        f"{counted(report.records, 'record')} written",
        f"{report.records_per_second:,.0f}/s",
        f"lag {'unknown' if report.measured_lag is None else format(report.measured_lag, ',')}",
    ]
    if report.watermark is not None:
        parts.append(f"watermark {time_of(report.watermark)}")
    for text, count in (
        ("restarts", report.restarts),
        ("abandoned", report.abandoned_records),
        ("malformed", report.malformed_records),
        ("dead letters", report.dead_letters),
        ("late", report.late_rows),
    ):
        if count:
            parts.append(f"{text} {count:,}")
    return "  ".join(parts)


def _state(report: ProgressReport) -> str:
    if report.replay_batch is not None:
        return f"{report.state} batch {report.replay_batch} of {report.replay_last}"
    return report.starting.shown if report.starting else report.state


def _print_failure(code: int, cause: Failure | str | None, log: Path) -> None:
    """Prints a failure's last line on stderr."""
    unknown = f"Unexpected: the job ended with code {code} and reported no reason; its log ends: {_last_line(log)}"
    click.echo(unknown if cause is None else str(cause), err=True)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "empty"
