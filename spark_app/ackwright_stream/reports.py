"""What a job reports to its starter: its progress while it runs, and how it ended. Standard library only.

The counterpart of jobspec.py: the job writes these values, the operator and the command line read them. Both travel as
JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from ackwright_stream.jobspec import ExitCode, Reason

_TERMINATION_MESSAGE = 4096  # bytes that Kubernetes keeps of one


class State(StrEnum):
    """What a driver is doing."""

    STARTING = "starting"
    STANDBY = "standby"  # ready to take the pipeline, which another driver owns
    RUNNING = "running"
    RESTARTING = "restarting"
    DRAINING = "draining"
    DRAINED = "drained"
    COMPLETE = "complete"
    FAILED = "failed"


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
class Failure:
    """A failure with its reason; the message is one sentence for people."""

    reason: Reason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def as_json(self) -> dict[str, str]:
        return {"reason": self.reason.value, "message": self.message}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises KeyError or ValueError for anything that as_json() did not return."""
        return cls(Reason(value["reason"]), str(value["message"]))


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
        return type(self)(self.exit_code, Failure(self.failure.reason, shorter)).to_json()

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """The ending that to_json() wrote; None for any other text, such as the tail of a log."""
        try:
            value = json.loads(text)
            failure = value["failure"]
            return cls(int(value["exitCode"]), None if failure is None else Failure.of_json(failure))
        except (ValueError, KeyError, TypeError, AttributeError):
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
    skipped_lanes: int
    records_per_second: float
    last_error: Failure | None = None

    def as_json(self) -> dict[str, Any]:
        """JSON values, by their names on the wire."""
        values = {_WIRE[name]: value for name, value in vars(self).items()}
        return values | {"state": self.state.value, "lastError": self.last_error.as_json() if self.last_error else None}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for anything that as_json() did not return."""
        fields = {name: value[wire] for name, wire in _WIRE.items()}
        error = fields["last_error"]
        return cls(
            **{
                **fields,
                "state": State(fields["state"]),
                "last_error": None if error is None else Failure.of_json(error),
            }
        )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_WIRE = {name: _camel(name) for name in ProgressReport.__dataclass_fields__}
