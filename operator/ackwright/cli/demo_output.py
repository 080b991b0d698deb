"""What `ackwright demo` shows: a live view while it runs (lines where there is no terminal), and one table at the end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ackwright.local.demo.results import Run, notes

_EVERY = 5.0  # seconds between plain lines


class Screen:
    """Told what happens; entered while the demo runs. clock: seconds, for the times of events and the distance between plain lines."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock = out, clock
        self._began = clock()
        self._next = 0.0
        self._phase = ""
        self._kills = 0
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def phase(self, text: str, total: int | None = None) -> None:
        """What is done now, and of how many records."""
        self._phase, self._kills, self._next = text, 0, 0.0
        if self._bar is not None:
            self._bar.reset(self._task, total=total, description=text, detail="")
        elif self._out.is_terminal is False:
            self.event(text)

    def progress(self, done: int, total: int, rate: float) -> None:
        detail = f"{done:,} of {total:,} records  {rate:,.0f}/s  lag {total - done:,}"
        detail += f"  kills {self._kills}" if self._kills else ""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, detail=detail)
        elif self._clock() >= self._next:
            self._next = self._clock() + _EVERY
            self.event(f"{self._phase}: {detail}")

    def event(self, text: str) -> None:
        self._say(Text.assemble((f"{self._clock() - self._began:6.1f} s  ", "dim"), text))

    def killed(self, text: str) -> None:
        self._kills += 1
        self._say(Text.assemble((f"{self._clock() - self._began:6.1f} s  ", "dim"), ("✗ ", "bold red"), (text, "red")))

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
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say(self, text: Text) -> None:
        self._out.print(text, soft_wrap=True)


def print_table(runs: Sequence[Run], out: Console) -> None:
    """The result, and what has to be said about it."""
    table = Table(
        title="The same records, the same failures, three guarantees" if len(runs) == 3 else None, title_justify="left"
    )
    table.add_column("guarantee", no_wrap=True)
    for name in ("sent", "delivered", "lost", "duplicated", "kills survived", "rate", "time to resume"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("held", justify="center")
    for r in runs:
        table.add_row(
            Text(str(r.guarantee), style="bold"),
            f"{r.sent:,}",
            f"{r.delivered:,}",
            Text(f"{r.lost:,}", style="yellow" if r.lost else ""),
            Text(f"{r.duplicated:,}", style="yellow" if r.duplicated else ""),
            str(r.kills),
            f"{r.records_per_second:,.0f}/s",
            resume(r.resume_seconds),
            Text("✓", style="bold green") if r.guarantee_held else Text("✗", style="bold red"),
        )
    out.print("", table, sep="\n")
    due = " or ".join(f"{n:,}" for n in sorted({r.expected for r in runs}))
    out.print(
        f"sent: flights in the source; {due} of them pass the filter (cancelled or late) and are due in the sink. rate: flights a second, "
        "the times to resume left out. time to resume: from a kill until every partition has moved on (median, longest).",
        style="dim",
    )
    for note in notes(runs):
        out.print(Text(f"note: {note}", style="yellow"))


def resume(seconds: Sequence[float]) -> str:
    """The times to resume in one cell."""
    return f"{statistics.median(seconds):.1f} s, {max(seconds):.1f} s" if seconds else "–"
