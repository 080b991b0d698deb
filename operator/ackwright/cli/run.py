"""ackwright run: runs one pipeline on this machine, with the brokers of the file or three that it starts."""

from __future__ import annotations

import contextlib
import functools
import platform
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import click

from ackwright.api.spec import (
    ACCEPTED_POSITIONS_ANNOTATION,
    ACCEPTED_STATE_LOSS_ANNOTATION,
    DeliveryPipeline,
    Kafka,
)
from ackwright.apply import topics as apply
from ackwright.cli.brokers import brokers_option, sink_brokers_option, with_bootstrap_servers, with_kafka
from ackwright.cli.failures import INTERRUPTED, print_errors, warnings_of
from ackwright.cli.foreground import Interrupts, working_directory
from ackwright.cli.local_console import ConsoleDisplay, console_option, served
from ackwright.cli.output import file_option, remember_lines
from ackwright.cli.run_output import Display, display
from ackwright.cli.waiting import waiting
from ackwright.clients.kafka import Kafka as KafkaClient
from ackwright.console.activity import Activity
from ackwright.errors import AckwrightError, reported
from ackwright.local import jars, spark_start
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.pair import Pair
from ackwright.local.supervise import CHECK_TRANSFORM, Job, spark_settings
from ackwright.local.watch import Watch
from ackwright.observe import topics as observe
from ackwright.observe.cluster import job_premises
from ackwright.planning.clusters import needed_topics, parts
from ackwright.planning.plan import DeliveryPlan, load_judged
from ackwright.planning.plan import plan as make_plan
from ackwright.planning.suitability import require_suitable
from ackwright.render.jobspec import clusters, jobspec
from ackwright_stream.jobspec import ExitCode, Reason

T = TypeVar("T")
_TICK = 0.25  # seconds between two polls of the job
_TERMINATED, _KILLED = 128 + signal.SIGTERM, 128 + signal.SIGKILL


