"""Topics as planned against topics as they are: what to create, what differs. Pure; what is done about it is for topic_steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ackwright.planning.replicas import Partition
from ackwright.planning.topics import MIN_INSYNC, TopicPlan


@dataclass(frozen=True)
class ObservedTopic:
    """A topic as it is. layout: its partitions, at least one; config: every setting in force, defaults included."""

    name: str
    id: str
    layout: tuple[Partition, ...]
    config: Mapping[str, str]

    @property
    def partitions(self) -> int:
        return len(self.layout)

    @property
    def replication_factor(self) -> int:
        """Of the partition with the fewest replicas."""
        return min(len(p.replicas) for p in self.layout)

    @property
    def out_of_sync(self) -> int:
        """Replicas that lag, of the partition where most do."""
        return max(len(p.replicas) - len(p.in_sync) for p in self.layout)

    @property
    def in_sync(self) -> int:
        """Replicas in sync, of the partition where fewest are."""
        return min(len(p.in_sync) for p in self.layout)

    @property
    def min_insync(self) -> int:
        """min.insync.replicas in force."""
        return int(self.config.get(MIN_INSYNC, "1"))

    def survives(self, f: int) -> bool:
        """Whether the loss of any f brokers leaves every acknowledged record, and room for more: f + 1 that acknowledge, of 2f + 1."""
        return self.replication_factor >= 2 * f + 1 and self.min_insync >= f + 1


@dataclass(frozen=True)
class Difference:
    """One setting of an existing topic that is not as planned."""

    topic: str
    setting: str
    planned: str
    found: str
    reason: str

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.setting} is {self.found}, planned is {self.planned} ({self.reason})"


@dataclass(frozen=True)
class Comparison:
    create: tuple[TopicPlan, ...]
    differences: tuple[Difference, ...]


def compare(planned: Sequence[TopicPlan], observed: Mapping[str, ObservedTopic]) -> Comparison:
    """What is missing, and per topic and setting what differs."""
    return Comparison(
        create=tuple(topic for topic in planned if topic.name not in observed),
        differences=tuple(
            d for topic in planned if topic.name in observed for d in differences(topic, observed[topic.name])
        ),
    )


def differences(planned: TopicPlan, found: ObservedTopic) -> tuple[Difference, ...]:
    """Settings that are not planned are the owner's business and are not compared."""
    shape = (
        ("partitions", planned.partitions, found.partitions, "as declared in spec.topics"),
        ("replication.factor", planned.replication_factor, found.replication_factor, planned.replication_reason),
        (
            "replicas in sync",
            found.replication_factor,
            found.replication_factor - found.out_of_sync,
            "a broker is down or lags",
        ),
    )
    unequal = [Difference(planned.name, name, str(p), str(f), why) for name, p, f, why in shape if p != f]
    for setting in planned.config:
        value = found.config.get(setting.name)
        if value is None or not same(value, setting.value):
            unequal.append(
                Difference(
                    planned.name, setting.name, setting.value, "not set" if value is None else value, setting.reason
                )
            )
    return tuple(unequal)


def missing(
    needed: Iterable[str], planned: Sequence[TopicPlan], observed: Mapping[str, ObservedTopic]
) -> tuple[str, ...]:
    """Topics that are needed and neither exist nor will be created."""
    known = {topic.name for topic in planned} | set(observed)
    return tuple(dict.fromkeys(name for name in needed if name not in known))


def same(a: str, b: str) -> bool:
    """Whether two texts mean the same to Kafka: booleans in any letters, the order of a list means nothing."""
    return _canonical(a) == _canonical(b)


def _canonical(value: str) -> object:
    return frozenset(part.strip().lower() for part in value.split(","))
