"""Stateful pipelines from Kafka to Kafka whose drivers are killed and replaced.

See docs/protocol.md#stateful-pipelines.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from integration.support.pipelines import read
from integration.support.stateful_pipelines import (
    Counted,
    StatefulPipeline,
    counted_behind_another_log,
    stateful_pipeline,
)
from integration.support.stateful_windows import OF_WINDOW, count_windows, ended_windows
from sql_texts import COUNTS_WITH_MARKS
from waiting import wait_until


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[StatefulPipeline]:
    with stateful_pipeline(kafka, tmp_path, f"stateful-{uuid.uuid4().hex[:8]}") as created:
        yield created


@pytest.mark.parametrize(
    "points",
    [
        ("before-commit",),  # offsets, rows and decision are in an open transaction
        ("after-commit", "before-commit"),
        ("evaluated", "batch-end"),  # state is stored and nothing is decided; before Spark's log of commits
    ],
    ids=["open", "commit", "batch"],
)
def test_counts_go_on_over_kills_before_and_after_the_commit(
    pipeline: StatefulPipeline, points: tuple[str, ...]
) -> None:
    for point in points:
        pipeline.killed_at(point)
    pipeline.drained()
    assert pipeline.counted() == Counted()


def test_a_task_that_runs_again_after_it_has_stored_its_state(pipeline: StatefulPipeline) -> None:
    """Spark counts the state of the attempt that has succeeded."""
    with pipeline.life() as job:
        pipeline.caught_up(job)
        pipeline.kill_tasks(job, "stored", "stored")
        pipeline.drain(job)
    assert pipeline.counted() == Counted()


def test_the_time_of_a_batch_in_the_state_is_that_of_one_evaluation(pipeline: StatefulPipeline) -> None:
    """A group is marked with current_timestamp(), which has another value when the batch runs again."""
    sql = COUNTS_WITH_MARKS.replace("rand()", "unix_micros(current_timestamp())")
    pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=sql))
    for point in ("evaluated", "batch-end"):
        pipeline.killed_at(point)
    pipeline.drained()
    assert pipeline.counted() == Counted()


@pytest.mark.parametrize("point", ["evaluated", "before-commit"])
def test_a_driver_that_was_suspended_does_not_commit_beside_its_successor(
    pipeline: StatefulPipeline, point: str
) -> None:
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
    counted = counted_behind_another_log(pipeline, tmp_path, believes=believes)
    assert (counted == Counted()) is not believes


@contextmanager
def _windows(kafka: EmbeddedKafka, directory: Path) -> Iterator[StatefulPipeline]:
    with stateful_pipeline(kafka, directory, f"windows-{uuid.uuid4().hex[:8]}", partitions=1) as pipeline:
        count_windows(pipeline)
        yield pipeline


def _ended_windows_are_output(pipeline: StatefulPipeline) -> None:
    """A run without further records outputs each window that the watermark has passed, once."""
    passed = ended_windows(pipeline.fed)
    with pipeline.life() as job:
        pipeline.caught_up(job)
        wait_until(lambda: len(read(pipeline.servers, pipeline.sink)) >= len(passed), "all windows are output")
        pipeline.drain(job)
    output = sorted((int(r.key or b""), int(r.value or b"")) for r in read(pipeline.servers, pipeline.sink))
    assert output == [(begin, OF_WINDOW) for begin in passed]


def test_each_window_is_output_once_when_the_watermark_has_passed_it(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Also by batches without records, which only move the watermark."""
    with _windows(kafka, tmp_path) as pipeline:
        pipeline.killed_at("evaluated")
        pipeline.killed_at("batch-end")
        _ended_windows_are_output(pipeline)


def test_windows_that_the_last_batch_has_ended_are_output_by_the_next_driver(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """The driver is killed before the batch without records that would output them; Spark itself waits for records."""
    with _windows(kafka, tmp_path) as pipeline:
        pipeline.killed_in_first_batch("batch-end")
        _ended_windows_are_output(pipeline)
