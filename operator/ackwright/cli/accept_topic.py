"""ackwright accept-topic: a person's word that a topic which was deleted is lost."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from ackwright.api.spec import ACCEPTED_LOSSES_ANNOTATION, API_VERSION, KIND
from ackwright.api.status import Condition, Status, read
from ackwright.cli.lifecycle import dry_run_option, timeout_option, wait_option
from ackwright.cli.target import Target, target_options
from ackwright.errors import AckwrightError
from ackwright.planning.declared import given_up
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
    """Accept that what was in a deleted topic is lost: the pipeline goes on with the new one, from its earliest offsets.

    Only for a topic that the pipeline has halted at. Records of the old topic that were not delivered never will be.
    """
    found = target()
    resource = found.pipeline(name)
    status, annotations = read(resource.get("status")), resource["metadata"].get("annotations", {})
    complaint, accepted = _complaint(status, topic), given_up(annotations)
    if complaint is None:
        raise _refused(
            f"{name} has not halted because topic {topic} was deleted or made anew; see ackwright status {name}"
        )
    if topic in accepted and _says(complaint, accepted[topic]):
        click.echo(f"the loss of topic {topic} (id {accepted[topic]}) was accepted already", err=True)
    else:
        old = _lost_id(status, topic, complaint)
        text = json.dumps({**accepted, topic: old}, sort_keys=True)
        change = {"metadata": {"annotations": {ACCEPTED_LOSSES_ANNOTATION: text}}}
        found.kubernetes.merge(API_VERSION, KIND, found.namespace, name, change, try_only=dry_run)
        click.echo(
            f"the loss of topic {topic} (id {old}) {'would be accepted (dry run)' if dry_run else 'is accepted'}"
        )
    if dry_run:
        return ExitCode.OK
    return _await(found, name, topic, timeout) if wait else ExitCode.OK


def _lost_id(status: Status, topic: str, complaint: Condition) -> str:
    """The id of the topic that is lost. Raises AckwrightError if that is not known, or if it is the present one's."""
    old = next((t.id for t in status.topics if t.name == topic), None)
    if old is None:
        raise _refused(
            f"the status does not hold the id of the topic {topic} that was lost; create the topic, nothing of it is missed"
        )
    # A status that is younger than the new topic (restored without it, or a topic replaced twice): to give up the present topic would
    # accept its loss before it happens.
    if f"the topic now has {old};" in complaint.message:
        raise _refused(
            f"the status knows topic {topic} only by the id that it has now ({old}), not by the one that is lost; set the group's offsets "
            "for the new topic by hand"
        )
    return old


def _await(target: Target, name: str, topic: str, timeout: float) -> int:
    deadline = time.monotonic() + timeout
    while True:
        resource = target.pipeline(name)
        complaint = _complaint(read(resource.get("status")), topic)
        if complaint is None:
            click.echo(f"{name}: {_ready(resource)}")
            return ExitCode.OK
        if time.monotonic() > deadline:
            raise AckwrightError(
                Reason.UNEXPECTED,
                f"{name} has not gone on after {timeout:.0f} s: {complaint.reason}: {complaint.message}",
            )
        time.sleep(1)


def _complaint(status: Status, topic: str) -> Condition | None:
    """The condition that names the topic as deleted or made anew, if there is one."""
    for kind, truth, reason in (
        ("Stalled", "True", Reason.TOPIC_REPLACED),
        ("TopicsReady", "False", Reason.TOPIC_MISSING),
    ):
        found = status.condition(kind)
        if found and (found.status, found.reason) == (truth, reason.value) and _names(found, topic):
            return found
    return None


def _names(condition: Condition, topic: str) -> bool:
    """Whether it is this topic, not one whose name holds this one's."""
    return re.search(rf"(?:\btopic:? |, ){re.escape(topic)}(?![\w.-])", condition.message) is not None


def _says(condition: Condition, identity: str) -> bool:
    return identity in re.findall(r"[\w-]+", condition.message)


def _ready(resource: Mapping[str, Any]) -> str:
    found = read(resource.get("status")).condition("Ready")
    return found.reason if found else "the operator has not seen it yet"


def _refused(sentence: str) -> AckwrightError:
    return AckwrightError(Reason.INVALID_SPEC, sentence)
