"""Reconciles pipelines whose topics are not as declared."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ackwright.api.spec import ACCEPTED_LOSSES_ANNOTATION
from ackwright.errors import AckwrightError
from ackwright.planning.replicas import Reassignment
from ackwright_stream.jobspec import Reason
from unit.fake_kubernetes import Killed
from unit.topic_worlds import declared, throttles, to_the_end, weak
from unit.world import SPEC, STATEFUL, World


def pipeline(name: str, spec: dict[str, Any], created: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ops", "creationTimestamp": created}
    return {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": meta, "spec": spec}


@pytest.fixture
def running() -> World:
    return World().settle()


def drifting(policy: str) -> World:
    world = World(declared(driftPolicy=policy, config={"retention.ms": "1000"})).settle()
    world.kafka.existing["in"]["retention.ms"] = "2000"
    return world.settle()


def test_a_stateful_pipeline_starts_although_its_source_gets_no_partitions() -> None:
    world = World(STATEFUL)
    world.kafka.existing["in"] = {"min.insync.replicas": "2"}
    world.kafka.shape("in", 1, 3)
    world.settle()
    assert "ackwright-decisions" in world.kafka.existing
    assert world.conditions("JobRunning", "Stalled") == ["True/Running", "True/TopicsUnfit"]
    assert len(world.kafka.layouts["in"]) == 1


def test_drift_is_repaired_unless_it_is_declared_otherwise() -> None:
    world = drifting("repair")
    assert world.kafka.existing["in"]["retention.ms"] == "1000"
    assert world.conditions("TopicsReady", "Ready") == ["True/AsPlanned", "True/Delivering"]


def test_drift_is_reported_and_left_alone() -> None:
    world = drifting("alert")
    assert world.kafka.existing["in"]["retention.ms"] == "2000"
    assert world.conditions("TopicsReady", "Ready") == ["True/Drifted", "True/Delivering"]
    assert "Drifted" in {reason for reason, _ in world.kubernetes.recorded}


def test_drift_pauses_the_pipeline_until_it_is_gone() -> None:
    world = drifting("pause")
    assert world.kafka.existing["in"]["retention.ms"] == "2000"
    assert world.conditions("JobRunning", "Ready", "Stalled") == ["False/Paused", "False/Drifted", "True/Drifted"]
    assert "Pod" not in world.kinds()
    world.kafka.existing["in"]["retention.ms"] = "1000"
    assert world.settle().condition("Ready") == "True/Delivering"


@pytest.mark.parametrize("name", ["in", "out"])
def test_a_recreated_topic_pauses_the_pipeline_until_the_loss_is_accepted(running: World, name: str) -> None:
    running.kafka.ids[name] = "another"
    running.settle()
    assert running.conditions("Stalled", "JobRunning") == ["True/TopicReplaced", "False/Paused"]
    (stalled,) = (c["message"] for c in running.resource["status"]["conditions"] if c["type"] == "Stalled")
    assert stalled.endswith(f"to accept that: ackwright accept-topic p {name} -n ops")
    assert "Pod" not in running.kinds()
    before = {t["name"]: t["id"] for t in running.resource["status"]["topics"]}
    lost = [{"name": name, "id": before[name], "currentId": "another"}]
    assert running.resource["status"]["lostTopics"] == lost
    running.start_operator()
    running.resource["metadata"]["annotations"] = {ACCEPTED_LOSSES_ANNOTATION: json.dumps({name: "some other id"})}
    assert running.settle().condition("Stalled") == "True/TopicReplaced", "what was accepted is another loss"
    assert running.resource["status"]["lostTopics"] == lost
    running.resource["metadata"]["annotations"] = {ACCEPTED_LOSSES_ANNOTATION: json.dumps({name: before[name]})}
    assert running.settle().condition("Ready") == "True/Delivering"
    assert {t["name"]: t["id"] for t in running.resource["status"]["topics"]}[name] == "another"
    assert "lostTopics" not in running.resource["status"]


def test_a_deleted_topic_is_not_recreated_in_silence(running: World) -> None:
    gone = running.kafka.existing.pop("out")
    running.settle()
    assert running.conditions("TopicsReady", "Ready") == ["False/TopicMissing", "False/TopicMissing"]
    assert "out" not in running.kafka.existing
    assert "Pod" in running.kinds(), "a broker that has just started may not know it yet"
    assert running.resource["status"]["lostTopics"] == [{"name": "out", "id": "id-out"}]
    assert running.condition("Stalled") == "True/TopicMissing", "nothing happens without a person"
    expected = "restore it, or accept its loss: ackwright accept-topic p out -n ops"
    assert all(
        c["message"].endswith(expected) for c in running.resource["status"]["conditions"] if c["type"] == "Stalled"
    )
    running.kafka.existing["out"] = gone
    assert running.settle().condition("Ready") == "True/Delivering"
    assert "lostTopics" not in running.resource["status"]
    del running.kafka.existing["out"]
    running.resource["metadata"]["annotations"] = {ACCEPTED_LOSSES_ANNOTATION: json.dumps({"out": "id-out"})}
    running.kafka.ids["out"] = "recreated"
    assert running.settle().condition("Ready") == "True/Delivering"
    assert "out" in running.kafka.existing


def test_a_topic_that_never_existed_has_no_id_that_could_be_accepted() -> None:
    world = World(SPEC | {"topics": [{"name": "out", "partitions": 2}]}).settle()
    assert world.condition("TopicsReady") == "False/TopicMissing"
    assert world.condition("Stalled") == "False/NotStalled", "another program may create it"
    assert world.resource["status"]["lostTopics"] == [{"name": "in"}]


def test_a_replaced_topic_keeps_its_recorded_id_while_another_topic_is_missing(running: World) -> None:
    running.kafka.ids["in"] = "another"
    gone = running.kafka.existing.pop("out")
    running.settle()
    assert running.condition("TopicsReady") == "False/TopicMissing"
    assert {t["name"]: t["id"] for t in running.resource["status"]["topics"]}["in"] == "id-in"
    running.kafka.existing["out"] = gone
    assert running.settle().condition("Stalled") == "True/TopicReplaced"


def test_a_job_whose_topics_cannot_be_made_does_not_start() -> None:
    world = World()
    world.kafka.refused = AckwrightError(Reason.INVALID_SPEC, "out: a setting is refused")
    world.settle()
    assert world.condition("Stalled") == "True/InvalidSpec"
    assert not {"StatefulSet", "Pod"}.intersection(world.kinds())
    world.kafka.refused = None
    assert world.settle().condition("Ready") == "True/Delivering"


def test_a_topic_that_a_broker_does_not_show_yet_is_judged_all_the_same() -> None:
    """The brokers know that it exists, so a dry run of its creation does not check its settings."""
    world = World(declared(config={"retention.ms": "soon"}))
    world.kafka.existing["in"], world.kafka.hidden, world.kafka.unfit = {}, {"in"}, {"soon"}
    world.kafka.shape("in", 2, 3)
    world.reconcile()
    world.reconcile()
    assert world.condition("Stalled") == "True/InvalidSpec"
    assert set(world.kafka.existing) == {"in"}, "nothing is applied by halves"


def test_replicas_first_then_the_minimum_and_the_throttle_is_on_record_before_and_gone_after() -> None:
    world = weak().settle()
    assert world.conditions("TopicsReady", "GuaranteeMet", "Reconciling") == [
        "False/Repairing",
        "False/TopicsTooWeak",
        "True/Progressing",
    ]
    throttled = world.resource["status"]["topics"][0]
    assert (throttled["moving"], throttled["throttledBrokers"]) == (2, [0, 1, 2])
    assert set(world.kafka.brokers_settings) == {"0", "1", "2"}
    world.seconds += 3600
    assert world.settle().condition("Stalled") == "False/NotStalled", "copying takes as long as it takes"
    world.kafka.arrive()
    world.settle()
    assert world.conditions("TopicsReady", "GuaranteeMet", "Ready") == ["True/AsPlanned", "True/Met", "True/Delivering"]
    assert "throttledBrokers" not in world.resource["status"]["topics"][0]
    assert not any(world.kafka.brokers_settings.values())
    assert world.kafka.existing["in"]["min.insync.replicas"] == "2"


@pytest.mark.parametrize("after", [False, True])
def test_an_operator_that_dies_at_any_write_has_a_successor_that_ends_the_same(after: bool) -> None:
    undisturbed = to_the_end(weak())
    writes = len(undisturbed.kubernetes.writes)
    assert sum("Kafka" in w for w in undisturbed.kubernetes.writes) >= 10
    for number in range(writes):
        world = weak()
        world.kubernetes.die, world.kubernetes.die_after = number, after
        with pytest.raises(Killed):
            to_the_end(world)
        world.kubernetes.die = None
        world.start_operator()
        assert to_the_end(world).end_state() == undisturbed.end_state(), f"write {number}"
        assert not any(world.kafka.brokers_settings.values()), f"a throttle is left by write {number}"
        assert world.kafka.layouts == undisturbed.kafka.layouts


def test_somebody_elses_moves_come_first() -> None:
    world = weak()
    world.kafka.under_way["theirs", 0] = Reassignment((1,), ())
    world.settle()
    assert "topic theirs, which the operator did not start" in next(
        c["message"] for c in world.resource["status"]["conditions"] if c["type"] == "TopicsReady"
    )
    assert not world.kafka.brokers_settings
    world.kafka.arrive()
    world.settle()
    assert len(world.kafka.under_way) == 2


def test_without_permission_to_move_replicas_the_pipeline_reports_it_and_delivers() -> None:
    world = weak()
    world.kafka.forbidden = AckwrightError(Reason.AUTHORIZATION_FAILED, "grant the principal Describe on the cluster")
    world.settle()
    conditions = ["False/AuthorizationFailed", "False/TopicsTooWeak", "True/Running", "True/AuthorizationFailed"]
    assert world.conditions("TopicsReady", "GuaranteeMet", "JobRunning", "Stalled") == conditions
    assert not world.kafka.under_way
    world.kafka.forbidden = None
    world.settle()
    assert len(world.kafka.under_way) == 2


def lacking(world: World, verb: str) -> World:
    """The pipeline's principal may not do it with the source, of which everything differs, nor with a broker."""
    world.kafka.denied = {(verb, name) for name in ("in", "0", "1", "2")}
    world.kafka.existing["out"] = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    world.kafka.shape("out", 2, 3)
    return world


