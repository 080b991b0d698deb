"""ackwright demo: kills processes during delivery under each guarantee, and counts lost and duplicated records."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

import click

from ackwright.api.spec import parse
from ackwright.apply import topics as apply
from ackwright.cli.audit import audited
from ackwright.cli.demo_output import COLUMNS, Screen, print_table, row
from ackwright.cli.foreground import Interrupts, working_directory
from ackwright.cli.local_console import console_option, served
from ackwright.cli.output import console, remember_output
from ackwright.clients.kafka import Kafka as KafkaClient
from ackwright.console.activity import Activity
from ackwright.local.demo import flights, pipelines, results
from ackwright.local.demo.database import Database
from ackwright.local.demo.database import create as create_database
from ackwright.local.demo.kills import TARGETS, Kill, Target, schedule
from ackwright.local.demo.pipelines import Pipeline, Sink
from ackwright.local.demo.run import DemoRun
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.postgres import EmbeddedPostgres
from ackwright.local.spark_start import SHORT_LIVED
from ackwright.local.supervise import spark_settings
from ackwright.local.watch import Watch
from ackwright.observe import topics as observe
from ackwright.observe.cluster import job_premises
from ackwright.planning.guarantees import values
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.plan import plan as make_plan
from ackwright.planning.suitability import require_suitable
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import Guarantee, JobSpec
from ackwright_stream.reports import Verdict

_MIN_RECORDS = 1_000  # every batch then has records for each partition
_APP = Path(results.__file__).parent / "app"  # contains the transform, which the job imports as a user's module
_NONE = "none"


def _sink(_context: click.Context, _parameter: click.Parameter, value: str) -> Sink:
    return Sink(value)


def _targets(context: click.Context, _parameter: click.Parameter, value: str | None) -> frozenset[Target]:
    """What --fail names, of what the sink offers (--sink is parsed first); without --fail all of it."""
    sink: Sink = context.params["sink"]
    known = [str(t) for t in TARGETS[sink]]
    names = known if value is None else [name.strip() for name in value.split(",")]
    unknown = [name for name in names if name not in (*known, _NONE)]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} cannot be killed with --sink {sink}; choose from {', '.join(known)}, or {_NONE}"
        )
    if _NONE in names and len(names) > 1:
        raise click.BadParameter(f"{_NONE} cannot be combined with other values")
    return frozenset(Target(name) for name in names if name != _NONE)


def _empty_directory(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
    """Refuses a directory with files: records of an earlier demo would be counted with those of this one."""
    if value is not None and value.is_dir() and any(value.iterdir()):
        raise click.BadParameter(f"{value} is not empty; choose an empty or new directory")
    return value


@click.command()
@click.option(
    "--sink",
    type=click.Choice([s.value for s in Sink]),
    default=Sink.KAFKA.value,
    show_default=True,
    is_eager=True,
    callback=_sink,
    help="Where to deliver: a topic, a table of a PostgreSQL server that the demo starts, or in a directory a Delta "
    "table, an Iceberg table or Parquet files.",
)
@click.option(
    "--pipeline",
    type=click.Choice([p.value for p in Pipeline]),
    default=Pipeline.DISRUPTED.value,
    show_default=True,
    callback=lambda _context, _parameter, value: Pipeline(value),
    help="What to deliver: disrupted, the flights that were cancelled or late; or counts, which counts the flights of "
    "each airport, airline and day. It is stateful: exactly-once, into Kafka.",
)
@click.option(
    "--guarantee",
    "selection",
    multiple=True,
    type=click.Choice([*(g.value for g in Guarantee), "all"]),
    default=["all"],
    help="Which guarantees to run. May be repeated.",
)
@click.option(
    "--records",
    type=click.IntRange(_MIN_RECORDS, flights.ALL),
    default=flights.ALL,
    show_default=True,
    help="How many flights to deliver, from the first on.",
)
@click.option(
    "--fail",
    "targets",
    callback=_targets,
    help="What to kill: a comma-separated list of driver, worker, broker, with --sink postgres also database; or none. "
    "Default: all of them.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Determines what is killed and when. The same for every guarantee.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    callback=_empty_directory,
    help="The directory for the files of brokers and jobs, which is kept. Default: a temporary directory.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of the result, also of errors.",
    callback=remember_output,
)
@click.option("--keep", is_flag=True, help="Keep the temporary directory afterwards.")
@console_option
def demo(
    *,
    sink: Sink,
    pipeline: Pipeline,
    selection: tuple[str, ...],
    records: int,
    targets: frozenset[Target],
    seed: int,
    directory: Path | None,
    output: str,
    keep: bool,
    with_console: bool,
) -> int:
    """Kill processes during delivery under each guarantee, and count lost and duplicated records.

    The records to expect are counted while they are produced, and the audit has to agree. Exit code 1 if a guarantee
    did not hold, 6 if that is not proven. With -o json the result is on stdout and the live view on stderr.
    """
    guarantees = _guarantees(pipeline, sink, selection)
    source = flights.archive()
    activity = Activity(f"ackwright demo --sink {sink}") if with_console else None
    screen = Screen(console(stderr=output == "json"), activity=activity)
    with Interrupts() as interrupted, served(activity, interrupted):
        with working_directory(directory, keep) as place, screen, contextlib.ExitStack() as stack:
            destination, database = (
                (pipelines.COUNTED, None) if pipeline is Pipeline.COUNTS else _output(sink, place, stack, screen)
            )
            screen.phase("starting three brokers")
            keeps_files = directory is not None or keep
            # Brokers in a temporary directory are killed at the end, which is faster than an orderly stop.
            kafka = stack.enter_context(EmbeddedKafka(place / "kafka" if keeps_files else None))
            watch = stack.enter_context(Watch())
            stack.enter_context(_job_environment())
            screen.event(f"three brokers answer at {kafka.bootstrap_servers}; files are in {place}")
            counts, ends = _fill_source(kafka, source, records, place, screen)
            delivered = [
                _deliver(
                    g,
                    schedule(seed, targets),
                    kafka,
                    ends,
                    directory=place / g,
                    watch=watch,
                    screen=screen,
                    output=destination,
                    database=database,
                )
                for g in guarantees
            ]
            screen.phase("auditing")
            reports = audited([job for job, _ in delivered], place / "audit", watch)
            runs = [
                results.result(guarantee, measured, report, counts, pipeline)
                for guarantee, (_, measured), report in zip(guarantees, delivered, reports, strict=True)
            ]
            screen.phase("stopping the servers")
        if activity:
            activity.end(COLUMNS, [row(r) for r in runs], results.notes(runs))
        if output == "json":
            click.echo(json.dumps(results.document(runs, sink, pipeline), indent=2))
        else:
            print_table(runs, sink, console(), pipeline)
    return Verdict.worst(r.verdict for r in runs).exit_code


def _guarantees(pipeline: Pipeline, sink: Sink, selection: Sequence[str]) -> list[Guarantee]:
    """The guarantees to run. Raises click.UsageError for those, or for a sink, that the pipeline cannot have."""
    if pipeline is Pipeline.DISRUPTED:
        return [g for g in Guarantee if "all" in selection or g in selection]
    if sink is not Sink.KAFKA or not {"all", Guarantee.EXACTLY_ONCE}.issuperset(selection):
        raise click.UsageError("--pipeline counts delivers exactly-once into Kafka; omit --sink and --guarantee")
    return [Guarantee.EXACTLY_ONCE]


def _output(
    sink: Sink, place: Path, stack: contextlib.ExitStack, screen: Screen
) -> tuple[pipelines.Output, EmbeddedPostgres | None]:
    """Where the pipelines deliver, and the server there, which can be killed; None: there is none."""
    match sink:
        case Sink.KAFKA:
            return pipelines.KAFKA, None
        case Sink.POSTGRES:
            database = _start_database(place, stack, screen)
            return pipelines.postgres(database.fields, database.secrets), database.server
        case Sink.DELTA:
            return pipelines.delta(place / "tables"), None
        case Sink.ICEBERG:
            return pipelines.iceberg(place / "tables"), None
        case Sink.FILES:
            return pipelines.files(place / "files"), None
        case _:
            assert_never(sink)


def _start_database(directory: Path, stack: contextlib.ExitStack, screen: Screen) -> Database:
    """A server with an empty database. directory: gets its log and the Secrets; its data are not kept."""
    screen.phase("starting PostgreSQL")
    server = stack.enter_context(EmbeddedPostgres(log=directory / "postgres.log"))
    screen.event(f"PostgreSQL answers at {server.host}:{server.port}")
    return create_database(server, directory / "secrets")


def _fill_source(
    kafka: EmbeddedKafka, source: Path, records: int, directory: Path, screen: Screen
) -> tuple[results.Counts, dict[int, int]]:
    """Produces the flights with the upstream settings of exactly-once. Returns their counts and the end offsets."""
    screen.phase("producing flights", records)
    plan, job = _plan_and_jobspec(kafka, Guarantee.EXACTLY_ONCE, records, directory, pipelines.KAFKA)
    client = KafkaClient(job.cluster)
    read_topics = functools.partial(observe.topics, client)
    apply.ensure(client, [topic for topic in plan.topics if topic.name == pipelines.SOURCE], read_topics=read_topics)
    started_at = time.monotonic()

    def show_progress(produced: int) -> None:
        screen.progress(produced, records, produced / (time.monotonic() - started_at))

    producer_settings = values(plan.upstream.librdkafka)
    counts = flights.produce(producer_settings, pipelines.SOURCE, flights.records(source, records), show_progress)
    screen.event(f"{records:,} flights are in topic {pipelines.SOURCE} after {time.monotonic() - started_at:.1f} s")
    return counts, flights.end_offsets(kafka.bootstrap_servers, pipelines.SOURCE, pipelines.PARTITIONS)


def _deliver(
    guarantee: Guarantee,
    kills: Sequence[Kill],
    kafka: EmbeddedKafka,
    ends: Mapping[int, int],
    *,
    directory: Path,
    watch: Watch,
    screen: Screen,
    output: pipelines.Output,
    database: EmbeddedPostgres | None,
) -> tuple[JobSpec, results.Measurements]:
    """Runs the pipeline of one guarantee, from the creation of its topics to the last record.

    database: the server of the sink; None: nothing of the sink can be killed.
    """
    records = sum(ends.values())
    resource = _document(kafka, guarantee, records, directory, output)
    screen.pipeline(str(guarantee), records, resource)
    kafka.wait_until_in_sync()  # the previous run killed a broker
    plan, job = _plan_and_jobspec(kafka, guarantee, records, directory, output)
    client = KafkaClient(job.cluster)
    require_suitable(plan, job_premises(client, plan))
    apply.ensure(client, plan.topics, read_topics=functools.partial(observe.topics, client))
    run = DemoRun(kafka, job, ends, directory=directory, watch=watch, display=screen, database=database)
    measured = run.run(kills)
    survived = f"{measured.kills} kill{'s' if measured.kills != 1 else ''}"
    screen.event(f"{guarantee}: all records have been processed, with {survived}")
    return job, measured


def _document(
    kafka: EmbeddedKafka, guarantee: Guarantee, records: int, directory: Path, output: pipelines.Output
) -> dict[str, Any]:
    if output is pipelines.COUNTED:
        return pipelines.counts(kafka.bootstrap_servers, records)
    return pipelines.document(kafka.bootstrap_servers, guarantee, records, directory / "checkpoint", output)


def _plan_and_jobspec(
    kafka: EmbeddedKafka, guarantee: Guarantee, records: int, directory: Path, output: pipelines.Output
) -> tuple[DeliveryPlan, JobSpec]:
    plan = make_plan(parse(_document(kafka, guarantee, records, directory, output)))
    secrets = str(output.secrets) if output.secrets else None
    checkpoint = str(directory / "checkpoint") if plan.state else None
    spark = spark_settings(directory)
    return plan, jobspec(plan, master="local[2]", secrets=secrets, checkpoint=checkpoint, spark_extra=spark)


@contextlib.contextmanager
def _job_environment() -> Iterator[None]:
    """Sets the environment of jobs and audit: the path of the transform, and Java options for a fast start."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(_APP), before.get("PYTHONPATH")) if p)
    os.environ["JDK_JAVA_OPTIONS"] = f"{SHORT_LIVED} {before.get('JDK_JAVA_OPTIONS', '')}".strip()
    try:
        yield
    finally:
        for name in ("PYTHONPATH", "JDK_JAVA_OPTIONS"):
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]
