"""ackwright accept-state-loss: records that the loss of a stateful pipeline's state is accepted."""

from __future__ import annotations

from collections.abc import Callable

import click

from ackwright.api.spec import ACCEPTED_STATE_LOSS_ANNOTATION
from ackwright.api.status import Condition, Status, parse_status
from ackwright.cli.acceptance import accept, await_resumed, refused, reported, without_details
from ackwright.cli.lifecycle import dry_run_option, timeout_option, wait_option
from ackwright.cli.pipeline_names import name_argument
from ackwright.cli.target import Target, target_options
from ackwright_stream.jobspec import ExitCode, Reason

COSTS = (
    "groups count from 0 again, and windows that are open lack their earlier records; duplicates of earlier records "
    "are not recognised"
)


@click.command()
@name_argument()
@click.argument("fingerprint", required=False)
@target_options
@wait_option
@timeout_option
@dry_run_option
def accept_state_loss(
    *, name: str, fingerprint: str | None, target: Callable[[], Target], wait: bool, timeout: int, dry_run: bool
) -> int:
    """Accept that the state of a stateful pipeline is lost: it continues from its positions with an empty state.

    Only for a pipeline that has halted because of it. Groups count from 0 again, windows that are open lack their
    earlier records, and duplicates of earlier records are not recognised. No record is read twice or skipped. With
    FINGERPRINT, which the message of the halt names, only if the pipeline has halted because of exactly that state.
    """
    place = target()
    resource = place.pipeline(name)
    status = parse_status(resource.get("status"))
    condition = _halt(status)
    if condition is None:
        raise refused(f"{name} has not halted because its state was lost; see ackwright status {name}")
    if status.lost_state is None:
        raise without_details(name, "lost state", condition)
    current = status.lost_state.fingerprint
    if fingerprint not in (None, current):
        raise refused(
            f"{name} has halted because of the state {current}, and not {fingerprint}; "
            f"read the message of ackwright status {name}, and accept {current} if it is lost"
        )
    if resource["metadata"].get("annotations", {}).get(ACCEPTED_STATE_LOSS_ANNOTATION) == current:
        click.echo(f"the loss of the state with fingerprint {current} is already accepted", err=True)
    else:
        what = f"the loss of the state with fingerprint {current}"
        accept(place, name, ACCEPTED_STATE_LOSS_ANNOTATION, current, what, dry_run=dry_run)
        click.echo(COSTS, err=True)
    if dry_run:
        return ExitCode.OK
    return await_resumed(place, name, _halt, timeout) if wait else ExitCode.OK


def _halt(status: Status) -> Condition | None:
    """The condition that reports lost state, if there is one."""
    return reported(status, "Stalled", "True", Reason.STATE_LOST)
