"""The reconciler over time: against Kubernetes and brokers in memory, with kills, refusals, conflicts, and simulated
time.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest

from ackwright.clients.kubernetes import ApiError
from ackwright.errors import AckwrightError
from ackwright.memory import Memory
from ackwright.planning import declared
from ackwright.planning.judgement import TextFindings
from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import Failure, State
from unit.fake_kubernetes import Killed
from unit.world import RUNNING, SPEC, World

EDITED = SPEC | {"transform": {"sql": "SELECT key, value FROM source"}}
UNKNOWN_COLUMN = SPEC | {"transform": {"sql": "SELECT valeu AS value FROM source"}}
INVALID = SPEC | {"guarantee": "exactly-wonce"}
UNREACHABLE = AckwrightError(Reason.BROKERS_UNREACHABLE, "connecting to k:9092 failed; check the network")


@cache
def settled() -> World:
    return World().settle()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def running() -> World:
    return settled().copy()


def test_at_first_sight_the_intent_is_written_before_anything_is_made(world: World) -> None:
    world.kubernetes.die, world.kubernetes.die_after = 0, True
    with pytest.raises(Killed):
        world.reconcile()
    assert world.kinds() == ["DeliveryPipeline"]
    assert world.kafka.existing == {}
    assert world.conditions("Reconciling", "Stalled", "Ready") == [
        "True/Progressing",
        "False/NotStalled",
        "False/Creating",
    ]
    status = world.resource["status"]
    assert status["intent"]["actions"][0] == "create topics in, out, ackwright-lanes"
    assert status["intent"]["actions"][-1] == "apply StatefulSet p (missing)"
    assert (status["observedGeneration"], status["accepted"]["spec"]) == (1, SPEC)


def test_it_ends_ready_with_all_that_belongs_to_it(running: World) -> None:
    assert running.conditions("Ready", "GuaranteeMet", "TopicsReady", "JobRunning", "Reconciling", "Stalled") == [
        *("True/Delivering", "True/Met", "True/AsPlanned", "True/Running", "False/Settled", "False/NotStalled"),
    ]
    assert running.kinds() == sorted(
        [
            "ConfigMap",
            "ConfigMap",
            "DeliveryPipeline",
            "Pod",
            "PodDisruptionBudget",
            "Role",
            "RoleBinding",
            "ServiceAccount",
            "StatefulSet",
        ]
    )
    status = running.resource["status"]
    assert "intent" not in status
    assert (status["topicsReady"], status["group"], status["driver"]["pod"], status["delivery"]["batch"]) == (
        "3/3",
        "ops.p",
        "p-0",
        7,
    )
    assert [reason for reason, _ in running.kubernetes.recorded if reason == "Delivering"] == ["Delivering"]


def test_what_has_converged_is_left_alone_by_any_operator(running: World) -> None:
    writes = list(running.kubernetes.writes)
    for _ in range(5):
        assert running.reconcile() == OperatorSettings().progress_every
        running.start_operator()
    assert running.kubernetes.writes == writes


def test_many_pipelines_do_not_ask_ever_more(running: World) -> None:
    running.operator._memory |= {f"u-{n}": Memory() for n in range(599)}
    assert running.reconcile() == 30
    running.operator._memory |= {f"v-{n}": Memory() for n in range(20_000)}
    assert running.reconcile() == 200, "a status is renewed before it counts as stale"


def test_the_driver_is_asked_often_and_kafka_when_something_has_changed(running: World) -> None:
    def asks(seconds: float) -> int:
        before, until = running.kafka.asked, running.seconds + seconds
        while running.seconds < until:
            running.reconcile()
        return running.kafka.asked - before

    running.seconds_between = OperatorSettings().progress_every
    asks(60)
    assert asks(270) == 9, "every 30 s, at each third reconcile"
    running.reconcile()
    assert asks(10) == 0
    running.progress = replace(RUNNING, state=State.RESTARTING, last_error=Failure(Reason.BATCH_FAILED, "x"))
    assert asks(10) > 0
    assert running.condition("Ready") == "False/BatchFailed"
    running.progress = RUNNING
    assert asks(10) > 0, "an unhealthy pipeline is checked each time"
    assert running.condition("Ready") == "True/Delivering"
    asks(30)
    running.kubernetes.stored["StatefulSet", "p"]["spec"]["replicas"] = 3
    running.kubernetes.stored["StatefulSet", "p"]["metadata"]["resourceVersion"] += "0"
    running.reconcile()
    assert running.kubernetes.stored["StatefulSet", "p"]["spec"]["replicas"] == 1


def test_figures_are_written_every_half_minute_at_most(running: World) -> None:
    before = running.statuses_written()
    for batch in range(12):
        running.progress = replace(RUNNING, batch_id=10 + batch)
        running.reconcile()
    assert 1 <= running.statuses_written() - before <= 2


DELETING = SPEC | {
    "topics": [{"name": "in", "partitions": 2, "deletionPolicy": "Delete"}, {"name": "out", "partitions": 2}]
}
CHANGES = {
    "start": (None, DELETING),
    "edit": (SPEC, EDITED),
    "switch": (SPEC, SPEC | {"trigger": {"availableNow": True}}),
    "invalid": (SPEC, INVALID),
}


def changed(name: str) -> World:
    before, after = CHANGES[name]
    world = World(before or after)
    if before:
        world.settle()
        world.kubernetes.declare("p", after)
    world.kubernetes.writes.clear()
    return world


@pytest.mark.parametrize("change", CHANGES)
def test_an_operator_that_is_killed_at_any_write_has_a_successor_that_ends_the_same(change: str) -> None:
    start = changed(change)
    undisturbed = start.copy().settle()
    expected, writes = undisturbed.end_state(), len(undisturbed.kubernetes.writes)
    # Before a write is after the one before it; but between the first two the topics are created.
    for number, after in [(0, True), *((n, False) for n in range(writes)), (writes - 1, True)]:
        world = start.copy()
        world.kubernetes.die, world.kubernetes.die_after = number, after
        with pytest.raises(Killed):
            world.settle()
        world.kubernetes.die = None
        world.start_operator()
        assert world.settle().end_state() == expected, f"killed {'after' if after else 'before'} write {number}"


def jobspecs(world: World) -> list[str]:
    return [name for kind, name in world.kubernetes.stored if kind == "ConfigMap"]


def test_an_edit_to_sql_that_cannot_run_keeps_the_driver(running: World) -> None:
    before = jobspecs(running)
    running.kubernetes.declare("p", UNKNOWN_COLUMN)
    running.settle()
    assert running.conditions("Ready", "JobRunning", "Stalled") == [
        "False/InvalidSpec",
        "True/Running",
        "True/InvalidSpec",
    ]
    [message] = [c["message"] for c in running.resource["status"]["conditions"] if c["type"] == "Ready"]
    assert message.startswith("line 1, column 8 of spec.transform.sql: there is no column valeu")
    assert jobspecs(running) == before


def test_without_the_judgement_such_an_edit_replaces_the_driver(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""
    monkeypatch.setattr(declared, "of_texts", lambda _: TextFindings())
    before = jobspecs(running)
    running.kubernetes.declare("p", UNKNOWN_COLUMN)
    running.settle()
    assert jobspecs(running) != before


def test_an_invalid_edit_keeps_the_last_valid_spec_running(running: World) -> None:
    config = [name for kind, name in running.kubernetes.stored if kind == "ConfigMap"]
    running.kubernetes.declare("p", INVALID)
    running.start_operator()
    running.settle()
    assert running.conditions("Ready", "Stalled", "Reconciling") == [
        "False/InvalidSpec",
        "True/InvalidSpec",
        "False/Stalled",
    ]
    assert running.conditions("JobRunning", "GuaranteeMet") == ["True/Running", "True/Met"], "of what runs"
    status = running.resource["status"]
    assert (status["accepted"]["generation"], status["observedGeneration"]) == (1, 2)
    assert "exactly-wonce" in next(c["message"] for c in status["conditions"] if c["type"] == "Stalled")
    running.kubernetes.vanish("Role", "p-driver")
    running.settle()
    assert ("Role", "p-driver") in running.kubernetes.stored, "it is still reconciled"
    assert [name for kind, name in running.kubernetes.stored if kind == "ConfigMap"] == config
    running.kubernetes.declare("p", EDITED)
    running.settle()
    assert running.conditions("Ready", "Stalled") == ["True/Delivering", "False/NotStalled"]
    assert running.resource["status"]["accepted"]["spec"] == EDITED


def test_a_spec_that_was_never_valid_starts_nothing() -> None:
    world = World(INVALID)
    world.settle()
    assert world.kinds() == ["DeliveryPipeline"]
    assert world.conditions("Ready", "GuaranteeMet", "Stalled") == [
        "False/InvalidSpec",
        "Unknown/InvalidSpec",
        "True/InvalidSpec",
    ]
    world.kubernetes.declare("p", SPEC)
    world.settle()
    assert world.condition("Ready") == "True/Delivering"


def test_suspended_and_resumed(running: World) -> None:
    running.kubernetes.declare("p", SPEC | {"suspend": True})
    running.settle()
    assert running.conditions("JobRunning", "Reconciling", "Stalled") == [
        "False/Suspended",
        "False/Settled",
        "False/NotStalled",
    ]
    assert not running.kubernetes.pods()
    assert running.reconcile() == OperatorSettings().progress_every, "nothing is awaited"
    running.kubernetes.declare("p", SPEC)
    assert running.settle().condition("Ready") == "True/Delivering"


def test_an_edit_is_on_record_before_it_is_carried_out_also_when_it_takes_the_same_steps(running: World) -> None:
    running.kubernetes.refuse["apply StatefulSet"] = ApiError(500, "etcd is away")
    for cpu in ("500m", "600m"):
        edit = SPEC | {"spark": {"driver": {"cpuRequest": cpu}}}
        running.kubernetes.declare("p", edit)
        with pytest.raises(ApiError):
            running.reconcile()
        assert running.resource["status"]["accepted"]["spec"] == edit
        assert running.resource["status"]["intent"]["actions"] == ["apply StatefulSet p (changed)"]


def test_what_an_edit_drops_goes_also_from_what_was_created() -> None:
    world = World(SPEC | {"checkpoint": {"volume": {"size": "1Gi"}}}).settle()

    def volumes() -> set[str]:
        return {v["name"] for v in world.kubernetes.stored["StatefulSet", "p"]["spec"]["template"]["spec"]["volumes"]}

    assert "checkpoint" in volumes()
    world.kubernetes.declare("p", SPEC)
    world.settle()
    assert "checkpoint" not in volumes()


def test_a_reconcile_of_a_stale_resource_conflicts_and_creates_nothing(world: World) -> None:
    stale = copy.deepcopy(world.resource)
    world.kubernetes.declare("p", EDITED)
    with pytest.raises(ApiError) as caught:
        world.operator.reconcile(stale, [], {})
    assert caught.value.status == 409
    assert world.kinds() == ["DeliveryPipeline"]


@pytest.mark.parametrize(("least", "expected"), [("2", "False/InternalTopicsTooWeak"), ("3", "True/Met")])
def test_the_brokers_own_topics_must_tolerate_what_the_pipeline_does(least: str, expected: str) -> None:
    world = World(SPEC | {"tolerate": {"brokerFailures": 2}})
    world.kafka.count = 5
    world.kafka.existing["__transaction_state"] = {"min.insync.replicas": least}
    world.kafka.shape("__transaction_state", 1, 5)
    assert world.settle().condition("GuaranteeMet") == expected


def test_what_belongs_to_somebody_else_is_not_taken_over(world: World) -> None:
    theirs = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "p-driver", "uid": "theirs"}}
    world.kubernetes.stored["ServiceAccount", "p-driver"] = theirs
    for _ in range(4):
        world.operator.reconcile(
            copy.deepcopy(world.resource), [], {}
        )  # it has no label of ours, so no watch brings it
    assert world.condition("Stalled") == "True/NameTaken"
    assert world.kubernetes.stored["ServiceAccount", "p-driver"] == theirs
    assert "StatefulSet" not in world.kinds()


def test_without_brokers_nothing_starts_and_the_connection_is_dropped(world: World) -> None:
    world.kafka.down = UNREACHABLE
    world.settle()
    assert world.conditions("Ready", "GuaranteeMet") == ["False/BrokersUnreachable", "Unknown/BrokersUnreachable"]
    assert "StatefulSet" not in world.kinds()
    assert set(world.connections.dropped) == {Reason.BROKERS_UNREACHABLE}
    world.kafka.down = None
    assert world.settle().condition("Ready") == "True/Delivering"


def test_what_is_wrong_with_one_pipeline_alone_does_not_take_the_others_connection(world: World) -> None:
    world.kafka.join("another-application")
    world.settle()
    assert world.conditions("Ready", "GuaranteeMet", "TopicsReady") == ["False/GroupInUse"] * 3, (
        "missing topics are not made for it"
    )
    assert "StatefulSet" not in world.kinds()
    assert world.connections.dropped == []
    world.kafka.group_members.clear()
    assert world.settle().condition("Ready") == "True/Delivering"


def test_another_pipelines_group_is_reported_also_while_the_brokers_do_not_answer(world: World) -> None:
    older = {"name": "older", "namespace": "ops", "creationTimestamp": "2020-01-01T00:00:00Z"}
    shared = SPEC | {"source": {"topics": ["in"], "groupId": "ops.p"}}
    world.resource["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    world.index.update(("ops", "older"), {"metadata": older, "spec": shared})
    assert world.settle().condition("GuaranteeMet") == "False/GroupInUse"
    world.connections.error = UNREACHABLE  # as during the connection's back-off
    assert world.settle().conditions("GuaranteeMet", "TopicsReady") == [
        "False/GroupInUse",
        "Unknown/BrokersUnreachable",
    ]
    assert "StatefulSet" not in world.kinds()


def test_a_topic_that_nobody_makes_is_named() -> None:
    world = World(SPEC | {"topics": []})
    world.settle()
    assert world.conditions("TopicsReady", "JobRunning") == ["False/TopicMissing", "False/NotStarted"]
    assert world.connections.dropped == []


def test_too_few_brokers_for_the_topics(world: World) -> None:
    world.kafka.count = 2
    world.settle()
    assert world.condition("Stalled") == "True/BrokersTooFew"
    assert world.kafka.existing == {}
    assert "StatefulSet" not in world.kinds()
    world.kafka.count = 3
    assert world.settle().condition("Ready") == "True/Delivering"


def test_replicas_that_fall_behind_break_the_guarantee_and_nothing_else(running: World) -> None:
    running.kafka.lagging = {2}
    running.settle()
    assert running.conditions("TopicsReady", "GuaranteeMet", "Ready") == [
        "True/UnderReplicated",
        "True/Met",
        "True/Delivering",
    ]
    running.kafka.lagging = {1, 2}
    running.settle()
    conditions = ["False/NotEnoughReplicas", "True/Running", "False/NotEnoughReplicas"]
    assert running.conditions("GuaranteeMet", "JobRunning", "Ready") == conditions
    running.kafka.lagging = set()
    assert running.settle().conditions("TopicsReady", "GuaranteeMet", "Ready") == [
        "True/AsPlanned",
        "True/Met",
        "True/Delivering",
    ]


def test_what_the_operator_has_written_itself_is_no_news(running: World) -> None:
    running.progress = replace(RUNNING, batch_id=99)
    running.seconds += 60
    running.reconcile()
    assert running.resource["status"]["delivery"]["batch"] == 99
    assert running.operator.wrote(running.resource)
    asked = running.kafka.calls.copy()
    running.reconcile()
    assert running.kafka.calls == asked, "the next reconcile has nothing to read"
    running.resource["metadata"]["resourceVersion"] += "0"
    assert not running.operator.wrote(running.resource), "somebody else has"
    running.reconcile()
    assert running.kafka.calls != asked
