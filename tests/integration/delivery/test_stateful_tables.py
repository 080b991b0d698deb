"""Stateful pipelines from Kafka to a table of PostgreSQL, whose drivers are killed and replaced.

See docs/protocol.md#stateful-pipelines-into-postgresql. tests/integration/postgres/test_decisions.py has the
transaction without Spark.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Guarantee
from integration.support.postgres import Database, Postgres
from integration.support.stateful_pipelines import Counted
from integration.support.stateful_tables import COUNTS, StatefulTable, stateful_table

# As a driver would be that writes the output in a transaction before that of the decision.
TWO_TRANSACTIONS = """
from ackwright_stream.fault_points import fault_point
from ackwright_stream.sinks.postgres import sink as sinks

_commit = sinks.PostgresTransaction.commit


def commit(self, positions, rows=(), letters=(), *, also=None):
    sinks.PostgresStore(self._sink.job).write((), rows)
    fault_point("between")
    return _commit(self, positions, also=also)


sinks.PostgresTransaction.commit = commit
"""


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, database: Database, tmp_path: Path) -> Iterator[StatefulTable]:
    with stateful_table(kafka, database, tmp_path, f"stateful-{uuid.uuid4().hex[:8]}") as created:
        yield created


def change(pipeline: StatefulTable, directory: Path, module: str) -> None:
    """Makes the drivers run with a change of the job."""
    (directory / "sitecustomize.py").write_text(module)
    pipeline.environment["PYTHONPATH"] = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])


@pytest.mark.parametrize(
    "points",
    [
        ("before-commit",),  # rows and decision are in an open transaction
        ("after-commit",),
        ("evaluated", "batch-end"),  # state is stored and nothing is decided; before Spark's log of commits
    ],
    ids=["before", "after", "batch"],
)
def test_counts_go_on_over_kills_at_each_step(pipeline: StatefulTable, points: tuple[str, ...]) -> None:
    for point in points:
        pipeline.killed_at(point)
    pipeline.drained()
    assert pipeline.counted() == Counted()


def test_an_older_copy_of_the_state_continues(pipeline: StatefulTable, tmp_path: Path) -> None:
    """The decisions since then are rows of the database."""
    pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=COUNTS))
    pipeline.drained()
    shutil.copytree(pipeline.state, tmp_path / "copy")
    pipeline.feed()
    pipeline.drained()
    shutil.rmtree(pipeline.state)
    (tmp_path / "copy").rename(pipeline.state)
    pipeline.feed()
    pipeline.drained()
    assert pipeline.totals() == {pipeline.fed}


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_a_weaker_guarantee_is_delivered_exactly_once(pipeline: StatefulTable, guarantee: Guarantee) -> None:
    """One transaction has rows and decision, whatever is declared."""
    pipeline.spec = replace(pipeline.spec, guarantee=guarantee)
    pipeline.killed_at("before-commit")
    pipeline.killed_at("after-commit")
    pipeline.drained()
    assert pipeline.counted() == Counted()


def test_output_and_decision_in_two_transactions_are_not_of_one_evaluation(
    pipeline: StatefulTable, tmp_path: Path
) -> None:
    """Control of the test above: the driver is killed between the two."""
    change(pipeline, tmp_path, TWO_TRANSACTIONS)
    pipeline.killed_at("between")
    pipeline.drained()
    counted = pipeline.counted()
    assert counted.marks > 0
    assert counted.backwards > 0


def test_a_driver_that_was_suspended_does_not_commit_beside_its_successor(pipeline: StatefulTable) -> None:
    with pipeline.overtaken("before-commit") as driver:
        pipeline.feed()
        pipeline.caught_up(driver)
        pipeline.drain(driver)
    assert pipeline.counted() == Counted()


def test_counts_go_on_after_the_server_was_killed(
    kafka: EmbeddedKafka, fragile_postgres: Postgres, tmp_path: Path
) -> None:
    """While the transaction is open, and between the commit and Spark's log of commits."""
    database = Database(fragile_postgres, tmp_path)
    with stateful_table(kafka, database, tmp_path, f"server-{uuid.uuid4().hex[:8]}") as pipeline:
        with pipeline.life() as job:
            pipeline.caught_up(job)
            for point in ("before-commit", "after-commit"):
                hit = job.arm(point)
                pipeline.feed()
                job.arrived(hit)
                fragile_postgres.kill()
                job.release(point)
                fragile_postgres.start()
                pipeline.caught_up(job)
            pipeline.drain(job)
        assert pipeline.counted() == Counted()
