"""Failures of the job, each with a reason and one sentence for a person. Nothing here talks to Kafka or Spark."""

from __future__ import annotations

from ackwright_stream.jobspec import EXIT_CODES, ExitCode, Reason


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
        return EXIT_CODES[self.reason]


# Going on, or trying again, cannot help: a person has to change something.
PERMANENT = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.INVALID_TRANSFORM,
        Reason.NOT_STATELESS,
        Reason.MALFORMED_RECORD,
        Reason.DATA_EXPIRED,
        Reason.POSITION_LOST,
        Reason.TOPIC_REPLACED,
        Reason.GROUP_IN_USE,
        Reason.BROKERS_UNSUPPORTED,
        Reason.SUPERSEDED,
    }
)
