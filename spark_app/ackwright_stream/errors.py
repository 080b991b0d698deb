"""Failures of the job, each with a reason and one sentence for people. Uses neither Kafka nor Spark."""

from __future__ import annotations

from collections.abc import Sequence

from ackwright_stream.reasons import REASONS, ExitCode, Reason


class JobError(Exception):
    """A failure whose cause is known. The message names the offending value, why it is wrong, and what to do."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)  # both, because unpickling on the way from worker to driver passes them again
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    @property
    def exit_code(self) -> ExitCode:
        return REASONS[self.reason].exit_code


def together(problems: Sequence[JobError]) -> JobError:
    """All problems, of which there is at least one, as one error with the reason of the first."""
    return JobError(problems[0].reason, "; ".join(dict.fromkeys(problem.message for problem in problems)))
