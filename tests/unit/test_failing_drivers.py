"""Conditions of a driver that tries the same records again and again: it runs between two attempts."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.conditions.findings import Facts, Finding, findings
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Failure, State
from unit.condition_facts import facts, pod, progress

ENDS = {"in": {"0": 9}}
DIVIDED = Failure(Reason.BATCH_FAILED, "Division by zero")
MALFORMED = Failure(Reason.MALFORMED_RECORD, "in-0@6 is not a JSON object")
HALTED = {"exit_code": ExitCode.HALTED, "error": MALFORMED, "restarts": 2}
REPORTED = Finding("False", MALFORMED.reason, MALFORMED.message)


def attempt(driver: dict[str, Any] | None = None, **report: Any) -> Facts:
    """Between two attempts: the driver runs and is ready. driver: how its process before this one ended."""
    fields = {"lag": 3, "ends": ENDS, "batches": 0} | report
    return facts(pod(ready=True, **(driver or {})), progress=progress(State.RUNNING, **fields))


@pytest.mark.parametrize(
    ("between", "failure", "stalled"),
    [
        (attempt(failing=True, last_error=DIVIDED, batches=7), DIVIDED, "NotStalled"),
        (attempt(HALTED), MALFORMED, "MalformedRecord"),
        # Before the ends of the source are known the lag is reported as 0.
        (attempt(HALTED, lag=0, ends={}), MALFORMED, "MalformedRecord"),
        # The process has just ended, and the kubelet has not reported its end, or its successor does not answer yet.
        (facts(pod(ready=True), job_failure=REPORTED), MALFORMED, "NotStalled"),
        (facts(pod(ready=True, **HALTED), job_failure=REPORTED), MALFORMED, "MalformedRecord"),
    ],
    ids=["query", "process", "ends-unknown", "end-unknown", "no-answer"],
)
def test_ready_stays_false_between_two_attempts(between: Facts, failure: Failure, stalled: str) -> None:
    reported = findings(between)
    for kind in ("Ready", "JobRunning"):
        assert (reported[kind].status, reported[kind].reason) == ("False", failure.reason)
        assert failure.message in reported[kind].message
    assert reported["Stalled"].reason == stalled


@pytest.mark.parametrize(
    "after",
    [
        attempt(last_error=DIVIDED, batches=8),  # which also a driver of an earlier release reports
        attempt(HALTED, batches=1),
        attempt(HALTED, lag=0),
        attempt(failing=True, last_error=DIVIDED, lag=0),
        attempt({"exit_code": 137, "error": "killed", "restarts": 1}),
        facts(pod(ready=True, **HALTED)),
    ],
    ids=["next-batch", "next-batch-of-a-process", "nothing-left", "nothing-left-in-the-process", "killed", "no-answer"],
)
def test_ready_is_true_once_a_batch_is_delivered_or_nothing_is_left(after: Facts) -> None:
    reported = findings(after)
    assert {kind: reported[kind].status for kind in ("Ready", "JobRunning", "Stalled")} == {
        "Ready": "True",
        "JobRunning": "True",
        "Stalled": "False",
    }


def test_the_message_says_that_the_driver_is_restarted() -> None:
    waiting = facts(pod(waiting="CrashLoopBackOff", **HALTED))
    assert findings(waiting)["Ready"].message == (
        f"{MALFORMED.message} (exit code 3, 2 restarts; Kubernetes restarts it after a pause)"
    )
