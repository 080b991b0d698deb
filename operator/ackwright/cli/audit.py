"""ackwright audit: counts what a pipeline lost and duplicated, in a process that shares no commit code with the job."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ackwright.cli.brokers import brokers_option, sink_brokers_option, with_bootstrap_servers
from ackwright.cli.foreground import Interrupts, working_directory
from ackwright.cli.output import console, remember_output
from ackwright.cli.pipeline_names import name_argument
from ackwright.cli.target import Target, target_options
from ackwright.errors import AckwrightError, reported
from ackwright.local.supervise import spark_environment, spark_settings
from ackwright.local.watch import Watch
from ackwright.planning.plan import load, plan
from ackwright.render.audit import CONTAINER, audit_job
from ackwright.render.jobspec import jobspec
from ackwright.render.names import Object
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import ExitCode, JobSpec, Reason, to_json
from ackwright_stream.reports import AUDITED, Ending, Verdict

_COUNTS = {
    "sent": "source records that the positions have passed",
    "counted": "the same, counted by another client than the one that read them",
    "expected": "the transform's output for them",
    "delivered": "records in the sink, as a read_committed consumer reads them",
    "lost": "expected and not in the sink",
    "missing": "expected and not in the sink, from which records were or may have been removed",
    "duplicated": "more often in the sink than expected",
    "unexpected": "in the sink, and no source record explains it",
    "misplaced": "in another partition of the sink than the declared one",
    "outOfOrder": "behind a later record of the same source partition, in one partition of the sink",
    "malformed": "source records that do not parse",
    "deadLetters": "dead letters of the pipeline, in their topic or table",
    "unjudged": "in the sink, and possibly right: records that would tell no longer exist, or partitions were added",
}
_HIGHLIGHTED = ("lost", "missing", "duplicated", "unexpected", "misplaced", "outOfOrder", "unjudged")
_STYLES = {Verdict.HELD: "bold green", Verdict.UNPROVEN: "bold yellow", Verdict.BROKEN: "bold red"}


@click.command()
@name_argument(required=False)
@click.option(
    "-f", "--file", "file", type=click.Path(path_type=Path), help="The pipeline, as YAML; audited from this machine."
)
@brokers_option
@sink_brokers_option
@target_options
@click.option(
    "--secrets", type=click.Path(path_type=Path), help="A directory that holds each Secret as a directory of files."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print, also errors.",
    callback=remember_output,
)
@click.option("--dry-run", is_flag=True, help="With NAME: let the API server validate the Job, and create none.")
def audit(
    *,
    name: str | None,
    file: Path | None,
    bootstrap_servers: str | None,
    sink_bootstrap_servers: str | None,
    target: Callable[[], Target],
    secrets: Path | None,
    output: str,
    dry_run: bool,
) -> int:
    """Count what was lost and duplicated, independently of the job; the pipeline may be running.

    With NAME: a pipeline in a cluster, by a Job in its namespace. With -f: the file's pipeline, from this machine.

    Reads the source up to the positions, runs the transform again, and compares its output with the sink. Changes
    nothing. If the transform names topics, it also reads the topics of spec.topics. Exit code 0 only if the declared
    guarantee held, 1 if not, 6 if that cannot be proven, because records that the proof needs no longer exist.
    """
    if (name is None) == (file is None):
        raise click.UsageError("give either the NAME of a pipeline in the cluster, or -f FILE")
    if name and name.endswith((".yaml", ".yml")):
        raise click.UsageError(f"{name} is the name of a file, not of a pipeline; write -f {name}")
    if dry_run and name is None:
        raise click.UsageError("--dry-run is for an audit in the cluster; with -f nothing is written anyway")
    if (bootstrap_servers or sink_bootstrap_servers) is not None and name:
        raise click.UsageError(
            "--bootstrap-servers is for -f; an audit in the cluster connects to the brokers as the pipeline does"
        )
    if name and dry_run:
        return _dry_run(target(), name)
    report = (
        in_cluster(target(), name)
        if name
        else _on_this_machine(file or Path(), bootstrap_servers, sink_bootstrap_servers, secrets)
    )
    if output == "json":
        click.echo(json.dumps(report.document(), indent=2, ensure_ascii=False))
    else:
        _print(report, console())
    return report.verdict.exit_code


def _on_this_machine(file: Path, servers: str | None, sink_servers: str | None, secrets: Path | None) -> Report:
    pipeline = with_bootstrap_servers(load(file)[0], servers, sink_servers)
    with (
        Interrupts(),
        working_directory(None, keep=False) as place,  # Spark's shuffle files hold records
        Watch() as watch,
    ):
        delivery = replace(plan(pipeline), state_secret=None)  # an audit reads no state
        job = jobspec(
            delivery,
            master="local[*]",
            secrets=str(secrets.resolve()) if secrets else None,
            spark_extra=spark_settings(place),
        )
        (report,) = audited([job], place, watch, [topic.name for topic in delivery.topics])
    return report


def in_cluster(target: Target, name: str, timeout: float = 900.0) -> Report:
    """The report of an audit that runs as a Job beside the pipeline, where its brokers and Secrets are.

    timeout: seconds. Raises AckwrightError with the audit's reason if it has no result.
    """
    job = _job(target, name)
    target.kubernetes.create(job)
    click.echo(f"auditing in Job {job['metadata']['name']}", err=True)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        pods = target.kubernetes.objects("v1", "Pod", target.namespace, {"job-name": job["metadata"]["name"]})
        ended = next((p for p in pods if p.get("status", {}).get("phase") in ("Succeeded", "Failed")), None)
        if ended:
            return _report_of(target, ended)
        time.sleep(1)
    raise AckwrightError(
        Reason.UNEXPECTED, f"the audit has not ended after {timeout:.0f} s; see Job {job['metadata']['name']}"
    )


def _job(target: Target, name: str) -> Object:
    pipeline = target.pipeline(name)
    topics = [topic["name"] for topic in pipeline["spec"].get("topics", ())]
    kinds = (("apps/v1", "StatefulSet"), ("batch/v1", "Job"))
    driver = next((o for api, kind in kinds if (o := target.kubernetes.get(api, kind, target.namespace, name))), None)
    if driver is None and pipeline.get("status", {}).get("finishedRun"):
        message = f"the Job of {name}, whose configuration an audit needs, has been deleted after its run has completed"
        raise AckwrightError(Reason.UNEXPECTED, f"{message}; audit its file: ackwright audit -f FILE")
    if driver is None:
        raise AckwrightError(Reason.UNEXPECTED, f"{name} has never been started; see why with: ackwright status {name}")
    return audit_job(driver, f"{name[:40]}-audit-{uuid.uuid4().hex[:6]}", topics)


def _dry_run(target: Target, name: str) -> int:
    job = _job(target, name)
    target.kubernetes.create(job, dry_run=True)
    click.echo(f"Job {job['metadata']['name']} would be created in namespace {target.namespace} (dry run)")
    return ExitCode.OK


def _report_of(target: Target, pod: Mapping[str, Any]) -> Report:
    """The report of an audit's pod that has ended. Raises AckwrightError if it has none."""
    name, status = pod["metadata"]["name"], pod["status"]
    container: Mapping[str, Any] = next((c for c in status.get("containerStatuses", ()) if c["name"] == CONTAINER), {})
    terminated = container.get("state", {}).get("terminated")
    if terminated is None:  # of an evicted pod, say, neither an exit code nor a log is left
        why = ": ".join(status[k] for k in ("reason", "message") if status.get(k)) or "no reason reported"
        raise AckwrightError(
            Reason.UNEXPECTED, f"pod {name} of the audit ended before its container did ({why}); run the audit again"
        )
    log = target.kubernetes.logs(target.namespace, name, container=CONTAINER, follow=False, tail=None, previous=False)
    lines = log.read().decode(errors="replace").splitlines()
    code = terminated["exitCode"]
    text = next((line for line in reversed(lines) if line.startswith("{")), None)
    if code in AUDITED and text and (report := _parsed(text)):
        return report
    raise _failed(code, Ending.from_json(terminated.get("message", "")), lines)


