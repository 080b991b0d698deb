"""Stateful pipelines from Kafka to Kafka, at-least-once and at-most-once, whose drivers are killed and replaced.

The state counts each record once under both. See docs/protocol.md#stateful-pipelines-under-weaker-guarantees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.decisions import offsets_of
from ackwright_stream.jobspec import Guarantee
from integration.support.pipelines import read
from integration.support.stateful_pipelines import Counted
from integration.support.stateful_windows import OF_WINDOW, count_windows, ended_windows
from integration.support.weaker_state import Output, WeakerPipeline, weaker_pipeline
from waiting import wait_until

EXACT = Output(0, Counted())


@pytest.fixture
def at_least_once(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[WeakerPipeline]:
    with weaker_pipeline(kafka, tmp_path, Guarantee.AT_LEAST_ONCE) as created:
        yield created


@pytest.fixture
def at_most_once(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[WeakerPipeline]:
    with weaker_pipeline(kafka, tmp_path, Guarantee.AT_MOST_ONCE) as created:
        yield created


@pytest.mark.parametrize("point", ["written", "before-commit", "mid-produce"])
def test_at_least_once_repeats_the_output_of_a_batch_that_was_not_decided(
    at_least_once: WeakerPipeline, point: str
) -> None:
    """The batch has the same records when it runs again, although more are there by then."""
    pipeline = at_least_once
    pipeline.killed_in_output(point)
    recorded = json.loads((pipeline.state / "written.json").read_text())
    pipeline.feed()
    pipeline.drained()
    output = pipeline.output()
    assert output.surplus > 0
    # Groups that began in the batch have the marks of both evaluations.
    assert (output.counted.missing, output.counted.surplus) == (0, 0)
    [again] = [decision for decision in pipeline.decisions() if decision.batch == recorded["batch"]]
    assert again.positions == offsets_of(recorded["offsets"])


@pytest.mark.parametrize("first", [True, False])
def test_a_batch_whose_output_was_written_has_its_records_below_a_lower_limit(
    at_least_once: WeakerPipeline, *, first: bool
) -> None:
    """Of fewer records it would have other counts than the rows that are written. The limit is that of later ones."""
    pipeline = at_least_once
    if first:
        pipeline.killed_in_first_batch("written")
    else:
        pipeline.killed_in_output("before-commit")
    recorded = json.loads((pipeline.state / "written.json").read_text())
    assert (recorded["batch"] == 0) is first
    source = replace(pipeline.spec.source, max_offsets_per_trigger=100)
    pipeline.spec = replace(pipeline.spec, source=source)
    pipeline.drained()
    decisions = pipeline.decisions()
    [again] = [decision for decision in decisions if decision.batch == recorded["batch"]]
    assert again.positions == offsets_of(recorded["offsets"])
    sizes = [sum(d.positions.values()) - sum(d.starts.values()) for d in decisions if d.batch > again.batch]
    assert sizes
    assert max(sizes) <= 100
    assert (pipeline.output().counted.missing, pipeline.output().counted.surplus) == (0, 0)


@pytest.mark.parametrize("point", ["evaluated", "after-commit", "batch-end"])
def test_at_least_once_repeats_nothing_before_the_output_and_behind_the_decision(
    at_least_once: WeakerPipeline, point: str
) -> None:
    at_least_once.killed_at(point)
    at_least_once.drained()
    assert at_least_once.output() == EXACT


def test_control_at_least_once_loses_output_if_it_decides_first(at_least_once: WeakerPipeline) -> None:
    at_least_once.act_as(Guarantee.AT_MOST_ONCE)
    at_least_once.killed_at("after-commit")
    at_least_once.drained()
    assert at_least_once.output().surplus < 0


@pytest.mark.parametrize("point", ["after-commit", "mid-produce"])
def test_at_most_once_loses_the_output_of_a_batch_that_was_decided_and_repeats_none(
    at_most_once: WeakerPipeline, point: str
) -> None:
    at_most_once.killed_at(point)
    at_most_once.drained()
    output = at_most_once.output()
    assert output.surplus < 0 if point == "after-commit" else output.surplus <= 0
    assert output.state_is_right
    assert (output.counted.marks, output.counted.backwards) == (0, 0)  # of one evaluation, and each record once


@pytest.mark.parametrize("point", ["evaluated", "before-commit", "written", "batch-end"])
def test_at_most_once_loses_nothing_before_the_decision_and_behind_the_output(
    at_most_once: WeakerPipeline, point: str
) -> None:
    at_most_once.killed_at(point)
    at_most_once.drained()
    assert at_most_once.output() == EXACT


def test_control_at_most_once_repeats_output_if_it_writes_first(at_most_once: WeakerPipeline) -> None:
    producer = {**at_most_once.spec.producer, "acks": "1"}  # which both guarantees allow
    at_most_once.spec = replace(at_most_once.spec, producer=producer)
    at_most_once.act_as(Guarantee.AT_LEAST_ONCE)
    at_most_once.killed_at("written")
    at_most_once.drained()
    assert at_most_once.output().surplus > 0


def test_windows_are_repeated_with_the_same_counts(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with weaker_pipeline(kafka, tmp_path, Guarantee.AT_LEAST_ONCE, partitions=1) as pipeline:
        count_windows(pipeline)
        pipeline.killed_in_output("mid-produce")
        pipeline.feed()
        expected = {(begin, OF_WINDOW) for begin in ended_windows(pipeline.fed)}
        with pipeline.life() as job:
            pipeline.caught_up(job)
            wait_until(lambda: expected <= set(_windows(pipeline)), "all windows are output")
            pipeline.drain(job)
        windows = _windows(pipeline)
        assert set(windows) == expected
        assert len(windows) - len(expected) == pipeline.surplus() > 0


def _windows(pipeline: WeakerPipeline) -> list[tuple[int, int]]:
    """When each window in the output begins, and its count."""
    return [(int(r.key or b""), int(r.value or b"")) for r in read(pipeline.servers, pipeline.sink)]


def test_a_driver_that_was_replaced_before_its_output_writes_none(at_least_once: WeakerPipeline) -> None:
    with at_least_once.overtaken("evaluated") as driver:
        at_least_once.feed()
        at_least_once.caught_up(driver)
        at_least_once.drain(driver)
    assert at_least_once.output() == EXACT


def test_a_driver_that_was_replaced_in_its_output_repeats_it_late(at_least_once: WeakerPipeline) -> None:
    with at_least_once.overtaken("written") as driver:
        at_least_once.feed()
        at_least_once.caught_up(driver)
        at_least_once.drain(driver)
    output = at_least_once.output()
    assert output.surplus > 0
    assert (output.counted.missing, output.counted.surplus) == (0, 0)


def test_a_driver_that_has_decided_and_was_replaced_writes_its_output_late_and_once(
    at_most_once: WeakerPipeline,
) -> None:
    with at_most_once.overtaken("after-commit") as driver:
        at_most_once.feed()
        at_most_once.caught_up(driver)
        at_most_once.drain(driver)
    assert at_most_once.output() == EXACT
