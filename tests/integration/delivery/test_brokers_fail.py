"""Brokers that die, hang or lose leadership while records flow.

The module has its own cluster, which is in sync again after each test.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwright.local.kafka import Broker, EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import Cluster
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.sinks.kafka.transactions import transactional_id
from integration.support.lane_pipeline import LanePipeline, LaneProcess, assert_exactly_once, lane_pipeline, watched
from integration.support.pipelines import (
    Verdict,
    Watcher,
    assert_nothing_hangs,
    create_topics,
    document,
    feed,
    job_of,
    judge,
    read,
    running,
)
from waiting import ANSWER, WAIT, wait_until


@pytest.fixture
def brokers(fragile_kafka: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """The module's cluster; every broker is running again afterwards."""
    yield fragile_kafka
    for broker in fragile_kafka.brokers:
        if broker.alive:
            broker.resume()
        broker.start(wait=False)
    for broker in fragile_kafka.brokers:
        broker.wait_until_ready()
    fragile_kafka.wait_until_in_sync(120)


def unread_from(pid: int, broker: Broker) -> bool:
    """Whether bytes that the process sent wait in the broker's sockets (proc(5): net/tcp, rx_queue)."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
        except OSError:
            continue
        if match:
            inodes.add(match[1])
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]

    def port(address: str) -> int:
        return int(address.rsplit(":", 1)[1], 16)

    ours = {port(row[1]) for row in rows if row[9] in inodes and port(row[2]) == broker.port}
    return any(
        port(row[1]) == broker.port and port(row[2]) in ours and int(row[4].split(":")[1], 16) > 0 for row in rows
    )


def task_before_commit(kafka: EmbeddedKafka, pipeline: LanePipeline) -> tuple[LaneProcess, Broker]:
    """A task whose rows are acknowledged and that waits before its commit, and its transaction coordinator."""
    driver = pipeline.run_driver(until=100)
    task = pipeline.task(0, 100, 200, driver, {"before-commit": "hang"})
    task.arrived("before-commit")
    wait_until(
        lambda: len(read(pipeline.bootstrap, pipeline.sink, isolation="read_uncommitted")) >= 200,
        "the rows are acknowledged",
    )
    return task, kafka.transaction_coordinator(transactional_id(pipeline.job, 0))


def hang_the_one_asked(brokers: EmbeddedKafka, cluster: Cluster) -> Broker:
    """Suspends the broker that the connection takes for the controller, as far as that is known.

    Each answer of a KRaft broker names another controller, and an answer to the connection's own metadata request may
    arrive after ours.
    """
    asked = cluster.admin.describe_cluster(request_timeout=ANSWER).result(ANSWER).controller.id
    broker = next(b for b in brokers.brokers if b.node == asked)
    broker.suspend()
    return broker


def test_a_metadata_request_is_answered_although_the_first_broker_hangs(brokers: EmbeddedKafka, tmp_path: Path) -> None:
    with lane_pipeline(brokers.bootstrap_servers, tmp_path, "exactly-once", partitions=2) as pipeline:
        cluster = Cluster(pipeline.job)
        known = cluster.topology().topic_ids
        hang_the_one_asked(brokers, cluster)
        wait_until(lambda: cluster.topology().topic_ids == known, "an answer")


def test_control_the_same_connection_keeps_asking_the_broker_that_hangs(
    brokers: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lane_pipeline(brokers.bootstrap_servers, tmp_path, "exactly-once", partitions=2) as pipeline:

        def unanswered() -> bool:
            cluster = Cluster(pipeline.job)
            cluster.topology()
            monkeypatch.setattr(cluster, "_connected", lambda: cluster.admin)
            hanging = hang_the_one_asked(brokers, cluster)
            try:
                cluster.topology()
            except JobError as e:
                return e.reason is Reason.BROKERS_UNREACHABLE
            finally:
                hanging.resume()
                brokers.wait_until_in_sync(120)
            return False  # another broker was asked

        wait_until(unanswered, "a question that went to the broker that hangs", 300)


@pytest.mark.parametrize("coordinator", ["comes-back", "deposed", "killed"])
def test_task_killed_after_its_commit_was_sent_before_the_reply_exactly_once(
    brokers: EmbeddedKafka, tmp_path: Path, coordinator: str
) -> None:
    """The commit request waits in the socket of a coordinator that hangs.

    The coordinator resumes and executes it late; or it resumes after another coordinator has replaced it and the
    range was delivered again; or it dies with the request.
    """
    with (
        lane_pipeline(brokers.bootstrap_servers, tmp_path, "exactly-once", partitions=1) as pipeline,
        watched(pipeline) as watcher,
    ):
        task, broker = task_before_commit(brokers, pipeline)
        broker.suspend()
        task.release("before-commit")
        wait_until(lambda: unread_from(task.pid, broker), "the commit is in the coordinator's socket")
        task.kill()
        if coordinator == "comes-back":
            broker.resume()
        elif coordinator == "killed":
            broker.kill()
        pipeline.run_driver(again=True)  # while a deposed one still holds the late commit
        broker.resume() if broker.alive else broker.start()
        brokers.wait_until_in_sync(120)
        assert_exactly_once(pipeline, watcher)


@pytest.mark.parametrize(("which", "point"), [("transaction", "before-commit"), ("group", "after-init")])
def test_coordinator_moves_mid_task_exactly_once(
    brokers: EmbeddedKafka, tmp_path: Path, which: str, point: str
) -> None:
    with (
        lane_pipeline(brokers.bootstrap_servers, tmp_path, "exactly-once", partitions=1) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.run_driver(until=100)
        task = pipeline.task(0, 100, 200, driver, {point: "hang"})
        task.arrived(point)
        group = pipeline.job.group
        broker = (
            brokers.coordinator(group)
            if which == "group"
            else brokers.transaction_coordinator(transactional_id(pipeline.job, 0))
        )
        broker.kill()
        task.release(point)
        result = task.result()
        assert result.code == 0 or result.error in ("BrokersUnreachable", "BatchFailed"), result
        pipeline.run_driver(again=True)
        broker.start()
        brokers.wait_until_in_sync(120)
        assert_exactly_once(pipeline, watcher)


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
def test_broker_killed_and_back_while_driver_runs(brokers: EmbeddedKafka, tmp_path: Path, guarantee: str) -> None:
    with (
        lane_pipeline(brokers.bootstrap_servers, tmp_path, guarantee, partitions=3, count=800) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.drive(step=20, again=True)
        wait_until(lambda: min(pipeline.positions().values(), default=0) >= 100, "the driver delivers")
        broker = brokers.leader(pipeline.sink, 0)
        broker.kill()
        broker.start()
        if driver.result().code:  # it may fail together with the broker; its supervisor starts the next one
            pipeline.run_driver(again=True)
        brokers.wait_until_in_sync(120)
        verdict = judge(read(pipeline.bootstrap, pipeline.sink), pipeline.partitions, pipeline.count)
        assert verdict.unexpected == 0
        assert (verdict.duplicated if guarantee == "at-most-once" else verdict.lost) == 0
        assert set(pipeline.positions().values()) == {pipeline.count}
        assert watcher.backwards == []
        assert_nothing_hangs(pipeline.bootstrap, pipeline.sink, pipeline.source)


def test_broker_killed_and_all_rolled_while_spark_runs_exactly_once(brokers: EmbeddedKafka, tmp_path: Path) -> None:
    """Restarts each broker in turn, the first by SIGKILL, the others as an upgrade does, while records keep coming."""
    servers, partitions = brokers.bootstrap_servers, 3
    name = f"brokers-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=partitions)
    spec = job_of(document(servers, name, "exactly-once", source, sink), tmp_path)
    enough, fed = threading.Event(), [0]

    def keep_feeding() -> None:
        while not enough.wait(0.5):
            feed(servers, source, partitions, fed[0], 200)
            fed[0] += 200

    feeder = threading.Thread(target=keep_feeding)
    with Watcher(servers, spec.group, source, sink, partitions) as watcher, running(spec, tmp_path / "job") as job:
        feeder.start()
        try:
            job.until_position(partitions, 200)
            for number, broker in enumerate(brokers.brokers):
                broker.kill() if number == 0 else broker.stop()
                job.until_position(partitions, fed[0], timeout=150)  # continues with two brokers
                broker.start()
                brokers.wait_until_in_sync(120)
        finally:
            enough.set()
            feeder.join(120)
        job.until_position(partitions, fed[0])
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK
        assert judge(read(servers, sink), partitions, fed[0]) == Verdict(0, 0, 0, 0)
        wait_until(lambda: len(watcher.records) >= partitions * fed[0], "the concurrent reader has every record")
        assert judge(watcher.records, partitions, fed[0]) == Verdict(0, 0, 0, 0)
        assert watcher.backwards == []
        assert_nothing_hangs(servers, sink, source)
        assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=ANSWER).brokers.keys() == {1, 2, 3}