def audited(jobs: Sequence[JobSpec], directory: Path, watch: Watch, routes: Sequence[str] = ()) -> list[Report]:
    """The reports of an audit of some jobspecs, which runs as one process that ends with the watch.

    routes: topics to which a transform that names topics may route records.
    directory: gets the jobspecs, reports.json, audit.log and ending.json. Raises AckwrightError with the audit's reason
    if it has no result.
    """
    (directory / "spark").mkdir(exist_ok=True, parents=True)
    ending = directory / "ending.json"
    ending.unlink(missing_ok=True)  # of an earlier audit in this directory
    argv = [sys.executable, "-m", "ackwright_stream.audit", "-o", "json", "--ending", str(ending)]
    for number, job in enumerate(jobs):
        file = directory / f"audit-{number}.json"
        file.write_text(to_json(job))
        argv += ["--jobspec", str(file)]
    argv += [f"--route={topic}" for topic in routes]
    log = directory / "audit.log"
    with (directory / "reports.json").open("w+b") as out:
        with log.open("wb") as errors:
            code = watch.start(argv, env=spark_environment(os.environ, directory), stdout=out, stderr=errors).wait()
        out.seek(0)
        reports = [report for line in out if (report := _parsed(line))]
    if code in AUDITED and len(reports) == len(jobs):
        return reports
    raise _failed(
        code,
        Ending.from_json(ending.read_text()) if ending.exists() else None,
        log.read_text(errors="replace").splitlines(),
    )


def _parsed(text: str | bytes) -> Report | None:
    """The report that an audit printed as one line of JSON; None for any other text."""
    try:
        return Report.of_document(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _failed(code: int, ending: Ending | None, log: Sequence[str]) -> AckwrightError:
    last = next((line.strip() for line in reversed(log) if line.strip()), "its log is empty")
    return reported(
        ending.failure if ending else None, f"the audit ended with exit code {code} and without a report: {last}"
    )


def _print(report: Report, out: Console) -> None:
    verdict, document = report.verdict, report.document()
    out.print(Text.assemble((str(report.guarantee), "bold"), " ", (report.headline, _STYLES[verdict])))
    counts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    counts.add_column(style="cyan", no_wrap=True)
    counts.add_column(justify="right")
    counts.add_column()
    for name, meaning in _COUNTS.items():
        number = document[name]
        counts.add_row(name, Text(f"{number:,}", style="yellow" if number and name in _HIGHLIGHTED else ""), meaning)
    out.print(counts)
    if report.offending:
        shown = Table(
            title="Offending records (at most 10 of a kind)",
            title_justify="left",
            box=None,
            pad_edge=False,
            padding=(0, 2, 0, 0),
        )
        for column in ("kind", "count", "topic", "key", "value", "where"):
            shown.add_column(column, overflow="ellipsis", no_wrap=column == "value")
        for o in report.offending:
            cells = (o.kind, o.count, o.topic, o.key, o.value, o.where)
            shown.add_row(*(Text("null" if cell is None else str(cell)) for cell in cells))
        out.print(shown)
    for label, lines in (("not judged", report.doubts), ("note", report.notes)):
        for line in lines:
            out.print(Text(f"{label}: {line}", style="yellow"), soft_wrap=True)
