"""Failures of the job, each with a reason and one sentence for people. Uses neither Kafka nor Spark."""

from __future__ import annotations

from ackwright_stream.jobspec import EXIT_CODES, ExitCode, Reason


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
