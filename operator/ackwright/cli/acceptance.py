"""What commands share that accept a loss of a halted pipeline: an annotation of the resource, and the wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from ackwright.api.spec import API_VERSION, KIND
from ackwright.api.status import Condition, Status, Truth, parse_status
from ackwright.cli.target import Target
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import ExitCode, Reason


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
    return ready.reason if ready else "the operator has not reconciled it yet"
