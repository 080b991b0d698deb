"""Processors in Python (transformWithState) whose drivers are killed and replaced: their state, timers and expiries.

See docs/protocol.md#stateful-pipelines.
"""

from __future__ import annotations

import contextlib
import os
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode
from integration.support.pipelines import Running, create_topics, job_of, read, running
from integration.support.processor_pipelines import process, schema_files
from integration.support.stateful_pipelines import (
    OF_GROUP,
    Counted,
    StatefulPipeline,
    counted_behind_another_log,
    create_decisions,
    stateful_pipeline,
)
from integration.support.stateful_windows import OF_WINDOW, ended_windows
from unit.documents import ROOT
from waiting import ANSWER, WAIT, wait_until

# Python imports it at each start, also of Spark's daemon of workers.
_ENDS_CONNECTIONS = """
from ackwright_stream.spark_internals.worker import StateConnections
StateConnections.left_to_the_jvm = lambda self, set_handle_state: set_handle_state
"""
POINTS = ("batch-start", "stored", "evaluated", "before-commit", "after-commit", "batch-end")


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[StatefulPipeline]:
    with stateful_pipeline(kafka, tmp_path, f"processor-{uuid.uuid4().hex[:8]}") as created:
        yield created


@pytest.mark.parametrize(
    ("function", "points"),
    [
        ("of_rows", ("evaluated", "after-commit")),  # first, state is stored and nothing is decided
        ("of_frames", ("before-commit", "batch-end")),
        ("of_distinct", ("evaluated", "batch-end")),
    ],
    ids=["rows", "pandas", "deduplicated"],
)
def test_state_and_output_are_of_one_evaluation_over_kills(
    pipeline: StatefulPipeline, function: str, points: tuple[str, ...]
) -> None:
    process(pipeline, function)
    for point in points:
        pipeline.killed_at(point)
    pipeline.drained()
    assert pipeline.counted() == Counted()
    state = pipeline.last_decision().state
    assert {len(ids) for of_operator in state.values() for ids in of_operator} == {1}
    assert len(schema_files(pipeline.state)) == 1


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
def test_tasks_leave_no_connections_in_the_jvm(pipeline: StatefulPipeline, tmp_path: Path, protected: bool) -> None:
    """Control: workers that end the connections to the state, as PySpark's own do."""
    process(pipeline, "of_rows")
    if not protected:
        (tmp_path / "sitecustomize.py").write_text(_ENDS_CONNECTIONS)
        pipeline.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with pipeline.life() as job:
        pipeline.caught_up(job)
        before, batches = _sockets(job), job.progress()["batches"]
        for _ in range(10):
            pipeline.feed(20)
            pipeline.caught_up(job)
        tasks = (job.progress()["batches"] - batches) * pipeline.partitions
        left = _sockets(job) - before
    assert (left < tasks / 2) is protected, (left, tasks)


