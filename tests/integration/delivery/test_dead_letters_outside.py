"""Dead letters in a topic beside a sink outside Kafka, whatever is killed. See docs/dead-letters.md.

Two stores that no commit changes together: dead letters are durable before the positions move, or written after the
claim. tests/model/letter_topic.py has every interleaving.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Verdict
from integration.support.outside_letters import SINKS, OutsidePipeline, outside_pipeline
from waiting import WAIT

# A transform that also changes the job that runs it: dead letters are written after the commit. What waits for that
# is in a directory of one life of the driver, as if it were in memory.
CONTROL = """
import os
import uuid
from pathlib import Path

import pyarrow as pa

from ackwright_stream.delivery import batch, exactly_once

_stage, _commit, _process = batch.stage, exactly_once._stage_and_advance, exactly_once.process_and_advance
late = Path(os.environ["LATE"])

def stage(work, task, rows, letters):
    answer = _stage(work, task, rows)
    for part in letters:
        with pa.OSFile(str(late / str(uuid.uuid4())), "wb") as file, pa.ipc.new_file(file, part.schema) as writer:
            writer.write(part)
    return answer

def commit(one_batch, lanes, staging):
    result = _commit(one_batch, lanes, staging)
    for file in late.iterdir():
        for part in pa.ipc.open_file(file.read_bytes()).read_all().to_batches():
            lanes.sink.write_dead_letters(part)
        file.unlink()
    return result

class Deferred:
    def __init__(self, letters):
        self.letters, self.parts = letters, []

    def __iter__(self):
        self.parts += self.letters
        return iter(())

def process(work, task, rows, letters):
    deferred = Deferred(letters)
    answer = _process(work, task, rows, deferred)
    for part in deferred.parts:
        work.lanes(transactional=True).sink.write_dead_letters(part)
    return answer

exactly_once.stage, exactly_once._stage_and_advance, exactly_once.process_and_advance = stage, commit, process

def transform(df):
    return df.selectExpr("kafka.key AS key", "concat(p, ':', n) AS value")
