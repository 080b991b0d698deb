"""Source on one cluster, output and positions on another: tasks and drivers killed at each step, zombies, lost markers.

Two real clusters, no Spark: see lane_process.py. The output is read by a consumer of the tests' own and compared with
what was fed. docs/protocol.md#two-clusters
"""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import KafkaSink
from integration.support.holding_proxy import END_TRANSACTION, HoldingProxy
from integration.support.lane_pipeline import (
    LanePipeline,
    assert_exactly_once,
    assert_guaranteed,
    lane_pipeline,
    lost_by_lane,
    watched,
)
from integration.support.members import empty_group
from integration.support.pipelines import Verdict, feed, judge, positions_of, read
from integration.support.two_clusters import TwoClusters, create_topic, delete_topic, replace_cluster
from waiting import ANSWER, wait_until

KILLED = 128 + signal.SIGKILL
STEPS = ("task-start", "after-init", "after-read", "mid-produce", "after-offsets", "before-commit", "after-commit")
CLAIM_STEPS = ("task-start", "after-init", "after-read", "before-commit", "after-commit", "claimed")


def pipeline_of(
    clusters: TwoClusters, directory: Path, guarantee: str = "exactly-once", partitions: int = 2, count: int = 300
) -> AbstractContextManager[LanePipeline]:
    """A pipeline from one cluster to the other."""
    return lane_pipeline(clusters.source.bootstrap_servers, directory, guarantee, partitions, count, to=clusters)


def kill_one_task_at_each(pipeline: LanePipeline, points: tuple[str, ...]) -> None:
    """Kills lane i's task on [100, 200) at points[i]."""
    driver = pipeline.run_driver(until=100)
    tasks = [pipeline.task(lane, 100, 200, driver, {point: "hang"}) for lane, point in enumerate(points)]
    for task, point in zip(tasks, points, strict=True):
        task.arrived(point)
    for task in tasks:
        task.kill()


def offsets_of(servers: str, group: str, topic: str, partitions: int) -> list[int]:
    """The committed offsets of a group, negative where there is none."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    try:
        return [
            x.offset for x in consumer.committed([TopicPartition(topic, p) for p in range(partitions)], timeout=ANSWER)
        ]
    finally:
        consumer.close()


def test_offsets_beyond_the_end_of_an_empty_topic_are_accepted_and_kept(two_clusters: TwoClusters) -> None:
    """The brokers' fact that the markers depend on, also for a partition that is added later."""
    servers = two_clusters.sink.bootstrap_servers
    create_topic(two_clusters.sink, "empty-marker", 1)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions("empty-marker", 2)])["empty-marker"].result(ANSWER)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "of-the-marker", "enable.auto.commit": False})
    beyond = [TopicPartition("empty-marker", p, 1_000_000 + p) for p in range(2)]
    consumer.commit(offsets=beyond, asynchronous=False)
    consumer.close()
    assert offsets_of(servers, "of-the-marker", "empty-marker", 2) == [1_000_000, 1_000_001]


def test_task_killed_at_every_step_exactly_once(two_clusters: TwoClusters, tmp_path: Path) -> None:
    with pipeline_of(two_clusters, tmp_path, partitions=len(STEPS)) as pipeline, watched(pipeline) as watcher:
        kill_one_task_at_each(pipeline, STEPS)
        assert pipeline.positions() == {
            lane: 200 if point == "after-commit" else 100 for lane, point in enumerate(STEPS)
        }
        pipeline.run_driver()
        assert_exactly_once(pipeline, watcher)
        group = pipeline.job.group
        source = two_clusters.source.bootstrap_servers
        assert set(offsets_of(source, group, pipeline.source, len(STEPS))) == {-1001}, "no position is at the source"


