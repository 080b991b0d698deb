"""ackwright accept-topic: records that the loss of a deleted topic is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable

import click

from ackwright.api.spec import ACCEPTED_LOSSES_ANNOTATION
from ackwright.api.status import Condition, LostTopicStatus, Status, parse_status
from ackwright.cli.acceptance import accept, await_resumed, refused, reported, without_details
from ackwright.cli.lifecycle import dry_run_option, timeout_option, wait_option
from ackwright.cli.pipeline_names import name_argument
from ackwright.cli.target import Target, target_options
from ackwright.errors import AckwrightError
from ackwright.planning.declared import accepted_losses
from ackwright_stream.jobspec import ExitCode, Reason


@click.command()
@name_argument()
@click.argument("topic")
@target_options
@wait_option
@timeout_option
@dry_run_option
def accept_topic(
    *, name: str, topic: str, target: Callable[[], Target], wait: bool, timeout: int, dry_run: bool
) -> int:
    """Accept that the records of a deleted topic are lost: the pipeline continues with the new topic, from its earliest
    offsets.

    Only for a topic because of which the pipeline has halted. Records of the old topic that were not delivered never
    will be.
    """
    place = target()
    resource = place.pipeline(name)
    status, annotations = parse_status(resource.get("status")), resource["metadata"].get("annotations", {})
    lost = status.lost_topic(topic)
    if lost is None or _halt(status, topic) is None:
        raise _not_halted(status, name, topic)
    old, accepted = _lost_id(lost), accepted_losses(annotations)
    if accepted.get(topic) == old:
        click.echo(f"the loss of topic {topic} (id {old}) is already accepted", err=True)
    else:
        text = json.dumps({**accepted, topic: old}, sort_keys=True)
        what = f"the loss of topic {topic} (id {old})"
        accept(place, name, ACCEPTED_LOSSES_ANNOTATION, text, what, dry_run=dry_run)
    if dry_run:
        return ExitCode.OK
    if not wait:
        return ExitCode.OK
    return await_resumed(place, name, lambda later: _halt(later, topic), timeout)


def _lost_id(lost: LostTopicStatus) -> str:
    """The id of the lost topic. Raises AckwrightError if it is not known, or if it is the id of the present topic."""
    if lost.id is None:
        raise refused(
            f"the status holds no id of a lost topic {lost.name}, so none of its records are lost; create the topic"
        )
    # To record this id would accept the loss of the present topic before it happens.
    if lost.id == lost.current_id:
        raise refused(
            f"the status holds only the present id of topic {lost.name} ({lost.id}), and not the lost one; "
            "set the positions for the new topic by hand"
        )
    return lost.id


def _halt(status: Status, topic: str) -> Condition | None:
    """The condition that reports the topic as deleted or recreated, if there is one."""
    lost = status.lost_topic(topic)
    if lost is None:
        return None
    return _recreated(status) if lost.current_id else _missing(status)


def _recreated(status: Status) -> Condition | None:
    return reported(status, "Stalled", "True", Reason.TOPIC_REPLACED)


def _missing(status: Status) -> Condition | None:
    return reported(status, "TopicsReady", "False", Reason.TOPIC_MISSING)


def _not_halted(status: Status, name: str, topic: str) -> AckwrightError:
    """The error for a topic that the status does not report as lost."""
    condition = _recreated(status) or _missing(status)
    if condition and not status.lost_topics:
        return without_details(name, "lost topic", condition)
    return refused(f"{name} has not halted because topic {topic} was deleted or recreated; see ackwright status {name}")
