"""The decisions of stateful pipelines whose source is on another cluster than output, positions and decisions.

Two real clusters, no Spark: a driver in this process takes the pipeline and decides batches. See
docs/protocol.md#two-clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.sinks.kafka import decisions, offsets, transactions
from integration.support.lane_rules import commit_positions_at_source
from integration.support.pipelines import LANES, feed, positions_of, read
from integration.support.stateful_clusters import DecidingDriver, at_source, stateful_job, topics_of
from integration.support.stateful_pipelines import DECISIONS
from integration.support.two_clusters import TwoClusters, create_topic, delete_topic
from waiting import ANSWER, wait_until

COUNT = 10  # records of each partition of the source


@pytest.fixture
def spec(two_clusters: TwoClusters, tmp_path: Path) -> JobSpec:
    job = stateful_job(two_clusters, tmp_path, Guarantee.EXACTLY_ONCE)
    feed(two_clusters.source.bootstrap_servers, topics_of(job)[0], 2, 0, COUNT)
    return job


@contextmanager
def driver_of(spec: JobSpec) -> Iterator[DecidingDriver]:
    """A driver that has taken the pipeline, and ends without a farewell."""
    created = DecidingDriver(spec)
    try:
        yield created
    finally:
        created.leave()


def refusal(spec: JobSpec) -> JobError:
    """The error of a driver that may not take the pipeline."""
    with pytest.raises(JobError) as caught, driver_of(spec):
        pass
    return caught.value


def accepting_topic(spec: JobSpec, error: JobError) -> JobSpec:
    """As after `ackwright accept-topic`."""
    assert error.lost_topic is not None, error
    return replace(spec, accepted_losses={topics_of(spec)[0]: str(error.lost_topic.id)})


def accepting_state(spec: JobSpec, error: JobError) -> JobSpec:
    """As after `ackwright accept-state-loss`."""
    assert (error.reason, error.fingerprint is not None) == (Reason.STATE_LOST, True), error
    return replace(spec, accepted_state_loss=error.fingerprint)


def output(clusters: TwoClusters, spec: JobSpec) -> list[bytes]:
    return sorted(r.value or b"" for r in read(clusters.sink.bootstrap_servers, topics_of(spec)[1]))


def test_output_positions_and_decision_are_on_the_sinks_cluster(two_clusters: TwoClusters, spec: JobSpec) -> None:
    """Each position has the number of the batch, also that of a partition that does not move."""
    source, _ = topics_of(spec)
    with driver_of(spec) as driver:
        assert driver.decision is None
        driver.decide({0: 4})
        last = driver.decide({0: 7, 1: 2})
    assert len(output(two_clusters, spec)) == 9
    at = two_clusters.sink.bootstrap_servers
    assert positions_of(at, spec.group, two_clusters.marker_prefix + source, 2) == {0: 7, 1: 2}
    [record] = [r for r in read(at, DECISIONS) if r.key == spec.group.encode()][-1:]
    assert record.headers == (("source", two_clusters.source_id.encode()),)
    admin = AdminClient({"bootstrap.servers": two_clusters.source.bootstrap_servers})
    assert not {DECISIONS, LANES} & set(admin.list_topics(timeout=ANSWER).topics)
    assert positions_of(two_clusters.source.bootstrap_servers, spec.group, source, 2) == {}
    with driver_of(spec) as successor:
        assert (successor.decision, successor.offsets) == (last, {0: 7, 1: 2})
        assert {p.batch for p in successor.owned.before.values() if p} == {1}


def test_a_driver_that_was_replaced_decides_nothing(two_clusters: TwoClusters, spec: JobSpec) -> None:
    with driver_of(spec) as first:
        first.decide({0: 4})
        with driver_of(spec) as second:
            with pytest.raises(JobError) as caught:
                first.decide({0: 9})
            assert caught.value.reason in (Reason.SUPERSEDED, Reason.POSITION_CONFLICT)
            last = second.decide({0: 6})
    assert len(output(two_clusters, spec)) == 6
    with driver_of(spec) as third:
        assert third.decision == last


def test_partitions_that_are_added_get_a_marker_with_the_batch(two_clusters: TwoClusters, spec: JobSpec) -> None:
    source, _ = topics_of(spec)
    with driver_of(spec) as driver:
        driver.decide({0: 4})
    admin = AdminClient({"bootstrap.servers": two_clusters.source.bootstrap_servers})
    admin.create_partitions([NewPartitions(source, 3)])[source].result(ANSWER)
    wait_until(lambda: len(admin.list_topics(source, timeout=ANSWER).topics[source].partitions) == 3, "it is known")
    with driver_of(spec) as driver:
        assert driver.offsets == {0: 4, 1: 0, 2: 0}
        last = driver.decide({1: 5})
    with driver_of(spec) as driver:
        assert (driver.decision, driver.offsets) == (last, {0: 4, 1: 5, 2: 0})


def test_a_marker_that_is_deleted_halts(two_clusters: TwoClusters, spec: JobSpec) -> None:
    marker = two_clusters.marker_prefix + topics_of(spec)[0]
    with driver_of(spec) as driver:
        driver.decide({0: 4})
    delete_topic(two_clusters.sink, marker)
    wait_until(lambda: not positions_of(two_clusters.sink.bootstrap_servers, spec.group, marker, 2), "they are gone")
    assert refusal(spec).reason is Reason.POSITION_LOST


def test_a_recreated_source_topic_halts_until_its_loss_and_that_of_the_state_are_accepted(
    two_clusters: TwoClusters, spec: JobSpec
) -> None:
    source, _ = topics_of(spec)
    with driver_of(spec) as driver:
        driver.decide({0: 4})
        delete_topic(two_clusters.source, source)
        create_topic(two_clusters.source, source, 2)
        feed(two_clusters.source.bootstrap_servers, source, 2, 1000, COUNT)
        with pytest.raises(JobError) as caught:
            driver.decide({0: 6})
        assert caught.value.reason is Reason.TOPIC_REPLACED
    replaced = refusal(spec)
    assert replaced.reason is Reason.TOPIC_REPLACED
    accepting = accepting_topic(spec, replaced)
    accepting = accepting_state(accepting, refusal(accepting))
    assert len(output(two_clusters, spec)) == 4
    with driver_of(accepting) as driver:
        assert (driver.decision, driver.offsets) == (None, {0: 0, 1: 0})
        last = driver.decide({0: 3})
    with driver_of(accepting) as driver:
        assert (driver.decision, driver.offsets) == (last, {0: 3, 1: 0})


def believe_any_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions.DecisionTopic, "_require_source", lambda *_: None)


@pytest.mark.parametrize("believes", [False, True], ids=["compared", "control"])
def test_state_of_another_source_cluster_is_not_continued(
    two_clusters: TwoClusters, spec: JobSpec, monkeypatch: pytest.MonkeyPatch, believes: bool
) -> None:
    """The source moves to another cluster and back, and both have batch 0 up to the same offset.

    Control: without the cluster's id in the decision, a driver continues the state of the other one's records.
    """
    if believes:
        believe_any_source(monkeypatch)
    source, _ = topics_of(spec)
    with driver_of(spec) as driver:
        driver.decide({0: 4})
    other = two_clusters.sink  # a Kafka cluster with another id
    create_topic(other, source, 2)
    feed(other.bootstrap_servers, source, 2, 1000, COUNT)
    moved = at_source(spec, other.bootstrap_servers)
    replaced = refusal(moved)
    assert replaced.reason is Reason.CLUSTER_REPLACED
    assert two_clusters.source_id in replaced.message
    moved = accepting_topic(moved, replaced)
    lost = refusal(moved)
    moved = accepting_state(moved, lost)
    with driver_of(moved) as driver:
        assert (driver.decision, driver.offsets) == (None, {0: 0, 1: 0})
        in_other = driver.decide({0: 4})
    with driver_of(moved) as driver:
        assert driver.decision == in_other
    back = accepting_topic(spec, refusal(spec))
    if believes:
        with driver_of(back) as driver:
            assert driver.decision == in_other
        return
    assert two_clusters.source_id in lost.message
    back = accepting_state(back, refusal(back))
    with driver_of(back) as driver:
        assert (driver.decision, driver.offsets) == (None, {0: 4, 1: 0})


def test_one_acceptance_is_enough_for_a_driver_that_decides_nothing(two_clusters: TwoClusters, spec: JobSpec) -> None:
    """A driver that is killed before its first batch has committed positions on the other cluster's markers."""
    source, _ = topics_of(spec)
    with driver_of(spec) as driver:
        driver.decide({0: 4})
    create_topic(two_clusters.sink, source, 2)
    moved = at_source(spec, two_clusters.sink.bootstrap_servers)
    moved = accepting_topic(moved, refusal(moved))
    moved = accepting_state(moved, refusal(moved))
    for _ in range(2):
        with driver_of(moved) as driver:
            assert driver.decision is None


