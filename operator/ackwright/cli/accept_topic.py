"""ackwright accept-topic: records that the loss of a deleted topic is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import click

from ackwright.api.spec import ACCEPTED_LOSSES_ANNOTATION
from ackwright.api.status import Condition, Status, parse_status
from ackwright.cli.acceptance import accept, await_resumed, refused
from ackwright.cli.lifecycle import dry_run_option, timeout_option, wait_option
from ackwright.cli.target import Target, target_options
from ackwright.planning.declared import accepted_losses
from ackwright_stream.jobspec import ExitCode, Reason


@click.command()
@click.argument("name")
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
    condition, accepted = _condition_about(status, topic), accepted_losses(annotations)
    if condition is None:
        raise refused(
            f"{name} has not halted because topic {topic} was deleted or recreated; see ackwright status {name}"
        )
    if topic in accepted and _mentions(condition, accepted[topic]):
        click.echo(f"the loss of topic {topic} (id {accepted[topic]}) is already accepted", err=True)
    else:
        old = _lost_id(status, topic, condition)
        text = json.dumps({**accepted, topic: old}, sort_keys=True)
        what = f"the loss of topic {topic} (id {old})"
        accept(place, name, ACCEPTED_LOSSES_ANNOTATION, text, what, dry_run=dry_run)
    if dry_run:
        return ExitCode.OK
    if not wait:
        return ExitCode.OK
    return await_resumed(place, name, lambda later: _condition_about(later, topic), timeout)


def _lost_id(status: Status, topic: str, condition: Condition) -> str:
    """The id of the lost topic. Raises AckwrightError if it is not known, or if it is the id of the present topic."""
    old = next((t.id for t in status.topics if t.name == topic), None)
    if old is None:
        raise refused(
            f"the status holds no id of a lost topic {topic}, so none of its records are lost; create the topic"
        )
    # The status is younger than the new topic: it was restored without the id, or the topic was replaced twice. To
    # record this id would accept the loss of the present topic before it happens.
    if f"the topic now has {old};" in condition.message:
        raise refused(
            f"the status holds only the present id of topic {topic} ({old}), and not the lost one; "
            "set the group's offsets for the new topic by hand"
        )
    return old


def _condition_about(status: Status, topic: str) -> Condition | None:
    """The condition that reports the topic as deleted or recreated, if there is one."""
    for kind, truth, reason in (
        ("Stalled", "True", Reason.TOPIC_REPLACED),
        ("TopicsReady", "False", Reason.TOPIC_MISSING),
    ):
        condition = status.condition(kind)
        if condition and (condition.status, condition.reason) == (truth, reason.value) and _names(condition, topic):
            return condition
    return None


def _names(condition: Condition, topic: str) -> bool:
    """Whether the message names this topic, and not one whose name contains this one's."""
    return re.search(rf"(?:\btopics? |, ){re.escape(topic)}(?![\w.-])", condition.message) is not None


def _mentions(condition: Condition, topic_id: str) -> bool:
    return topic_id in re.findall(r"[\w-]+", condition.message)
