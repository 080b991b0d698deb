"""Failures of the job, each with a reason and one sentence for people. Uses neither Kafka nor Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ackwright_stream.reasons import REASONS, ExitCode, Reason
from ackwright_stream.reports import Failure, LostTopic


class JobError(Exception):
    """A failure whose cause is known. The message names the offending value, why it is wrong, and what to do."""

    def __init__(
        self,
        reason: Reason,
        cause: str,
        explanation: str = "",  # what it means, or what to do
        *,
        fingerprint: str | None = None,  # as Failure.fingerprint
        lost_topic: LostTopic | None = None,  # as Failure.lost_topic
    ) -> None:
        message = f"{cause}; {explanation}" if explanation else cause
        # Both, because unpickling on the way from worker to driver passes them again; it restores the attributes then.
        super().__init__(reason, message)
        self.reason, self.message, self.cause, self.explanation = reason, message, cause, explanation
        self.fingerprint, self.lost_topic = fingerprint, lost_topic
        self.slots: tuple[int, ...] = ()  # of the tasks that reported this reason to their driver

    def __str__(self) -> str:
        return str(self.failure)

    @classmethod
    def from_failure(cls, failure: Failure) -> Self:
        """The error that was reported as this failure."""
        return cls(failure.reason, failure.message, fingerprint=failure.fingerprint, lost_topic=failure.lost_topic)

    @property
    def failure(self) -> Failure:
        """The failure as the job reports it."""
        return Failure(self.reason, self.message, self.fingerprint, self.lost_topic)

    @property
    def exit_code(self) -> ExitCode:
        return REASONS[self.reason].exit_code


def combined(problems: Sequence[JobError]) -> JobError:
    """All problems, of which there is at least one, as one error with the reason of the first."""
    return JobError(problems[0].reason, "; ".join(dict.fromkeys(problem.message for problem in problems)))
