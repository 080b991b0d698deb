"""Faults other than kills. Each checks how the pipeline reacts, and keeps the account of what must be delivered."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode, Guarantee
from chaos import network
from chaos.kills import IN_TASK, Kills
from chaos.pipeline import Pipeline, Topic
from chaos.plan import Fault
from chaos.quotas import quota
from integration.support.lane_pipeline import Result
from waiting import wait_until

_BYTES_A_RECORD = 2.5  # a second; a record has about 30
INTERNAL = ("__consumer_offsets", "__transaction_state")
# Points before a task or an advance compares the ids of its topics for the last time.
BEFORE_THE_CHECK = {
    Guarantee.EXACTLY_ONCE: ("task-start", "after-init", "after-read"),
    Guarantee.AT_MOST_ONCE: ("task-start", "after-init", "after-read"),
    Guarantee.AT_LEAST_ONCE: ("mid-produce", "before-advance"),
}


class Faults:
    """The faults of one round."""

    def __init__(
        self, kafka: EmbeddedKafka, p: Pipeline, kills: Kills, dice: random.Random, problems: list[str]
    ) -> None:
        self._kafka, self._p, self._kills, self._dice, self._problems = kafka, p, kills, dice, problems
        self._guarantee = p.job.guarantee

    def make(self, fault: Fault) -> None:
        """Makes the fault while records flow, and ends it."""
        self._p.feed(self._kills.feed_count)
        {
            Fault.OFFSETS: self._offsets,
            Fault.TOPIC: self._topic,
            Fault.PARTITIONS: self._partitions,
            Fault.QUOTA: self._quota,
            Fault.NETWORK: self._network,
            Fault.COORDINATORS: self._coordinators,
        }[fault]()

    # ---- offsets and topics, after which a person decides

    def _offsets(self) -> None:
        """Sets offsets of some lanes by hand, to earlier or later ones; a person accepts them or sets them back."""
        topic = self._dice.choice(self._p.topics)
        driver = self._kills.held("taken")
        positions = self._p.positions(topic)
        target = self._other_offsets(topic, positions)
        try:
            self._p.set_offsets(topic, target)
            self._problems.append(f"the brokers accepted offsets of {topic.name} while a driver was a member")
        except KafkaException as e:
            if e.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:
                self._problems.append(f"offsets of {topic.name} were refused for another reason: {e.args[0]}")
        driver.kill()
        self._p.end_membership()
        self._p.set_offsets(topic, target)
        self._move(topic, positions, target)
        self._halts("PositionsMoved")
        if self._dice.random() < 0.5:
            self._move(topic, target, positions)
            self._p.set_offsets(topic, {p: positions[p] for p in target})
        else:
            for lane in topic.lanes:
                if lane.partition in target:
                    self._p.account.moved(lane, positions[lane.partition], target[lane.partition])
        self._p.accept_positions(self._halts("PositionsMoved"))
        self._kills.settle()

    def _other_offsets(self, topic: Topic, positions: Mapping[int, int]) -> dict[int, int]:
        """Another offset for some of the partitions: up to 40 earlier, or up to 40 later if there are as many."""
        chosen = self._dice.sample(sorted(positions), self._dice.randint(1, len(positions)))
        ends = {lane.partition: self._p.account.lanes[lane].records for lane in topic.lanes}
        targets = {}
        for p in chosen:
            others = list(range(max(0, positions[p] - 40), min(ends[p], positions[p] + 40) + 1))
            others.remove(positions[p])
            targets[p] = self._dice.choice(others)
        return targets

    def _move(self, topic: Topic, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        """Notes the steps backwards of positions that somebody sets."""
        for p in before.keys() & after.keys():
            if after[p] < before[p]:
                topic.moves_back[p, before[p], after[p]] += 1

    def _topic(self) -> None:
        """Deletes and recreates a source topic under a driver, which must not deliver records of the new one."""
        topic = self._dice.choice(self._p.topics)
        driver, point = self._kills.held_in_task(BEFORE_THE_CHECK[self._guarantee])
        positions = self._p.positions(topic)
        self._p.recreate(topic, positions)
        # Often the new topic has records at the old one's offsets, which a reader cannot tell from the old ones.
        longer = max(positions.values(), default=0) if self._dice.random() < 0.7 else 0
        self._p.feed(longer + self._kills.feed_count)
        driver.release(point)
        result = driver.result(180)
        if result.code not in (ExitCode.HALTED, ExitCode.UNAVAILABLE):
            self._problems.append(f"a driver whose topic was recreated ended with {result.code}: {result.message}")
        self._p.accept_topic(topic, self._halts("TopicReplaced"))
        self._kills.settle()

    def _halts(self, reason: str) -> Result:
        """Runs a driver that has to halt for this reason; returns its result."""
        result = self._p.settle()
        if (result.code, result.error) != (ExitCode.HALTED, reason):
            self._problems.append(f"a driver ended with {result.code}, not {reason}: {result.message}")
        return result

    def _partitions(self) -> None:
        topic = self._dice.choice(self._p.topics)
        driver, point = self._kills.held_in_task(IN_TASK[self._guarantee])
        self._p.add_partitions(topic, self._dice.randint(1, 3))
        self._p.feed(self._kills.feed_count)
        driver.release(point)
        self._kills.expect_end(driver, "a driver while partitions were added")

    # ---- brokers and network, which need nobody

    def _quota(self) -> None:
        """Throttles all clients to a rate at which a driver takes some seconds longer.

        A quota allows in an instant what it allows in ten seconds, so it has to be less than a tenth of the bytes.
        """
        lanes = self._p.account.lanes
        fed = sum(lanes[lane].records for topic in self._p.topics for lane in topic.lanes)
        pending = fed - sum(sum(self._p.positions(topic).values()) for topic in self._p.topics)
        with quota(self._p.bootstrap, max(100, round(pending * _BYTES_A_RECORD))):
            self._kills.expect_end(self._p.drive(), "a throttled driver")

    def _network(self) -> None:
        """Drops the answers of a broker, or the requests to it, for some seconds."""
        broker = self._dice.choice(self._kafka.brokers)
        direction: network.Direction = self._dice.choice(("from", "to"))
        driver, point = self._kills.held_in_task(IN_TASK[self._guarantee])
        with network.cut(broker.port, direction):
            driver.release(point)
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.result(self._dice.uniform(1.0, 5.0))
        self._kills.expect_end(driver, f"a driver without packets {direction} a broker")
        self._kafka.wait_until_in_sync(120)

    def _coordinators(self) -> None:
        """Moves the leaders of the internal topics to other brokers, in the middle of a task."""
        driver, point = self._kills.held_in_task(IN_TASK[self._guarantee])
        wait_until(lambda: move_leaders(self._p.bootstrap, INTERNAL) > 0, "a coordinator has moved", 60)
        driver.release(point)
        self._kills.expect_end(driver, "a driver whose coordinators moved")
        self._kafka.wait_until_in_sync(120)


def move_leaders(bootstrap: str, topics: tuple[str, ...]) -> int:
    """Makes another replica the leader of each partition: it becomes the preferred one, and is elected.

    Returns for how many partitions the controller has elected it. Brokers learn of it some time later.
    """
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        before = _partitions(admin, topics)
        orders = {}
        for tp, partition in before.items():
            leader = partition["leader_id"]
            others = [r for r in partition["replica_nodes"] if r != leader]
            orders[tp] = [*others[:1], leader, *others[1:]]
        admin.alter_partition_reassignments(orders, timeout_ms=30_000)
        partitions = {t: [tp.partition for tp in orders if tp.topic == t] for t in topics}
        answer = admin.elect_leaders(0, partitions, timeout_ms=30_000)
        results = [p for topic in answer.replica_election_results for p in topic.partition_result]
        return sum(p.error_code == 0 for p in results)
    finally:
        admin.close()


def _partitions(admin: KafkaAdminClient, topics: tuple[str, ...]) -> dict[KafkaPythonPartition, dict[str, Any]]:
    return {
        KafkaPythonPartition(topic["name"], partition["partition_index"]): partition
        for topic in admin.describe_topics(list(topics))
        for partition in topic["partitions"]
    }
