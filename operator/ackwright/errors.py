"""Failures of the operator and the command line: each has a reason, a sentence for the user, and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ackwright_stream.reasons import REASONS, ExitCode, Reason


class AckwrightError(Exception):
    """A failure whose cause is known. The message contains the cause with the offending value, and the remedy."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of this failure's reason."""
        return REASONS[self.reason].exit_code


@dataclass(frozen=True)
class Violation:
    """One field of a spec that is wrong."""

    field: str  # its path, such as spec.topics[0].partitions
    value: object
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field} = {self.value!r}: {self.problem}; {self.remedy}"


class InvalidSpec(AckwrightError):
    """A spec that breaks rules, with every violation."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__(Reason.INVALID_SPEC, "\n".join(str(v) for v in self.violations))


def reported_failure(line: str | None, otherwise: str) -> AckwrightError:
    """The failure in the last line of a job or an audit, "Reason: sentence"; for any other line, UNEXPECTED."""
    reason, _, sentence = (line or "").partition(": ")
    if reason in set(Reason):
        return AckwrightError(Reason(reason), sentence)
    return AckwrightError(Reason.UNEXPECTED, otherwise)
