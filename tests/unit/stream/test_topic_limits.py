"""Producers that send no batch that their topics refuse, and dead letters that are too large. No broker."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from ackwright_stream import dead_letters, topic_limits
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeadLetterTopic, Guarantee, JobSpec, KafkaSink, Reason, StateSettings
from ackwright_stream.jobspec_values import STATE
from ackwright_stream.record_size import RECORD_OVERHEAD, batch_of_one
from ackwright_stream.sinks import registry
from ackwright_stream.sinks.kafka.trial import java_size
from ackwright_stream.sinks.letter_topic import records_within_limit
from ackwright_stream.topic_limits import LARGEST_RECORD, LARGEST_REQUEST, limit_of_topic, with_batch_size
from minimal_job import minimal_job

LETTER: dict[str, Any] = {
    "topic": "in",
    "partition": 1,
    "offset": 5,
    "key": b"k",
    "value": b"x",
    "reason": "is no JSON",
}


def with_topic_limits(job: JobSpec, limits: dict[str, int]) -> JobSpec:
    return topic_limits.with_topic_limits(job, limits, routed=False)


def letters(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{**LETTER, "value": value, "offset": 5 + n} for n, value in enumerate(values)], schema=dead_letters.COLUMNS
    )


def test_a_batch_is_as_large_as_the_smallest_topic_takes() -> None:
    assert with_batch_size({"acks": "all"}, [1_048_588, 100_000], 1_000_000) == {"acks": "all", "batch.size": "100000"}


def test_a_batch_is_never_larger_than_the_default() -> None:
    assert with_batch_size({"acks": "all"}, [1_048_588, 5_000_000], 1_000_000) == {"acks": "all"}


def test_the_java_producer_fits_the_topic_of_rows() -> None:
    """Its batches are smaller by default. Dead letters have another producer."""
    job = minimal_job(Guarantee.AT_LEAST_ONCE)
    fits = with_topic_limits(job, {"out": 10_000, "letters": 500}).sink_options
    assert fits == {**job.sink_options, "batch.size": "10000", LARGEST_REQUEST: "10021"}
    assert "batch.size" not in with_topic_limits(job, {"out": 20_000}).sink_options


def test_the_java_producer_refuses_a_record_that_its_topic_would_refuse() -> None:
    """It compares the largest size that a record may have: it is to refuse none that the topic takes."""
    job = replace(minimal_job(Guarantee.AT_LEAST_ONCE), sink_options={LARGEST_REQUEST: "1048588"})
    assert with_topic_limits(job, {"out": 50_000}).sink_options == {LARGEST_REQUEST: "50021"}
    assert with_topic_limits(job, {"out": 5_000_000}) == job
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
    fits = with_topic_limits(job, {"out": 100_000, "letters": 200_000})
    assert fits.producer == {**PRODUCER, LARGEST_RECORD: "200000", "batch.size": "100000"}
    letters = fits.sink_of(KafkaSink).dead_letters
    assert letters is not None
    assert letters.producer == {LARGEST_RECORD: "200000", "batch.size": "200000"}
    large = with_topic_limits(job, {"out": 5_000_000, "letters": 500})
    assert large.producer == {**PRODUCER, "batch.size": "500"}
    letters = large.sink_of(KafkaSink).dead_letters
    assert letters is not None
    assert letters.producer[LARGEST_RECORD] == "1000", "librdkafka accepts no smaller one"


def test_rows_that_name_their_topics_have_the_batches_of_the_dead_letters_beside_them() -> None:
    assert with_topic_limits(job_with(None), {"letters": 5000}).producer == {**PRODUCER, "batch.size": "5000"}


def test_without_limits_a_job_stays_as_it_is() -> None:
    job = minimal_job()
    assert with_topic_limits(job, {}) == job


def test_rows_that_may_name_another_topic_are_judged_by_the_brokers() -> None:
    """A topic that rows name may take larger ones than the topic of rows that name none."""
    limits = {"out": 5000, "letters": 8000}
    fits = topic_limits.with_topic_limits(job_with("out"), limits, routed=True)
    assert fits.producer == {**PRODUCER, "batch.size": "5000"}
    letters = fits.sink_of(KafkaSink).dead_letters
    assert letters is not None
    assert letters.producer[LARGEST_RECORD] == "8000", "dead letters have one topic"
    spark = replace(minimal_job(Guarantee.AT_LEAST_ONCE), sink_options={LARGEST_REQUEST: "1048588"})
    options = topic_limits.with_topic_limits(spark, limits, routed=True).sink_options
    assert options == {LARGEST_REQUEST: "1048588", "batch.size": "5000"}


@pytest.mark.parametrize(
    ("metadata", "to_kafka", "routed"),
    [({}, True, True), ({"ackwright.absent": True}, True, False), ({}, False, False)],
    ids=["column topic", "no column topic", "a table with this column"],
)
def test_rows_of_a_topic_name_it_if_the_transform_has_the_column(
    metadata: dict[str, Any], to_kafka: bool, routed: bool
) -> None:
    rows: Any = SimpleNamespace(schema=StructType([StructField("topic", StringType(), metadata=metadata)]))
    job: Any = minimal_job() if to_kafka else SimpleNamespace(sink=object())
    assert registry.chooses_topic(job, rows) is routed


def test_decisions_of_a_stateful_pipeline_may_be_larger_than_the_topic_of_rows_takes() -> None:
    """The same producer writes them, to another topic."""
    job, state = job_with("out"), StateSettings(2, "/state", "update", None, None, 1_000)
    required = {name: value for name, (value, _) in STATE.items()} | {"spark.sql.shuffle.partitions": "2"}
    job = replace(job, state=state, spark={**job.spark, **required}, stream_options={})
    assert with_topic_limits(job, {"out": 5000}).producer == {**PRODUCER, "batch.size": "5000"}


class Answers:
    """Brokers that answer with these settings of a topic, or with an error."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def query(self, what: str, request: Any) -> Any:
        future: Future[Any] = Future()
        future.set_result(self._answer)
        return request(SimpleNamespace(describe_configs=lambda resources, **_: {resources[0]: future}), 1.0)


