"""What a job reports to its starter: its progress while it runs, and how it ended. Standard library only.

The counterpart of jobspec.py: the job writes these values, the operator and the command line read them. Both travel as
JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from ackwright_stream.jobspec import ExitCode, Reason

_TERMINATION_MESSAGE = 4096  # bytes that Kubernetes keeps of one
# A user's image writes reports, and any program can write positions: these go into the status only in Kafka's forms.
_FINGERPRINT, _TOPIC = re.compile(r"[0-9a-f]{1,64}"), re.compile(r"[a-zA-Z0-9._-]{1,249}")
_REASON = re.compile(r"[A-Z][A-Za-z]{1,60}")
_TOPIC_ID = re.compile(r"[a-zA-Z0-9_+/-]{1,64}")  # librdkafka writes base64 with + and /, Kafka's tools with - and _


class State(StrEnum):
    """What a driver is doing."""

    STARTING = "starting"
    STANDBY = "standby"  # ready to take the pipeline, which another driver owns
    REPLAYING = "replaying"  # batches of a stateful pipeline run again, without their output
    RUNNING = "running"
    RESTARTING = "restarting"
    DRAINING = "draining"
    DRAINED = "drained"
    COMPLETE = "complete"
    FAILED = "failed"


class StartPart(StrEnum):
    """A part of a driver's start, in the order in which they end."""

    IMPORTS = "imports"  # Python and its modules
    JVM = "jvm"  # until Spark's context begins
    SPARK = "spark"  # Spark's context and session
    TRANSFORM = "transform"  # schema and transform, analysed by Spark
    CHECKS = "checks"  # topics, permissions and the sink, as far as they outlast Spark's start
    OWNERSHIP = "ownership"  # joined, positions read and settled
    QUERY = "query"  # until the first batch has its ranges
    BATCH = "batch"  # the first batch

    @property
    def shown(self) -> str:
        """What the driver does in this part, as people read it."""
        return {
            StartPart.IMPORTS: "loading Python's modules",
            StartPart.JVM: "starting Spark's JVM",
            StartPart.SPARK: "starting Spark",
            StartPart.TRANSFORM: "analysing the transform",
            StartPart.CHECKS: "checking Kafka and the sink",
            StartPart.OWNERSHIP: "taking the pipeline",
            StartPart.QUERY: "starting the query",
            StartPart.BATCH: "delivering the first batch",
        }[self]


class Verdict(StrEnum):
    """What an audit concludes about a guarantee, the best first."""

    HELD = "held"
    UNPROVEN = "unproven"  # no fault is certain, and not everything could be judged
    BROKEN = "broken"

    @property
    def exit_code(self) -> ExitCode:
        return {
            Verdict.HELD: ExitCode.OK,
            Verdict.UNPROVEN: ExitCode.UNPROVEN,
            Verdict.BROKEN: ExitCode.FAILED,
        }[self]

    @property
    def shown(self) -> str:
        """The verdict as people read it: what needs attention stands out."""
        return self.value if self is Verdict.HELD else self.value.upper()

    @staticmethod
    def worst(verdicts: Iterable[Verdict]) -> Verdict:
        """The worst of the verdicts; held if there is none."""
        return max(verdicts, key=list(Verdict).index, default=Verdict.HELD)


# The exit codes of an audit that has a result.
AUDITED = frozenset(verdict.exit_code for verdict in Verdict)


@dataclass(frozen=True)
class LostTopic:
    """A topic that the pipeline needs, and that was recreated or does not exist."""

    name: str
    id: str | None  # Kafka's id of the topic whose records are lost; None: it is not known that there was one
    current_id: str | None = None  # of the topic that has the name now; None: there is none

    def as_json(self) -> dict[str, str | None]:
        return {"name": self.name, "id": self.id, "currentId": self.current_id}

    @classmethod
    def recreated(cls, name: object, topic_id: object, current_id: object) -> Self | None:
        """A topic that was deleted and recreated; None if Kafka has no such names or ids."""
        if _matches(_TOPIC, name) and _matches(_TOPIC_ID, topic_id) and _matches(_TOPIC_ID, current_id):
            return cls(str(name), str(topic_id), str(current_id))
        return None