@pytest.mark.parametrize("verb", ["configure", "partitions", "reassign"])
def test_what_the_principal_may_not_do_with_a_topic_holds_up_that_topic_alone(verb: str) -> None:
    world = World(declared(config={"retention.ms": "1000"}))
    world.kafka.existing["in"] = {"min.insync.replicas": "2"}
    world.kafka.shape("in", 1, 1 if verb == "reassign" else 3)
    lacking(world, verb).settle()
    assert world.conditions("TopicsReady", "Stalled", "JobRunning") == [
        *["False/AuthorizationFailed", "True/AuthorizationFailed"],
        "True/Running",
    ]
    assert f"{verb} in is denied" in str(world.resource["status"]["conditions"])
    assert world.kafka.existing["out"]["unclean.leader.election.enable"] == "false"
    assert throttles(world) == []
    assert not any("throttledBrokers" in t for t in world.resource["status"]["topics"]), (
        "what is not done is not on record"
    )
    assert (world.kafka.existing["in"].get("retention.ms"), len(world.kafka.layouts["in"])) == (
        None if verb == "configure" else "1000",
        1,
    )
    world.kafka.denied.clear()
    assert to_the_end(world).condition("Ready") == "True/Delivering"
    assert (world.kafka.existing["in"]["retention.ms"], len(world.kafka.layouts["in"])) == ("1000", 2)