class Refusing(Answers):
    def query(self, what: str, request: Any) -> Any:
        raise JobError(Reason.UNEXPECTED, f"{what}: the version is not supported")


LIMITLESS = {"max.message.bytes": SimpleNamespace(value=None)}


@pytest.mark.parametrize("brokers", [Answers({}), Answers(LIMITLESS), Refusing(None)], ids=["missing", "null", "error"])
def test_a_limit_that_cannot_be_read_is_logged_and_stops_nothing(
    brokers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert limit_of_topic(brokers, "out") is None
    assert "max.message.bytes of topic out is not known" in caplog.text
    if isinstance(brokers, Refusing):
        assert "the version is not supported" in caplog.text


def test_the_limit_of_a_topic_is_read() -> None:
    brokers: Any = Answers({"max.message.bytes": SimpleNamespace(value="5000")})
    assert limit_of_topic(brokers, "out") == 5000


@pytest.mark.parametrize("records_of", [dead_letters.records, dead_letters.keyed_records])
def test_the_record_whose_dead_letter_is_too_large_is_named(records_of: Any) -> None:
    to = DeadLetterTopic("letters", {LARGEST_RECORD: "1000"})
    (fits,) = records_within_limit([letters(b"x" * 600)], to, "group", records_of)
    assert fits.num_rows == 1
    batches = records_within_limit([letters(b"x"), letters(b"y", b"y" * 1000)], to, "group", records_of)
    assert next(iter(batches)).num_rows == 1
    with pytest.raises(JobError, match=r"record in-1@6: its dead letter of 1\d{3} bytes is too large") as e:
        list(batches)
    assert e.value.reason is Reason.ROW_REFUSED
    assert "topic letters, whose max.message.bytes is 1000" in e.value.message


SHORT = st.none() | st.binary(max_size=3)
HEADERS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=2), "value": SHORT}), max_size=200)


@given(
    st.lists(st.fixed_dictionaries({"key": SHORT, "value": SHORT, "headers": st.none() | HEADERS}), min_size=1),
    st.sampled_from([dead_letters.records, dead_letters.keyed_records]),
)
def test_the_limit_is_that_of_the_largest_record(parts: list[dict[str, Any]], records_of: Any) -> None:
    batch = pa.RecordBatch.from_pylist([{**LETTER, **part} for part in parts], schema=dead_letters.COLUMNS)
    records = records_of(batch, "group").to_pylist()
    largest = max(batch_of_one(r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"]]) for r in records)

    def passed(limit: int) -> list[pa.RecordBatch]:
        return list(
            records_within_limit([batch], DeadLetterTopic("t", {LARGEST_RECORD: str(limit)}), "group", records_of)
        )

    assert passed(largest)[0].num_rows == len(parts)
    with pytest.raises(JobError):
        passed(largest - 1)