def test_task_killed_at_every_step_at_most_once(two_clusters: TwoClusters, tmp_path: Path) -> None:
    with (
        pipeline_of(two_clusters, tmp_path, "at-most-once", partitions=len(CLAIM_STEPS)) as pipeline,
        watched(pipeline) as watcher,
    ):
        kill_one_task_at_each(pipeline, CLAIM_STEPS)
        claimed = {"after-commit", "claimed"}
        assert pipeline.positions() == {
            lane: 200 if point in claimed else 100 for lane, point in enumerate(CLAIM_STEPS)
        }
        pipeline.run_driver()
        final = read(pipeline.bootstrap, pipeline.sink)
        verdict = judge(final, pipeline.partitions, pipeline.count)
        assert (verdict.duplicated, verdict.unexpected, verdict.disordered) == (0, 0, 0)
        lost = lost_by_lane(pipeline, final)
        assert lost == {lane: 100 if point in claimed else 0 for lane, point in enumerate(CLAIM_STEPS)}
        assert watcher.backwards == []


def test_driver_killed_around_the_advance_at_least_once(two_clusters: TwoClusters, tmp_path: Path) -> None:
    with (
        pipeline_of(two_clusters, tmp_path, "at-least-once", partitions=2, count=400) as pipeline,
        watched(pipeline) as watcher,
    ):
        pipeline.run_driver(until=100)
        for point, until in (("mid-produce", 200), ("before-advance", 300), ("after-advance", 400)):
            assert pipeline.drive(until, {point: "kill"}).result().code == KILLED, point
            expected = until if point == "after-advance" else 100
            assert set(pipeline.positions().values()) == {expected}, point
        pipeline.run_driver()
        verdict = judge(read(pipeline.bootstrap, pipeline.sink), pipeline.partitions, pipeline.count)
        assert (verdict.lost, verdict.unexpected) == (0, 0)
        assert verdict.duplicated >= 2 * 200
        assert watcher.backwards == []


def test_two_drivers_at_once_exactly_once(two_clusters: TwoClusters, tmp_path: Path) -> None:
    with pipeline_of(two_clusters, tmp_path, partitions=3, count=600) as pipeline, watched(pipeline) as watcher:
        drivers = [pipeline.drive(points={"taken": "hang"}, step=20, again=True) for _ in range(2)]
        for driver in drivers:
            driver.arrived("taken")
        for driver in drivers:
            driver.release("taken")
        results = [d.result() for d in drivers]
        assert [t.code for t in results] == [0, 0], results
        assert sum(t.failed.get("Superseded", 0) + t.failed.get("PositionConflict", 0) for t in results) > 0
        assert_exactly_once(pipeline, watcher)


def test_a_zombie_that_returns_is_fenced_exactly_once(two_clusters: TwoClusters, tmp_path: Path) -> None:
    """A task of an older driver, in each step of its transaction; and that driver itself."""
    points = ("after-init", "after-read", "after-offsets", "before-commit")
    with pipeline_of(two_clusters, tmp_path, partitions=len(points)) as pipeline, watched(pipeline) as watcher:
        driver = pipeline.run_driver(until=100)
        zombies = [
            pipeline.task(lane, 100, 200, driver, {point: "hang"}, transaction_timeout_ms=300_000)
            for lane, point in enumerate(points)
        ]
        for zombie, point in zip(zombies, points, strict=True):
            zombie.arrived(point)
            zombie.signal(signal.SIGSTOP)
            zombie.release(point)
        assert pipeline.run_driver().driver > driver.driver
        for zombie in zombies:
            zombie.signal(signal.SIGCONT)
        ended = [zombie.result().error for zombie in zombies]
        assert set(ended) <= {"Superseded", "PositionConflict"}, ended
        assert_exactly_once(pipeline, watcher)


def test_partitions_that_are_added_while_a_driver_runs_get_markers(two_clusters: TwoClusters, tmp_path: Path) -> None:
    with pipeline_of(two_clusters, tmp_path, partitions=2) as pipeline:
        pipeline.run_driver()
        admin = AdminClient({"bootstrap.servers": two_clusters.source.bootstrap_servers})
        admin.create_partitions([NewPartitions(pipeline.source, 3)])[pipeline.source].result(ANSWER)
        sink = AdminClient({"bootstrap.servers": two_clusters.sink.bootstrap_servers})
        sink.create_partitions([NewPartitions(pipeline.sink, 3)])[pipeline.sink].result(ANSWER)
        feed(two_clusters.source.bootstrap_servers, pipeline.source, 3, pipeline.count, 100)
        assert pipeline.drive(read=True).result().code == 0
        at = positions_of(pipeline.bootstrap, pipeline.job.group, pipeline.marker, 3)
        assert at == {0: 400, 1: 400, 2: 100}
        assert len({r.value for r in read(pipeline.bootstrap, pipeline.sink)}) == 900


