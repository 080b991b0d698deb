"""The partition of a simulation on real brokers: its leader, its replicas, and what is in their log files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException

from ackwright.local.kafka import Broker, EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from simulator.state import State
from waiting import wait_until

SECONDS = 120


class SimulatedPartition:
    """Partition 0 of a topic. Replica n of the simulation is broker n."""

    def __init__(self, kafka: EmbeddedKafka, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        # A request to a broker that is suspended ends soon, so that the next one goes to another broker.
        client = {"bootstrap.servers": kafka.bootstrap_servers, "socket.timeout.ms": 3000, "log_level": 0}
        self.admin = AdminClient(client)
        self.suspended: set[int] = set()

    def copies(self, broker: Broker, value: str) -> int:
        """How often the value is in the broker's log files."""
        directory = self.kafka.directory / f"data-{broker.node}" / f"{self.topic}-0"
        return sum(file.read_bytes().count(value.encode()) for file in directory.glob("*.log"))

    def wait_for(self, after: State) -> None:
        """Waits until the partition has a leader, if it has one in the model, and the same in-sync replicas.

        Of several followers in sync, brokers may choose another one than the model does.
        """
        current: tuple[int, set[int]] = (0, set())

        def reached() -> bool:
            nonlocal current
            partition = self.admin.list_topics(self.topic, timeout=5).topics[self.topic].partitions.get(0)
            if partition is None:
                return False
            current = (partition.leader, set(partition.isrs))
            if not after.leader:
                return bool(partition.leader < 0)
            return bool(partition.leader in after.isr and current[1] == set(after.isr))

        try:
            wait_until(lambda: without_errors(reached), "the leader and the in-sync replicas", SECONDS)
        except AssertionError as e:
            e.add_note(f"leader {after.leader}, in-sync replicas {after.isr} expected, and the brokers have {current}")
            raise

    def leader(self) -> Broker:
        """The current leader."""
        return self.kafka.leader(self.topic, 0)

    def suspend(self, node: int) -> None:
        self.kafka.broker(node).suspend()
        self.suspended.add(node)

    def suspend_followers(self, leader: Broker, in_sync: tuple[int, ...]) -> None:
        """Suspends the in-sync followers, each of which has an empty reply to its last fetch in its socket.

        A fetch that still waits at the leader would be answered with the next record.
        """
        for node in in_sync:
            if node in (leader.node, *self.suspended):
                continue
            follower = self.kafka.broker(node)

            def is_answered(follower: Broker = follower) -> bool:
                follower.suspend()
                try:
                    wait_until(lambda: has_unread(follower.pid, leader.port), "the fetch is answered", 3)
                except AssertionError:  # suspended between a reply and the next fetch
                    follower.resume()
                    return False
                return True

            wait_until(is_answered, f"broker {node} fetches no more", SECONDS)
            self.suspended.add(node)

    def resume_followers(self) -> None:
        for node in self.suspended:
            self.kafka.broker(node).resume()
        self.suspended.clear()


def has_unread(pid: int, port: int) -> bool:
    """Whether data from this port of 127.0.0.1 waits in a socket of the process (proc(5): net/tcp, rx_queue)."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(fd).removeprefix("socket:[").rstrip("]"))
        except OSError:
            continue
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return any(
        row[9] in inodes and int(row[2].rpartition(":")[2], 16) == port and int(row[4].partition(":")[2], 16) > 0
        for row in rows
    )


def without_errors(condition: Callable[[], bool]) -> bool:
    """The condition; False while the brokers do not answer."""
    try:
        return condition()
    except KafkaException:
        return False
