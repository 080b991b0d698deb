"""Lanes, positions and ranges, and what a position allows a driver to do.

Pure: each sink reads and moves positions in its own store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.reasons import REASONS
from ackwright_stream.reports import LostTopic

RESERVED = "__ackwright"  # no column of a transform's output begins so where rows keep its columns
# A column of a sink's rows that holds spark_partition_id() as it is before tasks are merged. A sink that keeps records
# in their partitions adds it; a task has the column SOURCE in its place, with the lane's partition.
UNMERGED = f"{RESERVED}_partition"
SOURCE = "partition"  # where Kafka's writers expect a record's partition
# The same for a sink that separates the rows of a task's lanes: it adds spark_partition_id(), and a task has the number
# of the row's lane in Task.ranges in its place.
LANE = f"{RESERVED}_lane"


@dataclass(frozen=True, order=True)
class Lane:
    """One source partition of one pipeline (docs/glossary.md)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, order=True)
class Position:
    """A lane's committed offset: the first record that is not delivered yet."""

    offset: int
    # Id of the source topic that the offset counts in; "" if another program committed it.
    topic_id: str = ""
    driver: int = 0  # number of the driver that committed it; 0 if another program did
    pipeline: str = ""  # identity of the pipeline that committed it (JobSpec.identity); "" if it is nobody's now
    batch: int | None = None  # of a stateful pipeline: the last decided batch; None before the first, and of others

    @property
    def is_foreign(self) -> bool:
        """Whether another program committed it: offsets set by hand, or a group that is adopted."""
        return self.driver == 0


@dataclass(frozen=True)
class Range:
    """The offsets [start, until) of one lane in one batch.

    They bound records and do not count them. (docs/protocol.md#rule-13)
    """

    lane: Lane
    start: int
    until: int


@dataclass(frozen=True)
class Task:
    """What one task of a batch processes, in one transaction: its lanes' ranges, one after the other."""

    # Its number in the batch. Attempts of the task have the same one, and fence each other.
    slot: int
    ranges: tuple[Range, ...]
    sources: tuple[int, ...]  # Spark's number of each range among all ranges of the batch

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(r.lane for r in self.ranges)


def own_or_foreign(position: Position, identity: str) -> Position:
    """The position, as one of another program if another pipeline committed it. identity: JobSpec.identity.

    That is a pipeline of the same name in another cluster, or `ackwright run` on some machine. Its driver may be alive.
    A pipeline that was deleted and applied again has another uid in the same namespace, and one that an earlier release
    has started has only its uid on record: both have a part of the identity.
    """
    parts = identity.split("/")
    own = not position.pipeline or not set(parts).isdisjoint(position.pipeline.split("/"))
    return position if own else replace(position, driver=0)


def current_position(
    lane: Lane, position: Position | None, topic_id: str, accepted_loss: str | None
) -> Position | None:
    """The position if it belongs to the current topic; None if there is none, or if the loss of its topic is accepted.

    topic_id: of the current topic. accepted_loss: the topic id whose loss a person has accepted. Raises
    JobError(TOPIC_REPLACED).
    """
    if position is None or is_loss_accepted(position.topic_id, topic_id, accepted_loss):
        return None
    check_topic(lane, position, topic_id)
    return position


def is_loss_accepted(recorded: str, current: str, accepted: str | None) -> bool:
    """Whether `recorded`, the topic id in a position or in a lane's record, is the one whose loss is accepted.

    Never for the current topic: nothing of it is lost, and without its positions its records would be delivered again.
    """
    return bool(recorded) and recorded == accepted and recorded != current


def check_topic(lane: Lane, position: Position, topic_id: str) -> None:
    """Raises JobError(TOPIC_REPLACED) for a position of another topic that had the same name.

    (docs/protocol.md#rule-8)
    """
    if position.topic_id and topic_id and position.topic_id != topic_id:
        raise topic_replaced(lane, f"its position {position.offset}", position.topic_id, topic_id)


