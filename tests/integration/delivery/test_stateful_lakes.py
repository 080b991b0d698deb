"""Stateful pipelines from Kafka to a table with versions or to files, whose drivers are killed and replaced.

See docs/protocol.md#stateful-pipelines-into-delta-lake-and-iceberg and #stateful-pipelines-into-files.
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode, FilesSink, Guarantee, Reason
from integration.support.stateful_lakes import StatefulLake, stateful_lake
from waiting import WAIT

KINDS = ("delta", "iceberg", "files")

# As a driver would be that commits the rows before the decision.
TWO_COMMITS = """
from ackwright_stream.fault_points import fault_point
from ackwright_stream.sinks.base import StagedRows
from ackwright_stream.sinks.staged import decisions

_commit = decisions.DecidingTransaction.commit


def commit(self, positions, rows, decision, letters=()):
    records, staged = self._sink.stage(rows)
    self._sink.publish(StagedRows((staged,), records), self._membership)
    fault_point("between")
    return _commit(self, positions, (), decision, letters)


decisions.DecidingTransaction.commit = commit
"""
# The same with files: the rows are in one, and the decision in another one.
TWO_FILES = """
from ackwright_stream.fault_points import fault_point
from ackwright_stream.sinks.files import batches

_commit = batches.BatchTransaction.commit


def commit(self, positions, rows, decision, letters=()):
    file = batches.RowFile(self._storage)
    for batch in rows:
        file.add(batch)
    if file.rows:
        columns = self._sink.member_entry(self._storage, self._membership).state.columns
        draft = file.finish(batches.arrow_schema(columns), {})
        self._storage.create(f"rows/{len(self._storage.names('rows'))}.parquet", draft)
    fault_point("between")
    return _commit(self, positions, (), decision, letters)


batches.BatchTransaction.commit = commit
"""


@pytest.fixture(params=KINDS)
def pipeline(request: pytest.FixtureRequest, kafka: EmbeddedKafka, tmp_path: Path) -> StatefulLake:
    return stateful_lake(kafka, tmp_path, request.param, f"stateful-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize(
    "points",
    [
        ("before-commit",),  # rows and decision are files that no version names, or one without a name
        ("after-commit",),
        ("evaluated", "batch-end"),  # state is stored and nothing is decided; before Spark's log of commits
    ],
    ids=["before", "after", "batch"],
)
def test_windows_are_written_once_over_kills(pipeline: StatefulLake, points: tuple[str, ...]) -> None:
    for point in points:
        pipeline.killed_at(point)
    pipeline.completed()
    assert pipeline.counts() == pipeline.expected()


def test_rows_that_are_committed_before_the_decision_are_written_twice(pipeline: StatefulLake, tmp_path: Path) -> None:
    """Control of the test above: the driver is killed between the two."""
    in_files = isinstance(pipeline.spec.sink, FilesSink)
    (tmp_path / "sitecustomize.py").write_text(TWO_FILES if in_files else TWO_COMMITS)
    pipeline.killed_at("between")
    pipeline.completed()
    counts = pipeline.counts()
    assert len(counts) > len(set(counts))
    assert set(counts) == set(pipeline.expected())


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_a_weaker_guarantee_is_delivered_exactly_once(pipeline: StatefulLake, guarantee: Guarantee) -> None:
    """One commit has rows and decision, whatever is declared."""
    pipeline.spec = replace(pipeline.spec, guarantee=guarantee)
    pipeline.killed_at("before-commit")
    pipeline.killed_at("after-commit")
    pipeline.completed()
    assert pipeline.counts() == pipeline.expected()


def test_a_driver_that_was_suspended_does_not_commit_beside_its_successor(pipeline: StatefulLake) -> None:
    with pipeline.overtaken("before-commit") as driver:
        pipeline.feed()
        pipeline.caught_up(driver)
        pipeline.drain(driver)
    pipeline.completed()
    assert pipeline.counts() == pipeline.expected()


def with_older_copy(pipeline: StatefulLake, copy: Path) -> None:
    """Restores a copy of the state from which the last batches are missing."""
    pipeline.completed()
    shutil.copytree(pipeline.state, copy)
    pipeline.feed()
    pipeline.completed()
    shutil.rmtree(pipeline.state)
    os.rename(copy, pipeline.state)


@pytest.mark.parametrize("pipeline", ["files"], indirect=True)
def test_an_older_copy_of_the_state_continues(pipeline: StatefulLake, tmp_path: Path) -> None:
    """The decisions since then are in the files of their batches."""
    with_older_copy(pipeline, tmp_path / "copy")
    pipeline.feed()
    pipeline.completed()
    assert pipeline.counts() == pipeline.expected()


@pytest.mark.parametrize("pipeline", ["delta", "iceberg"], indirect=True)
def test_an_older_copy_of_the_state_halts(pipeline: StatefulLake, tmp_path: Path) -> None:
    """It lacks the file of the decision that the table names."""
    with_older_copy(pipeline, tmp_path / "copy")
    before = pipeline.counts()
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED
        failure = job.job.failure()
        assert failure is not None
        assert failure.reason is Reason.STATE_LOST
    assert pipeline.counts() == before
