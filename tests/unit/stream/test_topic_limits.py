"""Producers that send no batch that their topics refuse, and dead letters that are too large. No broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from ackwright_stream import dead_letters
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeadLetterTopic, Guarantee, JobSpec, KafkaSink, Reason
from ackwright_stream.record_size import RECORD_OVERHEAD, batch_of_one
from ackwright_stream.sinks.kafka.trial import java_size
from ackwright_stream.sinks.letter_topic import fitting_records
from ackwright_stream.topic_limits import LARGEST_RECORD, LARGEST_REQUEST, fitted, fitting
from minimal_job import minimal_job

LETTER: dict[str, Any] = {
    "topic": "in",
    "partition": 1,
    "offset": 5,
    "key": b"k",
    "value": b"x",
    "reason": "is no JSON",
}


def letters(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{**LETTER, "value": value, "offset": 5 + n} for n, value in enumerate(values)], schema=dead_letters.COLUMNS
    )


def test_a_batch_is_as_large_as_the_smallest_topic_takes() -> None:
    assert fitting({"acks": "all"}, [1_048_588, 100_000], 1_000_000) == {"acks": "all", "batch.size": "100000"}


def test_a_batch_is_never_larger_than_the_default() -> None:
    assert fitting({"acks": "all"}, [1_048_588, 5_000_000], 1_000_000) == {"acks": "all"}


def test_the_java_producer_fits_the_topic_of_rows() -> None:
    """Its batches are smaller by default. Dead letters have another producer."""
    job = minimal_job(Guarantee.AT_LEAST_ONCE)
    fits = fitted(job, {"out": 10_000, "letters": 500}).sink_options
    assert fits == {**job.sink_options, "batch.size": "10000", LARGEST_REQUEST: "10021"}
    assert "batch.size" not in fitted(job, {"out": 20_000}).sink_options


def test_the_java_producer_refuses_a_record_that_its_topic_would_refuse() -> None:
    """It compares the largest size that a record may have: it is to refuse none that the topic takes."""
    job = replace(minimal_job(Guarantee.AT_LEAST_ONCE), sink_options={LARGEST_REQUEST: "1048588"})
    assert fitted(job, {"out": 50_000}).sink_options == {LARGEST_REQUEST: "50021"}
    assert fitted(job, {"out": 5_000_000}) == job
    for value in (b"", b"x" * 100, b"x" * 9000, b"x" * 2_000_000):
        size = batch_of_one(b"k", value, [])
        assert size < java_size(b"k", value, []) <= size + RECORD_OVERHEAD


PRODUCER = {"acks": "all", "enable.idempotence": "true", LARGEST_RECORD: "1048588"}


def job_with(topic: str | None) -> JobSpec:
    """A job that writes rows to this topic, and dead letters to `letters`."""
    to = DeadLetterTopic("letters", {LARGEST_RECORD: "1000000000"})
    sink = replace(minimal_job().sink_of(KafkaSink), topic=topic, dead_letters=to)
    return replace(minimal_job(), sink=sink, producer=PRODUCER)


def test_the_producer_of_a_job_fits_the_topics_of_rows_and_dead_letters() -> None:
    job = job_with("out")
    fits = fitted(job, {"out": 100_000, "letters": 200_000})
    assert fits.producer == {**PRODUCER, LARGEST_RECORD: "200000", "batch.size": "100000"}
    letters = fits.sink_of(KafkaSink).dead_letters
    assert letters is not None
    assert letters.producer == {LARGEST_RECORD: "200000", "batch.size": "200000"}
    large = fitted(job, {"out": 5_000_000, "letters": 500})
    assert large.producer == {**PRODUCER, "batch.size": "500"}
    letters = large.sink_of(KafkaSink).dead_letters
    assert letters is not None
    assert letters.producer[LARGEST_RECORD] == "1000", "librdkafka accepts no smaller one"


def test_rows_that_name_their_topics_have_the_batches_of_the_dead_letters_beside_them() -> None:
    assert fitted(job_with(None), {"letters": 5000}).producer == {**PRODUCER, "batch.size": "5000"}


def test_without_limits_a_job_stays_as_it_is() -> None:
    job = minimal_job()
    assert fitted(job, {}) == job


@pytest.mark.parametrize("records_of", [dead_letters.records, dead_letters.keyed_records])
def test_the_record_whose_dead_letter_is_too_large_is_named(records_of: Any) -> None:
    to = DeadLetterTopic("letters", {LARGEST_RECORD: "1000"})
    (fits,) = fitting_records([letters(b"x" * 600)], to, "group", records_of)
    assert fits.num_rows == 1
    batches = fitting_records([letters(b"x"), letters(b"y", b"y" * 1000)], to, "group", records_of)
    assert next(iter(batches)).num_rows == 1
    with pytest.raises(JobError, match=r"record in-1@6: its dead letter of 1\d{3} bytes is too large") as e:
        list(batches)
    assert e.value.reason is Reason.ROW_REFUSED
    assert "topic letters, whose max.message.bytes is 1000" in e.value.message
