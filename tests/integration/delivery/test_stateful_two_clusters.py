"""Stateful pipelines from one Kafka cluster to another, whose drivers are killed and replaced.

tests/integration/two_clusters/test_decisions.py has what a driver takes and refuses, without Spark, and the control of
the positions' place. See docs/protocol.md#two-clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, Guarantee, Reason
from ackwright_stream.reports import Failure, Verdict
from integration.support.pipelines import positions_of, read
from integration.support.stateful_clusters import pipeline_between
from integration.support.stateful_pipelines import Counted
from integration.support.two_clusters import TwoClusters, create_topic, delete_topic
from integration.support.weaker_state import Output, WeakerPipeline
from sql_texts import COUNTS_BY_KEY
from waiting import ANSWER, WAIT

EXACT = Output(0, Counted())
HELD, BROKEN, UNPROVEN = Verdict.HELD, Verdict.BROKEN, Verdict.UNPROVEN


@pytest.fixture
def exactly_once(two_clusters: TwoClusters, tmp_path: Path) -> Iterator[WeakerPipeline]:
    with pipeline_between(two_clusters, tmp_path, Guarantee.EXACTLY_ONCE) as created:
        yield created


@pytest.fixture
def at_least_once(two_clusters: TwoClusters, tmp_path: Path) -> Iterator[WeakerPipeline]:
    with pipeline_between(two_clusters, tmp_path, Guarantee.AT_LEAST_ONCE) as created:
        yield created


@pytest.fixture
def at_most_once(two_clusters: TwoClusters, tmp_path: Path) -> Iterator[WeakerPipeline]:
    with pipeline_between(two_clusters, tmp_path, Guarantee.AT_MOST_ONCE) as created:
        yield created


@pytest.mark.parametrize("point", ["evaluated", "before-commit", "after-commit", "batch-end"])
def test_counts_go_on_over_a_kill_around_the_decision(
    two_clusters: TwoClusters, exactly_once: WeakerPipeline, point: str
) -> None:
    pipeline = exactly_once
    pipeline.killed_at(point)
    pipeline.drained()
    assert pipeline.output() == EXACT
    marker = two_clusters.marker_prefix + pipeline.source
    positions = positions_of(two_clusters.sink.bootstrap_servers, pipeline.spec.group, marker, pipeline.partitions)
    assert positions == dict.fromkeys(range(pipeline.partitions), pipeline.fed)


@pytest.mark.parametrize("point", ["written", "before-commit"])
def test_at_least_once_repeats_the_output_of_a_batch_that_was_not_decided(
    at_least_once: WeakerPipeline, point: str
) -> None:
    at_least_once.killed_in_output(point)
    at_least_once.drained()
    output = at_least_once.output()
    assert output.surplus > 0
    assert (output.counted.missing, output.counted.surplus) == (0, 0)


@pytest.mark.parametrize("point", ["evaluated", "after-commit"])
def test_at_least_once_repeats_nothing_before_the_output_and_behind_the_decision(
    at_least_once: WeakerPipeline, point: str
) -> None:
    at_least_once.killed_at(point)
    at_least_once.drained()
    assert at_least_once.output() == EXACT


@pytest.mark.parametrize("point", ["after-commit", "mid-produce"])
def test_at_most_once_loses_the_output_of_a_batch_that_was_decided_and_repeats_none(
    at_most_once: WeakerPipeline, point: str
) -> None:
    at_most_once.killed_at(point)
    at_most_once.drained()
    output = at_most_once.output()
    assert output.surplus < 0 if point == "after-commit" else output.surplus <= 0
    assert output.state_is_right
    assert (output.counted.marks, output.counted.backwards) == (0, 0)


@pytest.mark.parametrize("point", ["before-commit", "written"])
def test_at_most_once_loses_nothing_before_the_decision_and_behind_the_output(
    at_most_once: WeakerPipeline, point: str
) -> None:
    at_most_once.killed_at(point)
    at_most_once.drained()
    assert at_most_once.output() == EXACT


def test_control_at_least_once_loses_output_if_it_decides_first(at_least_once: WeakerPipeline) -> None:
    at_least_once.act_as(Guarantee.AT_MOST_ONCE)
    at_least_once.killed_at("after-commit")
    at_least_once.drained()
    assert at_least_once.output().surplus < 0


def test_control_exactly_once_repeats_output_that_is_not_in_the_transaction_of_the_decision(
    exactly_once: WeakerPipeline,
) -> None:
    exactly_once.act_as(Guarantee.AT_LEAST_ONCE)
    exactly_once.killed_in_output("written")
    exactly_once.drained()
    assert exactly_once.output().surplus > 0


@pytest.mark.parametrize("point", ["evaluated", "before-commit"])
def test_a_driver_that_was_suspended_does_not_commit_beside_its_successor(
    exactly_once: WeakerPipeline, point: str
) -> None:
    with exactly_once.overtaken(point) as driver:
        exactly_once.feed()
        exactly_once.caught_up(driver)
        exactly_once.drain(driver)
    assert exactly_once.output() == EXACT


def test_partitions_that_are_added_while_a_driver_runs_are_counted(
    two_clusters: TwoClusters, exactly_once: WeakerPipeline
) -> None:
    pipeline = exactly_once
    with pipeline.life() as job:
        pipeline.caught_up(job)
        pipeline.add_partitions(3)
        pipeline.caught_up(job)  # by the same process: it takes the pipeline again
        pipeline.drain(job)
    assert pipeline.output() == EXACT
    marker = two_clusters.marker_prefix + pipeline.source
    admin = AdminClient({"bootstrap.servers": two_clusters.sink.bootstrap_servers})
    assert len(admin.list_topics(marker, timeout=ANSWER).topics[marker].partitions) == 3


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_the_audit_reads_both_clusters(
    two_clusters: TwoClusters, tmp_path: Path, spark: SparkSession, guarantee: Guarantee
) -> None:
    """Control: a record that no batch has output breaks the guarantee, or is not judged if it may be repeated."""
    with pipeline_between(two_clusters, tmp_path, guarantee, sql=COUNTS_BY_KEY) as pipeline:
        pipeline.killed_at("after-commit")
        pipeline.drained()
        report = audit(spark, pipeline.spec)
        assert report.verdict is HELD, report
        assert (report.counted, report.expected) == (2 * pipeline.fed, 2)
        producer = Producer({"bootstrap.servers": pipeline.sink_servers})
        producer.produce(pipeline.sink, b"1", b"of no record")
        assert producer.flush(ANSWER) == 0
        expected = UNPROVEN if guarantee is Guarantee.AT_LEAST_ONCE else BROKEN
        assert audit(spark, pipeline.spec).verdict is expected


def halts(pipeline: WeakerPipeline, reason: Reason) -> Failure:
    """The failure of a run that halts for this reason."""
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is reason, failure
    return failure


def accept_topic(pipeline: WeakerPipeline, failure: Failure) -> None:
    assert failure.lost_topic is not None
    pipeline.spec = replace(pipeline.spec, accepted_losses={pipeline.source: str(failure.lost_topic.id)})


@pytest.mark.parametrize("what", ["topic", "cluster"])
def test_another_source_is_counted_from_its_beginning_once_both_losses_are_accepted(
    two_clusters: TwoClusters, tmp_path: Path, spark: SparkSession, what: str
) -> None:
    """A source topic that was recreated, or a cluster with a topic of the same name at the source's address."""
    with pipeline_between(two_clusters, tmp_path, Guarantee.EXACTLY_ONCE, sql=COUNTS_BY_KEY) as pipeline:
        pipeline.drained()
        before = counts_of(pipeline)
        assert set(before.values()) == {pipeline.fed}
        if what == "topic":
            delete_topic(two_clusters.source, pipeline.source)
            create_topic(two_clusters.source, pipeline.source, 2)
        else:
            create_topic(two_clusters.sink, pipeline.source, 2)
            pipeline.servers = two_clusters.sink.bootstrap_servers
            at = replace(pipeline.spec.cluster, bootstrap_servers=pipeline.servers)
            pipeline.spec = replace(pipeline.spec, cluster=at)
        pipeline.fed = 0
        pipeline.feed(300)
        replaced = Reason.TOPIC_REPLACED if what == "topic" else Reason.CLUSTER_REPLACED
        accept_topic(pipeline, halts(pipeline, replaced))
        lost = halts(pipeline, Reason.STATE_LOST)
        assert counts_of(pipeline) == before

        pipeline.spec = replace(pipeline.spec, accepted_state_loss=lost.fingerprint)
        pipeline.killed_in_first_batch("batch-end")
        pipeline.feed(100)
        pipeline.drained()
        assert counts_of(pipeline) == dict.fromkeys(before, 400)
        report = audit(spark, pipeline.spec)
        assert report.verdict is UNPROVEN, report
        assert (report.lost, report.duplicated, report.unexpected) == (0, 0, 0)
        assert any("was lost and began empty" in doubt for doubt in report.doubts)


def counts_of(pipeline: WeakerPipeline) -> dict[bytes | None, int]:
    """The last count of each key."""
    return {record.key: int(record.value or b"") for record in read(pipeline.sink_servers, pipeline.sink)}
