"""ackwright accept-state-loss: records that the loss of a stateful pipeline's state is accepted."""

from __future__ import annotations

from collections.abc import Callable

import click

from ackwright.api.spec import ACCEPTED_STATE_LOSS_ANNOTATION
from ackwright.cli.acceptance import Halt, accept_halt
from ackwright.cli.lifecycle import dry_run_option, timeout_option, wait_option
from ackwright.cli.pipeline_names import name_argument
from ackwright.cli.target import Target, target_options
from ackwright_stream.jobspec import Reason

_LOST = Halt(
    Reason.STATE_LOST,
    lambda status: status.lost_state.fingerprint if status.lost_state else None,
    ACCEPTED_STATE_LOSS_ANNOTATION,
    cause="its state was lost",
    named="state",
    accepted="loss of the state",
    if_right="it is lost",
    details="lost state",
    costs="groups count from 0 again, and windows that are open lack their earlier records; duplicates of earlier "
    "records are not recognised",
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
    return accept_halt(_LOST, target(), name, fingerprint, wait=wait, timeout=timeout, dry_run=dry_run)
