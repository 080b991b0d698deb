"""What commands share that accept why a pipeline has halted: an annotation of the resource, and the wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from ackwright.api.spec import API_VERSION, KIND
from ackwright.api.status import Condition, Status, Truth, parse_status
from ackwright.cli.target import Target
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import ExitCode, Reason


@dataclass(frozen=True)
class Halt:
    """Why a pipeline halts, if a fingerprint identifies what a person has to accept."""

    reason: Reason  # of Stalled
    fingerprint: Callable[[Status], str | None]
    annotation: str  # that accepts it
    cause: str  # in "has not halted because …"
    named: str  # what the fingerprint is of, in "has halted because of …"
    accepted: str  # what is accepted
    if_right: str  # in "and accept it if …"
    details: str  # what the status lacks if it has no fingerprint
    changed: str = ""  # why the fingerprint may be another one by now
    costs: str | None = None  # printed once it is accepted

    def condition(self, status: Status) -> Condition | None:
        """The condition that reports it; None: the pipeline has not halted for this reason."""
        return reported(status, "Stalled", "True", self.reason)


def accept_halt(
    halt: Halt, target: Target, name: str, fingerprint: str | None, *, wait: bool, timeout: float, dry_run: bool
) -> int:
    """Accepts why the pipeline has halted, and returns the exit code. timeout: seconds of the wait.

    fingerprint: of what may be accepted; None: whatever halts it. Raises AckwrightError if something else halts it.
    """
    resource = target.pipeline(name)
    status = parse_status(resource.get("status"))
    condition = halt.condition(status)
    if condition is None:
        raise refused(f"{name} has not halted because {halt.cause}; see ackwright status {name}")
    current = halt.fingerprint(status)
    if current is None:
        raise without_details(name, halt.details, condition)
    if fingerprint not in (None, current):
        raise refused(
            f"{name} has halted because of the {halt.named} {current}, and not {fingerprint}{halt.changed}; "
            f"read the message of ackwright status {name}, and accept {current} if {halt.if_right}"
        )
    what = f"the {halt.accepted} with fingerprint {current}"
    if resource["metadata"].get("annotations", {}).get(halt.annotation) == current:
        click.echo(f"{what} is already accepted", err=True)
    else:
        accept(target, name, halt.annotation, current, what, dry_run=dry_run)
        if halt.costs:
            click.echo(halt.costs, err=True)
    if dry_run or not wait:
        return ExitCode.OK
    return await_resumed(target, name, halt.condition, timeout)


def reported(status: Status, kind: str, truth: Truth, reason: Reason) -> Condition | None:
    """The condition of this type, if it has this status and reason."""
    condition = status.condition(kind)
    return condition if condition and (condition.status, condition.reason) == (truth, reason.value) else None


def without_details(name: str, what: str, condition: Condition) -> AckwrightError:
    """The error for a halt whose status lacks `what`, because the driver or the operator is of an older release."""
    return refused(
        f"the status of {name} names no {what} ({condition.message}); "
        "use the command line of the release that the driver has"
    )


def accept(target: Target, name: str, annotation: str, value: str, what: str, *, dry_run: bool) -> None:
    """Sets the annotation of a pipeline, and prints that `what` is accepted. dry_run: the API server only validates."""
    change = {"metadata": {"annotations": {annotation: value}}}
    target.kubernetes.merge(API_VERSION, KIND, target.namespace, name, change, dry_run=dry_run)
    click.echo(f"{what} {'would be accepted (dry run)' if dry_run else 'is accepted'}")


def await_resumed(target: Target, name: str, halted: Callable[[Status], Condition | None], timeout: float) -> int:
    """Waits until no condition halts the pipeline, and prints why it is ready or is not.

    halted: the condition that the acceptance is about. timeout: seconds. Raises AckwrightError after it.
    """
    deadline = time.monotonic() + timeout
    while True:
        resource = target.pipeline(name)
        condition = halted(parse_status(resource.get("status")))
        if condition is None:
            click.echo(f"{name}: {_ready(resource)}")
            return ExitCode.OK
        if time.monotonic() > deadline:
            raise AckwrightError(
                Reason.UNEXPECTED,
                f"{name} has not resumed after {timeout:.0f} s: {condition.reason}: {condition.message}",
            )
        time.sleep(1)


def refused(message: str) -> AckwrightError:
    """The error for something that cannot be accepted."""
    return AckwrightError(Reason.INVALID_SPEC, message)


def _ready(resource: Mapping[str, Any]) -> str:
    ready = parse_status(resource.get("status")).condition("Ready")
    return ready.reason if ready else "waiting for the operator"
