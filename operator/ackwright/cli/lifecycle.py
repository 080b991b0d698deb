"""ackwright suspend, resume and logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from ackwright.api.spec import API_VERSION, KIND
from ackwright.cli.pipeline_names import name_argument
from ackwright.cli.target import Target, target_options
from ackwright.errors import AckwrightError
from ackwright.reasons import ConditionReason
from ackwright_stream.jobspec import ExitCode, Reason

wait_option = click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Wait until the change is complete."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Let the API server validate the change without making it."
)
timeout_option = click.option(
    "--timeout", type=click.IntRange(1), default=300, show_default=True, help="Seconds to wait."
)


@click.command()
@name_argument()
@target_options
@wait_option
@timeout_option
@dry_run_option
def suspend(*, name: str, target: Callable[[], Target], wait: bool, timeout: int, dry_run: bool) -> int:
    """Stop a pipeline: it completes its batch, commits its positions, and its pods end."""
    return _switch(
        target(),
        name,
        suspended=True,
        reason=ConditionReason.SUSPENDED,
        timeout=timeout if wait else 0,
        dry_run=dry_run,
    )


@click.command()
@name_argument()
@target_options
@wait_option
@timeout_option
@dry_run_option
def resume(*, name: str, target: Callable[[], Target], wait: bool, timeout: int, dry_run: bool) -> int:
    """Resume a suspended pipeline from its committed positions."""
    return _switch(target(), name, suspended=False, reason=None, timeout=timeout if wait else 0, dry_run=dry_run)


@click.command()
@name_argument()
@target_options
@click.option("-f", "--follow/--no-follow", default=False, help="Keep printing new lines.")
@click.option("--tail", type=click.IntRange(0), default=100, show_default=True, help="Lines from the end.")
@click.option("--previous", is_flag=True, help="The log of the driver that ran before in the same pod.")
def logs(*, name: str, target: Callable[[], Target], follow: bool, tail: int, previous: bool) -> int:
    """Show the log of a pipeline's driver."""
    place = target()
    place.pipeline(name)
    pod = place.driver_pod(name)
    if pod is None:
        raise AckwrightError(Reason.UNEXPECTED, f"{name} has no driver now; see why: ackwright status {name}")
    stream = place.kubernetes.logs(
        place.namespace, pod["metadata"]["name"], container="driver", follow=follow, tail=tail, previous=previous
    )
    for chunk in stream.response.stream(4096):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    return ExitCode.OK


def _switch(
    target: Target, name: str, *, suspended: bool, reason: ConditionReason | None, timeout: float, dry_run: bool
) -> int:
    """Sets spec.suspend. Waits `timeout` seconds until Ready has this reason; None: until it is True."""
    resource = target.pipeline(name)
    change = {"spec": {"suspend": suspended}}
    changed = target.kubernetes.merge(API_VERSION, KIND, target.namespace, name, change, dry_run=dry_run)
    generation = changed["metadata"]["generation"]
    if resource["metadata"]["generation"] == generation:
        click.echo(f"{name} {'is already suspended' if suspended else 'is not suspended'}", err=True)
    if dry_run:
        click.echo(f"{name} would be {'suspended' if suspended else 'resumed'} (dry run)")
        return ExitCode.OK
    deadline = time.monotonic() + timeout
    shown = ""
    while timeout:
        ready = _ready(target, name, generation)
        if ready and (ready["reason"] == reason if reason else ready["status"] == "True"):
            click.echo(f"{name}: {ready['reason']}")
            return ExitCode.OK
        state = f"{ready['reason']}: {ready['message']}" if ready else "waiting for the operator"
        if state != shown:
            click.echo(state, err=True)
            shown = state
        if time.monotonic() > deadline:
            raise AckwrightError(
                Reason.UNEXPECTED,
                f"{name} is not {'suspended' if suspended else 'ready'} after {timeout:.0f} s: {state}",
            )
        time.sleep(1)
    return ExitCode.OK


def _ready(target: Target, name: str, generation: int) -> dict[str, str] | None:
    """The condition Ready, once it describes this generation of the spec."""
    conditions = target.pipeline(name).get("status", {}).get("conditions", ())
    return next(
        (dict(c) for c in conditions if c["type"] == "Ready" and c.get("observedGeneration", 0) >= generation), None
    )