def test_a_topic_that_cannot_be_changed_delays_no_step_on_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.kafka.existing["in"] = {"min.insync.replicas": "1"}
    world.kafka.shape("in", 2, 3)
    configure = world.kafka.configure

    def fail(*arguments: Any, validate_only: bool = False) -> Any:
        if validate_only:
            return configure(*arguments, validate_only=True)
        raise AckwrightError(Reason.INVALID_SPEC, "refused, though not in the dry run")

    monkeypatch.setattr(world.kafka, "configure", fail)
    world.kafka.existing |= {
        "out": {"min.insync.replicas": "2"},
        "ackwright-lanes": {"min.insync.replicas": "2", "cleanup.policy": "compact"},
    }
    world.kafka.shape("out", 2, 3)
    world.kafka.shape("ackwright-lanes", 1, 3)
    world.reconcile()
    assert world.condition("Stalled") == "True/InvalidSpec"
    assert "StatefulSet" in world.kinds()


def test_without_the_permission_to_weaken_the_minimum_no_replica_is_removed() -> None:
    """What comes after a step of the same topic may count on it."""
    world = World(declared(replicationFactor=1) | {"tolerate": {"brokerFailures": 0}})
    world.kafka.existing["in"] = {"min.insync.replicas": "3"}
    world.kafka.shape("in", 2, 3)
    lacking(world, "configure").settle()
    assert {len(replicas) for replicas in world.kafka.layouts["in"]} == {3}
    world.kafka.denied.clear()
    world.settle()
    assert {len(replicas) for replicas in world.kafka.layouts["in"]} == {1}


