"""The state of a stateful pipeline is lost: the driver halts, and a person accepts that it starts empty.

See docs/stateful.md#if-the-state-is-lost.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, JobSpec, Reason
from ackwright_stream.reports import Failure, Verdict
from integration.support.pipelines import read
from integration.support.stateful_pipelines import StatefulPipeline, stateful_pipeline
from sql_texts import COUNTS_BY_KEY
from waiting import WAIT


def halts(pipeline: StatefulPipeline) -> Failure:
    """The failure of a run that halts."""
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is Reason.STATE_LOST
    return failure


def last_counts(pipeline: StatefulPipeline) -> dict[bytes | None, int]:
    return {record.key: int(record.value or b"") for record in read(pipeline.servers, pipeline.sink)}


def accepting(job: JobSpec, fingerprint: str | None) -> JobSpec:
    return replace(job, accepted_state_loss=fingerprint)


@pytest.mark.parametrize(
    "points",
    [
        (),
        ("evaluated",),  # nothing is decided: the next driver begins empty as well
        ("evaluated", "batch-end"),
    ],
    ids=["undisturbed", "undecided", "decided"],
)
def test_lost_state_starts_empty_once_its_loss_is_accepted(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession, points: tuple[str, ...]
) -> None:
    """Control: without the acceptance, and in the end with that of another state, the driver halts."""
    with stateful_pipeline(kafka, tmp_path, f"loss-{uuid.uuid4().hex[:8]}") as pipeline:
        pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=COUNTS_BY_KEY))
        pipeline.drained()
        before, fed = last_counts(pipeline), pipeline.fed
        assert set(before.values()) == {fed}
        lost = pipeline.last_decision()
        shutil.rmtree(pipeline.state / lost.directory)
        pipeline.feed(300)

        failure = halts(pipeline)
        assert last_counts(pipeline) == before

        pipeline.spec = accepting(pipeline.spec, failure.fingerprint)
        for point in points:
            pipeline.killed_in_first_batch(point)
        pipeline.drained()
        assert last_counts(pipeline) == dict.fromkeys(before, 300)
        last = pipeline.last_decision()
        assert last.accepted_loss == failure.fingerprint
        assert last.directory != lost.directory

        report = audit(spark, pipeline.spec)
        assert report.verdict is Verdict.UNPROVEN, report
        assert (report.lost, report.duplicated, report.unexpected) == (0, 0, 0)
        assert any("was lost and began empty" in doubt for doubt in report.doubts)

        shutil.rmtree(pipeline.state / last.directory)
        assert halts(pipeline).fingerprint != failure.fingerprint, "an acceptance is used once"
