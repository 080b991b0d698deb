"""ackwright run: one pipeline on this machine, against the brokers of the file or three of its own."""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Callable
from pathlib import Path

import click

from ackwright.api.spec import DeliveryPipeline, Kafka
from ackwright.apply import topics as apply
from ackwright.cli.brokers import brokers_option, with_bootstrap_servers, with_kafka
from ackwright.cli.failures import INTERRUPTED
from ackwright.cli.foreground import Interrupts, working_directory
from ackwright.cli.output import file_option
from ackwright.cli.run_output import Display, display
from ackwright.clients.kafka import Kafka as KafkaClient
from ackwright.errors import told
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.supervise import JUDGE, Job, spark_settings
from ackwright.local.watch import Watch
from ackwright.observe import cluster
from ackwright.observe import topics as observe
from ackwright.planning.declared import needed_topics
from ackwright.planning.plan import DeliveryPlan, load
from ackwright.planning.plan import plan as make_plan
from ackwright.render.jobspec import cluster as connection
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import ExitCode, JobSpec

_TICK = 0.25  # seconds between looks at the job
_TERMINATED, _KILLED = 128 + signal.SIGTERM, 128 + signal.SIGKILL


@click.command()
@file_option
@click.option(
    "--embedded", is_flag=True, help="Start three brokers of its own on this machine, in place of those in the file."
)
@brokers_option
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Where brokers and job keep their files; they stay there.",
)
@click.option(
    "--secrets", type=click.Path(path_type=Path), help="A directory that holds each Secret as a directory of files."
)
@click.option(
    "--progress-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Where the job serves its progress; 0: any free port.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one object a line.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary directory.")
@click.option(
    "--dry-run", is_flag=True, help="Check the brokers, say which topics would be created, and start nothing."
)
def run(
    *,
    file: Path,
    embedded: bool,
    bootstrap_servers: str | None,
    directory: Path | None,
    secrets: Path | None,
    progress_port: int,
    output: str,
    keep: bool,
    dry_run: bool,
) -> int:
    """Run one pipeline here, until it is complete or interrupted.

    The first SIGINT or SIGTERM lets the running batch end and commits its positions; the second one kills the job.
    The exit code is the job's, or 130 if it was killed.
    """
    if embedded and bootstrap_servers is not None:
        raise click.UsageError(
            "--embedded starts brokers of its own, and --bootstrap-servers names others; give one of them"
        )
    pipeline = with_bootstrap_servers(load(file)[0], bootstrap_servers)
    plan = make_plan(pipeline)
    if pipeline.spec.suspend:
        click.echo("spec.suspend is for the operator; run delivers all the same", err=True)
    if dry_run:
        return _try(pipeline, plan, embedded=embedded, secrets=secrets)
    show = display(output)
    interrupted = Interrupts()
    with interrupted, working_directory(directory, keep) as place, contextlib.ExitStack() as stack:
        if keep and directory is None:
            stack.callback(click.echo, f"files are kept in {place}", err=True)
        if embedded:
            brokers = stack.enter_context(EmbeddedKafka(place / "kafka"))
            # Which ask for neither credentials nor TLS.
            pipeline = with_kafka(pipeline, Kafka.model_validate({"bootstrapServers": brokers.bootstrap_servers}))
            plan = make_plan(pipeline)
            show.brokers(brokers.bootstrap_servers, place / "kafka", kept=keep or directory is not None)
        job = jobspec(
            pipeline,
            plan,
            master=f"local[{pipeline.spec.spark.executor.instances * pipeline.spec.spark.executor.cores}]",
            secrets=str(secrets.resolve()) if secrets else None,
            progress_port=progress_port,
            spark_extra=spark_settings(place / "job"),
        )
        watch = stack.enter_context(Watch())
        first = None if embedded else lambda: judge(Job(job, place / "judge", watch, command=JUDGE), interrupted)
        prepare(job, plan, pipeline, show, first)
        return follow(Job(job, place / "job", watch), show, interrupted)


def prepare(
    job: JobSpec, plan: DeliveryPlan, pipeline: DeliveryPipeline, show: Display, first: Callable[[], None] | None
) -> None:
    """Checks the brokers, then creates topics that are planned and missing. Raises AckwrightError before anything is written, if it can.

    first: called before topics are created, if any are; may raise AckwrightError."""
    kafka = KafkaClient(job.cluster)
    cluster.check(kafka, plan)
    needed, look = needed_topics(pipeline), functools.partial(observe.topics, kafka)
    if first and apply.lacking(kafka, plan.topics, needed, look=look):
        first()
    show.topics(apply.ensure(kafka, plan.topics, needed, look=look))


def judge(job: Job, interrupted: Interrupts) -> None:
    """Waits for a job that only looks at the transform, lest topics be created for one that cannot run. Raises AckwrightError with what
    it says."""
    while (code := job.poll()) is None:
        interrupted.wait(_TICK)
    if code:
        raise told(job.failure(), f"the transform could not be looked at (exit code {code})")


def _try(pipeline: DeliveryPipeline, plan: DeliveryPlan, *, embedded: bool, secrets: Path | None) -> int:
    """Tells what prepare would do, as the brokers judge it. The transform is not looked at, for that takes Spark."""
    if embedded:
        raise click.UsageError(
            "--dry-run asks the brokers of the file, and --embedded would start its own; give one of them"
        )
    kafka = KafkaClient(connection(pipeline.spec.kafka, str(secrets.resolve()) if secrets else None))
    cluster.check(kafka, plan)
    wanted = apply.try_ensure(
        kafka, plan.topics, needed_topics(pipeline), look=functools.partial(observe.topics, kafka)
    )
    for name in wanted.created:
        click.echo(f"topic {name} would be created (dry run)")
    for difference in wanted.differences:
        click.echo(f"{difference}; `ackwright run` leaves it as it is")
    click.echo("the job would be started (dry run)")
    return ExitCode.OK


def follow(job: Job, show: Display, interrupted: Interrupts) -> int:
    """Shows the job's progress until it ends, passing on the wish to stop. Returns its exit code, or INTERRUPTED if it could not end by
    itself."""
    asked = 0
    try:
        interrupted.deferred = True
        with show:
            while (code := job.poll()) is None:
                if interrupted.count > asked:
                    asked = interrupted.count
                    show.stopping(last=asked > 1)
                    job.drain() if asked == 1 else job.kill()
                if found := job.progress():
                    show.progress(found)
                interrupted.wait(_TICK)
    except BaseException:
        job.kill()
        raise
    if code == 0 and (last := job.final()):
        show.progress(last)
    cut_short = _cut_short(code, asked)
    code = INTERRUPTED if cut_short else code
    show.end(code, cut_short or (job.failure() if code else None), job.log)
    return code


def _cut_short(code: int, asked: int) -> str | None:
    """How the job ended by the signal that was passed on, of which it could say nothing itself; None if it ended otherwise. asked: how
    often it was asked to stop."""
    if asked and code == _TERMINATED:
        return "the job was stopped before it began"
    return "the job was killed" if asked > 1 and code == _KILLED else None
