"""ackwright diff: what applying a file would change, of the resource in the cluster and of the topics at the brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ackwright.api.spec import API_VERSION, KIND, DeliveryPipeline, parse
from ackwright.cli.brokers import brokers_option, kafka_connection
from ackwright.cli.failures import reserve_exit_code_one
from ackwright.cli.output import OutputFormat, console, emit, file_option, output_option
from ackwright.cli.plan import print_changes
from ackwright.cli.target import Target, target_options
from ackwright.clients.kafka import Kafka
from ackwright.clients.kubernetes import NoCluster
from ackwright.observe import topics as observe
from ackwright.planning.changes import Change, ChangeClass, changes, left_alone, most
from ackwright.planning.comparison import Difference, missing
from ackwright.planning.declared import needed_topics
from ackwright.planning.plan import load
from ackwright.planning.plan import plan as make_plan
from ackwright.planning.topic_differences import of_topics
from ackwright.render.jobspec import cluster
from ackwright_stream.jobspec import ExitCode

_TIMEOUT_S = 10.0  # of one call


@dataclass(frozen=True)
class Differences:
    """resource: created, changed, unchanged, or not compared, as there is no cluster. missing: topics that the pipeline needs and nobody
    makes. What is None was not asked for."""

    resource: str
    takes: ChangeClass | None = None
    changes: tuple[Change, ...] = ()
    create: tuple[str, ...] | None = None
    topics: tuple[Difference, ...] | None = None
    missing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.resource == "created" or self.changes or self.create or self.topics or self.missing)


@click.command()
@file_option
@output_option
@click.option("--topics/--no-topics", default=True, show_default=True, help="Compare topics with the brokers.")
@brokers_option
@click.option(
    "--secrets", type=click.Path(path_type=Path), help="A directory that holds each Secret as a directory of files."
)
@target_options
def diff(
    *,
    file: Path,
    output: OutputFormat,
    topics: bool,
    bootstrap_servers: str | None,
    secrets: Path | None,
    target: Callable[[], Target],
) -> int:
    """Show what applying a file would change: of the resource in the cluster, each field with what it takes, and of the topics.

    Without a kubeconfig topics alone are compared. Changes nothing. Exit code 0 without differences, 1 with some, above 1 if it could not
    be told (70: an unexpected failure).
    """
    reserve_exit_code_one()
    pipeline, _ = load(file)
    before: DeliveryPipeline | None = None
    resource = "created"
    try:
        place = target()
        pipeline = _placed(pipeline, place.namespace)
        found = place.kubernetes.get(API_VERSION, KIND, pipeline.metadata.namespace, pipeline.metadata.name)
        before = left_alone(parse({"apiVersion": API_VERSION, "kind": KIND, **found}), pipeline) if found else None
    except NoCluster as e:
        click.echo(f"not compared with a cluster: {e.message}", err=True)
        resource = "not compared"
    edits = changes(before, pipeline) if before else ()
    if before:
        resource = "changed" if edits else "unchanged"
    differences = Differences(resource, most(edits), edits)
    if topics:
        differences = _with_topics(differences, pipeline, bootstrap_servers, secrets)
    if output == "table":
        _print(differences, pipeline, console())
    else:
        emit(differences, output)
    return ExitCode.FAILED if differences else ExitCode.OK


def _placed(pipeline: DeliveryPipeline, namespace: str) -> DeliveryPipeline:
    """In the namespace that kubectl would apply it to."""
    if "namespace" in pipeline.metadata.model_fields_set:
        return pipeline
    return pipeline.model_copy(update={"metadata": pipeline.metadata.model_copy(update={"namespace": namespace})})


def _with_topics(
    found: Differences, pipeline: DeliveryPipeline, servers: str | None, secrets: Path | None
) -> Differences:
    kafka = Kafka(
        cluster(kafka_connection(pipeline.spec.kafka, servers), str(secrets.resolve()) if secrets else None),
        timeout=_TIMEOUT_S,
    )
    planned, needed = make_plan(pipeline).topics, needed_topics(pipeline)
    observed = observe.topics(kafka, [*(t.name for t in planned), *needed])
    create, differing = of_topics(planned, observed)
    return replace(found, create=create, topics=differing, missing=missing(needed, planned, observed))


def _print(found: Differences, pipeline: DeliveryPipeline, out: Console) -> None:
    name = f"{pipeline.metadata.namespace}/{pipeline.metadata.name}"
    if found.resource != "not compared":
        said = {
            "created": "is not there, and would be created",
            "unchanged": "is as the file says",
            "changed": "would change",
        }
        out.print(Text(f"{name} {said[found.resource]}", style="bold"))
    if found.changes:
        print_changes(found.changes, out)
    for topic in found.create or ():
        out.print(Text(f"topic {topic} would be created"))
    for topic in found.missing:
        out.print(
            Text(
                f"topic {topic} is not there, and nobody makes it: create it, or list it under spec.topics",
                style="yellow",
            )
        )
    if found.topics:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("topic", "setting", "found", "planned", "why"):
            table.add_column(column, overflow="fold")
        for d in found.topics:
            table.add_row(*(Text(text) for text in (d.topic, d.setting, d.found, d.planned, d.reason)))
        out.print(table)
    elif found.topics is not None and not found.create and not found.missing:
        out.print(Text("topics are as planned"))
