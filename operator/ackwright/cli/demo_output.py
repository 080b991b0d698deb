"""The output of `ackwright demo`: a live view while it runs, or lines without a terminal, and a table at the end."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ackwright.console.activity import Activity
from ackwright.console.source import key
from ackwright.local.demo.pipelines import Pipeline, Sink
from ackwright.local.demo.results import RunResult, notes
from ackwright_stream.reports import StartPart, Verdict

_LINE_INTERVAL = 5.0  # seconds between lines without a terminal
_REMINDER_POLL_S = 0.5
_MARKS = {
    Verdict.HELD: Text("✓", style="bold green"),
    Verdict.UNPROVEN: Text("?", style="bold yellow"),
    Verdict.BROKEN: Text("✗", style="bold red"),
}


class Screen:
    """The live view, a context manager. clock: seconds. activity: gets the same, for the console.

    Without a terminal it prints lines, also of a phase that reports no progress: none of its silences is longer than
    five seconds.
    """

    def __init__(
        self, out: Console, clock: Callable[[], float] = time.monotonic, activity: Activity | None = None
    ) -> None:
        self._out, self._clock, self._activity = out, clock, activity
        self._started_at = clock()
        self._next = 0.0
        self._printed_at = self._started_at
        self._ended = threading.Event()
        self._reminder: threading.Thread | None = None
        self._phase = ""
        self._kills = 0
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def pipeline(self, text: str, total: int, resource: Mapping[str, Any]) -> None:
        """Starts the phase of a pipeline."""
        if self._activity:
            self._activity.pipeline(resource)
        self.phase(text, total, key(resource))

    def phase(self, text: str, total: int | None = None, pipeline: str | None = None) -> None:
        """Starts a phase. total: how many records it processes; None if that is unknown.

        pipeline: namespace/name of the one that runs in it.
        """
        self._phase, self._kills, self._next = text, 0, 0.0
        if self._activity:
            self._activity.stage(text, total, pipeline)
        if self._bar is not None:
            self._bar.reset(self._task, total=total, description=text, detail="")
        elif self._out.is_terminal is False:
            self._print_event(text)

    def progress(self, done: int, total: int, rate: float, starting: StartPart | None = None) -> None:
        """Shows the records so far. starting: what a driver does that has not delivered a batch yet."""
        if self._activity:
            self._activity.progress(done, total, rate, total - done, starting.shown if starting else "")
        detail = f"{done:,} of {total:,} records  {rate:,.0f}/s  lag {total - done:,}"
        detail += f"  kills {self._kills}" if self._kills else ""
        detail += f"  {starting.shown}" if starting else ""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, detail=detail)
        elif self._clock() >= self._next:
            self._next = self._clock() + _LINE_INTERVAL
            self._print_event(f"{self._phase}: {detail}")

    def event(self, text: str) -> None:
        if self._activity:
            self._activity.event(text)
        self._print_event(text)

    def _print_event(self, text: str) -> None:
        self._print(Text.assemble((f"{self._clock() - self._started_at:6.1f} s  ", "dim"), text))

    def killed(self, text: str) -> None:
        self._kills += 1
        if self._activity:
            self._activity.kill(text)
        self._print(
            Text.assemble((f"{self._clock() - self._started_at:6.1f} s  ", "dim"), ("✗ ", "bold red"), (text, "red"))
        )

    def __enter__(self) -> Screen:
        if self._out.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[detail]}", markup=False),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=self._out, transient=True)
            self._task = self._bar.add_task("", total=None, detail="")
            self._bar.start()
        else:
            self._reminder = threading.Thread(target=self._remind, name="reminder", daemon=True)
            self._reminder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._reminder is not None:
            self._reminder.join()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _remind(self) -> None:
        """Prints the phase whenever nothing else was printed for a while."""
        while not self._ended.wait(_REMINDER_POLL_S):
            if self._phase and self._clock() - self._printed_at >= _LINE_INTERVAL:
                self._print_event(f"{self._phase} ...")

    def _print(self, text: Text) -> None:
        self._printed_at = self._clock()
        self._out.print(text, soft_wrap=True)


COLUMNS = ("guarantee", "sent", "delivered", "lost", "duplicated", "kills survived", "rate", "time to resume", "held")


def row(run: RunResult) -> tuple[str, ...]:
    """The result of one guarantee as texts, one for each column."""
    return (
        str(run.guarantee),
        f"{run.sent:,}",
        f"{run.delivered:,}",
        f"{run.lost:,}",
        f"{run.duplicated:,}",
        str(run.kills),
        f"{run.records_per_second:,.0f}/s",
        median_and_longest(run.resume_seconds),
        run.verdict.shown,
    )


_EXPECTED = {
    Pipeline.DISRUPTED: "{} of them pass the filter (cancelled or late) and are expected in the sink",
    Pipeline.COUNTS: "they are of {} groups by airport, airline and day, and the last count of each is expected",
}


def print_table(runs: Sequence[RunResult], sink: Sink, out: Console, pipeline: Pipeline = Pipeline.DISRUPTED) -> None:
    """Prints the results as a table, with an explanation of its columns and the notes."""
    comparison = ": the same records, the same failures, three guarantees" if len(runs) == 3 else ""
    title = f"Sink {sink}{comparison}" if pipeline is Pipeline.DISRUPTED else f"Pipeline {pipeline}, sink {sink}"
    table = Table(title=title, title_justify="left")
    first, *others, last = COLUMNS
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(last, justify="center")
    for r in runs:
        cells = [Text(cell) for cell in row(r)[:-1]]
        cells[0].stylize("bold")
        for cell, count in ((cells[3], r.lost), (cells[4], r.duplicated)):
            cell.stylize("yellow" if count else "")
        table.add_row(*cells, _MARKS[r.verdict])
    out.print("", table, sep="\n")
    expected = " or ".join(f"{n:,}" for n in sorted({r.expected for r in runs}))
    out.print(
        f"sent: flights in the source; {_EXPECTED[pipeline].format(expected)}. rate: flights per second, without the "
        "times to resume. time to resume: from a kill until every partition makes progress again (median, longest).",
        style="dim",
    )
    for note in notes(runs):
        out.print(Text(f"note: {note}", style="yellow"))


def median_and_longest(seconds: Sequence[float]) -> str:
    """The times to resume as the text of a table cell."""
    return f"{statistics.median(seconds):.1f} s, {max(seconds):.1f} s" if seconds else "–"
