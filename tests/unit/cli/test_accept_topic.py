"""ackwright accept-topic: for a topic that the pipeline has halted at, and for no other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from ackwright.api.spec import ACCEPTED_LOSSES_ANNOTATION
from ackwright.cli import main, target
from ackwright.cli.target import Target
from ackwright_stream import positions
from ackwright_stream.jobspec import ExitCode
from ackwright_stream.positions import Lane
from ackwright_stream.reports import Ending
from unit.cli.halted_cluster import HaltedCluster, condition
from unit.world import SPEC, World

OLD, NOW = "pMwI-OlDoLdOlD_oLdOl-A", "qNwI-NeWnEwNeW_nEwNe-B"
OTHER_TOPICS = [{"name": n, "partitions": 2} for n in ("old-flights", "out")]
FLIGHTS = {
    **SPEC,
    "source": {"topics": ["flights", "old-flights"]},
    "topics": [{"name": "flights", "partitions": 2}, *OTHER_TOPICS],
}


def written(then: Callable[[World], object], known: str = OLD) -> dict[str, Any]:
    """The status that the operator writes after something has happened. known: the id of flights until then."""
    world = World(FLIGHTS)
    world.kafka.ids["flights"] = known
    then(world.settle())
    world.settle()
    status: dict[str, Any] = world.resource["status"]
    return status


def recreate(world: World) -> None:
    world.kafka.ids["flights"] = NOW


def delete(world: World) -> None:
    """Two topics; and one that has never existed is needed now."""
    del world.kafka.existing["flights"], world.kafka.existing["old-flights"]
    world.kubernetes.declare("p", {**FLIGHTS, "source": {"topics": ["flights", "old-flights", "weather"]}})


RECREATED = positions.topic_replaced(Lane("flights", 2), "its position 5", OLD, NOW)


def halt(world: World) -> None:
    world.end_driver(Ending(3, RECREATED.failure))


BY_THE_OPERATOR, MISSING = written(recreate), written(delete)
BY_THE_JOB = written(halt)
RESTORED = written(halt, known=NOW)  # without the old id: the operator knows only the new topic


def message(status: dict[str, Any], kind: str = "Stalled") -> str:
    return next(str(c["message"]) for c in status["conditions"] if c["type"] == kind)


def replaced(
    name: str = "flights", reason: str = "TopicReplaced", truth: str = "True", text: str = "whatever people read"
) -> dict[str, Any]:
    """A status with a condition, and a topic that was recreated."""
    lost = {"name": name, "id": OLD, "currentId": NOW}
    return {"conditions": [condition("Stalled", truth, reason, text)], "lostTopics": [lost]}


def missing(*names: str, reason: str = "TopicMissing") -> dict[str, Any]:
    """A status with a condition, and topics that were deleted."""
    halted = condition("TopicsReady", "False", reason, "whatever people read")
    return {"conditions": [halted], "lostTopics": [{"name": n, "id": OLD} for n in names]}


def without_details(status: dict[str, Any]) -> dict[str, Any]:
    """The status of an earlier release, which has messages alone."""
    return {name: value for name, value in status.items() if name != "lostTopics"}


Invoke = Callable[..., int]


@pytest.fixture
def accept(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """accept(cluster, *arguments) runs the command against it; the exit code."""

    def invoke(cluster: HaltedCluster, *arguments: str) -> int:
        monkeypatch.setattr(target, "_connect", lambda *_: Target(cluster, "ops"))
        return main.invoke(["accept-topic", *(arguments or ("p", "flights"))])

    return invoke


@pytest.mark.parametrize(
    "halted",
    [BY_THE_OPERATOR, BY_THE_JOB, RESTORED, MISSING, replaced(), missing("old-flights", "flights")],
    ids=["by the operator", "by the job", "restored without the id", "missing", "recreated, bare", "missing, bare"],
)
def test_a_lost_topic_is_accepted(accept: Invoke, capsys: pytest.CaptureFixture[str], halted: dict[str, Any]) -> None:
    cluster = HaltedCluster(halted)
    assert accept(cluster) == ExitCode.OK
    assert cluster.patched == [
        {"metadata": {"annotations": {ACCEPTED_LOSSES_ANNOTATION: json.dumps({"flights": OLD})}}}
    ]
    assert capsys.readouterr().out == f"the loss of topic flights (id {OLD}) is accepted\np: Delivering\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"weather": "w", "flights": "older"}', {"weather": "w", "flights": OLD}),
        ("nonsense", {"flights": OLD}),
        ("[]", {"flights": OLD}),
    ],
)
def test_what_was_accepted_before_stays(accept: Invoke, before: str, after: dict[str, str]) -> None:
    cluster = HaltedCluster(BY_THE_OPERATOR, {ACCEPTED_LOSSES_ANNOTATION: before, "kept": "by others"})
    assert accept(cluster, "p", "flights", "--no-wait") == ExitCode.OK
    (change,) = cluster.patched
    assert list(change["metadata"]["annotations"]) == [
        ACCEPTED_LOSSES_ANNOTATION
    ]  # a merge patch leaves the others alone
    assert json.loads(change["metadata"]["annotations"][ACCEPTED_LOSSES_ANNOTATION]) == after


@pytest.mark.parametrize(
    ("halted", "topic", "sentence"),
    [
        ({"conditions": []}, "flights", "has not halted because topic flights"),
        (replaced(truth="False"), "flights", "has not halted"),
        (replaced(reason="PositionLost"), "flights", "has not halted"),
        # Names that contain each other, and a message that names another topic.
        (replaced("old-flights", text="topic flights was deleted and recreated"), "flights", "has not halted"),
        (replaced("flights.eu"), "flights", "has not halted"),
        (missing("flights-2", "old-flights"), "flights", "has not halted"),
        (BY_THE_OPERATOR, "old-flights", "has not halted"),
        (MISSING, "out", "has not halted"),
        (missing("flights", reason="TopicConflict"), "flights", "has not halted"),
        # A topic is reported by the condition that its kind of loss belongs to.
        (replaced() | missing("old-flights"), "flights", "has not halted"),
        (MISSING, "weather", "the status holds no id of a lost topic weather, so none of its records are lost"),
        (
            replaced() | {"lostTopics": [{"name": "flights", "id": NOW, "currentId": NOW}]},
            "flights",
            f"the present id of topic flights ({NOW}), and not the lost one; set the positions for the new topic",
        ),
        (
            without_details(BY_THE_JOB),
            "flights",
            f"names no lost topic ({message(BY_THE_JOB)}); use the command line of the release that the driver has",
        ),
        (without_details(MISSING), "flights", "names no lost topic"),
    ],
)
def test_nothing_else_is_accepted(
    accept: Invoke, capsys: pytest.CaptureFixture[str], halted: dict[str, Any], topic: str, sentence: str
) -> None:
    cluster = HaltedCluster(halted)
    assert accept(cluster, "p", topic) == ExitCode.INVALID
    assert cluster.patched == []
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert sentence in printed.err


def test_an_unknown_pipeline_is_named(accept: Invoke, capsys: pytest.CaptureFixture[str]) -> None:
    assert accept(HaltedCluster(replaced()), "q", "flights") == ExitCode.INVALID
    assert "no DeliveryPipeline q in namespace ops (existing: p)" in capsys.readouterr().err


@pytest.mark.parametrize("halted", [BY_THE_OPERATOR, RESTORED, MISSING])
def test_the_second_time_it_waits_and_changes_nothing(
    accept: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, halted: dict[str, Any]
) -> None:
    """The topics of the status may have the new id already, before the job has resumed; its loss is not accepted."""
    cluster = HaltedCluster(halted, {ACCEPTED_LOSSES_ANNOTATION: json.dumps({"flights": OLD})})
    monkeypatch.setattr(time, "sleep", lambda _: cluster.resume())
    assert accept(cluster) == ExitCode.OK
    assert cluster.patched == []
    printed = capsys.readouterr()
    assert "is already accepted" in printed.err
    assert printed.out == "p: Delivering\n"


def test_it_says_what_it_waited_for(
    accept: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = HaltedCluster(BY_THE_OPERATOR)
    cluster.after = BY_THE_OPERATOR
    moments = iter(range(0, 100, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert accept(cluster, "p", "flights", "--timeout", "15") == ExitCode.FAILED
    assert f"p has not resumed after 15 s: TopicReplaced: {message(BY_THE_OPERATOR)}" in capsys.readouterr().err
    assert len(cluster.patched) == 1
