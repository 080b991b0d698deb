"""ackwright check: whether brokers are ready for pipelines, and for one in particular, with a remedy for everything
that is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ackwright.cli.brokers import kafka_connection, sink_brokers_option, with_bootstrap_servers
from ackwright.cli.check_sink import sink_check
from ackwright.cli.failures import print_errors, warnings_of
from ackwright.cli.output import OutputFormat, console, emit, output_option
from ackwright.cli.waiting import waiting
from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe import readiness as observe
from ackwright.planning.clusters import needed_topics, parts
from ackwright.planning.permission_checks import permission_checks
from ackwright.planning.permissions import needs
from ackwright.planning.plan import DeliveryPlan, load_judged
from ackwright.planning.plan import plan as make_plan
from ackwright.planning.readiness import Check, Verdict, checks
from ackwright.render.jobspec import cluster, clusters
from ackwright_stream.jobspec import Cluster
from ackwright_stream.reasons import REASONS, ExitCode

_MARKS = {Verdict.OK: ("✓", "green"), Verdict.WARNING: ("!", "yellow"), Verdict.FAILED: ("✗", "bold red")}
_TIMEOUT_S = 10.0  # of one call


@click.command()
@click.option(
    "-f", "--file", "file", type=click.Path(path_type=Path), help="A pipeline, as YAML: also check its needs."
)
@click.option("--bootstrap-servers", metavar="HOST:PORT,...", help="The brokers; with -f instead of those in the file.")
@sink_brokers_option
@click.option(
    "--secrets", type=click.Path(path_type=Path), help="A directory that contains each Secret as a directory of files."
)
@output_option
def check(
    *,
    file: Path | None,
    bootstrap_servers: str | None,
    sink_bootstrap_servers: str | None,
    secrets: Path | None,
    output: OutputFormat,
) -> int:
    """Check whether brokers are ready: versions, settings, racks, internal topics, permissions; before and after
    installation.

    With -f also the pipeline's topics, its group, and exactly which permissions its principal lacks. For a sink outside
    Kafka and for formats with a schema registry it also starts Spark, and checks the transform's columns with the
    server. Changes nothing. Exit code 4 if something has to be fixed first.
    """
    if file is None and bootstrap_servers is None:
        raise click.UsageError("no brokers; use -f FILE, --bootstrap-servers HOST:PORT, or both")
    if file is None and sink_bootstrap_servers is not None:
        raise click.UsageError("--sink-bootstrap-servers is for -f: without a file there is no sink; add -f FILE")
    pipeline, plan, warnings = load_judged(file) if file else (None, None, ())
    print_errors(warnings_of(warnings), "warning")
    if pipeline:
        plan = make_plan(with_bootstrap_servers(pipeline, bootstrap_servers, sink_bootstrap_servers))
        results = _of_clusters(plan, str(secrets.resolve()) if secrets else None)
    else:
        results = _of_cluster(cluster(kafka_connection(None, bootstrap_servers), None), None)
    if plan and (plan.needs_registry or not plan.sink.in_kafka or (plan.state and plan.state.bucket)):
        with waiting("Checking the transform, the schemas, the sink and the state with Spark"):
            results = (*results, sink_check(plan, secrets))
    if output == "table":
        _print(results, console())
    else:
        emit(results, output)
    return ExitCode.UNAVAILABLE if any(c.verdict is Verdict.FAILED for c in results) else ExitCode.OK


def _of_clusters(plan: DeliveryPlan, secrets: str | None) -> tuple[Check, ...]:
    """The checks of each Kafka cluster; of two, with its role in their names."""
    connections, of_plan = clusters(plan, secrets), parts(plan)
    return tuple(
        check if len(of_plan) == 1 else replace(check, name=f"{role}: {check.name}")
        for role, part in of_plan.items()
        for check in _of_cluster(connections[role], part)
    )


def _of_cluster(connection: Cluster, plan: DeliveryPlan | None) -> tuple[Check, ...]:
    try:
        with waiting(f"Reading the state of {connection.bootstrap_servers}"):
            return _all(Kafka(connection, timeout=_TIMEOUT_S), plan)
    except AckwrightError as e:
        if e.exit_code is not ExitCode.UNAVAILABLE:
            raise
        return (Check("brokers", Verdict.FAILED, f"{e.reason}: {e.cause}", e.remedy or REASONS[e.reason].remedy),)


def _all(kafka: Kafka, plan: DeliveryPlan | None) -> tuple[Check, ...]:
    needed = needed_topics(plan) if plan else ()
    required = needs(plan)
    names = [*(t.name for t in plan.topics), *needed] if plan else []
    observed = observe.observed(kafka, names, plan.group if plan else None)
    answers = observe.answers(kafka, [need for role in required.values() for need in role], observed.settings)
    routed = plan is not None and plan.sink.routed
    return (*checks(observed, plan, needed, routed=routed), *permission_checks(required, answers))


def _print(results: Sequence[Check], out: Console) -> None:
    """Prints lines instead of a table, so that a command among the remedies can be copied."""
    width = max(len(c.name) for c in results)
    for c in results:
        mark, style = _MARKS[c.verdict]
        out.print(Text.assemble((mark, style), f" {c.name:{width}}  {c.found}"), soft_wrap=True)
        for line in c.remedy.splitlines():
            out.print(Text(f"    → {line}", style="dim"), soft_wrap=True)
    counts = {v: sum(c.verdict is v for c in results) for v in Verdict}
    text = f"{counts[Verdict.OK]} ok, {counts[Verdict.WARNING]} to check, {counts[Verdict.FAILED]} to fix"
    out.print(Text(text, style="bold"))
