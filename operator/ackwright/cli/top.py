"""ackwright top: the pipelines of all namespaces, the worst first, from their statuses alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NoReturn

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ackwright.api.spec import API_VERSION, KIND
from ackwright.cli.output import OutputFormat, console, emit, output_option
from ackwright.cli.target import Target, target_options
from ackwright.cli.waiting import waiting
from ackwright.conditions.staleness import as_known
from ackwright.reasons import ConditionReason
from ackwright.wording import counted
from ackwright_stream.jobspec import ExitCode

_INTERVAL_S = 2.0  # of --watch
_NUMBERS = ("lag", "records/s", "restarts")
_STYLES = {"True": "green", "False": "red"}
Order = Literal["lag", "rate", "restarts", "name"]
ORDERS: tuple[Order, ...] = ("lag", "rate", "restarts", "name")


@dataclass(frozen=True)
class Row:
    """A pipeline of the table."""

    namespace: str
    name: str
    guarantee: str
    met: str  # status of GuaranteeMet: True, False, Unknown; empty before the first reconcile
    ready: str  # status of Ready
    reason: str  # of Ready
    suspended: bool
    lag: int | None  # None: no driver has measured it
    records_per_second: float | None
    restarts: int | None
    observed_at: str | None  # when a driver reported lag and rate

    @property
    def is_fine(self) -> bool:
        """Whether it delivers and the guarantee is met, or it is suspended as its spec says, without a broken one."""
        return self.met != "False" if self.suspended else (self.ready, self.met) == ("True", "True")


def row(resource: Mapping[str, Any]) -> Row:
    """The row of a resource."""
    meta, status = resource["metadata"], resource.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    ready, met = conditions.get("Ready", {}), conditions.get("GuaranteeMet", {})
    delivery = status.get("delivery") or {}
    return Row(
        namespace=meta["namespace"],
        name=meta["name"],
        guarantee=status.get("guarantee") or resource["spec"]["guarantee"],
        met=met.get("status", ""),
        ready=ready.get("status", ""),
        reason=ready.get("reason", ""),
        suspended=bool(resource["spec"].get("suspend")) and ready.get("reason") == ConditionReason.SUSPENDED,
        lag=delivery.get("lag"),
        records_per_second=delivery.get("recordsPerSecond"),
        restarts=(status.get("driver") or {}).get("restarts"),
        observed_at=delivery.get("observedAt"),
    )


def ordered(rows: Sequence[Row], by: Order) -> list[Row]:
    """The rows: first those whose guarantee is not met, then those that are not fine, each by the order.

    Largest numbers come first, and pipelines of which no number is known last; equal ones are ordered by name.
    """
    numbers: Mapping[Order, Callable[[Row], float | None]] = {
        "lag": lambda r: r.lag,
        "rate": lambda r: r.records_per_second,
        "restarts": lambda r: r.restarts,
        "name": lambda r: None,
    }

    def key(r: Row) -> tuple[int, float, str, str]:
        number = numbers[by](r)
        severity = 0 if by == "name" else 0 if r.met == "False" else 1 if not r.is_fine else 2
        return severity, float("inf") if number is None else -number, r.namespace, r.name

    return sorted(rows, key=key)


@click.command()
@click.option("--sort", "by", type=click.Choice(ORDERS), default="lag", help="The order of pipelines; default: lag.")
@click.option("--limit", type=click.IntRange(min=1), help="Show this many pipelines at most; the summary counts all.")
@click.option("-w", "--watch", is_flag=True, help="Show them again every two seconds, until interrupted.")
@partial(target_options, namespace_help="Show the pipelines of this namespace; default: of all namespaces.")
@output_option
def top(*, by: Order, limit: int | None, watch: bool, target: Callable[[], Target], output: OutputFormat) -> int:
    """Show the pipelines of all namespaces by lag, rate or restarts; those that need attention come first.

    With -n only those of one namespace. Everything comes from the statuses, which the operator writes: no broker and no
    driver is asked. Exit code 0 if every guarantee is met and every pipeline is ready or suspended as its spec says;
    else 1.
    """
    if watch and output != "table":
        raise click.UsageError(f"--watch shows a table; without it -o {output} shows the present state")
    place = target()
    namespace = place.namespace if place.is_named else None

    def read() -> list[Row]:
        now, resources = datetime.now(UTC), place.kubernetes.objects(API_VERSION, KIND, namespace)
        return ordered([row(as_known(r, now)) for r in resources], by)

    if watch:
        _watch(read, limit, console())
    with waiting("Reading the pipelines"):
        rows = read()
    if output == "table":
        console().print(_table(rows, limit))
    else:
        emit({"pipelines": rows[:limit], "summary": summary(rows)}, output)
    return ExitCode.OK if all(r.is_fine for r in rows) else ExitCode.FAILED


@dataclass(frozen=True)
class Summary:
    """The figures of all pipelines together."""

    pipelines: int
    guarantee_not_met: int
    not_ready: int
    suspended: int
    lag: int
    records_per_second: float


def summary(rows: Sequence[Row]) -> Summary:
    """The figures of these pipelines together."""
    return Summary(
        pipelines=len(rows),
        guarantee_not_met=sum(r.met == "False" for r in rows),
        not_ready=sum(r.ready != "True" and not r.suspended for r in rows),
        suspended=sum(r.suspended for r in rows),
        lag=sum(r.lag or 0 for r in rows),
        records_per_second=round(sum(r.records_per_second or 0.0 for r in rows), 1),
    )


def _watch(read: Callable[[], list[Row]], limit: int | None, out: Console) -> NoReturn:
    """Shows the pipelines until the user interrupts: on a terminal in place, elsewhere again after each change."""
    if out.is_terminal:
        with Live(console=out, auto_refresh=False, screen=True) as live:
            while True:
                live.update(_table(read(), limit, fitting=out.height - 3), refresh=True)
                time.sleep(_INTERVAL_S)
    before = None
    while True:
        rows = read()
        if rows != before:
            out.print(_table(rows, limit))
            before = rows
        time.sleep(_INTERVAL_S)


def _table(rows: Sequence[Row], limit: int | None, fitting: int | None = None) -> RenderableType:
    """The table below its summary. fitting: as many rows as a terminal has."""
    if not rows:
        return Text("no pipelines")
    total = summary(rows)
    line = Text.assemble(
        counted(total.pipelines, "pipeline"),
        f", {total.lag:,} lag, {total.records_per_second:,} records/s",
        (f", guarantee not met: {total.guarantee_not_met}", "red" if total.guarantee_not_met else ""),
        (f", not ready: {total.not_ready}", "yellow" if total.not_ready else ""),
        f", suspended: {total.suspended}",
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("namespace", "name", "guarantee", "met", "lag", "records/s", "restarts", "ready"):
        table.add_column(column, justify="right" if column in _NUMBERS else "left", no_wrap=True)
    shown = min(n for n in (len(rows), limit, fitting) if n is not None)
    for r in rows[:shown]:
        table.add_row(
            Text(r.namespace),
            Text(r.name, style="bold"),
            r.guarantee,
            Text(r.met, style=_STYLES.get(r.met, "yellow")),
            _number(r.lag),
            _number(r.records_per_second),
            _number(r.restarts),
            _ready(r),
        )
    rest = [Text(f"{counted(len(rows) - shown, 'more pipeline')}")] if shown < len(rows) else []
    return Group(line, table, *rest)


def _ready(r: Row) -> Text:
    """Whether it is ready; else the reason."""
    text = r.ready if r.ready == "True" else r.reason or "not reconciled yet"
    return Text(text, style="" if r.is_fine else "yellow")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"
