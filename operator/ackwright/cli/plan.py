"""ackwright plan: what a pipeline compiles to, before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ackwright.api.fields import ChangeClass
from ackwright.api.spec import DeliveryPipeline, parse
from ackwright.cli import next_runs
from ackwright.cli.failures import print_errors, warnings_of
from ackwright.cli.output import (
    OutputFormat,
    console,
    document,
    emit,
    file_option,
    output_option,
    print_pairs,
    settings_table,
)
from ackwright.cli.target import Target, target_options
from ackwright.planning.changes import Change, changes, largest_effect, left_alone
from ackwright.planning.guarantees import Setting, Settings
from ackwright.planning.plan import DeliveryPlan, load, load_judged
from ackwright.planning.summary import Summary, summary
from ackwright_stream.reasons import ExitCode

if TYPE_CHECKING:  # `plan` without options starts faster without it
    from rich.console import Console


@click.command()
@file_option
@output_option
@click.option(
    "--against", metavar="FILE|cluster", help="Compare with that file, or with the resource in the cluster, instead."
)
@click.option("--details", is_flag=True, help="Also each setting with its reason. JSON and YAML always have them.")
@target_options
def plan(*, file: Path, output: OutputFormat, against: str | None, details: bool, target: Callable[[], Target]) -> int:
    """Show what a pipeline compiles to: guarantee, cost and weakest link; with --details each setting and its reason.

    These are the values that the job will use. Reads the file alone: contacts no broker and changes nothing. Errors are
    printed with line and column; exit code 2. With --against: shows what an edit changes and whether the job restarts;
    exit code 2 if a change would be refused.
    """
    pipeline, delivery_plan, warnings = load_judged(file)
    if output == "table":
        print_errors(warnings_of(warnings), "warning")
    if against is not None:
        before = _in_cluster(target(), pipeline) if against == "cluster" else load(Path(against))[0]
        return _compare(before, pipeline, output)
    now = datetime.now(UTC)
    if output == "table":
        _print_summary(summary(delivery_plan), next_runs.in_words(delivery_plan, now))
        if details:
            _print_details(delivery_plan, console())
    else:
        shown = {"summary": summary(delivery_plan), "warnings": warnings_of(warnings)}
        emit({**shown, **described(delivery_plan), **next_runs.as_document(delivery_plan, now)}, output)
    return ExitCode.OK


def described(delivery_plan: DeliveryPlan) -> dict[str, Any]:
    """The plan as a document."""
    return {
        **document(delivery_plan),
        "sink": document(delivery_plan.sink.job),
        "sinkSections": document(delivery_plan.sink.sections),
        "sourceOptions": document(delivery_plan.source_options),
        "commit": document(delivery_plan.commit),
        "batches": document(delivery_plan.batches),
    }


def _in_cluster(target: Target, pipeline: DeliveryPipeline) -> DeliveryPipeline:
    return left_alone(
        parse(replace(target, namespace=pipeline.metadata.namespace).pipeline(pipeline.metadata.name)), pipeline
    )


def _compare(before: DeliveryPipeline, after: DeliveryPipeline, output: OutputFormat) -> int:
    from ackwright.planning.edits import needs_check  # only here: it imports the whole status

    differences = changes(before, after)
    change = largest_effect(differences)
    checked = change is ChangeClass.RESTART and needs_check(before, after)
    if output != "table":
        emit({"takes": change, "checked": checked, "changes": differences}, output)
    elif change is None:
        click.echo("nothing changes")
    else:
        print_changes(differences, console())
    scheduled = bool(before.spec.trigger.schedule and after.spec.trigger.schedule)
    if output == "table" and scheduled and change is ChangeClass.RESTART:
        click.echo("an active run of the schedule ends by the earlier spec: the edit has effect with the next run")
    if output == "table" and checked:
        click.echo("in a cluster the edit is checked in a pod before it has effect")
    return ExitCode.INVALID if change is ChangeClass.IMMUTABLE else ExitCode.OK


def print_changes(differences: Sequence[Change], out: Console) -> None:
    """Prints a table of changed fields, and the change class of all of them together."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("field", "before", "after", "effect", "why"):
        table.add_column(column, overflow="fold")
    for c in differences:
        table.add_row(c.field, *(Text("absent" if v is None else str(v)) for v in (c.before, c.after)), c.change, c.why)
    out.print(table)
    out.print(Text(f"all changes: {largest_effect(differences)}", style="bold"))


