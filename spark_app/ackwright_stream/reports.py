"""What a job reports back to whoever started it: its progress while it runs, and how it ended. Standard library only.

The counterpart of jobspec.py: the job writes these values, the operator and the command line read them. Both travel as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from ackwright_stream.jobspec import Reason


class State(StrEnum):
    """What a driver is doing."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    DRAINING = "draining"
    DRAINED = "drained"
    COMPLETE = "complete"
    FAILED = "failed"


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
    """How a job's process ended, as the job itself reports it. A process that the kernel kills reports nothing."""

    exit_code: int
    failure: Failure | None = None  # None: drained, or a bounded run that is complete

    def to_json(self) -> str:
        """One line of JSON; Kubernetes keeps at most 4096 bytes of a termination message, so a long message is cut."""
        failure = None
        if self.failure is not None:
            failure = {"reason": self.failure.reason.value, "message": self.failure.message[:1000]}
        return json.dumps({"exitCode": self.exit_code, "failure": failure})

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """The ending that to_json() wrote; None for any other text, such as the tail of a log."""
        try:
            value = json.loads(text)
            failure = value["failure"]
            return cls(int(value["exitCode"]), None if failure is None else Failure.of_json(failure))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True)
class ProgressReport:
    """The state of a driver, as /progress serves it. Counters start at 0 with the process. Positions and lag are offsets: they
    bound records and do not count them."""

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
