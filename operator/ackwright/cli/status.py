"""ackwright status: shows a pipeline's conditions, and what its driver is doing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ackwright.api.spec import API_VERSION, KIND
from ackwright.cli.output import OutputFormat, console, emit, output_option
from ackwright.cli.target import Target, target_options
from ackwright.wording import counted
from ackwright_stream.jobspec import ExitCode

_COUNTERS = {"abandonedRecords": "abandoned", "malformedRecords": "malformed and skipped", "expiredRecords": "expired"}
_GOOD_STATUS = {"Stalled": "False", "Reconciling": "False"}


@click.command()
@click.argument("name", required=False)
@target_options
@output_option
def status(*, name: str | None, target: Callable[[], Target], output: OutputFormat) -> int:
    """Show the status of a pipeline, or of all pipelines in the namespace.

    Exit code 0 if all of them are ready, or suspended as their spec says; else 1.
    """
    place = target()
    resources = [place.pipeline(name)] if name else place.kubernetes.objects(API_VERSION, KIND, place.namespace)
    if output != "table":
        emit(resources[0] if name else resources, output)
    elif name:
        show(resources[0], console())
    else:
        _show_all(resources, console(), place.namespace)
    return ExitCode.OK if all(_is_fine(r) for r in resources) else ExitCode.FAILED


def _conditions(resource: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {c["type"]: c for c in resource.get("status", {}).get("conditions", ())}


def _is_fine(resource: Mapping[str, Any]) -> bool:
    ready = _conditions(resource).get("Ready", {})
    return ready.get("status") == "True" or (
        bool(resource["spec"].get("suspend")) and ready.get("reason") == "Suspended"
    )


def _show_all(resources: Sequence[Mapping[str, Any]], out: Console, namespace: str) -> None:
    if not resources:
        out.print(f"no pipelines in namespace {namespace}")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("name", "guarantee", "ready", "met", "lag", "records/s", "why"):
        table.add_column(column, justify="right" if column in ("lag", "records/s") else "left", no_wrap=column != "why")
    for r in resources:
        conditions, delivery = _conditions(r), r.get("status", {}).get("delivery", {})
        ready = conditions.get("Ready", {})
        table.add_row(
            Text(r["metadata"]["name"], style="bold"),
            r["spec"]["guarantee"],
            _truth("Ready", ready),
            _truth("GuaranteeMet", conditions.get("GuaranteeMet", {})),
            _number(delivery.get("lag")),
            _number(delivery.get("recordsPerSecond")),
            Text(
                ""
                if ready.get("status") == "True"
                else f"{ready.get('reason', 'not reconciled yet')}: {ready.get('message', '')}"
            ),
        )
    out.print(table)


def show(resource: Mapping[str, Any], out: Console) -> None:
    """Prints the status of one pipeline."""
    meta, status_ = resource["metadata"], resource.get("status", {})
    out.print(Text.assemble((f"{meta['namespace']}/{meta['name']}", "bold"), f"  {resource['spec']['guarantee']}"))
    if status_.get("observedGeneration") != meta.get("generation"):
        out.print(Text("the operator has not reconciled the present spec yet", style="yellow"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("condition", "status", "since", "why"):
        table.add_column(column, no_wrap=column != "why", overflow="fold")
    for kind, c in _conditions(resource).items():
        why = c["reason"] + (f": {c['message']}" if c.get("message") else "")
        table.add_row(kind, _truth(kind, c), c["lastTransitionTime"], Text(why))
    out.print(table)
    driver, delivery = status_.get("driver"), status_.get("delivery")
    if driver:
        place = f"{driver['pod']} on {driver.get('node', 'no node')}"
        restarts = counted(driver["restarts"], "restart")
        out.print(Text(f"driver    {place}, number {driver.get('number', '?')}, {restarts}"))
        if driver.get("lastError"):
            out.print(Text(f"          last error: {driver['lastError']}", style="yellow"))
    if delivery:
        rate = _number(delivery.get("recordsPerSecond"))
        figures = f"batch {_number(delivery.get('batch'))}, lag {_number(delivery.get('lag'))}, {rate} records/s"
        out.print(f"delivery  {figures} (at {delivery.get('observedAt')})")
        for field, meaning in _COUNTERS.items():
            if delivery.get(field):
                out.print(Text(f"          {delivery[field]:,} {meaning}", style="yellow"))
    topics = status_.get("topics")
    if isinstance(topics, list) and topics:
        _topics(topics, out)


def _topics(topics: Sequence[Mapping[str, Any]], out: Console) -> None:
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
    out.print(table)


def _truth(kind: str, condition: Mapping[str, Any]) -> Text:
    truth = condition.get("status", "")
    if truth == _GOOD_STATUS.get(kind, "True"):
        style = "green"
    else:
        style = "yellow" if truth in ("Unknown", "") or kind == "Reconciling" else "red"
    return Text(truth, style=style)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"
