"""Two whole drivers of one pipeline at once, against a real PostgreSQL: processes without brokers and Spark.

They run the job's own protocol (lane_process.py). psql reads what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.watch import Watch
from ackwright_stream.jobspec import Guarantee, to_json
from integration.support.lane_pipeline import LanePipeline
from integration.support.pipelines import Verdict
from integration.support.postgres import Database
from integration.support.postgres_pipelines import verdict_of
from integration.support.postgres_stores import job
from minimal_job import NOBODY

PARTITIONS, EACH = 2, 100  # records of each partition
STEP = 5  # offsets of each lane in a batch
TABLE = "CREATE TABLE rows (id bigserial, key bytea, value bytea, partition int)"
_OVERTAKEN = ("Superseded", "PositionConflict", "SinkUnreachable")


@contextmanager
def lane_pipeline(database: Database, directory: Path, guarantee: str) -> Iterator[LanePipeline]:
    """A pipeline into the table `rows` with a full source. Processes that still run at the end are killed."""
    database.sql(TABLE)
    spec = replace(job(directory, database), guarantee=Guarantee(guarantee), slots=PARTITIONS)
    (directory / "job.json").write_text(to_json(spec))
    with Watch() as watch:
        yield LanePipeline(NOBODY, directory, spec, PARTITIONS, EACH, watch)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_two_drivers_at_once(database: Database, tmp_path: Path, guarantee: str) -> None:
    """Each restarts whenever the other has overtaken it."""
    with lane_pipeline(database, tmp_path, guarantee) as pipeline:
        drivers = [
            pipeline.drive(points={"taken": "hang"}, partitions=PARTITIONS, step=STEP, again=True) for _ in range(2)
        ]
        for driver in drivers:
            driver.arrived("taken")  # else one might be through before the other has begun
        for driver in drivers:
            driver.release("taken")
        results = [driver.result() for driver in drivers]
    assert [result.code for result in results] == [0, 0], results
    assert sum(result.failed.get(reason, 0) for result in results for reason in _OVERTAKEN) > 0, "they never met"
    verdict = verdict_of(database, PARTITIONS, EACH)
    assert guarantee == "at-most-once" or verdict.lost == 0
    assert guarantee == "at-least-once" or verdict.duplicated == 0
    assert guarantee != "exactly-once" or verdict == Verdict(0, 0, 0, 0)
    assert database.sql('SELECT DISTINCT "offset" FROM ackwright.positions') == [[str(EACH)]]


@pytest.mark.parametrize("unsafe", [None, "row-locks"])
def test_a_driver_that_was_overtaken_between_its_read_and_its_rows_duplicates_only_without_locks(
    database: Database, tmp_path: Path, unsafe: str | None
) -> None:
    with lane_pipeline(database, tmp_path, "exactly-once") as pipeline:
        older = pipeline.drive(points={"after-read": "hang"}, partitions=PARTITIONS, unsafe=unsafe)
        older.arrived("after-read")
        pipeline.run_driver(partitions=PARTITIONS, unsafe=unsafe)
        older.release("after-read")
        result = older.result()
    verdict = verdict_of(database, PARTITIONS, EACH)
    if unsafe is None:
        assert result.error == "SinkUnreachable", result  # its session was ended
        assert verdict == Verdict(0, 0, 0, 0)
    else:
        assert verdict.duplicated == EACH, "its first task has written its rows again"
    assert verdict.lost == 0