@dataclass(frozen=True)
class Failure:
    """A failure with its reason; the message is one sentence for people.

    Programs read the other fields, which say what a person may accept.
    """

    reason: Reason
    message: str
    # of moved positions, as positions.fingerprint() has it, or of lost state, as decisions.loss_of() has it
    fingerprint: str | None = None
    lost_topic: LostTopic | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def as_json(self) -> dict[str, Any]:
        """JSON values, without absent fields."""
        fields = {
            "fingerprint": self.fingerprint,
            "lostTopic": self.lost_topic.as_json() if self.lost_topic else None,
        }
        present = {name: value for name, value in fields.items() if value is not None}
        return {"reason": self.reason.value, "message": self.message, **present}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for anything that as_json() did not return.

        A fingerprint or a topic in another form counts as absent, as in a message of an earlier release. A reason that
        a later release has added is Unexpected, and part of the message.
        """
        reason, message = value["reason"], str(value["message"])
        if _REASON.fullmatch(reason) and reason not in set(Reason):
            reason, message = Reason.UNEXPECTED, f"{reason}: {message}"
        fingerprint, topic = value.get("fingerprint"), value.get("lostTopic")
        return cls(
            Reason(reason),
            message,
            fingerprint if _matches(_FINGERPRINT, fingerprint) else None,
            LostTopic.recreated(topic.get("name"), topic.get("id"), topic.get("currentId"))
            if isinstance(topic, Mapping)
            else None,
        )


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


@dataclass(frozen=True)
class Ending:
    """How a job's or an audit's process ended, as it reports itself.

    A process that the kernel kills reports nothing.
    """

    exit_code: int
    failure: Failure | None = None  # None: a job was drained or is complete; an audit has a report

    def to_json(self) -> str:
        """One line of JSON, in which a long message is cut so that it fits a termination message of Kubernetes."""
        text = json.dumps({"exitCode": self.exit_code, "failure": self.failure.as_json() if self.failure else None})
        if self.failure is None or len(text) <= _TERMINATION_MESSAGE:  # ASCII, so a character is a byte
            return text
        shorter = self.failure.message[: min(1000, len(self.failure.message) // 2)]
        return replace(self, failure=replace(self.failure, message=shorter)).to_json()

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """The ending that to_json() wrote; None for any other text, such as the tail of a log."""
        try:
            value = json.loads(text)
            failure = value["failure"]
            return cls(int(value["exitCode"]), None if failure is None else Failure.of_json(failure))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def report_ending(ending: Ending, file: Path | None) -> None:
    """Writes the ending to the file, for programs, and a failure as the last line of stderr, for people."""
    if file is not None:
        try:
            file.write_text(ending.to_json())  # in place: Kubernetes mounts the file of a termination message
        except OSError as e:
            sys.stderr.write(f"--ending {file} cannot be written: {e}\n")
    if ending.failure is not None:
        sys.stderr.write(f"ackwright: {ending.failure}\n")


@dataclass(frozen=True)
class ProgressReport:
    """The state of a driver, as /progress serves it.

    Counters start at 0 with the process. Positions and lag are offsets: they bound records and do not count them.
    """

    pipeline: str  # namespace/name
    guarantee: str
    state: State
    driver: int  # number of the driver that owns the pipeline; 0: none yet
    batch_id: int  # of the last batch of the current query; -1: none yet
    batch_seconds: float
    last_batch_at: float | None  # seconds since the epoch
    positions: Mapping[str, Mapping[str, int]]  # by topic and partition
    lag: int
    records: int
    batches: int
    restarts: int  # of the query, inside this process
    abandoned_records: int
    expired_records: int
    malformed_records: int
    dead_letters: int
    skipped_lanes: int
    records_per_second: float
    last_error: Failure | None = None
    start_seconds: Mapping[StartPart, float] = field(default_factory=dict)  # of the parts that have ended
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # of the source, by topic and partition
    late_rows: int = 0  # that state has left out, of a stateful pipeline
    # With which the next batch of a stateful pipeline begins, seconds since the epoch; None: there is none yet.
    watermark: float | None = None
    event_log_error: str | None = (
        None  # of the start with the event log; None: Spark has started with it, or none is declared
    )
    executors: int | None = None  # that are connected to the driver, as last counted; None: not counted yet
    executors_requested: int | None = None  # with autoscaling
    executors_missing_s: float = 0  # for how long fewer than requested have been connected
    replay_batch: int | None = None  # while the driver is replaying: the batch that runs again
    replay_last: int | None = None  # and the last one that has to
    failing: bool = False  # no batch has been delivered since the last error

    @property
    def starting(self) -> StartPart | None:
        """The part of its start that the driver is in; None if it has delivered a batch, or does something else."""
        if self.batches or not self.start_seconds or self.state not in (State.STARTING, State.RUNNING):
            return None
        return next((part for part in StartPart if part not in self.start_seconds), None)

    @property
    def measured_lag(self) -> int | None:
        """The lag in offsets; None as long as the driver has not read the ends of the source."""
        return self.lag if self.ends or self.lag else None

    def as_json(self) -> dict[str, Any]:
        """JSON values, by their names on the wire."""
        values = {_WIRE[name]: value for name, value in vars(self).items()}
        return values | {"state": self.state.value, "lastError": self.last_error.as_json() if self.last_error else None}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for anything that as_json() did not return."""
        fields = {name: value[wire] for name, wire in _WIRE.items() if name not in _ADDED}
        # A driver of an earlier release does not report these.
        start_seconds, ends = dict(value.get("startSeconds", {})), dict(value.get("ends", {}))
        error, event_log_error = fields["last_error"], value.get("eventLogError")
        watermark = value.get("watermark")
        executors, requested = value.get("executors"), value.get("executorsRequested")
        replay_batch, replay_last = value.get("replayBatch"), value.get("replayLast")
        return cls(
            **{
                **fields,
                "state": State(fields["state"]),
                "last_error": None if error is None else Failure.of_json(error),
                "start_seconds": {StartPart(part): float(seconds) for part, seconds in start_seconds.items()},
                "ends": ends,
                "late_rows": int(value.get("lateRows", 0)),
                "watermark": None if watermark is None else float(watermark),
                "event_log_error": None if event_log_error is None else str(event_log_error),
                "executors": None if executors is None else int(executors),
                "executors_requested": None if requested is None else int(requested),
                "executors_missing_s": float(value.get("executorsMissingS", 0)),
                "replay_batch": None if replay_batch is None else int(replay_batch),
                "replay_last": None if replay_last is None else int(replay_last),
                "failing": bool(value.get("failing", False)),
            }
        )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_ADDED = (
    "start_seconds",
    "ends",
    "late_rows",
    "watermark",
    "event_log_error",
    "executors",
    "executors_requested",
    "executors_missing_s",
    "replay_batch",
    "replay_last",
    "failing",
)
_WIRE = {name: _camel(name) for name in ProgressReport.__dataclass_fields__}
