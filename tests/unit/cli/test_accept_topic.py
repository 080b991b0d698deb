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
from unit.cli.halted_cluster import HaltedCluster, condition
from unit.world import SPEC, World

OLD, NOW = "pMwI-OlDoLdOlD_oLdOl-A", "qNwI-NeWnEwNeW_nEwNe-B"
OTHER_TOPICS = [{"name": n, "partitions": 2} for n in ("old-flights", "out")]
FLIGHTS = {
    **SPEC,
    "source": {"topics": ["flights", "old-flights"]},
    "topics": [{"name": "flights", "partitions": 2}, *OTHER_TOPICS],
}


def operators_message(kind: str, then: Callable[[World], object]) -> str:
    """The message of the condition that the operator sets, after something has happened to the topics."""
    world = World(FLIGHTS)
    world.kafka.ids["flights"] = OLD
    then(world.settle())
    world.settle()
    messages: dict[str, str] = {c["type"]: c["message"] for c in world.resource["status"]["conditions"]}
    return messages[kind]


def recreate(world: World) -> None:
    world.kafka.ids["flights"] = NOW


def delete(world: World) -> None:
    """Two topics; and one that has never existed is needed now."""
    del world.kafka.existing["flights"], world.kafka.existing["old-flights"]
    world.kubernetes.declare("p", {**FLIGHTS, "source": {"topics": ["flights", "old-flights", "weather"]}})


BY_THE_OPERATOR = operators_message("Stalled", recreate)
BY_THE_JOB = f"{positions.topic_replaced(Lane('flights', 2), 'its position 5', OLD, NOW)} (exit code 3, 1 restarts)"
MISSING = operators_message("TopicsReady", delete)


def cluster_with(
    conditions: list[dict[str, Any]], annotations: dict[str, str] | None = None, identity: str | None = OLD
) -> HaltedCluster:
    """identity: the id of flights that the status has."""
    known = {
        "name": "flights",
        "id": identity,
        "partitions": 1,
        "replicationFactor": 3,
        "minInsyncReplicas": 2,
        "inSyncReplicas": 3,
    }
    return HaltedCluster(conditions, annotations, [known] if identity else [])


def replaced(message: str = BY_THE_OPERATOR, reason: str = "TopicReplaced", status: str = "True") -> dict[str, Any]:
    return condition("Stalled", status, reason, message)


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
    [replaced(), replaced(BY_THE_JOB), condition("TopicsReady", "False", "TopicMissing", MISSING)],
    ids=["by the operator", "by the job", "missing"],
)
def test_a_lost_topic_is_accepted(accept: Invoke, capsys: pytest.CaptureFixture[str], halted: dict[str, Any]) -> None:
    cluster = cluster_with([halted])
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
    cluster = cluster_with([replaced()], {ACCEPTED_LOSSES_ANNOTATION: before, "kept": "by others"})
    assert accept(cluster, "p", "flights", "--no-wait") == ExitCode.OK
    (change,) = cluster.patched
    assert list(change["metadata"]["annotations"]) == [
        ACCEPTED_LOSSES_ANNOTATION
    ]  # a merge patch leaves the others alone
    assert json.loads(change["metadata"]["annotations"][ACCEPTED_LOSSES_ANNOTATION]) == after


@pytest.mark.parametrize(
    ("conditions", "identity", "sentence"),
    [
        ([], OLD, "has not halted because topic flights"),
        ([replaced(status="False")], OLD, "has not halted"),
        ([replaced(reason="PositionLost")], OLD, "has not halted"),
        ([replaced("topic old-flights was deleted and recreated")], OLD, "has not halted"),
        ([replaced("topic flights.eu was deleted and recreated")], OLD, "has not halted"),
        (
            [condition("TopicsReady", "False", "TopicMissing", "topics flights-2, old-flights do not exist; create")],
            OLD,
            "has not halted",
        ),
        (
            [condition("TopicsReady", "False", "TopicConflict", "topic flights is declared differently")],
            OLD,
            "has not halted",
        ),
        ([replaced()], None, "holds no id"),
        ([replaced(BY_THE_JOB)], NOW, "set the group's offsets for the new topic by hand"),
    ],
)
def test_nothing_else_is_accepted(
    accept: Invoke,
    capsys: pytest.CaptureFixture[str],
    conditions: list[dict[str, Any]],
    identity: str | None,
    sentence: str,
) -> None:
    cluster = cluster_with(conditions, identity=identity)
    assert accept(cluster) == ExitCode.INVALID
    assert cluster.patched == []
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert sentence in printed.err


def test_an_unknown_pipeline_is_named(accept: Invoke, capsys: pytest.CaptureFixture[str]) -> None:
    assert accept(cluster_with([replaced()]), "q", "flights") == ExitCode.INVALID
    assert "no DeliveryPipeline q in namespace ops (existing: p)" in capsys.readouterr().err


@pytest.mark.parametrize(("message", "identity"), [(BY_THE_OPERATOR, OLD), (BY_THE_JOB, NOW)])
def test_the_second_time_it_waits_and_changes_nothing(
    accept: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, message: str, identity: str
) -> None:
    """The status may hold the new id already, before the job has resumed; its loss is not accepted."""
    cluster = cluster_with([replaced(message)], {ACCEPTED_LOSSES_ANNOTATION: json.dumps({"flights": OLD})}, identity)
    monkeypatch.setattr(time, "sleep", lambda _: cluster.resource["status"].update(conditions=cluster.after))
    assert accept(cluster) == ExitCode.OK
    assert cluster.patched == []
    printed = capsys.readouterr()
    assert "is already accepted" in printed.err
    assert printed.out == "p: Delivering\n"


def test_it_says_what_it_waited_for(
    accept: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_with([replaced()])
    cluster.after = [replaced()]
    moments = iter(range(0, 100, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert accept(cluster, "p", "flights", "--timeout", "15") == ExitCode.FAILED
    assert f"p has not resumed after 15 s: TopicReplaced: {BY_THE_OPERATOR}" in capsys.readouterr().err
    assert len(cluster.patched) == 1
