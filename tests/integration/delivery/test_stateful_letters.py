"""Dead letters of stateful pipelines, whose drivers are killed around the decision. See docs/dead-letters.md."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Verdict
from integration.support.letter_pipelines import LetterPipeline
from integration.support.outside_letters import OutsidePipeline
from integration.support.pipelines import assert_nothing_hangs, positions_of
from integration.support.postgres import Database
from integration.support.stateful_letters import (
    counted,
    counted_letters,
    decisions,
    joined_letters,
    stateful_letters,
    timed,
)
from integration.support.stateful_pipelines import Counted
from waiting import WAIT, wait_until

# As a driver would be that writes the dead letters of a batch before the transaction of its decision.
OUTSIDE = """
from ackwright_stream.sinks.kafka.decisions import DecidingTransaction

_commit = DecidingTransaction.commit


def commit(self, positions, rows, decision, letters=()):
    for batch in letters:
        self._sink.write_dead_letters(batch)
    return _commit(self, positions, rows, decision)


DecidingTransaction.commit = commit
"""
# As a driver would be that takes the second read for right, although its state has left out other records: a schema of
# the registry was there in one of the two.
UNEQUAL = """
from ackwright_stream import source

_read = source.dead_letters
source.dead_letters = lambda *arguments: _read(*arguments).where("offset % 20 != 3")
"""
OUTSIDE_KAFKA = ("delta", "iceberg", "files")


def change(pipeline: LetterPipeline, module: str) -> None:
    """Makes the drivers run with a change of the job."""
    (pipeline.directory / "sitecustomize.py").write_text(module)
    paths = os.pathsep.join([str(pipeline.directory), os.environ.get("PYTHONPATH", "")])
    pipeline.environment["PYTHONPATH"] = paths


def killed_at(pipeline: LetterPipeline, point: str) -> None:
    """A life of the driver that is killed at the fault point, in the first batch of further records."""
    with pipeline.life() as job:
        pipeline.caught_up(job)
        hit = job.arm(point)
        pipeline.feed()
        job.arrived(hit)
        job.job.kill()


def drained(pipeline: LetterPipeline) -> int:
    """A life of the driver that delivers every record and ends by SIGTERM; returns how many letters it has counted."""
    with pipeline.life() as job:
        pipeline.caught_up(job)
        progress = job.until(lambda p: p["lag"] == 0, "no lag")
        assert progress["malformedRecords"] == 0
        pipeline.drain(job)
        return int(progress["deadLetters"])


@pytest.mark.parametrize(
    "points",
    [
        ("before-commit", "after-commit"),
        ("evaluated", "batch-end"),  # nothing is decided; before Spark's log of commits
        ("mid-produce",),  # the dead letters of the transaction follow
    ],
    ids=["commit", "batch", "rows"],
)
def test_dead_letters_are_in_the_transaction_of_the_decision(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession, points: tuple[str, ...]
) -> None:
    """Each malformed record is a dead letter once, and in no count; each other record is counted once."""
    pipeline = counted_letters(kafka, tmp_path, "exactly-once")
    pipeline.feed()
    for point in points:
        killed_at(pipeline, point)
    pipeline.feed()
    assert drained(pipeline) > 0
    assert_nothing_hangs(pipeline.servers, pipeline.sink, pipeline.letter_topic)
    assert counted(pipeline) == Counted()
    assert pipeline.letters() == pipeline.expected_letters()
    report = audit(spark, pipeline.spec)
    assert report.verdict is Verdict.HELD, report
    assert report.dead_letters == report.malformed == pipeline.expected_letters().total()


def test_control_dead_letters_outside_of_the_decision_are_there_twice(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    pipeline = counted_letters(kafka, tmp_path, "exactly-once")
    change(pipeline, OUTSIDE)
    pipeline.feed()
    killed_at(pipeline, "before-commit")
    drained(pipeline)
    letters = pipeline.letters()
    assert set(letters) == set(pipeline.expected_letters())
    assert max(letters.values()) == 2


def test_a_batch_whose_two_reads_differ_is_not_decided(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """A record would be neither counted nor a dead letter. The batch runs again until they agree."""
    pipeline = counted_letters(kafka, tmp_path, "exactly-once")
    change(pipeline, UNEQUAL)
    pipeline.feed()
    with pipeline.life() as job:
        failed = job.until(lambda p: p.get("lastError"), "a batch has failed")
        assert "malformed records of the batch, and a second read has" in failed["lastError"]["message"]
        job.job.kill()
    assert not decisions(pipeline)
    assert not pipeline.letters()
    change(pipeline, "")
    drained(pipeline)
    assert counted(pipeline) == Counted()
    assert pipeline.letters() == pipeline.expected_letters()


@pytest.mark.parametrize("point", ["written", "mid-produce", "before-commit"])
def test_at_least_once_repeats_dead_letters_of_a_batch_that_was_not_decided(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession, point: str
) -> None:
    pipeline = counted_letters(kafka, tmp_path, "at-least-once")
    pipeline.feed()
    killed_at(pipeline, point)
    drained(pipeline)
    letters = pipeline.letters()
    assert set(letters) == set(pipeline.expected_letters())
    assert max(letters.values()) == 2
    result = counted(pipeline)
    assert (result.missing, result.surplus) == (0, 0)
    report = audit(spark, pipeline.spec)
    assert (report.lost, report.unexpected) == (0, 0), report


@pytest.mark.parametrize("point", ["after-commit", "written"])
def test_at_most_once_repeats_no_dead_letter_behind_the_decision(
    kafka: EmbeddedKafka, tmp_path: Path, point: str
) -> None:
    """A driver that is killed behind the decision, and before the output, loses the dead letters of one batch."""
    pipeline = counted_letters(kafka, tmp_path, "at-most-once")
    pipeline.feed()
    killed_at(pipeline, point)
    drained(pipeline)
    letters, expected = pipeline.letters(), pipeline.expected_letters()
    assert letters <= expected
    assert (letters < expected) is (point == "after-commit")
    assert counted(pipeline).surplus == 0


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_too_many_dead_letters_halt_before_the_decision(kafka: EmbeddedKafka, tmp_path: Path, guarantee: str) -> None:
    """Nothing of the batch is written. With a higher limit the pipeline continues from the state before it."""
    pipeline = counted_letters(kafka, tmp_path, guarantee, max_fraction=0.2)
    pipeline.feed()
    drained(pipeline)
    before, decided, fed = pipeline.letters(), decisions(pipeline), pipeline.fed
    assert before == pipeline.expected_letters()
    pipeline.send(lambda p, n: b"oops", 500)
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is Reason.TOO_MANY_DEAD_LETTERS
    assert "maxFraction (0.2)" in failure.message
    assert f"one is {pipeline.source}-" in failure.message
    assert pipeline.letters() == before
    assert decisions(pipeline) == decided
    positions = positions_of(pipeline.servers, pipeline.spec.group, pipeline.source, pipeline.partitions)
    assert positions == dict.fromkeys(range(pipeline.partitions), fed)
    pipeline.spec = replace(pipeline.spec, source=replace(pipeline.spec.source, dead_letter_fraction=1.0))
    drained(pipeline)
    assert pipeline.letters().total() == before.total() + 500 * pipeline.partitions


def test_dead_letters_that_exceed_the_memory_are_in_files(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    pipeline = counted_letters(kafka, tmp_path, "exactly-once")
    assert pipeline.spec.state is not None
    pipeline.spec = replace(pipeline.spec, state=replace(pipeline.spec.state, batch_bytes=0))
    output = tmp_path / "state" / "output"
    with pipeline.life() as job:
        hit = job.arm("evaluated")
        pipeline.feed()
        job.arrived(hit)
        wait_until(lambda: len(list(output.glob("*/*"))) > 2, "more files than those of the output's two tasks")
        job.job.kill()
    drained(pipeline)
    assert counted(pipeline) == Counted()
    assert pipeline.letters() == pipeline.expected_letters()
    assert not list(output.glob("*/*"))


def test_a_plan_that_reads_the_source_twice_has_each_dead_letter_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    pipeline = joined_letters(kafka, tmp_path)
    pipeline.send(timed, 200)
    drained(pipeline)
    pipeline.assert_exactly_once()


@pytest.fixture
def of_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the audit import the transform of stateful_letters()."""
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("of_audit")
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_dead_letters_are_in_the_transaction_of_a_database(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path, spark: SparkSession, guarantee: str
) -> None:
    """One transaction has rows, dead letters and decision, whatever is declared."""
    pipeline = stateful_letters(kafka, tmp_path, "postgres", guarantee, database)
    _once_over_kills(pipeline, spark)


