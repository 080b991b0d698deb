"""ackwright status: what the operator says of a pipeline, and what its driver is doing."""

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
from ackwright_stream.jobspec import ExitCode

_COUNTED = {"abandonedRecords": "abandoned", "malformedRecords": "malformed and left out", "expiredRecords": "expired"}
_GOOD_WHEN = {"Stalled": "False", "Reconciling": "False"}


@click.command()
@click.argument("name", required=False)
@target_options
@output_option
def status(*, name: str | None, target: Callable[[], Target], output: OutputFormat) -> int:
    """Show how a pipeline is, or all pipelines of the namespace.

    Exit code 0 if it is ready (all of them are), or suspended because it was asked to be; else 1.
    """
    found = target()
    resources = [found.pipeline(name)] if name else found.kubernetes.objects(API_VERSION, KIND, found.namespace)
    if output != "table":
        emit(resources[0] if name else resources, output)
    elif name:
        show(resources[0], console())
    else:
        _all(resources, console(), found.namespace)
    return ExitCode.OK if all(_well(r) for r in resources) else ExitCode.FAILED


def _conditions(resource: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {c["type"]: c for c in resource.get("status", {}).get("conditions", ())}


def _well(resource: Mapping[str, Any]) -> bool:
    ready = _conditions(resource).get("Ready", {})
    return ready.get("status") == "True" or (
        bool(resource["spec"].get("suspend")) and ready.get("reason") == "Suspended"
    )


def _all(resources: Sequence[Mapping[str, Any]], out: Console, namespace: str) -> None:
    if not resources:
        out.print(f"no pipelines in namespace {namespace}")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("name", "guarantee", "ready", "met", "lag", "records/s", "why"):
        table.add_column(column, justify="right" if column in ("lag", "records/s") else "left", no_wrap=column != "why")
    for r in resources:
        conditions, told = _conditions(r), r.get("status", {}).get("delivery", {})
        ready = conditions.get("Ready", {})
        table.add_row(
            Text(r["metadata"]["name"], style="bold"),
            r["spec"]["guarantee"],
            _truth("Ready", ready),
            _truth("GuaranteeMet", conditions.get("GuaranteeMet", {})),
            _number(told.get("lag")),
            _number(told.get("recordsPerSecond")),
            Text(
                ""
                if ready.get("status") == "True"
                else f"{ready.get('reason', 'not seen yet')}: {ready.get('message', '')}"
            ),
        )
    out.print(table)


def show(resource: Mapping[str, Any], out: Console) -> None:
    """One pipeline, for a person to read."""
    meta, said = resource["metadata"], resource.get("status", {})
    out.print(Text.assemble((f"{meta['namespace']}/{meta['name']}", "bold"), f"  {resource['spec']['guarantee']}"))
    if said.get("observedGeneration") != meta.get("generation"):
        out.print(Text("the operator has not looked at the present spec yet", style="yellow"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("condition", "status", "since", "why"):
        table.add_column(column, no_wrap=column != "why", overflow="fold")
    for kind, c in _conditions(resource).items():
        why = c["reason"] + (f": {c['message']}" if c.get("message") else "")
        table.add_row(kind, _truth(kind, c), c["lastTransitionTime"], Text(why))
    out.print(table)
    driver, told = said.get("driver"), said.get("delivery")
    if driver:
        where = f"{driver['pod']} on {driver.get('node', 'no node')}"
        out.print(Text(f"driver    {where}, number {driver.get('number', '?')}, {driver['restarts']} restarts"))
        if driver.get("lastError"):
            out.print(Text(f"          last error: {driver['lastError']}", style="yellow"))
    if told:
        figures = f"batch {_number(told.get('batch'))}, lag {_number(told.get('lag'))}, {_number(told.get('recordsPerSecond'))} records/s"
        out.print(f"delivery  {figures} (at {told.get('observedAt')})")
        for field, meaning in _COUNTED.items():
            if told.get(field):
                out.print(Text(f"          {told[field]:,} {meaning}", style="yellow"))
    topics = said.get("topics")
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
    found = condition.get("status", "")
    good = _GOOD_WHEN.get(kind, "True")
    return Text(
        found,
        style="green" if found == good else "yellow" if found in ("Unknown", "") or kind == "Reconciling" else "red",
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"
