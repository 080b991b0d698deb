"""The steps that change topics, and what a plan for topics consists of.

Pure: topic_work chooses steps, apply takes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ackwright.planning.replicas import Racks, Reassignment
from ackwright.planning.topics import TopicPlan
from ackwright.reasons import AnyReason, worst
from ackwright.wording import counted, named, sentence
from ackwright_stream.reports import LostTopic

# Settings of a topic: the replicas whose copying is throttled.
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
# Settings of a broker: its rates of replication, in bytes per second.
RATES = frozenset({"leader.replication.throttled.rate", "follower.replication.throttled.rate"})


@dataclass(frozen=True)
class CreateTopics:
    topics: tuple[TopicPlan, ...]

    def __str__(self) -> str:
        return f"create {named('topic', [t.name for t in self.topics])}"


@dataclass(frozen=True)
class Configure:
    """Sets some settings of a topic and leaves the others alone."""

    topic: str
    settings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"set {', '.join(f'{name}={value}' for name, value in self.settings)} of topic {self.topic}"


@dataclass(frozen=True)
class AddPartitions:
    topic: str
    before: int
    total: int  # number of partitions afterwards

    def __str__(self) -> str:
        return (
            f"increase topic {self.topic} from {self.before} to {self.total} partitions; keys move to other partitions"
        )


@dataclass(frozen=True)
class Move:
    """The replicas of one partition before and after a reassignment, as broker ids."""

    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Reassign:
    """Moves replicas of a topic."""

    topic: str
    moves: tuple[Move, ...]
    throttled: tuple[int, ...] = ()  # brokers that get a rate of replication for this; rates of others are left alone

    @property
    def copies(self) -> bool:
        """Whether replicas are copied, and not only removed."""
        return any(set(m.after) - set(m.before) for m in self.moves)

    def __str__(self) -> str:
        sizes = sorted({len(m.after) for m in self.moves})
        replicas = f"{' or '.join(map(str, sizes))} {'replica' if sizes == [1] else 'replicas'}"
        return f"reassign {counted(len(self.moves), 'partition')} of topic {self.topic} to {replicas}"


@dataclass(frozen=True)
class Unthrottle:
    """Removes the throttle of moves that have ended."""

    topic: str
    brokers: tuple[int, ...]

    def __str__(self) -> str:
        return f"remove the replication throttle of topic {self.topic}"


TopicStep = CreateTopics | Configure | AddPartitions | Reassign | Unthrottle


def topic_of(step: TopicStep) -> str:
    """A topic of the step. All topics of a step are on one cluster."""
    return step.topics[0].name if isinstance(step, CreateTopics) else step.topic


@dataclass(frozen=True)
class Brokers:
    """What the steps depend on besides the topics."""

    racks: Racks  # of the brokers that are up
    moving: Mapping[tuple[str, int], Reassignment] = field(default_factory=dict)  # moves under way, of every topic
    rated: frozenset[int] = frozenset()  # brokers that have a rate of replication
    # By topic, the brokers that the operator throttled.
    throttled: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicProblem:
    """Something that the operator cannot fix: a person has to decide."""

    reason: AnyReason  # of the condition
    cause: str
    remedy: str = ""
    lost_topics: tuple[LostTopic, ...] = ()  # that the cause names
    blocks: bool = True  # the steps of all topics, so that a spec is not applied in part

    def __str__(self) -> str:
        return sentence(self.cause, self.remedy)


@dataclass(frozen=True)
class TopicWork:
    """What to do about topics."""

    steps: tuple[TopicStep, ...] = ()  # possible now, in this order
    waiting: tuple[str, ...] = ()  # what has to happen before further steps are possible
    problems: tuple[TopicProblem, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether the topics are as planned."""
        return not (self.steps or self.waiting or self.problems)

    @property
    def reason(self) -> AnyReason:
        """The reason of the condition that names the problems."""
        return worst(p.reason for p in self.problems)

    @property
    def created(self) -> tuple[TopicPlan, ...]:
        """The topics that the steps create."""
        return created_topics(self.steps)


_CREATION = re.compile("create topics? (.+)")  # CreateTopics as text


def topics_in_creations(actions: Iterable[str], limit: int) -> frozenset[str]:
    """The topics of the steps CreateTopics among these actions, which are steps as text.

    limit: characters that an action was cut to. The last name of one that is as long may be cut, and is left out.
    """
    names: set[str] = set()
    for action in actions:
        if creation := _CREATION.fullmatch(action):
            listed = creation[1].split(", ")
            names.update(listed[:-1] if len(action) >= limit else listed)
    return frozenset(names)


def created_topics(steps: tuple[TopicStep, ...]) -> tuple[TopicPlan, ...]:
    """The topics that these steps create."""
    return tuple(t for s in steps if isinstance(s, CreateTopics) for t in s.topics)