def test_a_marker_that_is_deleted_halts_the_driver_and_the_next_one(two_clusters: TwoClusters, tmp_path: Path) -> None:
    with pipeline_of(two_clusters, tmp_path) as pipeline:
        driver = pipeline.run_driver(until=100)
        delete_topic(two_clusters.sink, pipeline.marker)
        wait_until(lambda: pipeline.positions() == {}, "the positions are gone with the topic")
        assert pipeline.task(0, 100, 200, driver).result().error == "PositionLost"
        for _ in range(2):  # the first one has created the marker again
            result = pipeline.drive().result()
            assert result.error == "PositionLost", result
        assert judge(read(pipeline.bootstrap, pipeline.sink), 2, 100) == Verdict(0, 0, 0, 0)


def test_positions_that_are_set_by_hand_after_that_halt_until_they_are_accepted(
    two_clusters: TwoClusters, tmp_path: Path
) -> None:
    with pipeline_of(two_clusters, tmp_path) as pipeline, watched(pipeline):
        pipeline.run_driver(until=100)
        delete_topic(two_clusters.sink, pipeline.marker)
        wait_until(lambda: pipeline.positions() == {}, "the positions are gone with the topic")
        assert pipeline.drive().result().error == "PositionLost"
        empty_group(AdminClient({"bootstrap.servers": pipeline.bootstrap}), pipeline.job)
        by_hand = [TopicPartition(pipeline.marker, p, 100) for p in range(2)]
        consumer = Consumer({"bootstrap.servers": pipeline.bootstrap, "group.id": pipeline.job.group})
        consumer.commit(offsets=by_hand, asynchronous=False)
        consumer.close()
        moved = pipeline.drive().result()
        assert (moved.error, bool(moved.fingerprint)) == ("PositionsMoved", True)


