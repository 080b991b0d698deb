"""Malformed records become dead letters under each guarantee, whatever is killed. See docs/dead-letters.md."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.cli.audit import audited
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.watch import Watch
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Verdict
from integration.support.letter_pipelines import LetterPipeline, letter_pipeline, letter_pipeline_between
from integration.support.pipelines import assert_nothing_hangs, positions_of
from integration.support.two_clusters import TwoClusters
from waiting import WAIT

KILLED = 137

# A transform that also changes the driver that runs it: tasks write dead letters themselves, outside of transactions.
CONTROL = """
import json
from ackwright_stream.delivery import dead_letters

dead_letters.Instructions.to_json = lambda self: json.dumps([None, 0, 0])
dead_letters.require_all = lambda *_: None

def transform(df):
    return df.selectExpr("kafka.key AS key", "concat(p, ':', n) AS value")
"""


def left_files(pipeline: LetterPipeline) -> list[Path]:
    """What the last life of the driver has left of its dead letters."""
    return list((pipeline.directory / str(pipeline.lives)).rglob("ackwright-dead-letters-*"))


def killed_at(pipeline: LetterPipeline, point: str, *, after_tasks: Sequence[str] = ()) -> None:
    """A life of the driver that ends by SIGKILL when a task of the first partition is at the fault point.

    after_tasks: fault points at which a task is killed before that.
    """
    with pipeline.life() as job:
        job.until_position(pipeline.partitions, pipeline.fed)
        pipeline.kill_tasks(job, *after_tasks)
        hit = job.arm(point, lane=f"{pipeline.source}-0")
        pipeline.feed()
        job.arrived(hit)
        job.job.kill()
        assert job.job.poll() == KILLED


def drained(pipeline: LetterPipeline) -> None:
    with pipeline.life() as job:
        job.until_position(pipeline.partitions, pipeline.fed)
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK


def test_dead_letters_are_there_once_across_kills(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> None:
    """Killed after and before the commit: each malformed record is in the dead-letter topic once, as it was."""
    pipeline = letter_pipeline(kafka, tmp_path, "exactly-once")
    pipeline.feed()
    killed_at(pipeline, "before-commit", after_tasks=("after-commit",))
    pipeline.feed()
    with pipeline.life() as job:
        job.until_position(pipeline.partitions, pipeline.fed)
        counted = job.until(lambda p: p["lag"] == 0, "no lag")
        assert counted["deadLetters"] > 0
        assert counted["malformedRecords"] == 0
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK
    assert_nothing_hangs(pipeline.servers, pipeline.sink, pipeline.letter_topic)
    pipeline.assert_exactly_once()
    assert left_files(pipeline) == []
    report = audit(spark, pipeline.spec)
    assert report.verdict is Verdict.HELD, report
    assert report.dead_letters == report.malformed == pipeline.expected_letters().total()


def test_dead_letters_on_another_cluster_are_there_once_across_kills(two_clusters: TwoClusters, tmp_path: Path) -> None:
    """They are on the brokers of the output, in its transaction, whose positions are there as well."""
    pipeline = letter_pipeline_between(two_clusters, tmp_path, "exactly-once")
    pipeline.feed()
    killed_at(pipeline, "before-commit", after_tasks=("after-commit",))
    drained(pipeline)
    assert_nothing_hangs(pipeline.output_servers, pipeline.sink, pipeline.letter_topic)
    pipeline.assert_exactly_once()
    with Watch() as watch:
        (report,) = audited([pipeline.spec], tmp_path / "audit", watch)
    assert report.verdict is Verdict.HELD, report
    assert report.dead_letters == report.malformed == pipeline.expected_letters().total()


def test_control_dead_letters_outside_of_the_transaction_are_there_twice(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """The same pipeline, whose tasks write each dead letter before the transaction of its record."""
    (tmp_path / "control.py").write_text(CONTROL)
    transform = {"python": {"module": "control", "function": "transform"}}
    pipeline = letter_pipeline(kafka, tmp_path, "exactly-once", transform=transform)
    pipeline.environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    killed_at(pipeline, "before-commit")
    drained(pipeline)
    expected, letters = pipeline.expected_letters(), pipeline.letters()
    assert set(letters) == set(expected)
    assert max(letters.values()) == 2


def test_at_least_once_loses_no_dead_letter(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Dead letters are written before the positions move: a kill in between repeats them, and loses none."""
    pipeline = letter_pipeline(kafka, tmp_path, "at-least-once")
    with pipeline.life() as job:
        pipeline.feed()
        hit = job.arm("before-advance")
        job.arrived(hit)
        assert pipeline.letters()
        assert set(positions_of(pipeline.servers, job.group, pipeline.source, pipeline.partitions).values()) == {0}
        job.job.kill()
    with pipeline.life() as job:
        job.until_position(pipeline.partitions, pipeline.fed)
        counted = job.until(lambda p: p["deadLetters"] == len(pipeline.expected_letters()), "all dead letters counted")
        assert counted["malformedRecords"] == 0
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK
    letters, output = pipeline.letters(), pipeline.output()
    assert set(letters) == set(pipeline.expected_letters())
    assert set(output) == set(pipeline.expected_output())
    assert max(letters.values()) == 2


def test_at_most_once_repeats_no_dead_letter(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Dead letters are written after the claim: a kill in between loses them, and repeats none."""
    pipeline = letter_pipeline(kafka, tmp_path, "at-most-once")
    pipeline.feed()
    killed_at(pipeline, "claimed")
    pipeline.feed()
    with pipeline.life() as job:
        job.until_position(pipeline.partitions, pipeline.fed)
        # The other partition's task may have been killed before its claim.
        job.until(lambda p: p["deadLetters"] >= pipeline.partitions * 20, "the dead letters of the last records")
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK
    letters, expected = pipeline.letters(), pipeline.expected_letters()
    assert letters.total() < expected.total()
    assert not letters - expected


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_too_many_dead_letters_halt(kafka: EmbeddedKafka, tmp_path: Path, guarantee: str) -> None:
    """A schema that fits no record any more: the pipeline halts, and under exactly-once nothing is committed."""
    pipeline = letter_pipeline(kafka, tmp_path, guarantee, max_fraction=0.2)
    pipeline.feed()
    with pipeline.life() as job:
        job.until_position(pipeline.partitions, pipeline.fed)
        before = pipeline.letters()
        assert before == pipeline.expected_letters()
        fed = pipeline.fed
        pipeline.send(lambda p, n: b'{"p": "a newer version"}', 500)
        assert job.job.wait(WAIT) == ExitCode.HALTED
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is Reason.TOO_MANY_DEAD_LETTERS
    assert "maxFraction (0.2)" in failure.message
    positions = positions_of(pipeline.servers, pipeline.spec.group, pipeline.source, pipeline.partitions)
    if guarantee != "at-most-once":  # which claims before it reads
        assert positions == dict.fromkeys(range(pipeline.partitions), fed)
    if guarantee != "at-least-once":  # which writes before it moves the positions
        assert pipeline.letters() == before