def sections(delivery_plan: DeliveryPlan) -> tuple[tuple[str, Settings], ...]:
    """Every group of settings but those of topics, by its title, in the order in which they are printed."""
    losses, moved = delivery_plan.accepted_losses, delivery_plan.accepted_positions
    lost_state = delivery_plan.accepted_state_loss
    return (
        ("Source, transform and sink", delivery_plan.data),
        ("Connection (both clients)", delivery_plan.connection.settings),
        (
            "Connection to the sink's cluster (both clients)",
            delivery_plan.sink_connection.settings if delivery_plan.sink_connection else (),
        ),
        ("Every librdkafka client of the job", delivery_plan.every_client),
        ("Producer of each task's rows (librdkafka)", delivery_plan.producer),
        (delivery_plan.sink.options_title, delivery_plan.sink_options),
        *((section.title, section.settings) for section in delivery_plan.sink.sections),
        ("Spark's Kafka source (Java)", delivery_plan.consumer),
        ("Options of Spark's Kafka source", delivery_plan.source_options),
        (
            "Consumer that reads the source's ends, and positions in Kafka (librdkafka)",
            delivery_plan.positions_consumer,
        ),
        ("Consumer that reads a topic to its end (librdkafka)", delivery_plan.topic_consumer),
        ("Commit", delivery_plan.commit),
        ("Batches and restarts", delivery_plan.batches),
        (
            "Accepted losses",
            tuple(Setting(t, old, "positions of this topic id are ignored") for t, old in losses.items()),
        ),
        (
            "Accepted positions",
            (Setting("fingerprint", moved, "of offsets that another program has set"),) if moved else (),
        ),
        (
            "Accepted state loss",
            (Setting("fingerprint", lost_state, "of state in place of which an empty one begins"),)
            if lost_state
            else (),
        ),
        ("Spark", delivery_plan.spark),
        ("Options of Spark's query", delivery_plan.stream_options),
    )


def _print_summary(shown: Summary, runs: str | None) -> None:
    """Prints the summary. runs: when the runs of a schedule start; None without one."""
    click.echo(f"{click.style(shown.pipeline, bold=True)}  {shown.flow}")
    costs = [("costs" if i == 0 else "", cost, None) for i, cost in enumerate(shown.costs)]
    caveats = [("not guaranteed" if i == 0 else "", caveat, "yellow") for i, caveat in enumerate(shown.not_guaranteed)]
    print_pairs(
        (
            ("guarantee", shown.guarantee, None),
            ("reader has to", shown.reader, None),
            ("survives", shown.survives, None),
            *((("runs", runs, None),) if runs else ()),
            *costs,
            ("weakest link", shown.weakest_link, "yellow"),
            *caveats,
        )
    )


def _print_details(delivery_plan: DeliveryPlan, out: Console) -> None:
    for topic in delivery_plan.topics:
        owner = ", Ackwright's own" if topic.internal else ""
        replication = Setting("replication.factor", str(topic.replication_factor), topic.replication_reason)
        partitions = f"{topic.partitions} partition{'' if topic.partitions == 1 else 's'}"
        title = f"Topic {topic.name} ({partitions}, deletionPolicy {topic.deletion_policy}{owner})"
        out.print("", settings_table(title, (replication, *topic.config)), sep="\n")
    for title, settings in sections(delivery_plan):
        if settings:
            out.print("", settings_table(title, settings), sep="\n")
