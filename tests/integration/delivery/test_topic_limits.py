"""A topic that takes smaller messages than the brokers' default: max.message.bytes. See docs/topics.md.

Small records arrive, because no request has a larger batch. A record that is too large itself is named, and so is one
whose dead letter is.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode, Reason
from integration.support.letter_pipelines import LetterPipeline, letter_pipeline, value
from integration.support.new_topics import set_topic
from integration.support.pipelines import assert_nothing_hangs, document, job_of, positions_of, read
from waiting import WAIT, wait_until

LIMIT = 10_000  # bytes; less than a batch of the Java producer
MANY = 5_000  # records of a partition: in all several times the limit
POISON = 1  # the record that is too large; near the start, because the driver searches for it
GUARANTEES = ("exactly-once", "at-least-once", "at-most-once")


def large_row(topic_column: str = "") -> dict[str, str]:
    """A transform whose output of one record is larger than the limit. topic_column: a further column."""
    text = f"IF(n = {POISON}, repeat('x', {LIMIT}), concat(p, ':', n))"
    rows = f"kafka.key AS key, {text} AS value{topic_column}"
    return {"sql": f"SELECT {rows} FROM source"}  # noqa: S608


def halted(pipeline: LetterPipeline) -> str:
    """The message with which the driver halts for a refused row."""
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is Reason.ROW_REFUSED
    return failure.message


def assert_only_at_most_once_has_moved(pipeline: LetterPipeline, guarantee: str) -> None:
    """Under at-most-once the batch, which is all that the source has, is lost and counted."""
    positions = positions_of(pipeline.servers, pipeline.spec.group, pipeline.source, pipeline.partitions)
    at = pipeline.fed if guarantee == "at-most-once" else 0
    assert positions == dict.fromkeys(range(pipeline.partitions), at)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_small_records_reach_topics_that_take_only_small_batches(
    kafka: EmbeddedKafka, tmp_path: Path, guarantee: str
) -> None:
    pipeline = letter_pipeline(kafka, tmp_path, guarantee)
    for topic in (pipeline.sink, pipeline.letter_topic):
        set_topic(kafka.bootstrap_servers, topic, "max.message.bytes", str(LIMIT))
    pipeline.feed(MANY)
    with pipeline.life() as job:
        pipeline.caught_up(job)
        pipeline.drain(job)
    wait_until(lambda: pipeline.output() == pipeline.expected_output(), "all rows")
    wait_until(lambda: pipeline.letters() == pipeline.expected_letters(), "all dead letters")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_record_whose_row_is_too_large_for_its_topic_is_named(
    kafka: EmbeddedKafka, tmp_path: Path, guarantee: str
) -> None:
    pipeline = letter_pipeline(kafka, tmp_path, guarantee, transform=large_row())
    for topic in (pipeline.sink, pipeline.letter_topic):
        set_topic(kafka.bootstrap_servers, topic, "max.message.bytes", str(LIMIT))
    pipeline.feed(3)
    row = rf"its row of 1\d{{4}} bytes is too large for topic {pipeline.sink}, whose max.message.bytes is {LIMIT}"
    assert re.match(rf"record {pipeline.source}-\d@{POISON}: {row}; change the transform", halted(pipeline))
    assert_only_at_most_once_has_moved(pipeline, guarantee)

    set_topic(kafka.bootstrap_servers, pipeline.sink, "max.message.bytes", "1000000")
    with pipeline.life() as job:
        pipeline.caught_up(job)
        pipeline.drain(job)
    # Not before: a driver that joins ends the transactions of the one that has halted.
    assert_nothing_hangs(pipeline.servers, pipeline.sink)
    if guarantee != "at-most-once":  # which has abandoned the batch
        assert len(set(pipeline.output())) == pipeline.partitions * 2 + 1


def test_the_topic_that_a_record_names_decides(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """The driver does not know such a topic when it starts. The broker refuses the record."""
    pipeline = letter_pipeline(kafka, tmp_path, "exactly-once")
    set_topic(kafka.bootstrap_servers, pipeline.sink, "max.message.bytes", str(LIMIT))
    described = document(pipeline.servers, pipeline.spec.name, "exactly-once", pipeline.source, pipeline.sink)
    del described["spec"]["source"]["maxOffsetsPerTrigger"]
    described["spec"]["source"] |= {"format": "json", "schema": "p INT, n INT", "onMalformed": "skip"}
    described["spec"] |= {"transform": large_row(f", '{pipeline.sink}' AS topic"), "sink": {"kafka": {}}}
    pipeline.spec = job_of(described, tmp_path)
    pipeline.feed(3)
    row = rf"its row of 1\d{{4}} bytes is too large for topic {pipeline.sink}, whose max.message.bytes is {LIMIT}"
    assert re.match(rf"record {pipeline.source}-\d@{POISON}: {row}; change the transform", halted(pipeline))


def test_a_record_for_another_topic_may_be_larger_than_the_default_one_takes(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    pipeline = letter_pipeline(kafka, tmp_path, "at-most-once")
    set_topic(kafka.bootstrap_servers, pipeline.sink, "max.message.bytes", str(LIMIT))
    large = pipeline.letter_topic  # a topic with the brokers' limit
    described = document(pipeline.servers, pipeline.spec.name, "at-most-once", pipeline.source, pipeline.sink)
    described["spec"]["source"] |= {"format": "json", "schema": "p INT, n INT", "onMalformed": "skip"}
    described["spec"]["transform"] = large_row(f", IF(n = {POISON}, '{large}', NULL) AS topic")
    pipeline.spec = job_of(described, tmp_path)
    pipeline.feed(3)
    with pipeline.life() as job:
        pipeline.caught_up(job)
        pipeline.drain(job)
    wait_until(lambda: len(read(pipeline.servers, large)) == pipeline.partitions, "the large records")
    wait_until(lambda: len(pipeline.output()) == pipeline.partitions * 2, "the others")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_record_whose_dead_letter_is_too_large_is_named(
    kafka: EmbeddedKafka, tmp_path: Path, guarantee: str
) -> None:
    """Also at-most-once, where no broker answers that it refuses a record."""
    pipeline = letter_pipeline(kafka, tmp_path, guarantee)
    set_topic(kafka.bootstrap_servers, pipeline.letter_topic, "max.message.bytes", str(LIMIT))
    pipeline.send(lambda p, n: b"x" * LIMIT if n == 63 else value(p, n), 100)
    letter = rf"its dead letter of 1\d{{4}} bytes is too large for topic {pipeline.letter_topic}, .* is {LIMIT}"
    assert re.match(rf"record {pipeline.source}-\d@63: {letter}", halted(pipeline))
    assert_only_at_most_once_has_moved(pipeline, guarantee)
    if guarantee == "exactly-once":
        assert not [r for r in pipeline.letters() if r.offset == 63]
