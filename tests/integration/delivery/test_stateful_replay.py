"""An older copy of the state is restored: the driver runs the batches since then again, without their output.

See docs/stateful.md#if-the-state-is-lost.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Verdict
from integration.support.pipelines import Record, read
from integration.support.stateful_pipelines import Counted, StatefulPipeline, stateful_pipeline
from integration.support.stateful_windows import OF_WINDOW, count_windows, ended_windows
from sql_texts import COUNTS_BY_KEY, COUNTS_WITH_MARKS
from waiting import WAIT, wait_until

# As a driver would be that takes any output of a batch that runs again for that of its decision.
_COMPARES_NOTHING = """
from dataclasses import replace

from ackwright_stream.delivery.stateful import Stateful

rerun = Stateful.rerun


def rerun_as_decided(self, batch, lanes, decision):
    again = rerun(self, batch, lanes, decision)
    return replace(again, records=decision.records, digest=decision.digest)


Stateful.rerun = rerun_as_decided
"""


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[StatefulPipeline]:
    """Its transform marks groups with random numbers."""
    with stateful_pipeline(kafka, tmp_path, f"replay-{uuid.uuid4().hex[:8]}", limit=150) as created:
        yield created


@pytest.fixture
def counting(pipeline: StatefulPipeline) -> StatefulPipeline:
    """Its transform is deterministic."""
    pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=COUNTS_BY_KEY))
    return pipeline


def output(pipeline: StatefulPipeline) -> list[Record]:
    return read(pipeline.servers, pipeline.sink)


def with_older_copy(pipeline: StatefulPipeline, further: int = 150) -> int:
    """Restores a copy of the state from which some batches with further records are missing; returns its batch."""
    pipeline.drained()
    batch, copy = pipeline.last_decision().batch, pipeline.directory / "copy"
    shutil.copytree(pipeline.state, copy)
    pipeline.feed(further)
    pipeline.drained()
    assert pipeline.last_decision().batch > batch + 2
    shutil.rmtree(pipeline.state)
    copy.rename(pipeline.state)
    return batch


def counts_are_right(pipeline: StatefulPipeline) -> None:
    """The last count of each key has all records, and each count is higher than the one before."""
    counts: dict[bytes | None, list[int]] = {}
    for record in output(pipeline):
        counts.setdefault(record.key, []).append(int(record.value or b""))
    assert {key: of_key[-1] for key, of_key in counts.items()} == {
        f"p{p}".encode(): pipeline.fed for p in range(pipeline.partitions)
    }
    assert all(of_key == sorted(set(of_key)) for of_key in counts.values())


def log_of(pipeline: StatefulPipeline, life: int | None = None) -> str:
    return (pipeline.directory / str(life or pipeline.lives) / "job.log").read_text()


def test_an_older_copy_continues_as_if_nothing_was_lost(counting: StatefulPipeline, spark: SparkSession) -> None:
    copied = with_older_copy(counting)
    counting.feed(100)
    counting.drained()
    assert f"run again without their output, from the state behind batch {copied}" in log_of(counting)
    counts_are_right(counting)
    assert counting.last_decision().accepted_loss is None
    report = audit(spark, counting.spec)
    assert report.verdict is Verdict.HELD, report


@pytest.mark.parametrize("point", ["stored", "replayed"])
def test_a_replay_continues_where_the_driver_before_was_killed(counting: StatefulPipeline, point: str) -> None:
    """In the first batch that runs again, or behind it."""
    copied = with_older_copy(counting)
    counting.killed_in_first_batch(point)
    counting.feed(100)
    counting.drained()
    behind = copied + (point == "replayed")
    assert f"run again without their output, from the state behind batch {behind}" in log_of(counting)
    counts_are_right(counting)


def test_state_that_was_restored_is_used_until_a_batch_is_decided(counting: StatefulPipeline) -> None:
    with_older_copy(counting)
    with counting.life() as job:
        last = counting.last_decision().batch
        wait_until(lambda: f"the state behind batch {last} was restored" in log_of(counting), "the state is restored")
        counting.drain(job)
    counting.feed(100)
    counting.drained()
    assert "run again" not in log_of(counting)
    counts_are_right(counting)


def test_two_drivers_that_replay_do_not_disturb_each_other(counting: StatefulPipeline) -> None:
    with_older_copy(counting)
    counting.feed(100)
    with counting.life() as zombie:
        zombie.arrived(zombie.arm("replayed"))
        zombie.suspend()
        with counting.life() as driver:
            counting.caught_up(driver)
            zombie.release("replayed")
            zombie.resume()
            assert zombie.job.wait(WAIT) == ExitCode.SUPERSEDED, zombie.job.failure()
            counting.feed(100)
            counting.caught_up(driver)
            counting.drain(driver)
    counts_are_right(counting)


@pytest.mark.parametrize("compares", [True, False], ids=["compared", "control"])
def test_a_batch_with_other_output_than_before_halts(
    pipeline: StatefulPipeline, tmp_path: Path, compares: bool
) -> None:
    """Control: without the comparison, groups continue with other marks than their output has."""
    with_older_copy(pipeline)
    before = output(pipeline)
    pipeline.feed(100)
    if not compares:
        (tmp_path / "sitecustomize.py").write_text(_COMPARES_NOTHING)
        pipeline.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        pipeline.drained()
        counted = pipeline.counted()
        assert counted.marks > 0
        assert replace(counted, marks=0) == Counted()
        return
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is Reason.STATE_LOST
    assert "has other values in its" in failure.message
    assert "the transform is not deterministic" in failure.message
    assert failure.fingerprint is not None
    assert output(pipeline) == before

    pipeline.spec = replace(pipeline.spec, accepted_state_loss=failure.fingerprint)
    pipeline.drained()
    assert pipeline.last_decision().accepted_loss == failure.fingerprint


def test_a_batch_that_runs_again_has_the_time_of_its_decision(pipeline: StatefulPipeline) -> None:
    sql = COUNTS_WITH_MARKS.replace("rand()", "unix_micros(current_timestamp())")
    pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=sql))
    with_older_copy(pipeline)
    pipeline.feed(100)
    pipeline.drained()
    assert "run again" in log_of(pipeline)
    assert pipeline.counted() == Counted()


def test_windows_are_output_once_behind_an_older_copy(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Also windows that batches without records had output."""
    with stateful_pipeline(kafka, tmp_path, f"replay-{uuid.uuid4().hex[:8]}", limit=150, partitions=1) as pipeline:
        count_windows(pipeline)
        with_older_copy(pipeline, 500)
        pipeline.feed(300)
        passed = ended_windows(pipeline.fed)
        with pipeline.life() as job:
            pipeline.caught_up(job)
            wait_until(lambda: len(output(pipeline)) >= len(passed), "all windows are output")
            pipeline.drain(job)
        assert "run again" in log_of(pipeline)
        rows = sorted((int(r.key or b""), int(r.value or b"")) for r in output(pipeline))
        assert rows == [(begin, OF_WINDOW) for begin in passed]