@click.command()
@file_option
@click.option(
    "--embedded", is_flag=True, help="Start three brokers on this machine and use them in place of those in the file."
)
@brokers_option
@sink_brokers_option
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory for the files of brokers and job, which stay there.",
)
@click.option(
    "--secrets", type=click.Path(path_type=Path), help="A directory that holds each Secret as a directory of files."
)
@click.option(
    "--progress-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on which the job serves its progress; 0: any free port.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one object per line, also errors.",
    callback=remember_lines,
)
@click.option(
    "--accept-positions",
    "fingerprint",
    metavar="FINGERPRINT",
    help="Continue from the offsets that another program has set, if they have this fingerprint.",
)
@click.option(
    "--accept-state-loss",
    "lost_state",
    metavar="FINGERPRINT",
    help="Continue with an empty state if the state of a stateful pipeline is lost and has this fingerprint.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="Keep a second driver with Spark started, which takes over when the first one is killed; as spec.standby.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary directory.")
@console_option
@click.option(
    "--dry-run", is_flag=True, help="Check the brokers, print which topics would be created, and start nothing."
)
def run(
    *,
    file: Path,
    embedded: bool,
    bootstrap_servers: str | None,
    sink_bootstrap_servers: str | None,
    directory: Path | None,
    secrets: Path | None,
    progress_port: int,
    output: str,
    fingerprint: str | None,
    lost_state: str | None,
    standby: bool,
    keep: bool,
    with_console: bool,
    dry_run: bool,
) -> int:
    """Run one pipeline on this machine until it is complete or interrupted.

    What `ackwright plan` refuses is refused before brokers and Spark start.
    The first SIGINT or SIGTERM lets the running batch end and commits its positions; the second one kills the job.
    The exit code is the job's, or 130 if it was killed.
    """
    if embedded and (bootstrap_servers or sink_bootstrap_servers) is not None:
        raise click.UsageError("--embedded starts brokers, and --bootstrap-servers names others; give only one of them")
    pipeline, _, warnings = load_judged(file)
    if output == "text":
        print_errors(warnings_of(warnings), "warning")
    declared = with_bootstrap_servers(pipeline, bootstrap_servers, sink_bootstrap_servers)
    pipeline = _accepting(declared, fingerprint, lost_state)
    if standby:
        pipeline = pipeline.model_copy(update={"spec": pipeline.spec.model_copy(update={"standby": True})})
    plan = make_plan(pipeline)
    keeps_directory = plan.state is not None and not plan.state.bucket
    if keeps_directory and directory is None and not embedded and not dry_run:
        raise click.UsageError(
            "the pipeline keeps its state in a directory, and without it cannot be continued; give --dir DIRECTORY"
        )
    if pipeline.spec.suspend:
        click.echo("spec.suspend is for the operator; run ignores it and delivers", err=True)
    if pipeline.spec.trigger.schedule:
        click.echo("spec.trigger.schedule is for the operator; run delivers what is there now, once", err=True)
    if dry_run:
        with contextlib.nullcontext() if embedded else _offering_brokers():
            return _dry_run(plan, embedded=embedded, secrets=secrets)
    activity = _activity(pipeline, file) if with_console else None
    show = ConsoleDisplay(display(output), activity) if activity else display(output)
    interrupted = Interrupts()
    with (
        interrupted,
        served(activity, interrupted),
        working_directory(directory, keep) as place,
        contextlib.ExitStack() as stack,
    ):
        if keep and directory is None:
            stack.callback(click.echo, f"files are kept in {place}", err=True)
        waited = waiting if output == "text" else contextlib.nullcontext
        spark = spark_settings(place / "job")
        if not spark_start.is_prepared():
            with waited("Preparing Spark, once for this machine"):
                spark_start.java_options()
        if plan.state and plan.state.bucket and not jars.is_cached("s3"):
            with waited("Downloading the classes of S3A, once for this machine"):
                jars.directory("s3")
        if embedded:
            with waited("Starting three brokers"):
                brokers = stack.enter_context(EmbeddedKafka(place / "kafka"))
            # Which require neither credentials nor TLS.
            pipeline = with_kafka(pipeline, Kafka.model_validate({"bootstrapServers": brokers.bootstrap_servers}))
            plan = make_plan(pipeline)
            show.brokers(brokers.bootstrap_servers, place / "kafka", keep=keep or directory is not None)
        job = jobspec(
            plan,
            master=f"local[{plan.slots}]",
            secrets=str(secrets.resolve()) if secrets else None,
            identity=re.sub(r"[^\w.-]", "-", f"local-{platform.node()}"),
            progress_port=progress_port,
            checkpoint=str(place.resolve() / "checkpoint") if keeps_directory else None,
            spark_extra=spark,
        )
        watch = stack.enter_context(Watch())

        def check() -> None:
            check_transform(Job(job, place / "check", watch, command=CHECK_TRANSFORM), interrupted)

        with contextlib.nullcontext() if embedded else _offering_brokers():
            prepare(_clients(plan, secrets), show, None if embedded else check)
        if not plan.standby:
            return follow(Job(job, place / "job", watch), show, interrupted)

        def start(number: int) -> Job:
            own = place / ("job" if number == 0 else f"job-{number + 1}")
            port = progress_port if number == 0 else 0
            return Job(replace(job, spark={**job.spark, **spark_settings(own)}, progress_port=port), own, watch)

        return follow(Pair(start, show.takeover), show, interrupted)


def _activity(pipeline: DeliveryPipeline, file: Path) -> Activity:
    """What the console shows of this run."""
    name = f"{pipeline.metadata.namespace}/{pipeline.metadata.name}"
    activity = Activity(f"ackwright run -f {file}")
    activity.pipeline(pipeline.model_dump(mode="json", by_alias=True, exclude_none=True))
    activity.stage(name, pipeline=name)
    return activity


@contextlib.contextmanager
def _offering_brokers() -> Iterator[None]:
    """Adds to the remedy of brokers that do not answer that the command can start some."""
    try:
        yield
    except AckwrightError as e:
        if e.reason is not Reason.BROKERS_UNREACHABLE:
            raise
        raise AckwrightError(e.reason, e.cause, f"{e.remedy}; --embedded starts brokers on this machine") from e


def _accepting(pipeline: DeliveryPipeline, positions: str | None, state: str | None) -> DeliveryPipeline:
    """The pipeline as if it had the annotations that the commands set in a cluster which accept these fingerprints."""
    accepted = {ACCEPTED_POSITIONS_ANNOTATION: positions, ACCEPTED_STATE_LOSS_ANNOTATION: state}
    annotations = {**pipeline.metadata.annotations, **{name: value for name, value in accepted.items() if value}}
    return pipeline.model_copy(update={"metadata": pipeline.metadata.model_copy(update={"annotations": annotations})})


def _clients(plan: DeliveryPlan, secrets: Path | None) -> list[tuple[KafkaClient, DeliveryPlan]]:
    """A client of each Kafka cluster, with what the plan has there."""
    connections = clusters(plan, str(secrets.resolve()) if secrets else None)
    return [(KafkaClient(connections[role]), part) for role, part in parts(plan).items()]


def prepare(
    clients: Sequence[tuple[KafkaClient, DeliveryPlan]],
    show: Display,
    check: Callable[[], None] | None,  # called before topics are created, if any are; may raise AckwrightError
) -> None:
    """Checks the brokers of each cluster, then creates the planned topics that are missing.

    clients: with what the plan has on each cluster. Raises AckwrightError, where possible before anything is written.
    """
    for kafka, part in clients:
        require_suitable(part, job_premises(kafka, part))
    # Of every cluster, because it also finds what is missing there.
    if check and [name for kafka, part in clients for name in _each(apply.topics_to_create, kafka, part)]:
        check()
    show.topics(apply.combined(_each(apply.ensure, kafka, part) for kafka, part in clients))


def _each(what: Callable[..., T], kafka: KafkaClient, part: DeliveryPlan) -> T:
    """The result of one of apply's functions for the topics that a plan has on one cluster."""
    return what(kafka, part.topics, needed_topics(part), read_topics=functools.partial(observe.topics, kafka))


def check_transform(job: Job, interrupted: Interrupts) -> None:
    """Waits for a job that only checks schema and transform, so that no topics are created for one that cannot run.

    Raises AckwrightError with the failure that the job reports.
    """
    while (code := job.poll()) is None:
        interrupted.wait(_TICK)
    if code:
        raise reported(job.failure(), f"the transform could not be checked (exit code {code}); see {job.log}")


def _dry_run(plan: DeliveryPlan, *, embedded: bool, secrets: Path | None) -> int:
    """Prints what prepare would do, as the brokers validate it.

    The transform is not checked, because that needs Spark.
    """
    if embedded:
        raise click.UsageError(
            "--dry-run reads from the brokers of the file, and --embedded would start others; give only one of them"
        )
    clients = _clients(plan, secrets)
    for kafka, part in clients:
        require_suitable(part, job_premises(kafka, part))
    ensured = apply.combined(_each(apply.dry_run, kafka, part) for kafka, part in clients)
    for name in ensured.created:
        click.echo(f"topic {name} would be created (dry run)")
    for difference in ensured.differences:
        click.echo(f"{difference}; `ackwright run` leaves it as it is")
    click.echo("the job would be started (dry run)")
    return ExitCode.OK


def follow(job: Job | Pair, show: Display, interrupted: Interrupts) -> int:
    """Shows the job's progress until it ends, and passes interrupts on to it.

    Returns the job's exit code, or INTERRUPTED if the interrupts ended it before it could drain.
    """
    handled = 0  # interrupts
    try:
        interrupted.deferred = True
        with show:
            while (code := job.poll()) is None:
                if interrupted.count > handled:
                    handled = interrupted.count
                    show.stopping(last=handled > 1)
                    job.drain() if handled == 1 else job.kill()
                if report := job.progress():
                    show.progress(report)
                interrupted.wait(_TICK)
    except BaseException:
        job.kill()
        raise
    if code == 0 and (last := job.final()):
        show.progress(last)
    interruption = _interruption(code, handled)
    code = INTERRUPTED if interruption else code
    show.end(code, interruption or (job.failure() if code else None), job.log)
    return code


def _interruption(code: int, interrupts: int) -> str | None:
    """How a passed-on interrupt ended the job, which could not report that itself; None if the job ended otherwise."""
    if interrupts and code == _TERMINATED:
        return "the job was stopped before it began"
    return "the job was killed" if interrupts > 1 and code == _KILLED else None