def test_a_throttle_ends_though_the_step_before_it_may_not_be_taken() -> None:
    world = World(SPEC | {"topics": [{"name": "in", "partitions": 3}, {"name": "out", "partitions": 2}]})
    world.kafka.existing["in"] = {"min.insync.replicas": "1"}
    world.kafka.shape("in", 2, 1)
    world.kafka.denied = {("partitions", "in")}
    world.settle()
    assert throttles(world)
    world.kafka.arrive()
    world.settle()
    assert world.condition("TopicsReady") == "False/AuthorizationFailed"
    assert throttles(world) == []


def test_a_job_whose_topic_may_not_be_made_waits_for_the_permission() -> None:
    world = World()
    world.kafka.existing["in"] = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    world.kafka.shape("in", 2, 3)
    world.kafka.denied = {("create", "out")}
    world.settle()
    assert world.condition("Stalled") == "True/AuthorizationFailed"
    assert not {"StatefulSet", "Pod"}.intersection(world.kinds())
    assert world.kafka.existing["in"]["unclean.leader.election.enable"] == "false"
    world.kafka.denied.clear()
    assert world.settle().condition("Ready") == "True/Delivering"


def test_a_rate_that_somebody_has_set_stays() -> None:
    world = weak()
    world.kafka.brokers_settings["1"] = {"leader.replication.throttled.rate": "7"}
    world.settle()
    world.kafka.arrive()
    world.settle()
    assert {b: s for b, s in world.kafka.brokers_settings.items() if s} == {
        "1": {"leader.replication.throttled.rate": "7"}
    }


def test_the_older_pipelines_word_on_a_topic_counts(running: World) -> None:
    weaker = SPEC | {"tolerate": {"brokerFailures": 0}, "topics": [{"name": "in", "partitions": 2}]}
    running.resource["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    running.index.update(("ops", "older"), pipeline("older", weaker, "2020-01-01T00:00:00Z"))
    running.kafka.existing["in"]["min.insync.replicas"] = "1"
    running.settle()
    assert running.conditions("TopicsReady", "Stalled") == ["False/TopicConflict", "True/TopicConflict"]
    assert running.kafka.existing["in"]["min.insync.replicas"] == "1"
    assert "ops/older" in str(running.resource["status"]["conditions"])


def test_a_topic_that_another_pipeline_declares_outlives_this_one() -> None:
    named = [
        {"name": n, "partitions": 2, "deletionPolicy": p}
        for n, p in (("in", "Delete"), ("out", "Delete"), ("kept", "Retain"))
    ]
    running = World(SPEC | {"source": {"topics": ["in", "kept"]}, "topics": named}).settle()
    shared = SPEC | {"topics": [{"name": n, "partitions": 2} for n in ("in", "kept")]}
    running.index.update(("ops", "other"), pipeline("other", shared, "2026-12-01T00:00:00Z"))
    running.resource["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    for _ in range(4):
        if ("DeliveryPipeline", "p") in running.kubernetes.stored:
            running.reconcile()
    assert "in" in running.kafka.existing
    assert "out" not in running.kafka.existing
    message = dict(running.kubernetes.recorded)["TopicsKept"]
    assert message.endswith(": in"), "the topic that would stay anyway is not news"


def test_without_a_change_nothing_is_written(running: World) -> None:
    writes = len(running.kubernetes.writes)
    before = copy.deepcopy(running.kafka.existing)
    for _ in range(5):
        running.seconds += 35
        running.reconcile()
    assert len(running.kubernetes.writes) == writes
    assert running.kafka.existing == before


def test_the_number_of_calls_does_not_grow_with_the_topics() -> None:
    def calls(number: int) -> int:
        names = [f"t{n}" for n in range(number)]
        spec = SPEC | {
            "source": {"topics": names},
            "topics": [{"name": n, "partitions": 12} for n in (*names[1:], "out")],
        }
        world = World(spec)
        world.kafka.existing["t0"] = {}
        world.kafka.shape("t0", 12, 3)
        world.settle()
        world.kafka.calls.clear()
        world.seconds += 60
        world.reconcile()
        return sum(world.kafka.calls.values())

    assert calls(2) == calls(90) > 0
