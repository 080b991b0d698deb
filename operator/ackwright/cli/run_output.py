"""What `ackwright run` shows: a bar on a terminal, a line every few seconds elsewhere, or JSON, one object a line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ackwright.apply.topics import Ensured
from ackwright.cli.output import console, document

_EVERY = 3.0  # seconds between plain lines


class Display(Protocol):
    """Told what happens; entered while the job runs."""

    def brokers(self, address: str, directory: Path, kept: bool) -> None: ...
    def topics(self, ensured: Ensured) -> None: ...
    def progress(self, found: Mapping[str, Any]) -> None: ...
    def stopping(self, last: bool) -> None: ...
    def end(self, code: int, failure: str | None, log: Path) -> None: ...
    def __enter__(self) -> object: ...
    def __exit__(self, *_: object) -> None: ...


def display(output: str) -> Display:
    """The display for -o text|json."""
    return JsonDisplay() if output == "json" else TextDisplay(console())


class JsonDisplay:
    """One JSON object a line; `event` says what it is about. Progress is printed when it changes."""

    def __init__(self) -> None:
        self._last: object = None

    def brokers(self, address: str, directory: Path, kept: bool) -> None:
        _line("brokers", bootstrapServers=address, directory=str(directory), kept=kept)

    def topics(self, ensured: Ensured) -> None:
        _line("topics", created=ensured.created, differences=document(ensured.differences))

    def progress(self, found: Mapping[str, Any]) -> None:
        seen = (
            found.get("state"),
            found.get("batchId"),
            found.get("lag"),
            found.get("restarts"),
            found.get("lastError"),
        )
        if seen != self._last:
            self._last = seen
            _line("progress", **found)

    def stopping(self, last: bool) -> None:
        _line("stopping", how="kill" if last else "drain")

    def end(self, code: int, failure: str | None, log: Path) -> None:
        _line("end", exitCode=code, error=failure)
        if code:
            _tell(code, failure, log)

    def __enter__(self) -> JsonDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        return


def _line(event: str, **more: object) -> None:
    click.echo(json.dumps({"event": event, **more}, ensure_ascii=False))


class TextDisplay:
    """For people. clock: seconds, for the distance between plain lines."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._next = 0.0
        self._found: Mapping[str, Any] = {}
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._error: object = None

    def brokers(self, address: str, directory: Path, kept: bool) -> None:
        fate = "kept" if kept else "removed at the end"
        self._say(f"three brokers at {address}, data in {directory} ({fate})")

    def topics(self, ensured: Ensured) -> None:
        if ensured.created:
            self._say(f"created {', '.join(ensured.created)}")
        for difference in ensured.differences:
            self._say(f"differs: {difference}; left as it is")

    def progress(self, found: Mapping[str, Any]) -> None:
        self._found = found
        error = found.get("lastError")
        if error and error != self._error:
            self._say(f"{error.get('reason')}: {error.get('message')}")
        self._error = error
        if self._bar is not None:
            # The end of a stream moves: the bar shows how much of what is there has been delivered.
            done = float(found.get("records") or 0)
            total = done + float(found.get("lag") or 0)
            self._bar.update(self._task, completed=done, total=total or None, description=summary(found))
        elif self._clock() >= self._next:
            self._next = self._clock() + _EVERY
            self._say(summary(found))

    def stopping(self, last: bool) -> None:
        self._say(
            "killing the job" if last else "stopping: the running batch ends first; interrupt again to kill the job"
        )

    def end(self, code: int, failure: str | None, log: Path) -> None:
        if code == 0:
            self._say(f"done: {summary(self._found)}" if self._found else "done")
            return
        _tell(code, failure, log)

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

    def _say(self, text: str) -> None:
        self._out.print(text, markup=False, soft_wrap=True)


def summary(found: Mapping[str, Any]) -> str:
    """One line of a job's progress."""
    parts = [
        str(found.get("state", "starting")),
        f"{int(found.get('records') or 0):,} records",
        f"{float(found.get('recordsPerSecond') or 0):,.0f}/s",
        f"lag {int(found.get('lag') or 0):,}",
    ]
    for name, text in (("restarts", "restarts"), ("abandonedRecords", "abandoned"), ("malformedRecords", "malformed")):
        if found.get(name):
            parts.append(f"{text} {int(found[name]):,}")
    return "  ".join(parts)


def _tell(code: int, failure: str | None, log: Path) -> None:
    """The one line on stderr that a failure ends with."""
    click.echo(
        failure or f"Unexpected: the job ended with code {code} and gave no reason; its log ends: {_tail(log)}",
        err=True,
    )


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "empty"