@pytest.mark.usefixtures("of_audit")
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
@pytest.mark.parametrize("sink", OUTSIDE_KAFKA)
def test_dead_letters_are_durable_before_the_decision_beside_a_sink(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession, sink: str, guarantee: str
) -> None:
    """They are durable before the commit, whatever is declared: none is missing, and copies have one key."""
    pipeline = stateful_letters(kafka, tmp_path, sink, guarantee)
    assert isinstance(pipeline, OutsidePipeline)
    pipeline.feed()
    killed_at(pipeline, "letters-written")
    assert pipeline.records(), "they are durable before the commit"
    _once_over_kills(pipeline, spark)
    assert pipeline.most_copies() > 1, "what was killed had written its dead letters"


def _once_over_kills(pipeline: LetterPipeline, spark: SparkSession) -> None:
    """Kills the driver before and after the commit. Output and dead letters are right then, and the audit says so."""
    pipeline.feed()
    for point in ("before-commit", "after-commit"):
        killed_at(pipeline, point)
    drained(pipeline)
    pipeline.assert_exactly_once()
    if pipeline.spec.sink.kind == "iceberg":
        return  # whose table has no history of decisions
    report = audit(spark, pipeline.spec)
    assert report.verdict is Verdict.HELD, report
    assert report.dead_letters == report.malformed == pipeline.expected_letters().total()
