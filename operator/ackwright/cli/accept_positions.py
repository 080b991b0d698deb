"""ackwright accept-positions: records that offsets which another program has set are accepted."""

from __future__ import annotations

from collections.abc import Callable

import click

from ackwright.api.spec import ACCEPTED_POSITIONS_ANNOTATION
from ackwright.cli.acceptance import Halt, accept_halt
from ackwright.cli.lifecycle import dry_run_option, timeout_option, wait_option
from ackwright.cli.pipeline_names import name_argument
from ackwright.cli.target import Target, target_options
from ackwright_stream.jobspec import Reason

_MOVED = Halt(
    Reason.POSITIONS_MOVED,
    lambda status: status.moved_positions.fingerprint if status.moved_positions else None,
    ACCEPTED_POSITIONS_ANNOTATION,
    cause="its positions were moved",
    named="offsets",
    accepted="move of positions",
    if_right="it is intended",
    details="fingerprint",
    changed=": they were set again",
)


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
    return accept_halt(_MOVED, target(), name, fingerprint, wait=wait, timeout=timeout, dry_run=dry_run)
