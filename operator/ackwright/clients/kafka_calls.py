"""What the operator and its client processes pass each other: calls of Kafka, their answers, and closed connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Cluster, Reason


@dataclass(frozen=True)
class Call:
    """One call of a method of Kafka."""

    connection: int  # the client process opens it with its first call
    cluster: Cluster
    method: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    timeout: float  # seconds that one request may take
    sent: float  # by fence.clock(), which all processes of a machine share
    deadline: tuple[float, float] | None = None  # of all calls: the seconds that were left when it was sent, and in all
    write_s: float | None = None  # seconds after `sent` in which a write may take place; None: the call only reads


@dataclass(frozen=True)
class Request:
    """A message to a client process: a call, or none to find out whether the process answers at all."""

    number: int
    call: Call | None


@dataclass(frozen=True)
class Close:
    """A message to a client process: no call uses these connections any more."""

    connections: tuple[int, ...]


@dataclass(frozen=True)
class Ready:
    """A message from a client process: it has started."""


@dataclass(frozen=True)
class Answer:
    """A message from a client process: what the call with this number returned or raised."""

    number: int
    value: Any = None
    failure: tuple[Reason, str, str] | None = None  # reason, cause and remedy of an AckwrightError
    error: str | None = None  # the stack trace of any other exception

    def result(self) -> Any:
        """What the call returned. Raises what it raised: AckwrightError, or RuntimeError for an unknown cause."""
        if self.failure is not None:
            raise AckwrightError(*self.failure)
        if self.error is not None:
            raise RuntimeError(f"in a client process: {self.error}")
        return self.value
