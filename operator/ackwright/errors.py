"""Failures of the operator and the command line: each has a reason, a sentence for the user, and an exit code."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ackwright.wording import sentence
from ackwright_stream.reasons import REASONS, ExitCode, Reason
from ackwright_stream.reports import Failure


class AckwrightError(Exception):
    """A failure whose cause is known."""

    def __init__(self, reason: Reason, cause: str, remedy: str = "") -> None:
        """cause: with the offending value. remedy: empty if the cause says it, or if there is none but the reason's."""
        self.reason, self.cause, self.remedy = reason, cause, remedy
        self.message = sentence(cause, remedy)
        super().__init__(self.message)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of this failure's reason."""
        return REASONS[self.reason].exit_code


@dataclass(frozen=True)
class Place:
    """A character of a file, as editors count: from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Violation:
    """One field of a spec that is wrong."""

    field: str  # its path, such as spec.topics[0].partitions
    value: object
    problem: str
    remedy: str
    reason: Reason = dataclasses.field(default=Reason.INVALID_SPEC, kw_only=True)
    # The wrong character of a text. None: the field as a whole is wrong.
    offset: int | None = dataclasses.field(default=None, kw_only=True)
    # Of a spec that was read from a file.
    place: Place | None = dataclasses.field(default=None, kw_only=True)

    def __str__(self) -> str:
        return f"{self.field} = {self.value!r}: {self.problem}; {self.remedy}"


class InvalidSpec(AckwrightError):
    """A spec that breaks rules, with every violation."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__(Reason.INVALID_SPEC, "\n".join(str(v) for v in self.violations))


def reported(failure: Failure | None, otherwise: str) -> AckwrightError:
    """The failure that a job or an audit reported, as an error.

    UNEXPECTED with the message `otherwise` if it reported none.
    """
    return AckwrightError(failure.reason, failure.message) if failure else AckwrightError(Reason.UNEXPECTED, otherwise)
