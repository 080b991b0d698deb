"""ackwright plan: what a pipeline compiles to, before anything is touched."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ackwright.cli.output import OutputFormat, console, emit, file_option, output_option, settings_table
from ackwright.planning.guarantees import Setting
from ackwright.planning.plan import DeliveryPlan, load


@click.command()
@file_option
@output_option
def plan(file: Path, output: OutputFormat) -> None:
    """Show what a pipeline compiles to: topics, clients, Spark and commits, each setting with its reason.

    Reads the file alone; asks no broker and changes nothing.
    """
    _, planned = load(file)
    if output == "table":
        _print(planned, console())
    else:
        emit(planned, output)


def _print(planned: DeliveryPlan, out: Console) -> None:
    out.print(Text(f"{planned.namespace}/{planned.name}", style="bold"))
    out.print(
        Text(f"guarantee {planned.guarantee}, tolerated broker failures {planned.broker_failures}, positions in group {planned.group}")
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
