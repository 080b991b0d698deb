"""Failures of the operator and the command line: each has a reason, a sentence for the user, and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ackwright_stream.reasons import REASONS, ExitCode, Reason


class AckwrightError(Exception):
    """A failure whose cause is known. The message names the cause, the offending value and the remedy."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def exit_code(self) -> ExitCode:
        return REASONS[self.reason].exit_code


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong with a spec: the field's path (spec.topics[0].partitions), its value, the problem, the remedy."""

    field: str
    value: object
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field} = {self.value!r}: {self.problem}; {self.remedy}"


class InvalidSpec(AckwrightError):
    """A spec that breaks rules; all of them are in violations."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__(Reason.INVALID_SPEC, "\n".join(str(v) for v in self.violations))


def told(line: str | None, otherwise: str) -> AckwrightError:
    """The failure that a job or an audit ended with, out of its line "Reason: sentence"; `otherwise` if it gave none."""
    reason, _, sentence = (line or "").partition(": ")
    return (
        AckwrightError(Reason(reason), sentence)
        if reason in set(Reason)
        else AckwrightError(Reason.UNEXPECTED, otherwise)
    )
