"""Compares planned topics with actual ones: what to create, what differs. Pure; topic_work chooses the steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ackwright.planning.replicas import Partition
from ackwright.planning.topics import CLEANUP, MIN_INSYNC, TopicPlan

IN_SYNC = "replicas in sync"  # a difference that the brokers fix, and no step


@dataclass(frozen=True)
class ObservedTopic:
    """The actual state of a topic."""

    name: str
    id: str
    layout: tuple[Partition, ...]  # its partitions, at least one
    config: Mapping[str, str]  # every setting in force, defaults included

    @property
    def partitions(self) -> int:
        return len(self.layout)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the partition with the fewest."""
        return min(len(p.replicas) for p in self.layout)

    @property
    def out_of_sync(self) -> int:
        """The number of replicas that lag, of the partition with the most."""
        return max(len(p.replicas) - len(p.in_sync) for p in self.layout)

    @property
    def in_sync(self) -> int:
        """The number of replicas in sync, of the partition with the fewest."""
        return min(len(p.in_sync) for p in self.layout)

    @property
    def min_insync(self) -> int:
        """min.insync.replicas in force."""
        return int(self.config.get(MIN_INSYNC, "1"))

    def survives(self, f: int) -> bool:
        """Whether the loss of any f brokers leaves every acknowledged record, and writable partitions.

        That takes 2f+1 replicas, f+1 of which acknowledge a record.
        """
        return self.replication_factor >= 2 * f + 1 and self.min_insync >= f + 1


@dataclass(frozen=True)
class Difference:
    """One setting of an existing topic that differs from the plan.

    The names of its fields are part of `ackwright diff -o json`.
    """

    topic: str
    setting: str
    planned: str
    found: str
    reason: str  # of the planned value

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.setting} is {self.found}, planned is {self.planned} ({self.reason})"


@dataclass(frozen=True)
class Comparison:
    create: tuple[TopicPlan, ...]  # topics that do not exist
    differences: tuple[Difference, ...]  # of existing topics


def compare(plans: Sequence[TopicPlan], observed: Mapping[str, ObservedTopic]) -> Comparison:
    """The topics that do not exist, and the differences of those that do."""
    return Comparison(
        create=tuple(topic for topic in plans if topic.name not in observed),
        differences=tuple(
            d for topic in plans if topic.name in observed for d in differences(topic, observed[topic.name])
        ),
    )


def differences(target: TopicPlan, actual: ObservedTopic) -> tuple[Difference, ...]:
    """The differences of one topic.

    Settings without a planned value are not compared: they belong to the topic's owner.
    """
    shape = (
        ("partitions", target.partitions, actual.partitions, "as declared in spec.topics"),
        ("replication.factor", target.replication_factor, actual.replication_factor, target.replication_reason),
        (
            IN_SYNC,
            actual.replication_factor,
            actual.replication_factor - actual.out_of_sync,
            "a broker is down or lags",
        ),
    )
    unequal = [Difference(target.name, name, str(t), str(a), why) for name, t, a, why in shape if t != a]
    for setting in target.config:
        value = actual.config.get(setting.name)
        if value is None or not same(value, setting.value):
            present = "not set" if value is None else value
            unequal.append(Difference(target.name, setting.name, setting.value, present, setting.reason))
    return tuple(unequal)


def removing_records(plans: Sequence[TopicPlan], unequal: Iterable[Difference]) -> tuple[Difference, ...]:
    """The differences by which a topic of Ackwright's own removes records that are to be kept forever.

    With cleanup.policy = compact,delete it removes them for their age, too.
    """
    own = {topic.name for topic in plans if topic.internal}
    return tuple(d for d in unequal if d.topic in own and d.setting == CLEANUP)


def missing(
    needed: Iterable[str], plans: Sequence[TopicPlan], observed: Mapping[str, ObservedTopic]
) -> tuple[str, ...]:
    """The needed topics that neither exist nor are planned."""
    known = {topic.name for topic in plans} | set(observed)
    return tuple(dict.fromkeys(name for name in needed if name not in known))


def same(a: str, b: str) -> bool:
    """Whether two values of a setting are equal to Kafka: case of booleans and order of lists do not matter."""
    return _canonical(a) == _canonical(b)


def _canonical(value: str) -> object:
    return frozenset(part.strip().lower() for part in value.split(","))
