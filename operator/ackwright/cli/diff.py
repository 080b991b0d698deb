"""ackwright diff: what applying a file would change, in the cluster's resource and in the brokers' topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ackwright.api.fields import ChangeClass
from ackwright.api.spec import API_VERSION, KIND, DeliveryPipeline, parse
from ackwright.cli.brokers import brokers_option, sink_brokers_option, with_bootstrap_servers
from ackwright.cli.failures import reserve_exit_code_one
from ackwright.cli.output import OutputFormat, console, emit, file_option, output_option
from ackwright.cli.plan import print_changes
from ackwright.cli.target import Target, target_options
from ackwright.cli.waiting import waiting
from ackwright.clients.kafka import Kafka
from ackwright.clients.kubernetes import NoCluster
from ackwright.observe import topics as observe
from ackwright.planning.changes import Change, changes, largest_effect, left_alone
from ackwright.planning.clusters import needed_topics, parts
from ackwright.planning.comparison import Difference, ObservedTopic, missing
from ackwright.planning.plan import load
from ackwright.planning.plan import plan as make_plan
from ackwright.planning.topic_differences import of_topics
from ackwright.render.jobspec import clusters
from ackwright_stream.reasons import ExitCode

_TIMEOUT_S = 10.0  # of one call


@dataclass(frozen=True)
class Differences:
    """Everything that applying the file would change."""

    resource: str  # created, changed, unchanged, or not compared: there is no cluster
    takes: ChangeClass | None = None
    changes: tuple[Change, ...] = ()
    create: tuple[str, ...] | None = None  # topics; None: not compared
    topics: tuple[Difference, ...] | None = None  # None: not compared
    # Topics that the pipeline needs and that the file does not declare. None: not compared.
    missing: tuple[str, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.resource == "created" or self.changes or self.create or self.topics or self.missing)


@click.command()
@file_option
@output_option
@click.option("--topics/--no-topics", default=True, show_default=True, help="Compare topics with the brokers.")
@brokers_option
@sink_brokers_option
@click.option(
    "--secrets", type=click.Path(path_type=Path), help="A directory that contains each Secret as a directory of files."
)
@target_options
def diff(
    *,
    file: Path,
    output: OutputFormat,
    topics: bool,
    bootstrap_servers: str | None,
    sink_bootstrap_servers: str | None,
    secrets: Path | None,
    target: Callable[[], Target],
) -> int:
    """Show what applying a file would change: fields of the resource in the cluster with their change class, topics.

    Without a kubeconfig it compares only topics, and fails with --no-topics. Changes nothing. Exit code 0 without
    differences, 1 with differences, above 1 if the comparison failed (70: an unexpected failure).
    """
    reserve_exit_code_one()
    if not topics and (bootstrap_servers or sink_bootstrap_servers or secrets) is not None:
        raise click.UsageError("--no-topics reads nothing from brokers; omit it, or the options for the brokers")
    pipeline, _ = load(file)
    before: DeliveryPipeline | None = None
    resource = "created"
    try:
        with waiting("Reading the resource in the cluster"):
            place = target()
            pipeline = _placed(pipeline, place.namespace)
            stored = place.kubernetes.get(API_VERSION, KIND, pipeline.metadata.namespace, pipeline.metadata.name)
        before = left_alone(parse({"apiVersion": API_VERSION, "kind": KIND, **stored}), pipeline) if stored else None
    except NoCluster as e:
        if not topics:
            raise
        click.echo(f"not compared with a cluster: {e.message}", err=True)
        resource = "not compared"
    edits = changes(before, pipeline) if before else ()
    if before:
        resource = "changed" if edits else "unchanged"
    differences = Differences(resource, largest_effect(edits), edits)
    if topics:
        differences = _with_topics(differences, pipeline, bootstrap_servers, sink_bootstrap_servers, secrets)
    if output == "table":
        _print(differences, pipeline, console())
    else:
        emit(differences, output)
    return ExitCode.FAILED if differences else ExitCode.OK


def _placed(pipeline: DeliveryPipeline, namespace: str) -> DeliveryPipeline:
    """The pipeline in the namespace that kubectl would use."""
    if "namespace" in pipeline.metadata.model_fields_set:
        return pipeline
    return pipeline.model_copy(update={"metadata": pipeline.metadata.model_copy(update={"namespace": namespace})})


def _with_topics(
    differences: Differences,
    pipeline: DeliveryPipeline,
    servers: str | None,
    sink_servers: str | None,
    secrets: Path | None,
) -> Differences:
    plan = make_plan(with_bootstrap_servers(pipeline, servers, sink_servers))
    connections = clusters(plan, str(secrets.resolve()) if secrets else None)
    observed: dict[str, ObservedTopic] = {}
    for role, part in parts(plan).items():
        with waiting(f"Reading topics of {connections[role].bootstrap_servers}"):
            kafka = Kafka(connections[role], timeout=_TIMEOUT_S)
            observed |= observe.topics(kafka, [*(t.name for t in part.topics), *needed_topics(part)])
    create, differing = of_topics(plan.topics, observed)
    absent = missing(needed_topics(plan), plan.topics, observed)
    return replace(differences, create=create, topics=differing, missing=absent)


def _print(differences: Differences, pipeline: DeliveryPipeline, out: Console) -> None:
    name = f"{pipeline.metadata.namespace}/{pipeline.metadata.name}"
    if differences.resource != "not compared":
        states = {
            "created": "does not exist, and would be created",
            "unchanged": "equals the file",
            "changed": "would change",
        }
        out.print(Text(f"{name} {states[differences.resource]}", style="bold"))
    if differences.changes:
        print_changes(differences.changes, out)
    for topic in differences.create or ():
        out.print(Text(f"topic {topic} would be created"))
    for topic in differences.missing or ():
        out.print(
            Text(
                f"topic {topic} does not exist and is not declared; create it, or list it under spec.topics",
                style="yellow",
            )
        )
    if differences.topics:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("topic", "setting", "found", "planned", "why"):
            table.add_column(column, overflow="fold")
        for d in differences.topics:
            table.add_row(*(Text(text) for text in (d.topic, d.setting, d.found, d.planned, d.reason)))
        out.print(table)
    elif differences.topics is None:
        out.print(Text("topics are not compared"))
    elif not differences.create and not differences.missing:
        out.print(Text("topics are as planned"))
