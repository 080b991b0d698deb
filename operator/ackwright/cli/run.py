"""ackwright run: one pipeline on this machine, against the brokers of the file or three of its own."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

import click

from ackwright.api.spec import DeliveryPipeline, Kafka
from ackwright.apply import topics as apply
from ackwright.cli.brokers import brokers_option, reached
from ackwright.cli.foreground import Interrupts, working_directory
from ackwright.cli.output import file_option
from ackwright.cli.run_output import Display, display
from ackwright.clients.kafka import Kafka as KafkaClient
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.supervise import Job, spark_settings
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


@click.command()
@file_option
@click.option("--embedded", is_flag=True, help="Start three brokers of its own on this machine, in place of those in the file.")
@brokers_option
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Where brokers and job keep their files; they stay there.")
@click.option("--secrets", type=click.Path(path_type=Path), help="A directory that holds each Secret as a directory of files.")
@click.option("--progress-port", type=click.IntRange(0, 65535), default=0, help="Where the job serves its progress; 0: any free port.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="json: one object a line.")
@click.option("--keep", is_flag=True, help="Keep the temporary directory.")
@click.option("--dry-run", is_flag=True, help="Check the brokers, say which topics would be created, and start nothing.")
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
    The exit code is the job's.
    """
    if embedded and bootstrap_servers is not None:
        raise click.UsageError("--embedded starts brokers of its own, and --bootstrap-servers names others; give one of them")
    pipeline = reached(load(file)[0], bootstrap_servers)
    plan = make_plan(pipeline)
    if dry_run:
        return _try(pipeline, plan, embedded=embedded, secrets=secrets)
    show = display(output)
    interrupted = Interrupts()
    with interrupted, working_directory(directory, keep) as place, contextlib.ExitStack() as stack:
        if embedded:
            brokers = stack.enter_context(EmbeddedKafka(place / "kafka"))
            pipeline = _with_brokers(pipeline, brokers.bootstrap_servers)
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
        prepare(job, plan, pipeline, show)
        watch = stack.enter_context(Watch())
        return follow(Job(job, place / "job", watch), show, interrupted)


def prepare(job: JobSpec, plan: DeliveryPlan, pipeline: DeliveryPipeline, show: Display) -> None:
    """Checks the brokers, then creates topics that are planned and missing. Raises AckwrightError before anything is written, if it can."""
    kafka = KafkaClient(job.cluster)
    cluster.check(kafka, plan)
    show.topics(apply.ensure(kafka, plan.topics, needed_topics(pipeline), look=functools.partial(observe.topics, kafka)))


def _try(pipeline: DeliveryPipeline, plan: DeliveryPlan, *, embedded: bool, secrets: Path | None) -> int:
    """What prepare would do, judged by the brokers and not done."""
    if embedded:
        raise click.UsageError("--dry-run asks the brokers of the file, and --embedded would start its own; give one of them")
    kafka = KafkaClient(connection(pipeline.spec.kafka, str(secrets.resolve()) if secrets else None))
    cluster.check(kafka, plan)
    wanted = apply.try_ensure(kafka, plan.topics, needed_topics(pipeline), look=functools.partial(observe.topics, kafka))
    for name in wanted.created:
        click.echo(f"topic {name} would be created (dry run)")
    for difference in wanted.differences:
        click.echo(f"{difference}; `ackwright run` leaves it as it is")
    click.echo("the job would be started (dry run)")
    return ExitCode.OK


def follow(job: Job, show: Display, interrupted: Interrupts) -> int:
    """Shows the job's progress until it ends, passing on the wish to stop. Returns its exit code."""
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
    show.end(code, job.failure() if code else None, job.log)
    return code


def _with_brokers(pipeline: DeliveryPipeline, bootstrap_servers: str) -> DeliveryPipeline:
    """The pipeline on other brokers, which ask for neither credentials nor TLS."""
    kafka = Kafka.model_validate({"bootstrapServers": bootstrap_servers})
    return pipeline.model_copy(update={"spec": pipeline.spec.model_copy(update={"kafka": kafka})})