def test_another_cluster_at_the_sources_address_is_refused(two_clusters: TwoClusters, tmp_path: Path) -> None:
    """Its topics have the same names. Accepting the loss of the old topic starts with the new one."""
    with pipeline_of(two_clusters, tmp_path) as pipeline:
        before = two_clusters.source_id
        pipeline.run_driver()
        replace_cluster(two_clusters.source)
        assert two_clusters.source_id != before
        servers = two_clusters.source.bootstrap_servers
        create_topic(two_clusters.source, pipeline.source, 2)
        feed(servers, pipeline.source, 2, 1000, 50)
        refused = pipeline.drive(read=True).result()
        assert refused.error == "ClusterReplaced", refused
        assert before in str(refused.message)
        assert refused.lost_topic_id
        assert judge(read(pipeline.bootstrap, pipeline.sink), 2, 300) == Verdict(0, 0, 0, 0)
        pipeline.accept_loss(refused.lost_topic_id)
        assert pipeline.drive(read=True).result().code == 0
        assert len(read(pipeline.bootstrap, pipeline.sink)) == 2 * (300 + 50)


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize("which", ["source", "sink"])
def test_a_cluster_that_is_down_for_a_while_keeps_the_guarantee(
    two_clusters: TwoClusters, tmp_path: Path, which: str, guarantee: str
) -> None:
    """The sink's goes while commits are under way, so the outcome of some is unknown to their tasks."""
    broker = (two_clusters.source if which == "source" else two_clusters.sink).broker(1)
    with pipeline_of(two_clusters, tmp_path, guarantee, count=600) as pipeline, watched(pipeline) as watcher:
        driver = pipeline.drive(step=10, again=True)
        wait_until(lambda: min(pipeline.positions().values(), default=0) >= 50 or None, "it delivers")
        broker.kill()
        restart = threading.Timer(3.0, broker.start)
        restart.start()
        result = driver.result()
        restart.join()
        assert result.code == 0, result
        assert_guaranteed(pipeline, watcher)


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_killed_after_a_commit_was_sent_before_its_reply(
    two_clusters: TwoClusters, tmp_path: Path, *, guarantee: str, arrives: bool
) -> None:
    """The commit of a task, or of the driver's advance under at-least-once; the sink's broker executes it or not."""
    with (
        pipeline_of(two_clusters, tmp_path, guarantee, partitions=1) as pipeline,
        watched(pipeline) as watcher,
        HoldingProxy(two_clusters.sink.brokers, holds=None) as proxy,
    ):
        direct = pipeline.job.sink_of(KafkaSink).cluster
        driver = pipeline.run_driver(until=100)
        pipeline.connect(replace(direct, bootstrap_servers=proxy.bootstrap_servers))
        if guarantee == "at-least-once":
            process, point = pipeline.drive(200, {"before-advance": "hang"}), "before-advance"
        else:
            process, point = pipeline.task(0, 100, 200, driver, {"before-commit": "hang"}), "before-commit"
        process.arrived(point)
        proxy.holds = END_TRANSACTION
        process.release(point)
        commit = proxy.next_request()
        if arrives:
            commit.forward_request()
            proxy.next_reply()  # which never reaches the process
        process.kill()
        pipeline.connect(direct)
        if arrives:
            wait_until(lambda: pipeline.positions() == {0: 200}, "the broker has executed the commit")
        pipeline.run_driver(again=True)
        assert_guaranteed(pipeline, watcher)
        verdict = judge(read(pipeline.bootstrap, pipeline.sink), 1, 300)
        assert verdict.lost == (100 if guarantee == "at-most-once" and arrives else 0)
        assert verdict.duplicated == (100 if guarantee == "at-least-once" and not arrives else 0)


def test_a_source_topic_that_is_recreated_halts_until_its_loss_is_accepted(
    two_clusters: TwoClusters, tmp_path: Path
) -> None:
    with pipeline_of(two_clusters, tmp_path) as pipeline:
        driver = pipeline.run_driver()
        delete_topic(two_clusters.source, pipeline.source)
        create_topic(two_clusters.source, pipeline.source, 2)
        feed(two_clusters.source.bootstrap_servers, pipeline.source, 2, 1000, 50)
        assert pipeline.task(0, 300, 350, driver).result().error == "TopicReplaced"
        refused = pipeline.drive(read=True).result()
        assert refused.error == "TopicReplaced", refused
        assert judge(read(pipeline.bootstrap, pipeline.sink), 2, 300) == Verdict(0, 0, 0, 0)
        assert refused.lost_topic_id
        pipeline.accept_loss(refused.lost_topic_id)
        assert pipeline.drive(read=True).result().code == 0
        assert pipeline.positions() == {0: 50, 1: 50}
        assert len(read(pipeline.bootstrap, pipeline.sink)) == 2 * (300 + 50)


# ------------------------------------------------ negative control


@pytest.mark.parametrize("unsafe", [None, "positions-at-source"])
def test_a_kill_after_the_commit_of_the_rows_duplicates_only_with_positions_at_the_source(
    two_clusters: TwoClusters, tmp_path: Path, unsafe: str | None
) -> None:
    """A plain commit on the source's cluster comes after the output, and a crash in between repeats it."""
    with pipeline_of(two_clusters, tmp_path, partitions=1) as pipeline:
        driver = pipeline.run_driver(until=100, unsafe=unsafe)
        task = pipeline.task(0, 100, 200, driver, {"after-commit": "kill"}, unsafe=unsafe)
        assert task.result().code == KILLED
        pipeline.run_driver(unsafe=unsafe)
        verdict = judge(read(pipeline.bootstrap, pipeline.sink), 1, 300)
        assert verdict.duplicated == (0 if unsafe is None else 100), verdict
