"""The reasons of conditions and Events, and what follows from each: one table, beside the job's (REASONS). Pure.

docs/conditions.md describes each for people; a test compares the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from ackwright_stream.reasons import Reason


class ConditionReason(StrEnum):
    """A reason that is no failure's: of a state, of a broken clause of the guarantee, or of an Event."""

    DELIVERING = "Delivering"
    MET = "Met"
    MATCHES_PLAN = "AsPlanned"
    RUNNING = "Running"
    SCHEMAS_RESOLVED = "SchemasResolved"
    SETTLED = "Settled"
    PROGRESSING = "Progressing"
    CHECKING_EDIT = "CheckingEdit"
    STALLED = "Stalled"
    NOT_STALLED = "NotStalled"
    CREATING = "Creating"
    REPAIRING = "Repairing"
    NOT_STARTED = "NotStarted"
    STARTING = "Starting"
    STANDBY = "StandingBy"
    WITHOUT_STANDBY = "WithoutStandby"
    WITHOUT_EVENT_LOG = "WithoutEventLog"
    EXECUTORS_MISSING = "ExecutorsMissing"
    DRAINING = "Draining"
    RESTARTING = "Restarting"
    REPLAYING = "Replaying"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    SCHEDULED = "Scheduled"
    NOT_OBSERVED = "NotObserved"  # only of what is shown: the operator writes no condition with it
    NO_LEADER = "NoLeader"
    NOT_ENOUGH_REPLICAS = "NotEnoughReplicas"
    UNCLEAN_ELECTION = "UncleanElection"
    TOPICS_TOO_WEAK = "TopicsTooWeak"
    INTERNAL_TOPICS_TOO_WEAK = "InternalTopicsTooWeak"
    DRIFTED = "Drifted"
    PAUSED = "Paused"
    UNDER_REPLICATED = "UnderReplicated"
    ONE_RACK = "OneRack"
    NOT_COMPACTED = "NotCompacted"
    TOPICS_UNFIT = "TopicsUnfit"
    TOPIC_CONFLICT = "TopicConflict"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    NO_PROGRESS = "NoProgress"
    DRIVER_UNREACHABLE = "DriverUnreachable"
    CRASHED = "Crashed"
    HALTED = "Halted"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    MOVES_LEFT = "MovesLeft"  # this one and the next two: Events of a deletion
    TOPICS_RETAINED = "TopicsKept"
    TOPICS_NOT_DELETED = "TopicsNotDeleted"


AnyReason = Reason | ConditionReason


@dataclass(frozen=True)
class Consequences:
    """What follows from a condition with this reason."""

    # The condition that stalls the pipeline if it has this reason: a person has to act.
    stalls: Literal["TopicsReady", "JobRunning"] | None = None
    expected: bool = False  # it belongs to a change, or was asked for: it calls for no person's attention
    remark: bool = False  # of TopicsReady: it calls for attention, and the pipeline keeps running
    unavailable: bool = False  # clients cannot write to the topic
    severity: int | None = None  # among the clauses of the guarantee, or the problems of topics: 1 is the worst


_ORDINARY = Consequences()
_CONSEQUENCES: Mapping[AnyReason, Consequences] = {
    ConditionReason.CHECKING_EDIT: Consequences(expected=True),
    ConditionReason.CREATING: Consequences(expected=True),
    ConditionReason.REPAIRING: Consequences(expected=True),
    ConditionReason.NOT_STARTED: Consequences(expected=True),
    ConditionReason.STARTING: Consequences(expected=True),
    ConditionReason.STANDBY: Consequences(expected=True),
    ConditionReason.DRAINING: Consequences(expected=True),
    ConditionReason.RESTARTING: Consequences(expected=True),
    ConditionReason.REPLAYING: Consequences(expected=True),
    ConditionReason.SUSPENDED: Consequences(expected=True),
    ConditionReason.COMPLETED: Consequences(expected=True),
    ConditionReason.SCHEDULED: Consequences(expected=True),
    # Clauses of the guarantee.
    ConditionReason.NO_LEADER: Consequences(unavailable=True, severity=1),
    ConditionReason.NOT_ENOUGH_REPLICAS: Consequences(unavailable=True, severity=2),
    ConditionReason.UNCLEAN_ELECTION: Consequences(severity=3),
    ConditionReason.TOPICS_TOO_WEAK: Consequences(severity=4),
    ConditionReason.INTERNAL_TOPICS_TOO_WEAK: Consequences(severity=5),
    # Problems of topics.
    Reason.AUTHORIZATION_FAILED: Consequences(stalls="TopicsReady", severity=1),
    ConditionReason.TOPICS_UNFIT: Consequences(stalls="TopicsReady", severity=2),
    Reason.BROKERS_TOO_FEW: Consequences(stalls="TopicsReady", severity=3),
    ConditionReason.TOPIC_CONFLICT: Consequences(stalls="TopicsReady"),
    ConditionReason.DRIFTED: Consequences(remark=True),
    ConditionReason.ONE_RACK: Consequences(remark=True),
    ConditionReason.NOT_COMPACTED: Consequences(remark=True),
    ConditionReason.UNDER_REPLICATED: Consequences(remark=True),
    # The driver.
    ConditionReason.NO_PROGRESS: Consequences(stalls="JobRunning"),
    ConditionReason.DRIVER_UNREACHABLE: Consequences(stalls="JobRunning"),
    ConditionReason.UNSCHEDULABLE: Consequences(stalls="JobRunning"),
    ConditionReason.IMAGE_UNAVAILABLE: Consequences(stalls="JobRunning"),
}


def consequences(reason: str) -> Consequences:
    """What follows from the reason. One of another release has no consequences."""
    return next((row for r, row in _CONSEQUENCES.items() if r == reason), _ORDINARY)


def reason_of(text: str) -> AnyReason | None:
    """The reason with this text; None for one of another release."""
    return next((reason for reason in (*Reason, *ConditionReason) if reason == text), None)


def worst(reasons: Iterable[AnyReason]) -> AnyReason:
    """The most severe of some clauses' or problems' reasons."""
    return min(reasons, key=severity)


def severity(reason: AnyReason) -> int:
    """The position in the order of severity; 1 is the worst. Raises ValueError for a reason without one."""
    rank = consequences(reason).severity
    if rank is None:
        raise ValueError(f"{reason} has no severity")
    return rank
