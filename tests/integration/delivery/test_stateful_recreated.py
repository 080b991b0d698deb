"""The source topic of a stateful pipeline is deleted and recreated: two losses, and each is accepted once.

The records of the old topic are lost (`ackwright accept-topic`), and the state that has counted them
(`ackwright accept-state-loss`). test_stateful_two_clusters.py has the same between two clusters. See docs/topics.md and
docs/stateful.md#without-a-copy.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Failure, Verdict
from integration.support.pipelines import create_topics, positions_of, read
from integration.support.postgres import Database
from integration.support.stateful_pipelines import StatefulPipeline, stateful_pipeline
from integration.support.stateful_tables import COUNTS, StatefulTable, stateful_table
from integration.support.two_clusters import delete_topic
from waiting import WAIT, wait_until


@pytest.fixture
def pipeline(request: pytest.FixtureRequest, kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[StatefulPipeline]:
    """A pipeline that counts the records of each source partition, into a topic or a table."""
    name = f"recreated-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        created: StatefulPipeline
        if request.param == "kafka":
            created = stack.enter_context(stateful_pipeline(kafka, tmp_path, name, limit=2_000))
        else:
            database: Database = request.getfixturevalue("database")
            created = stack.enter_context(stateful_table(kafka, database, tmp_path, name, limit=2_000))
        created.spec = replace(created.spec, transform=replace(created.spec.transform, sql=COUNTS))
        yield created


def counts(pipeline: StatefulPipeline) -> dict[str, int]:
    """The last count of each key."""
    if isinstance(pipeline, StatefulTable):
        return {key: int(value) for key, value in pipeline.database.sql("SELECT key, value FROM counts")}
    output = read(pipeline.servers, pipeline.sink)
    return {(record.key or b"").decode(): int(record.value or b"") for record in output}


def recreate_source(kafka: EmbeddedKafka, pipeline: StatefulPipeline, count: int) -> None:
    """Another topic of the same name, with so many records in each partition."""
    group, partitions = pipeline.spec.group, pipeline.partitions
    delete_topic(kafka, pipeline.source)
    wait_until(lambda: not positions_of(pipeline.servers, group, pipeline.source, partitions), "no positions")
    create_topics(pipeline.servers, pipeline.source, partitions=partitions)
    pipeline.fed = 0
    pipeline.feed(count)


def halts(pipeline: StatefulPipeline, reason: Reason) -> Failure:
    """The failure of a run that halts for this reason, without output."""
    before = counts(pipeline)
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is reason, failure
    assert counts(pipeline) == before
    return failure


@pytest.mark.parametrize("point", ["batch-start", "evaluated", "batch-end"])
@pytest.mark.parametrize("pipeline", ["kafka", "postgres"], indirect=True)
def test_a_recreated_topic_is_counted_from_its_beginning_once_each_loss_is_accepted(
    kafka: EmbeddedKafka, spark: SparkSession, pipeline: StatefulPipeline, point: str
) -> None:
    """The driver that begins with the new topic is killed: before its first batch, in it, or behind its decision.

    The next one needs no further acceptance. The new topic has records at the offsets of the old one, and fewer.
    """
    pipeline.drained()
    keys = counts(pipeline)
    assert set(keys.values()) == {pipeline.fed}
    recreate_source(kafka, pipeline, 300)
    replaced = halts(pipeline, Reason.TOPIC_REPLACED)
    assert "ackwright accept-topic" in replaced.message
    assert replaced.lost_topic is not None
    pipeline.spec = replace(pipeline.spec, accepted_losses={pipeline.source: str(replaced.lost_topic.id)})
    lost = halts(pipeline, Reason.STATE_LOST)
    assert "ackwright accept-state-loss" in lost.message

    pipeline.spec = replace(pipeline.spec, accepted_state_loss=lost.fingerprint)
    pipeline.killed_in_first_batch(point)
    pipeline.drained()
    assert counts(pipeline) == dict.fromkeys(keys, 300)
    pipeline.feed(100)
    pipeline.drained()  # the acceptances are still there, and the new state continues
    assert counts(pipeline) == dict.fromkeys(keys, 400)
    report = audit(spark, pipeline.spec)
    assert report.verdict is Verdict.UNPROVEN, report
    assert (report.lost, report.duplicated, report.unexpected) == (0, 0, 0)
    assert report.counted == 400 * pipeline.partitions
