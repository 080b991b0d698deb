"""ackwright plan: what a pipeline compiles to, before anything is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ackwright.api.fields import ChangeClass
from ackwright.api.spec import DeliveryPipeline, parse
from ackwright.cli.output import OutputFormat, console, emit, file_option, output_option, settings_table
from ackwright.cli.target import Target, target_options
from ackwright.planning.changes import Change, changes, left_alone, most
from ackwright.planning.guarantees import Setting
from ackwright.planning.plan import DeliveryPlan, load
from ackwright_stream.jobspec import ExitCode


@click.command()
@file_option
@output_option
@click.option(
    "--against", metavar="FILE|cluster", help="Show what an edit of that file, or of what is in the cluster, takes."
)
@target_options
def plan(*, file: Path, output: OutputFormat, against: str | None, target: Callable[[], Target]) -> int:
    """Show what a pipeline compiles to: topics, clients, Spark and commits, each setting with its reason.

    Reads the file alone; asks no broker and changes nothing. With --against: exit code 2 if a change would be refused.
    """
    pipeline, planned = load(file)
    if against is not None:
        before = _in_cluster(target(), pipeline) if against == "cluster" else load(Path(against))[0]
        return _changes(before, pipeline, output)
    if output == "table":
        _print(planned, console())
    else:
        emit(planned, output)
    return ExitCode.OK


def _in_cluster(target: Target, pipeline: DeliveryPipeline) -> DeliveryPipeline:
    return left_alone(
        parse(replace(target, namespace=pipeline.metadata.namespace).pipeline(pipeline.metadata.name)), pipeline
    )


def _changes(before: DeliveryPipeline, after: DeliveryPipeline, output: OutputFormat) -> int:
    found = changes(before, after)
    takes = most(found)
    if output != "table":
        emit({"takes": takes, "changes": found}, output)
    elif takes is None:
        click.echo("nothing changes")
    else:
        print_changes(found, console())
    return ExitCode.INVALID if takes is ChangeClass.IMMUTABLE else ExitCode.OK


def print_changes(found: Sequence[Change], out: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("field", "before", "after", "takes", "why"):
        table.add_column(column, overflow="fold")
    for c in found:
        table.add_row(c.field, *(Text("absent" if v is None else str(v)) for v in (c.before, c.after)), c.change, c.why)
    out.print(table)
    out.print(Text(f"taken together: {most(found)}", style="bold"))


def _print(planned: DeliveryPlan, out: Console) -> None:
    out.print(Text(f"{planned.namespace}/{planned.name}", style="bold"))
    out.print(
        Text(
            f"guarantee {planned.guarantee}, tolerated broker failures {planned.broker_failures}, positions in group {planned.group}"
        )
    )
    for topic in planned.topics:
        own = ", Ackwright's own" if topic.internal else ""
        shape = Setting("replication.factor", str(topic.replication_factor), topic.replication_reason)
        title = f"Topic {topic.name} ({topic.partitions} partitions, deletionPolicy {topic.deletion_policy}{own})"
        out.print("", settings_table(title, (shape, *topic.config)), sep="\n")
    sections = (
        ("Producer of each lane (librdkafka)", planned.producer),
        ("Spark's Kafka sink (Java)", planned.sink_options),
        ("Spark's Kafka source (Java)", planned.consumer),
        ("Options of Spark's Kafka source", planned.source_options),
        ("Consumer that reads positions (librdkafka)", planned.positions_consumer),
        ("Commit", planned.commit),
        ("Spark", planned.spark),
    )
    for title, settings in sections:
        if settings:
            out.print("", settings_table(title, settings), sep="\n")
