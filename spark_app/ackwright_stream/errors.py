"""Failures of the job, each with a reason and one sentence for a person. Nothing here talks to Kafka or Spark."""

from __future__ import annotations

from ackwright_stream.reasons import REASONS, ExitCode, Reason


class JobError(Exception):
    """A failure whose cause is known. The message says what happened, with the offending value, and what to do."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)  # both, so that it survives pickling between worker and driver
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    @property
    def exit_code(self) -> ExitCode:
        return REASONS[self.reason].exit_code