def _sockets(job: Running) -> int:
    """How many sockets the job's JVM has."""
    [jvm] = job.jvms()
    count = 0
    for descriptor in Path(f"/proc/{jvm}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            count += str(descriptor.readlink()).startswith("socket:")
    return count


def test_state_that_was_moved_goes_on(pipeline: StatefulPipeline) -> None:
    """Spark names the file of a processor's types by its whole path."""
    process(pipeline, "of_rows")
    pipeline.drained()
    moved = pipeline.state.rename(pipeline.state.with_name("moved"))
    assert pipeline.spec.state is not None
    pipeline.spec = replace(pipeline.spec, state=replace(pipeline.spec.state, checkpoint=str(moved)))
    pipeline.feed()
    pipeline.drained()
    assert pipeline.counted() == Counted()


def test_a_driver_killed_at_random_points(pipeline: StatefulPipeline) -> None:
    process(pipeline, "of_rows")
    seed = uuid.uuid4().hex
    points = random.Random(seed).choices(POINTS, k=8)
    for point in points:
        pipeline.killed_at(point, 150)
    pipeline.drained()
    assert pipeline.counted() == Counted(), (seed, points)


def test_a_task_that_runs_again_after_it_has_stored_its_state(pipeline: StatefulPipeline) -> None:
    process(pipeline, "of_rows")
    with pipeline.life() as job:
        pipeline.caught_up(job)
        pipeline.kill_tasks(job, "stored", "stored")
        pipeline.drain(job)
    assert pipeline.counted() == Counted()


@pytest.mark.parametrize("point", ["evaluated", "before-commit"])
def test_a_driver_that_was_suspended_does_not_commit_beside_its_successor(
    pipeline: StatefulPipeline, point: str
) -> None:
    process(pipeline, "of_rows")
    with pipeline.overtaken(point) as driver:
        pipeline.feed()
        pipeline.caught_up(driver)
        pipeline.drain(driver)
    assert pipeline.counted() == Counted()


@pytest.mark.parametrize("believes", [False, True], ids=["rebuilt", "control"])
def test_a_log_that_names_another_evaluation_is_not_believed(
    pipeline: StatefulPipeline, tmp_path: Path, believes: bool
) -> None:
    """Control: with the log believed and the base not compared, the output is not that of one run."""
    process(pipeline, "of_rows")
    counted = counted_behind_another_log(pipeline, tmp_path, believes=believes)
    assert (counted == Counted()) is not believes


def test_timers_of_event_time_come_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Also behind the last record: the last driver has none, and the one before was killed when the watermark moved."""
    with stateful_pipeline(kafka, tmp_path, f"timers-{uuid.uuid4().hex[:8]}", partitions=1) as pipeline:
        process(pipeline, "windows")
        pipeline.killed_at("evaluated")
        pipeline.killed_at("batch-end")
        passed = ended_windows(pipeline.fed)
        with pipeline.life() as job:
            pipeline.caught_up(job)
            wait_until(lambda: len(read(pipeline.servers, pipeline.sink)) >= len(passed), "all timers have come")
            pipeline.drain(job)
        output = sorted((int(r.key or b""), int(r.value or b"")) for r in read(pipeline.servers, pipeline.sink))
        assert output == [(begin, OF_WINDOW) for begin in passed]


def test_the_example_reports_each_silent_sensor_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    resource = yaml.safe_load((ROOT / "examples" / "silent-sensors.yaml").read_text())
    source, sink = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("signals", "silent"))
    create_topics(kafka.bootstrap_servers, source, sink, partitions=1)
    create_decisions(kafka.bootstrap_servers)
    resource["metadata"]["name"] = source
    resource["spec"]["kafka"]["bootstrapServers"] = kafka.bootstrap_servers
    resource["spec"]["source"]["topics"], resource["spec"]["sink"]["kafka"]["topic"] = [source], sink
    job = job_of({**resource, "spec": {**resource["spec"], "topics": []}}, tmp_path)
    assert job.state is not None
    job = replace(job, state=replace(job.state, checkpoint=str(tmp_path / "state")))
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}

    def send(*signals: tuple[str, str]) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
        for sensor, at in signals:
            producer.produce(source, f'{{"sensor": "{sensor}", "at": "2026-03-01T{at}Z"}}'.encode(), partition=0)
        assert producer.flush(ANSWER) == 0

    send(("a", "10:00:00"), ("b", "10:01:00"), ("a", "10:08:00"))
    for point in ("evaluated", "batch-end"):
        with running(job, tmp_path / point, environment) as driver:
            driver.arrived(driver.arm(point))
            driver.job.kill()
    send(("c", "10:14:00"), ("a", "10:15:00"))
    with running(job, tmp_path / "last", environment) as driver:
        driver.until_position(1, 5)
        wait_until(lambda: read(kafka.bootstrap_servers, sink), "the silent sensor is reported")
        driver.job.drain()
        assert driver.job.wait(WAIT) == ExitCode.OK, driver.job.failure()
    assert [(r.key, r.value) for r in read(kafka.bootstrap_servers, sink)] == [(b"b", b"b 2026-03-01 10:01:00")]


def test_timers_of_the_clock_come_once_and_state_expires(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """The driver that has set them is killed in its first batch, and the next one gets no records."""
    with stateful_pipeline(kafka, tmp_path, f"clock-{uuid.uuid4().hex[:8]}", limit=2_000) as pipeline:
        process(pipeline, "alarms")
        pipeline.killed_in_first_batch("evaluated")
        pipeline.killed_in_first_batch("batch-end")
        groups = {f"p{p}/{group}" for p in range(pipeline.partitions) for group in range(pipeline.fed // OF_GROUP)}

        def rows() -> list[tuple[str, list[str]]]:
            output = read(pipeline.servers, pipeline.sink)
            return [((r.key or b"").decode(), (r.value or b"").decode().split(" ")) for r in output]

        assert sorted(key for key, _ in rows()) == sorted(groups)
        with pipeline.life() as job:
            wait_until(lambda: len(rows()) >= 2 * len(groups), "all timers have come")
            number = int(job.progress()["batches"])
            job.until(lambda p: p["batches"] > number + 2, "further batches without records")
            pipeline.drain(job)
        output = rows()
        counts = {key: value for key, value in output if len(value) == 2}
        alarms = [(key, value) for key, value in output if len(value) == 3]
        assert sorted(alarms) == [(key, [*counts[key], "long"]) for key in sorted(groups)]
        assert {count for count, _ in counts.values()} == {str(OF_GROUP)}
