"""ackwright accept-positions: records that offsets which another program has set are accepted."""

from __future__ import annotations

from collections.abc import Callable

import click

from ackwright.api.spec import ACCEPTED_POSITIONS_ANNOTATION
from ackwright.api.status import Condition, Status, parse_status
from ackwright.cli.acceptance import accept, await_resumed, refused, reported, without_details
from ackwright.cli.lifecycle import dry_run_option, timeout_option, wait_option
from ackwright.cli.pipeline_names import name_argument
from ackwright.cli.target import Target, target_options
from ackwright_stream.jobspec import ExitCode, Reason


@click.command()
@name_argument()
@click.argument("fingerprint", required=False)
@target_options
@wait_option
@timeout_option
@dry_run_option
def accept_positions(
    *, name: str, fingerprint: str | None, target: Callable[[], Target], wait: bool, timeout: int, dry_run: bool
) -> int:
    """Accept the positions that another program has set: the pipeline continues from them.

    Only for a pipeline that has halted because of them. Records in between may be skipped or delivered again. With
    FINGERPRINT, which the message of the halt names, only if the pipeline has halted because of exactly those offsets.
    """
    place = target()
    resource = place.pipeline(name)
    status = parse_status(resource.get("status"))
    condition = _halt(status)
    if condition is None:
        raise refused(f"{name} has not halted because its positions were moved; see ackwright status {name}")
    if status.moved_positions is None:
        raise without_details(name, "fingerprint", condition)
    current = status.moved_positions.fingerprint
    if fingerprint not in (None, current):
        raise refused(
            f"{name} has halted because of the offsets {current}, and not {fingerprint}: they were set again; "
            f"read the message of ackwright status {name}, and accept {current} if it is intended"
        )
    if resource["metadata"].get("annotations", {}).get(ACCEPTED_POSITIONS_ANNOTATION) == current:
        click.echo(f"the move of positions with fingerprint {current} is already accepted", err=True)
    else:
        what = f"the move of positions with fingerprint {current}"
        accept(place, name, ACCEPTED_POSITIONS_ANNOTATION, current, what, dry_run=dry_run)
    if dry_run:
        return ExitCode.OK
    return await_resumed(place, name, _halt, timeout) if wait else ExitCode.OK


def _halt(status: Status) -> Condition | None:
    """The condition that reports moved positions, if there is one."""
    return reported(status, "Stalled", "True", Reason.POSITIONS_MOVED)