def test_another_source_cluster_is_noticed_without_the_records_of_the_lanes(
    two_clusters: TwoClusters, spec: JobSpec
) -> None:
    """A stateless pipeline would begin again. The decision names the cluster as well."""
    source, _ = topics_of(spec)
    with driver_of(spec) as driver:
        driver.decide({0: 4})
    producer = Producer({"bootstrap.servers": two_clusters.sink.bootstrap_servers})
    for name in ("@driver", f"{source}-0", f"{source}-1"):
        producer.produce(LANES, None, f"{spec.group}/{name}".encode())
    assert producer.flush(ANSWER) == 0
    create_topic(two_clusters.sink, source, 2)
    lost = refusal(at_source(spec, two_clusters.sink.bootstrap_servers))
    assert lost.reason is Reason.STATE_LOST
    assert f"records of the Kafka cluster {two_clusters.source_id}" in lost.message


# ------------------------------------------------ negative control


@pytest.mark.parametrize("at", ["sink", "source"])
def test_positions_at_the_source_are_not_those_of_the_last_decision_after_a_kill(
    two_clusters: TwoClusters, spec: JobSpec, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The driver ends behind the commit of output and decision. Positions of another cluster are not in that commit."""
    ends = ends_of(monkeypatch)
    if at == "source":
        monkeypatch.setattr(offsets, "read_committed", offsets.read_committed)
        monkeypatch.setattr(transactions.SlotTransactions, "commit", transactions.SlotTransactions.commit)
        commit_positions_at_source(spec)
    with driver_of(spec) as driver:
        driver.decide({0: 4})
        ends.add("after-commit")
        with pytest.raises(_Ended):
            driver.decide({0: 6})
        ends.clear()
    assert len(output(two_clusters, spec)) == 6
    if at == "source":
        assert refusal(spec).reason is Reason.STATE_LOST
    else:
        with driver_of(spec) as driver:
            assert driver.offsets == {0: 6, 1: 0}


class _Ended(Exception):
    """The driver has ended at a fault point."""


def ends_of(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The fault points of transactions at which drivers end, until the test changes them."""
    ends = set[str]()

    def fault_point(name: str, *_: Any) -> None:
        if name in ends:
            raise _Ended

    monkeypatch.setattr("ackwright_stream.fault_points.fault_point", fault_point)
    monkeypatch.setattr(transactions, "fault_point", fault_point)
    return ends
