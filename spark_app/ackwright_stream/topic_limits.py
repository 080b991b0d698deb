"""The largest record batch that a topic takes (max.message.bytes), and producers that send none that is larger.

A producer fills batches of small records up to its batch.size. If a topic takes less, it refuses them forever:
librdkafka does not split a batch, and Kafka's Java producer splits it into batches of the same size until its records
expire (observed with 4.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from confluent_kafka.admin import ConfigResource, ResourceType

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import Brokers
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.record_size import RECORD_OVERHEAD

LIMIT = "max.message.bytes"
LARGEST_RECORD = "message.max.bytes"  # of a producer: librdkafka compares it with key, value and headers
LARGEST_REQUEST = "max.request.size"  # of the Java producer, which compares it with the largest size of a record, too
_SMALLEST_LARGEST_RECORD = 1000  # librdkafka refuses a smaller value of it
_BATCH = "batch.size"
_LIBRDKAFKA_BATCH, _JAVA_BATCH = 1_000_000, 16_384  # its defaults in the two producers
log = logging.getLogger(__name__)


def limit_of_topic(brokers: Brokers, topic: str) -> int | None:
    """The limit of a topic in bytes; None, and a warning in the log, if it cannot be read: the job delivers without it.

    For instance because the topic is missing or the job may not describe it.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def read(admin: AdminClient, timeout: float) -> int:
        (answer,) = admin.describe_configs([resource], request_timeout=timeout).values()
        return int(answer.result(timeout)[LIMIT].value)

    try:
        return brokers.query(f"reading {LIMIT} of topic {topic}", read)
    except (JobError, KeyError, TypeError, ValueError) as e:  # a Kafka error, no such setting, or one without a number
        log.warning("%s of topic %s is not known, so its records are sent without it: %r", LIMIT, topic, e)
        return None


def reader(brokers: Brokers) -> Callable[[str], int | None]:
    """Reads the limit of a topic once, when it is first asked for; None: it cannot be read."""
    return cache(lambda topic: limit_of_topic(brokers, topic))


def limits_of_job(job: JobSpec, source: Brokers) -> dict[str, int]:
    """The limits of the topics that the job writes to, as far as the jobspec names them and they can be read."""
    cluster = getattr(job.sink, "cluster", None)
    brokers = Brokers(cluster, source.timeout) if cluster else source
    limits = {topic: limit_of_topic(brokers, topic) for topic in _topics(job) if topic}
    return {topic: limit for topic, limit in limits.items() if limit is not None}


def with_topic_limits(job: JobSpec, limit_by_topic: Mapping[str, int], *, routed: bool) -> JobSpec:
    """The job, whose producers send no batch that a topic with these limits refuses, and no larger record.

    routed: rows may name another topic in their column `topic`. Its limit is not known here, so the brokers judge the
    size of rows. They also judge it in stateful pipelines, whose decisions have the same producer and another topic.
    """
    rows, to = _topics(job)
    sink: Any = job.sink
    if to is not None and to in limit_by_topic:
        limit, letters = limit_by_topic[to], sink.dead_letters
        producer = with_batch_size(letters.producer, [limit], _LIBRDKAFKA_BATCH)
        producer[LARGEST_RECORD] = _largest_record_setting(limit)
        job = replace(job, sink=replace(sink, dead_letters=replace(letters, producer=producer)))
    if job.producer and limit_by_topic:
        producer = with_batch_size(job.producer, limit_by_topic.values(), _LIBRDKAFKA_BATCH)
        if rows in limit_by_topic and not routed and not job.state:
            largest = min(int(producer[LARGEST_RECORD]), max(limit_by_topic.values()))
            producer[LARGEST_RECORD] = _largest_record_setting(largest)
        job = replace(job, producer=producer)
    if rows is not None and rows in limit_by_topic and job.sink_options:
        limit = limit_by_topic[rows]
        options = with_batch_size(job.sink_options, [limit], _JAVA_BATCH)
        job = replace(job, sink_options=options if routed else _java_producer_with_limit(options, limit))
    return job


def _java_producer_with_limit(producer: Mapping[str, str], limit: int) -> dict[str, str]:
    """The settings of the Java producer, which refuses a record that is too large for a topic with this limit.

    A batch of such a record has room for a tiny one behind it. The topic refuses such a batch, and the producer splits
    it into the same one until the records expire. So it has to refuse the large one at once.
    """
    return {**producer, LARGEST_REQUEST: str(min(int(producer[LARGEST_REQUEST]), limit + RECORD_OVERHEAD))}


def _topics(job: JobSpec) -> tuple[str | None, str | None]:
    """The topics of rows and of dead letters. A sink that is not in Kafka has at most the second one."""
    sink: Any = job.sink
    letters = getattr(sink, "dead_letters", None)
    return getattr(sink, "topic", None), letters.topic if letters else None


def with_batch_size(producer: Mapping[str, str], limits: Iterable[int], default: int) -> dict[str, str]:
    """The settings of a producer whose batches are within all limits and its default, in bytes.

    A larger record is alone in its batch.
    """
    smallest = min(limits)
    return {**producer, _BATCH: str(smallest)} if smallest < default else dict(producer)


def too_large_for_topic(size: int, topic: str, limit: int) -> str:
    """Why a topic refuses a record of so many bytes, for the end of a sentence."""
    return f"{size} bytes is too large for topic {topic}, whose {LIMIT} is {limit}"


def _largest_record_setting(limit: int) -> str:
    """The value of LARGEST_RECORD for this limit, or the smallest one that librdkafka accepts."""
    return str(max(limit, _SMALLEST_LARGEST_RECORD))