"""


def of_task(sink: str) -> bool:
    """Whether each task commits, and not the driver."""
    return sink == "files"


def killed_at(pipeline: OutsidePipeline, point: str) -> None:
    """A life of the driver in which a process is killed at the point, with further records."""
    with pipeline.life() as job:
        pipeline.caught_up(job)
        hit = job.arm(point, "kill")
        pipeline.feed()
        job.arrived(hit)
        if of_task(pipeline.sink) or point == "letters-written":  # Spark runs the task again
            pipeline.caught_up(job)
            pipeline.drain(job)
        else:
            job.job.wait(WAIT)


def drained(pipeline: OutsidePipeline) -> None:
    with pipeline.life() as job:
        pipeline.caught_up(job)
        pipeline.drain(job)


@pytest.mark.parametrize("sink", SINKS)
def test_dead_letters_beside_a_sink_are_there_once_by_key_across_kills(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession, sink: str
) -> None:
    """Killed when they are durable, before the commit, and after it: none is missing, and copies have one key."""
    pipeline = outside_pipeline(kafka, tmp_path, sink, "exactly-once")
    pipeline.feed()
    for point in ("letters-written", "before-commit", "after-commit"):
        killed_at(pipeline, point)
    pipeline.feed()
    with pipeline.life() as job:
        pipeline.caught_up(job)
        counted = job.until(lambda p: p["lag"] == 0, "no lag")
        assert counted["deadLetters"] > 0
        assert counted["malformedRecords"] == 0
        pipeline.drain(job)
    pipeline.assert_exactly_once()
    assert pipeline.most_copies() > 1, "what was killed had written its dead letters"
    report = audit(spark, pipeline.spec)
    assert report.verdict is Verdict.HELD, report
    assert report.dead_letters == report.malformed == pipeline.expected_letters().total()
    filtered = pipeline.partitions * pipeline.fed // 10
    assert report.expected + report.dead_letters + filtered == report.sent


@pytest.mark.parametrize("sink", SINKS)
def test_control_dead_letters_after_the_commit_are_lost(kafka: EmbeddedKafka, tmp_path: Path, sink: str) -> None:
    (tmp_path / "control.py").write_text(CONTROL)
    transform = {"python": {"module": "control", "function": "transform"}}
    pipeline = outside_pipeline(kafka, tmp_path, sink, "exactly-once", transform=transform)
    late = [tmp_path / f"late-{n}" for n in range(2)]
    for directory in late:
        directory.mkdir()
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    pipeline.environment = {"PYTHONPATH": paths, "LATE": str(late[0])}
    killed_at(pipeline, "after-commit")
    pipeline.environment["LATE"] = str(late[1])
    pipeline.feed()
    drained(pipeline)
    expected, letters = pipeline.expected_letters(), pipeline.letters()
    assert letters, "without a kill they are written"
    assert letters < expected


@pytest.mark.parametrize("sink", SINKS)
def test_a_replaced_driver_leaves_dead_letters_that_are_the_same(
    kafka: EmbeddedKafka, tmp_path: Path, sink: str
) -> None:
    """It is suspended between its dead letters and its commit, which is then refused."""
    pipeline = outside_pipeline(kafka, tmp_path, sink, "exactly-once")
    pipeline.feed()
    with pipeline.overtaken("before-commit") as driver:
        pipeline.feed()
        pipeline.caught_up(driver)
        pipeline.drain(driver)
    pipeline.assert_exactly_once()
    assert pipeline.most_copies() > 1


@pytest.mark.parametrize("sink", SINKS)
def test_nothing_is_committed_if_a_dead_letter_is_refused(kafka: EmbeddedKafka, tmp_path: Path, sink: str) -> None:
    """The topic takes no record of that size; when it does, the pipeline continues."""
    pipeline = outside_pipeline(kafka, tmp_path, sink, "exactly-once")
    pipeline.feed(3)  # none is malformed
    with pipeline.life() as job:
        pipeline.caught_up(job)
        pipeline.configure_letter_topic("max.message.bytes", "100")
        before = pipeline.fed
        pipeline.feed(100)
        now = job.until(lambda p: p["restarts"] > 0, "a failed batch")
        assert set(now["positions"][pipeline.source].values()) == {before}
        assert pipeline.output().total() == pipeline.partitions * before
        pipeline.configure_letter_topic("max.message.bytes", "1000000")
        pipeline.caught_up(job)
        pipeline.drain(job)
    pipeline.assert_exactly_once()


@pytest.mark.parametrize("sink", SINKS)
def test_at_least_once_loses_no_dead_letter_beside_a_sink(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession, sink: str
) -> None:
    """Killed when rows and dead letters are there, and the positions have not moved."""
    pipeline = outside_pipeline(kafka, tmp_path, sink, "at-least-once")
    with pipeline.life() as job:
        pipeline.feed()
        job.arrived(job.arm("before-advance"))
        assert pipeline.letters()
        job.job.kill()
    drained(pipeline)
    assert pipeline.letters() == pipeline.expected_letters()
    assert set(pipeline.output()) == set(pipeline.expected_output())
    assert pipeline.most_copies() == 2
    report = audit(spark, pipeline.spec)
    assert report.verdict is Verdict.HELD, report
    assert report.dead_letters == pipeline.expected_letters().total()


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("point", ["claimed", "letters-written"])
def test_at_most_once_writes_dead_letters_after_the_claim(
    kafka: EmbeddedKafka, tmp_path: Path, sink: str, point: str
) -> None:
    """The driver is killed before they are written, or before the rows: what is missing is not written again."""
    pipeline = outside_pipeline(kafka, tmp_path, sink, "at-most-once")
    pipeline.feed()
    with pipeline.life() as job:
        pipeline.caught_up(job)
        hit = job.arm(point)
        pipeline.feed()
        job.arrived(hit)
        claimed = {letter for letter in pipeline.letters() if letter.offset >= pipeline.fed - 200}
        job.job.kill()
    if point == "letters-written":
        assert claimed, "they are durable"
    elif not of_task(sink):
        assert not claimed, "no task has begun"
    pipeline.feed()
    with pipeline.life() as job:
        pipeline.caught_up(job)
        job.until(lambda p: p["deadLetters"] >= pipeline.partitions * 20, "the dead letters of the last records")
        pipeline.drain(job)
    letters, rows = pipeline.letters(), pipeline.output()
    assert claimed <= set(letters) <= set(pipeline.expected_letters())
    assert rows < pipeline.expected_output()
    assert point == "letters-written" or letters < pipeline.expected_letters()
    assert pipeline.most_copies() == 1


@pytest.mark.parametrize("sink", SINKS)
def test_a_task_killed_between_dead_letters_and_rows_at_most_once(
    kafka: EmbeddedKafka, tmp_path: Path, sink: str
) -> None:
    """Spark runs it again. A task that has claimed its ranges does not repeat them; one of a claimed batch does."""
    pipeline = outside_pipeline(kafka, tmp_path, sink, "at-most-once")
    pipeline.feed()
    killed_at(pipeline, "letters-written")
    letters, rows = pipeline.letters(), pipeline.output()
    assert letters == pipeline.expected_letters()
    if of_task(sink):
        assert rows < pipeline.expected_output()
        assert pipeline.most_copies() == 1
    else:
        assert rows == pipeline.expected_output()
        assert pipeline.most_copies() == 2


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_too_many_dead_letters_halt_beside_a_sink(
    kafka: EmbeddedKafka, tmp_path: Path, sink: str, guarantee: str
) -> None:
    """A schema that fits no record any more: no rows, no dead letters of the tasks that notice it."""
    pipeline = outside_pipeline(kafka, tmp_path, sink, guarantee, max_fraction=0.2)
    pipeline.feed()
    with pipeline.life() as job:
        pipeline.caught_up(job)
        # The last batch's counts reach the report after its positions.
        job.until(lambda p: p["deadLetters"] == pipeline.expected_letters().total(), "all dead letters counted")
        before, rows = pipeline.letters(), pipeline.output()
        assert before == pipeline.expected_letters()
        pipeline.send(lambda p, n: b'{"p": "a newer version"}', 500)
        assert job.job.wait(WAIT) == ExitCode.HALTED
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is Reason.TOO_MANY_DEAD_LETTERS
    assert "maxFraction (0.2)" in failure.message
    assert (pipeline.letters(), pipeline.output()) == (before, rows)