def topic_replaced(lane: Lane, what: str, recorded: str, current: str) -> JobError:
    """The error for `what`, a position or a record of the lane, that belongs to another topic of the same name."""
    return JobError(
        Reason.TOPIC_REPLACED,
        f"topic {lane.topic} was deleted and recreated: in partition {lane.partition}, {what} belongs to topic id "
        f"{recorded}, the topic now has {current}; the old records are gone",
        REASONS[Reason.TOPIC_REPLACED].remedy,
        lost_topic=LostTopic.recreated(lane.topic, recorded, current),
    )


def cluster_replaced(recorded: str, current: str, topic: str, topic_id: str, current_topic_id: str) -> JobError:
    """The error for a source whose address leads to another cluster. topic: one of those whose records are gone."""
    return JobError(
        Reason.CLUSTER_REPLACED,
        f"the source's address leads to another Kafka cluster: the positions are of cluster {recorded}, and its id is "
        f"now {current}; the records of topic {topic} (id {topic_id}) that were not delivered are not there",
        REASONS[Reason.CLUSTER_REPLACED].remedy,
        lost_topic=LostTopic.recreated(topic, topic_id, current_topic_id),
    )


def check_driver(position: Position, driver: int) -> None:
    """Raises JobError(SUPERSEDED) for a position that a newer driver committed: this driver is a zombie.

    (docs/protocol.md#rule-8)
    """
    if position.driver > driver:
        raise superseded(position.driver, driver)


def superseded(newer: int, driver: int) -> JobError:
    """The error for this driver, if a newer one has taken the pipeline."""
    return JobError(Reason.SUPERSEDED, f"driver {newer} owns this pipeline now; this driver, {driver}, ends")


def moved(
    foreign: Iterable[tuple[Lane, Position]], accepted_before: str = "", *, namespace: str, name: str
) -> JobError:
    """The error for all positions that another program has committed on lanes of a pipeline.

    accepted_before: as fingerprint() takes it. namespace, name: of the pipeline.

    The records between are lost or will come twice, so a person has to decide (docs/protocol.md#rule-3).
    """
    listed = sorted(foreign)
    some = ", ".join(f"{lane}: {position.offset}" for lane, position in listed[:5])
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    what = "a position" if len(listed) == 1 else f"{len(listed)} positions"
    identifier = fingerprint(listed, accepted_before)
    return JobError(
        Reason.POSITIONS_MOVED,
        f"another program{_other_pipeline(listed)} has moved {what} ({some}{more}): records in between may be skipped "
        f"or delivered again; accept it with ackwright accept-positions {name} {identifier} -n {namespace}, or set the "
        "positions back by hand and accept those",
        fingerprint=identifier,
    )


def has_moved(lane: Lane, position: Position) -> JobError:
    """The error for one of these positions. It names no fingerprint, which is of all of them: see moved()."""
    return JobError(
        Reason.POSITIONS_MOVED,
        f"another program{_other_pipeline([(lane, position)])} has moved a position ({lane}: {position.offset}): "
        "records in between may be skipped or delivered again; start the driver again, it names all such positions and "
        "how to accept them",
    )


def _other_pipeline(listed: list[tuple[Lane, Position]]) -> str:
    identities = sorted({position.pipeline for _, position in listed} - {""})
    return f", the pipeline of the same name with the id {identities[0]}," if identities else ""


def fingerprint(foreign: Iterable[tuple[Lane, Position]], accepted_before: str = "") -> str:
    """Identifies these offsets of these lanes, so that exactly they can be accepted, and no later ones.

    accepted_before: the fingerprint that the pipeline accepted last. It makes a difference when the same offsets are
    set once more, by mistake after they had been accepted.
    """
    text = ",".join(f"{lane}={position.offset}" for lane, position in sorted(foreign)) + accepted_before
    return hashlib.sha256(text.encode()).hexdigest()[:12]
