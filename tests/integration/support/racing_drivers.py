"""Two whole drivers of one pipeline at once, as processes without brokers and Spark (lane_process.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ackwright.local.watch import Watch
from ackwright_stream.jobspec import Guarantee, JobSpec, to_json
from integration.support.lane_pipeline import LanePipeline
from integration.support.pipelines import Verdict
from minimal_job import NOBODY

PARTITIONS, EACH = 2, 100  # records of each partition
_STEP = 5  # offsets of each lane in a batch
_OVERTAKEN = ("Superseded", "PositionConflict", "SinkUnreachable")


def race(directory: Path, spec: JobSpec, guarantee: str, rows: str) -> None:
    """Runs two drivers until both are through; each restarts whenever the other has overtaken it.

    spec: of a sink outside of Kafka. rows: which columns it takes, as the option of lane_process.py.
    """
    job = replace(spec, guarantee=Guarantee(guarantee), slots=PARTITIONS)
    (directory / "job.json").write_text(to_json(job))
    with Watch() as watch:
        pipeline = LanePipeline(NOBODY, directory, job, PARTITIONS, EACH, watch)
        drivers = [
            pipeline.drive(points={"taken": "hang"}, partitions=PARTITIONS, step=_STEP, again=True, rows=rows)
            for _ in range(2)
        ]
        for driver in drivers:
            driver.arrived("taken")  # else one might be through before the other has begun
        for driver in drivers:
            driver.release("taken")
        results = [driver.result() for driver in drivers]
    assert [result.code for result in results] == [0, 0], results
    assert sum(result.failed.get(reason, 0) for result in results for reason in _OVERTAKEN) > 0, "they never met"


def assert_guaranteed(verdict: Verdict, guarantee: str) -> None:
    """Asserts what the guarantee says of lost and duplicated records, and that no other record is there."""
    assert verdict.unexpected == 0
    assert guarantee == "at-most-once" or verdict.lost == 0
    assert guarantee == "at-least-once" or verdict.duplicated == 0
