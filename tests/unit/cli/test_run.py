"""ackwright run around the job: its notes, the brokers that it uses, how it ends. With stubs of job and brokers."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from rich.console import Console

from ackwright.cli import main, run
from ackwright.cli.foreground import Interrupts
from ackwright.cli.run_output import TextDisplay
from ackwright.local import jars, spark_start
from ackwright.local.supervise import Job
from ackwright_stream.jobspec import ExitCode, JobSpec, KafkaSink
from unit.fake_kafka import FakeKafka

EXAMPLE = Path(__file__).parents[3] / "examples" / "delayed-flights-exactly-once.yaml"
EXAMPLES_SERVERS = yaml.safe_load(EXAMPLE.read_text())["spec"]["kafka"]["bootstrapServers"]


class StubJob:
    """Ends with a code, or with another one once it is drained or killed, and reports nothing."""

    log = Path("job.log")

    def __init__(self, code: int | None = 0, *, drained: int = 0, killed: int = 137) -> None:
        self.code, self._drained, self._killed = code, drained, killed

    def poll(self) -> int | None:
        return self.code

    def drain(self) -> None:
        self.code = self._drained

    def kill(self) -> None:
        self.code = self._killed

    def progress(self) -> None: ...

    def final(self) -> None: ...

    def failure(self) -> None: ...


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[JobSpec]:
    """The jobs that are started, none of which does anything."""
    jobs: list[JobSpec] = []

    def start(job: JobSpec, *_: object, command: object = None) -> StubJob:
        if command is None:  # else it only checks the transform
            jobs.append(job)
        return StubJob()

    monkeypatch.setattr(run, "Job", start)
    monkeypatch.setattr(run, "KafkaClient", lambda *_: FakeKafka())
    monkeypatch.setattr(run, "spark_settings", lambda _: {})
    monkeypatch.setattr(spark_start, "is_prepared", lambda: True)

    @contextlib.contextmanager
    def brokers(_: Path) -> Iterator[Any]:
        yield SimpleNamespace(bootstrap_servers="127.0.0.1:1")

    monkeypatch.setattr(run, "EmbeddedKafka", brokers)
    return jobs


def declared(directory: Path, sink: str | None = None, **spec: object) -> str:
    """The path of the example, edited. sink: the sink's own bootstrapServers."""
    document = yaml.safe_load(EXAMPLE.read_text())
    document["spec"] |= spec
    if sink:
        document["spec"]["sink"]["kafka"]["bootstrapServers"] = sink
    file = directory / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


# ------------------------------------------------ which brokers


@pytest.mark.parametrize(
    ("option", "reached"),
    [
        ([], (EXAMPLES_SERVERS, "other:9092")),
        (["--bootstrap-servers", "there:9"], ("there:9", "other:9092")),
        (["--sink-bootstrap-servers", "there:9"], (EXAMPLES_SERVERS, "there:9")),
        (["--embedded"], ("127.0.0.1:1", None)),  # the brokers that it starts are of both
    ],
)
def test_each_cluster_is_reached_at_its_own_address(
    tmp_path: Path, started: list[JobSpec], option: list[str], reached: tuple[str, str | None]
) -> None:
    assert main.invoke(["run", "-f", declared(tmp_path, "other:9092"), *option]) == ExitCode.OK
    clusters = [(job.cluster, job.sink_of(KafkaSink).cluster) for job in started]
    assert [(source.bootstrap_servers, sink and sink.bootstrap_servers) for source, sink in clusters] == [reached]


