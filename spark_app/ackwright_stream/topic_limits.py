"""The largest record batch that a topic takes (max.message.bytes), and producers that send none that is larger.

A producer fills batches of small records up to its batch.size. If a topic takes less, it refuses them forever:
librdkafka does not split a batch, and Kafka's Java producer splits it into batches of the same size until its records
expire (observed with 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import Brokers
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.record_size import RECORD_OVERHEAD

LIMIT = "max.message.bytes"
LARGEST_RECORD = "message.max.bytes"  # of a producer: librdkafka compares it with key, value and headers
LARGEST_REQUEST = "max.request.size"  # of the Java producer, which compares it with the largest size of a record, too
_SMALLEST_LARGEST_RECORD = 1000  # librdkafka refuses a smaller value of it
_BATCH, _LIBRDKAFKA, _JAVA = "batch.size", 1_000_000, 16_384  # its defaults in the two producers
# Topics that are missing or that the job may not describe. Their first record fails, or the brokers judge its size.
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED})


def limits(brokers: Brokers, topics: Iterable[str]) -> dict[str, int]:
    """The limit of each topic in bytes, without topics whose settings cannot be read. Raises JobError."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]

    def read(admin: AdminClient, timeout: float) -> dict[str, int]:
        answers = admin.describe_configs(resources, request_timeout=timeout)
        of_topics = {}
        for resource, answer in answers.items():
            try:
                of_topics[resource.name] = int(answer.result(timeout)[LIMIT].value)
            except KafkaException as e:
                if e.args[0].code() not in _UNKNOWN:
                    raise
        return of_topics

    return brokers.query(f"reading {LIMIT} of the topics", read) if resources else {}


def reader(brokers: Brokers) -> Callable[[str], int | None]:
    """Reads the limit of a topic once, when it is first asked for; None: it cannot be read."""

    @cache
    def read(topic: str) -> int | None:
        return limits(brokers, [topic]).get(topic)

    return read


def of_job(job: JobSpec, source: Brokers) -> dict[str, int]:
    """The limits of the topics that the job writes to, as far as the jobspec names them. Raises JobError."""
    cluster = getattr(job.sink, "cluster", None)
    brokers = Brokers(cluster, source.timeout) if cluster else source
    return limits(brokers, [topic for topic in _topics(job) if topic])


def fitted(job: JobSpec, of_topics: Mapping[str, int]) -> JobSpec:
    """The job, whose producers send no batch that a topic with these limits refuses, and no larger record.

    A topic that rows name in their column `topic` has no limit here: the brokers judge the records for it.
    """
    rows, to = _topics(job)
    sink: Any = job.sink
    if to is not None and to in of_topics:
        letters = sink.dead_letters
        producer = {**fitting(letters.producer, [of_topics[to]], _LIBRDKAFKA), LARGEST_RECORD: _accepted(of_topics[to])}
        job = replace(job, sink=replace(sink, dead_letters=replace(letters, producer=producer)))
    if job.producer and of_topics:
        producer = fitting(job.producer, of_topics.values(), _LIBRDKAFKA)
        if rows in of_topics:
            largest = min(int(producer[LARGEST_RECORD]), max(of_topics.values()))
            producer[LARGEST_RECORD] = _accepted(largest)
        job = replace(job, producer=producer)
    if rows is not None and rows in of_topics and job.sink_options:
        job = replace(job, sink_options=_java_fitting(job.sink_options, of_topics[rows]))
    return job


def _java_fitting(producer: Mapping[str, str], limit: int) -> dict[str, str]:
    """The settings of the Java producer for a topic with this limit.

    A batch of a record that is too large has room for a tiny one behind it. The topic refuses such a batch, and the
    producer splits it into the same one until the records expire. So it has to refuse the large one at once.
    """
    largest = min(int(producer[LARGEST_REQUEST]), limit + RECORD_OVERHEAD)
    return {**fitting(producer, [limit], _JAVA), LARGEST_REQUEST: str(largest)}


def _topics(job: JobSpec) -> tuple[str | None, str | None]:
    """The topics of rows and of dead letters. A sink that is not in Kafka has at most the second one."""
    sink: Any = job.sink
    letters = getattr(sink, "dead_letters", None)
    return getattr(sink, "topic", None), letters.topic if letters else None


def fitting(producer: Mapping[str, str], limits: Iterable[int], default: int) -> dict[str, str]:
    """The settings of a producer whose batches are within all limits and its default, in bytes.

    A larger record is alone in its batch.
    """
    smallest = min(limits)
    return {**producer, _BATCH: str(smallest)} if smallest < default else dict(producer)


def too_large_for_topic(size: int, topic: str, limit: int) -> str:
    """Why a topic refuses a record of so many bytes, for the end of a sentence."""
    return f"{size} bytes is too large for topic {topic}, whose {LIMIT} is {limit}"


def _accepted(limit: int) -> str:
    """The value of LARGEST_RECORD for this limit, or the smallest one that librdkafka accepts."""
    return str(max(limit, _SMALLEST_LARGEST_RECORD))
