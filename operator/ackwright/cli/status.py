"""ackwright status: shows a pipeline's conditions, and what its driver is doing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NoReturn

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ackwright.api.spec import API_VERSION, KIND
from ackwright.api.status import GOOD_IF_FALSE
from ackwright.cli.output import console, emit, output_option
from ackwright.cli.pipeline_names import name_argument
from ackwright.cli.target import Target, target_options
from ackwright.conditions.staleness import as_known
from ackwright.reasons import ConditionReason
from ackwright.wording import counted
from ackwright_stream.jobspec import ExitCode

_COUNTERS = {
    "abandonedRecords": "abandoned",
    "malformedRecords": "malformed and skipped",
    "deadLetters": "dead letters",
    "lateRows": "late",
    "expiredRecords": "expired",
}
_WIDE = ("topics", "batch", "restarts", "driver", "node", "last run", "next run")
_NUMBERS = ("lag", "records/s", "batch", "restarts")
_INTERVAL_S = 2.0  # of --watch

Resource = Mapping[str, Any]
Resources = Sequence[Resource]
WideFormat = Literal["table", "wide", "json", "yaml"]


@click.command()
@name_argument(required=False)
@click.option("-A", "--all-namespaces", is_flag=True, help="Show the pipelines of every namespace.")
@click.option("-w", "--watch", is_flag=True, help="Show the state again whenever it changes, until interrupted.")
@target_options
@partial(output_option, more=("wide",))
def status(
    *, name: str | None, all_namespaces: bool, watch: bool, target: Callable[[], Target], output: WideFormat
) -> int:
    """Show the status of a pipeline, or of all pipelines in the namespace.

    Exit code 0 if all of them are ready, or suspended as their spec says; else 1.
    """
    if name and all_namespaces:
        raise click.UsageError("-A shows all pipelines, and NAME one of them; give only one of the two")
    if watch and output in ("json", "yaml"):
        raise click.UsageError(f"--watch shows tables; without it -o {output} shows the present state")
    place = target()
    namespace = None if all_namespaces else place.namespace

    def read() -> Resources:
        resources = [place.pipeline(name)] if name else place.kubernetes.objects(API_VERSION, KIND, namespace)
        return [as_known(r, datetime.now(UTC)) for r in resources]

    def shown(resources: Resources) -> RenderableType:
        return one(resources[0]) if name else _all(resources, namespace, wide=output == "wide")

    if watch:
        _watch(read, shown, console())
    resources = read()
    if output in ("json", "yaml"):
        emit(resources[0] if name else resources, output)
    else:
        console().print(shown(resources))
    return ExitCode.OK if all(_is_fine(r) for r in resources) else ExitCode.FAILED


def _watch(read: Callable[[], Resources], shown: Callable[[Resources], RenderableType], out: Console) -> NoReturn:
    """Shows the state until the user interrupts: on a terminal in place, elsewhere again after each change."""
    if out.is_terminal:
        with Live(console=out, auto_refresh=False) as live:
            while True:
                live.update(shown(read()), refresh=True)
                time.sleep(_INTERVAL_S)
    before = None
    while True:
        resources = read()
        if resources != before:
            out.print(shown(resources))
            before = resources
        time.sleep(_INTERVAL_S)


def guarantee_in_force(resource: Resource) -> str:
    """That of the spec that the pipeline runs by; before the first reconcile that of its spec."""
    guarantee: str = resource.get("status", {}).get("guarantee") or resource["spec"]["guarantee"]
    return guarantee


def _conditions(resource: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {c["type"]: c for c in resource.get("status", {}).get("conditions", ())}


def _is_fine(resource: Mapping[str, Any]) -> bool:
    ready = _conditions(resource).get("Ready", {})
    return ready.get("status") == "True" or (
        bool(resource["spec"].get("suspend")) and ready.get("reason") == ConditionReason.SUSPENDED
    )


def _all(resources: Resources, namespace: str | None, *, wide: bool) -> RenderableType:
    """A row for each pipeline. namespace None: of every namespace."""
    if not resources:
        here = f"no pipelines in namespace {namespace}; -A shows those of all namespaces"
        return Text("no pipelines" if namespace is None else here)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = ["name", "guarantee", "ready", "met", "lag", "records/s", *(_WIDE if wide else ()), "why"]
    for column in (["namespace"] if namespace is None else []) + columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", no_wrap=column != "why")
    for r in sorted(resources, key=lambda r: (r["metadata"].get("namespace", ""), r["metadata"]["name"])):
        conditions, delivery = _conditions(r), r.get("status", {}).get("delivery", {})
        ready = conditions.get("Ready", {})
        why = f"{ready.get('reason', 'not reconciled yet')}: {ready.get('message', '')}"
        table.add_row(
            *([Text(r["metadata"]["namespace"])] if namespace is None else ()),
            Text(r["metadata"]["name"], style="bold"),
            guarantee_in_force(r),
            _truth("Ready", ready),
            _truth("GuaranteeMet", conditions.get("GuaranteeMet", {})),
            _number(delivery.get("lag"), "-"),
            _number(delivery.get("recordsPerSecond"), "-"),
            *(_wide(r) if wide else ()),
            Text("" if ready.get("status") == "True" else why),
        )
    return table


def _wide(resource: Resource) -> Iterator[Text]:
    """The columns that -o wide adds."""
    status_ = resource.get("status", {})
    driver = status_.get("driver", {})
    yield Text(str(status_.get("topicsReady", "")))
    yield Text(_batch(status_.get("delivery", {})))
    yield Text(_number(driver.get("restarts")))
    yield Text(driver.get("pod", ""))
    yield Text(driver.get("node", ""))
    schedule = status_.get("schedule", {})
    yield Text(schedule.get("lastScheduleTime", ""))
    yield Text(schedule.get("nextScheduleTime", ""))


def show(resource: Resource, out: Console) -> None:
    """Prints the status of one pipeline."""
    out.print(one(resource))


def one(resource: Resource) -> RenderableType:
    """The status of one pipeline."""
    return Group(*_lines(resource))


def _lines(resource: Resource) -> Iterator[RenderableType]:
    meta, status_ = resource["metadata"], resource.get("status", {})
    yield Text.assemble((f"{meta['namespace']}/{meta['name']}", "bold"), f"  {guarantee_in_force(resource)}")
    if status_.get("observedGeneration") != meta.get("generation"):
        yield Text("the operator has not reconciled the present spec yet", style="yellow")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("condition", "status", "since", "why"):
        table.add_column(column, no_wrap=column != "why", overflow="fold")
    shown: dict[str, str] = {}  # by message, the first condition that has it
    for kind, c in _conditions(resource).items():
        message = c.get("message", "")
        first = shown.setdefault(message, kind)
        why = c["reason"] + (f": {message if first == kind else f'see {first}'}" if message else "")
        table.add_row(kind, _truth(kind, c), c["lastTransitionTime"], Text(why))
    yield table
    driver, delivery = status_.get("driver"), status_.get("delivery")
    if driver:
        place = f"{driver['pod']} on {driver.get('node', 'no node')}"
        restarts = counted(driver["restarts"], "restart")
        which = f"number {driver['number']}, " if driver.get("number") is not None else ""
        yield Text(f"driver    {place}, {which}{restarts}")
        if driver.get("lastError"):
            fine = _is_fine(resource)
            yield Text(
                f"          {'earlier' if fine else 'last'} error: {driver['lastError']}",
                style="" if fine else "yellow",
            )
    if delivery:
        rate = _number(delivery.get("recordsPerSecond"))
        batch = f"batch {number}" if (number := _batch(delivery)) else "no batch by this driver yet"
        lag = "unknown" if delivery.get("lag") is None else _number(delivery["lag"])
        figures = f"{batch}, lag {lag}, {rate} records/s"
        if watermark := delivery.get("watermark"):
            figures += f", watermark {watermark}"
        yield Text(f"delivery  {figures} (at {delivery.get('observedAt')})")
        for field, meaning in _COUNTERS.items():
            if delivery.get(field):
                count = delivery[field]
                yield Text(
                    f"          {count:,} {meaning.removesuffix('s') if count == 1 else meaning}", style="yellow"
                )
    if schedule := status_.get("schedule"):
        last = schedule.get("lastScheduleTime", "none yet")
        upcoming = schedule.get("nextScheduleTime", "none: the pipeline is suspended")
        when = f"{schedule.get('schedule')} ({schedule.get('timeZone')})"
        yield Text(f"schedule  {when}: last run {last}, next run {upcoming}")
    topics = status_.get("topics")
    if isinstance(topics, list) and topics:
        yield _topics(topics)


def _topics(topics: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = {
        "topic": "name",
        "partitions": "partitions",
        "replicas": "replicationFactor",
        "in sync": "inSyncReplicas",
        "minimum": "minInsyncReplicas",
        "moving": "moving",
    }
    for column in columns:
        table.add_column(
            column, justify="left" if column == "topic" else "right", no_wrap=column != "topic", overflow="fold"
        )
    for topic in topics:
        table.add_row(*(str(topic.get(field, "")) for field in columns.values()))
    return table


def _truth(kind: str, condition: Mapping[str, Any]) -> Text:
    truth = condition.get("status", "")
    if truth == ("False" if kind in GOOD_IF_FALSE else "True"):
        style = "green"
    else:
        style = "yellow" if truth in ("Unknown", "") or kind == "Reconciling" else "red"
    return Text(truth, style=style)


def _batch(delivery: Mapping[str, Any]) -> str:
    """The number of the last batch; empty if this driver has delivered none."""
    batch = delivery.get("batch")
    return "" if batch == -1 else _number(batch)


def _number(value: float | None, unknown: str = "") -> str:
    return unknown if value is None else f"{value:,}"