@pytest.mark.parametrize("option", [[], ["--bootstrap-servers", "other:9092"]])
def test_a_sink_that_names_the_sources_brokers_is_refused(
    tmp_path: Path, started: list[JobSpec], option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sink = "other:9092" if option else EXAMPLES_SERVERS
    assert main.invoke(["run", "-f", declared(tmp_path, sink), *option]) == ExitCode.INVALID
    assert "names brokers of spec.kafka: the sink is on the source's cluster" in capsys.readouterr().err
    assert started == []


def test_what_plan_refuses_is_refused_before_brokers_and_spark_start(
    tmp_path: Path, started: list[JobSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    file = declared(tmp_path, transform={"sql": "SELECT tailnum AS key, orgin FROM source"})
    assert main.invoke(["run", "-f", file, "--embedded"]) == ExitCode.INVALID
    printed = capsys.readouterr()
    assert re.search(r"pipeline.yaml:\d+:\d+: InvalidTransform: .*did you mean origin\?$", printed.err.strip())
    assert (printed.out, started) == ("", [])


COUNTS: dict[str, Any] = {
    "transform": {"sql": "SELECT origin AS key, CAST(count(*) AS STRING) AS value FROM source GROUP BY origin"},
    "state": {"outputMode": "update"},
}


def test_state_in_a_directory_needs_one_that_stays(tmp_path: Path, started: list[JobSpec]) -> None:
    file = declared(tmp_path, **COUNTS, checkpoint={"volume": {"size": "1Gi"}})
    assert main.invoke(["run", "-f", file]) == ExitCode.INVALID
    assert main.invoke(["run", "-f", file, "--dir", str(tmp_path / "d")]) == ExitCode.OK
    assert [job.state.checkpoint for job in started if job.state] == [str(tmp_path / "d" / "checkpoint")]


@pytest.mark.parametrize("is_cached", [True, False])
def test_state_in_a_bucket_needs_no_directory_and_the_classes_of_s3a(
    tmp_path: Path, started: list[JobSpec], monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    downloads: list[str] = []
    monkeypatch.setattr(jars, "is_cached", lambda _: is_cached)
    monkeypatch.setattr(jars, "directory", downloads.append)
    file = declared(tmp_path, **COUNTS, checkpoint={"uri": "s3a://lake/counts"})
    assert main.invoke(["run", "-f", file]) == ExitCode.OK
    assert [job.state.checkpoint for job in started if job.state] == ["s3a://lake/counts"]
    assert downloads == ([] if is_cached else ["s3"])


# ------------------------------------------------ what is accepted


@pytest.mark.parametrize("embedded", [[], ["--embedded"]])
def test_accepted_positions_come_to_the_job(tmp_path: Path, started: list[JobSpec], embedded: list[str]) -> None:
    file = declared(tmp_path)
    assert main.invoke(["run", "-f", file, "--accept-positions", "0123456789ab", *embedded]) == ExitCode.OK
    assert main.invoke(["run", "-f", file, *embedded]) == ExitCode.OK
    assert [job.accepted_positions for job in started] == ["0123456789ab", None]


# ------------------------------------------------ its notes


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_that_run_ignores_suspend_is_noted_on_stderr_alone(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["run", "-f", declared(tmp_path, suspend=True), "-o", "json", *more]) == ExitCode.OK
    output = capsys.readouterr()
    assert output.err == "spec.suspend is for the operator; run ignores it and delivers\n"
    assert "suspend" not in output.out
    assert main.invoke(["run", "-f", declared(tmp_path), "-o", "json", *more]) == ExitCode.OK
    assert capsys.readouterr().err == ""


def test_a_directory_that_is_kept_is_named_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["run", "-f", str(EXAMPLE), "--keep", "-o", "json"]) == ExitCode.OK
    output = capsys.readouterr()
    before, _, place = output.err.strip().partition("files are kept in ")
    try:
        assert before == ""
        assert Path(place).is_dir()
        assert [json.loads(line)["event"] for line in output.out.splitlines()] == ["topics", "end"]
    finally:
        shutil.rmtree(place)


def test_control_a_chosen_or_a_removed_directory_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--dir", str(tmp_path)], ["--dir", str(tmp_path), "--keep"]):
        assert main.invoke(["run", "-f", str(EXAMPLE), *more]) == ExitCode.OK
    assert capsys.readouterr().err == ""


# ------------------------------------------------ how it ends


def followed(job: StubJob, interrupts: int) -> int:
    """interrupts: how many come before the first poll."""
    interrupted = Interrupts()
    interrupted.count = interrupts
    return run.follow(cast(Job, job), TextDisplay(Console(file=io.StringIO())), interrupted)


def test_a_job_that_was_stopped_before_it_could_drain_is_an_interrupted_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert followed(StubJob(None, drained=143), 1) == 130
    assert capsys.readouterr().err == "the job was stopped before it began\n"


def test_a_job_that_was_killed_by_the_second_interrupt_is_an_interrupted_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert followed(StubJob(None), 2) == 130
    assert capsys.readouterr().err == "the job was killed\n"


@pytest.mark.parametrize(
    ("job", "interrupts", "code"),
    [
        (StubJob(None, drained=0), 1, 0),
        (StubJob(None, drained=3), 1, 3),
        (StubJob(None, drained=137), 1, 137),  # the kernel, for want of memory
        (StubJob(143), 0, 143),
        (StubJob(137), 0, 137),
    ],
    ids=["drained", "failed", "killed while it drained", "terminated by another", "killed by another"],
)
def test_control_any_other_end_is_the_jobs_own(job: StubJob, interrupts: int, code: int) -> None:
    assert followed(job, interrupts) == code


# ------------------------------------------------ a standby


@pytest.mark.parametrize(
    ("options", "spec", "standby"), [([], {}, False), (["--standby"], {}, True), ([], {"standby": True}, True)]
)
def test_a_standby_is_declared_or_chosen(
    tmp_path: Path, started: list[JobSpec], options: list[str], spec: dict[str, Any], *, standby: bool
) -> None:
    assert main.invoke(["run", "-f", declared(tmp_path, **spec), *options]) == ExitCode.OK
    assert [job.standby is not None for job in started] == [standby]


def test_a_schedule_is_for_the_operator(
    tmp_path: Path, started: list[JobSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    file = declared(tmp_path, trigger={"availableNow": True, "schedule": "0 3 * * *"})
    assert main.invoke(["run", "-f", file]) == ExitCode.OK
    assert "trigger.schedule is for the operator; run delivers what is there now, once" in capsys.readouterr().err
    assert [job.available_now for job in started] == [True]


def test_a_bounded_run_with_a_standby_is_refused(
    tmp_path: Path, started: list[JobSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    file = declared(tmp_path, trigger={"availableNow": True})
    assert main.invoke(["run", "-f", file, "--standby"]) == ExitCode.INVALID
    assert "a bounded run has no standby" in capsys.readouterr().err
    assert started == []
