"""An edit that only the job can judge is checked in a pod, while the running driver continues by the earlier spec."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.planning import edits
from ackwright.settings import OperatorSettings
from ackwright_stream.reasons import ExitCode, Reason
from ackwright_stream.reports import Ending, Failure
from unit.fake_kubernetes import Object
from unit.world import SPEC, STATEFUL, World

EDITED = SPEC | {"transform": {"sql": "SELECT key, value FROM source"}}
OTHER = SPEC | {"transform": {"sql": "SELECT value FROM source"}}
WRONG = Ending(ExitCode.INVALID, Failure(Reason.INVALID_TRANSFORM, "there is no function upperr"))
AWAY = Ending(ExitCode.UNAVAILABLE, Failure(Reason.REGISTRY_UNREACHABLE, "the registry does not answer"))
CHECKS = ("Ready", "JobRunning", "Reconciling", "Stalled")


@pytest.fixture
def world() -> World:
    return World().settle()


def checks(world: World) -> list[Object]:
    return [p for p in world.kubernetes.pods() if p["metadata"]["labels"]["ackwright.io/role"] == "check"]


def driver(world: World) -> tuple[str, str]:
    """The uid of the driver's pod, and its ConfigMap."""
    [pod] = [p for p in world.kubernetes.pods() if p["metadata"]["labels"]["ackwright.io/role"] == "driver"]
    [config] = [v["configMap"]["name"] for v in pod["spec"]["volumes"] if "configMap" in v]
    return pod["metadata"]["uid"], config


def generations(world: World, *kinds: str) -> list[int]:
    conditions = {c["type"]: c["observedGeneration"] for c in world.resource["status"]["conditions"]}
    return [conditions[kind] for kind in kinds]


def check_with(world: World, spec: dict[str, Any], ending: Ending | None) -> None:
    """Applies an edit whose check ends like this; None: it does not end."""
    world.kubernetes.check_ending = ending
    world.kubernetes.declare("p", spec)
    for _ in range(6):
        world.reconcile()


def test_the_driver_continues_while_an_edit_is_checked(world: World) -> None:
    before = driver(world)
    check_with(world, EDITED, None)
    assert world.conditions(*CHECKS) == [
        "True/Delivering",
        "True/Running",
        "True/CheckingEdit",
        "False/NotStalled",
    ]
    assert generations(world, "Ready", "JobRunning", "Reconciling") == [1, 1, 2]
    assert driver(world) == before
    status = world.resource["status"]
    assert (status["accepted"]["spec"], status["edit"]["state"], status["edit"]["generation"]) == (SPEC, "Checking", 2)
    assert len(checks(world)) == 1


def test_an_edit_that_passes_is_applied_and_nothing_is_left_of_its_check(world: World) -> None:
    before = driver(world)
    check_with(world, EDITED, Ending(0))
    world.settle()
    assert world.conditions(*CHECKS) == ["True/Delivering", "True/Running", "False/Settled", "False/NotStalled"]
    assert driver(world)[0] != before[0]
    assert driver(world)[1] != before[1]
    assert "edit" not in world.resource["status"]
    assert (world.resource["status"]["accepted"]["spec"], checks(world)) == (EDITED, [])
    assert len([kind for kind in world.kinds() if kind == "ConfigMap"]) == 2


def test_an_edit_that_is_refused_leaves_the_driver_and_stalls_only_the_edit(world: World) -> None:
    before = driver(world)
    check_with(world, EDITED, WRONG)
    world.start_operator()
    world.settle()
    assert world.conditions(*CHECKS) == [
        "True/Delivering",
        "True/Running",
        "False/Stalled",
        "True/InvalidTransform",
    ]
    assert generations(world, "Ready", "JobRunning", "Stalled") == [1, 1, 2]
    assert driver(world) == before
    [message] = [c["message"] for c in world.resource["status"]["conditions"] if c["type"] == "Stalled"]
    [pod] = checks(world)
    assert message == (
        "the edit is not applied, and the earlier spec keeps running: there is no function upperr (checked in pod "
        f"{pod['metadata']['name']})"
    )
    writes = len(world.kubernetes.writes)
    for _ in range(100):
        world.reconcile()
    renewals = ["status DeliveryPipeline p"] * 2  # of observedAt, in 500 s
    assert world.kubernetes.writes[writes:] in (renewals[:1], renewals), "the same edit would be refused again"


def test_control_without_the_check_the_wrong_edit_replaces_the_driver(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "needs_check", lambda *_: False)
    before = driver(world)
    check_with(world, EDITED, WRONG)
    world.settle()
    assert driver(world) != before


def test_a_further_edit_is_checked_by_itself_and_going_back_clears_the_refusal(world: World) -> None:
    before = driver(world)
    check_with(world, EDITED, WRONG)
    check_with(world, SPEC, None)
    world.settle()
    assert world.conditions("Ready", "Stalled") == ["True/Delivering", "False/NotStalled"]
    assert (driver(world), checks(world), "edit" in world.resource["status"]) == (before, [], False)
    assert generations(world, "Ready") == [3]
    check_with(world, EDITED, WRONG)
    check_with(world, OTHER, Ending(0))
    world.settle()
    assert world.resource["status"]["accepted"]["spec"] == OTHER
    assert (checks(world), world.condition("Stalled")) == ([], "False/NotStalled")


def test_a_failure_that_may_pass_is_checked_again(world: World) -> None:
    check_with(world, EDITED, AWAY)
    assert world.condition("Stalled") == "True/RegistryUnreachable"
    [first] = checks(world)
    world.seconds += OperatorSettings().crash_delay_max
    world.reconcile()
    world.reconcile()
    assert checks(world)[0]["metadata"]["uid"] != first["metadata"]["uid"]
    assert world.condition("Stalled") == "True/RegistryUnreachable", "until the second check has ended"
    world.kubernetes.check_ending = Ending(0)
    world.reconcile()
    world.seconds += OperatorSettings().crash_delay_max
    world.settle()
    assert world.resource["status"]["accepted"]["spec"] == EDITED


def test_without_a_driver_that_delivers_an_edit_is_applied_at_once(world: World) -> None:
    world.end_driver(Ending(ExitCode.HALTED, Failure(Reason.MALFORMED_RECORD, "in-0, offset 3")))
    check_with(world, EDITED, None)
    assert world.resource["status"]["accepted"]["spec"] == EDITED
    assert checks(world) == []


def test_an_edit_under_check_waits_also_when_the_driver_restarts_meanwhile(world: World) -> None:
    check_with(world, EDITED, None)
    world.kubernetes.stored["Pod", "p-0"]["status"]["conditions"] = []
    world.kubernetes.ready = False
    world.reconcile()
    assert world.resource["status"]["accepted"]["spec"] == SPEC


@pytest.mark.parametrize(
    "change",
    [
        {"suspend": True},
        {"suspend": True, "transform": EDITED["transform"]},
        {"spark": {"executor": {"instances": 2}}},
        {"trigger": {"interval": "2s"}},
        {"topics": [{"name": "in", "partitions": 3}, {"name": "out", "partitions": 2}]},
    ],
    ids=["suspended", "suspended with an edit", "executors", "trigger", "topics"],
)
def test_what_the_job_would_not_refuse_is_applied_without_a_check(world: World, change: dict[str, Any]) -> None:
    check_with(world, SPEC | change, None)
    assert world.resource["status"]["accepted"]["spec"] == SPEC | change


def test_an_image_that_does_not_exist_stops_no_driver_and_is_applied_when_it_is_there(world: World) -> None:
    before = driver(world)
    edit = SPEC | {"spark": {"image": "registry.example.com/job:2"}}
    check_with(world, edit, None)
    [pod] = checks(world)
    pod["status"]["containerStatuses"] = [{"name": "driver", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    world.reconcile()
    assert (world.condition("Stalled"), driver(world)) == ("True/ImageUnavailable", before)
    pod["status"] |= {"phase": "Pending", "containerStatuses": []}
    world.kubernetes.check_ending = Ending(0)
    world.reconcile()
    world.settle()
    assert world.resource["status"]["accepted"]["spec"] == edit


def test_a_check_for_which_there_is_no_node_delays_the_edit_and_does_not_prevent_it(world: World) -> None:
    check_with(world, EDITED, None)
    [pod] = checks(world)
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]
    world.reconcile()
    assert world.condition("Reconciling") == "True/CheckingEdit"
    world.seconds += OperatorSettings().settle
    world.settle()
    assert world.resource["status"]["accepted"]["spec"] == EDITED


@pytest.mark.parametrize("reason", [None, "Evicted"])
def test_a_check_that_ends_without_a_report_is_repeated_for_a_while(world: World, reason: str | None) -> None:
    check_with(world, EDITED, None)
    [pod] = checks(world)
    pod["status"] = {"phase": "Failed", "conditions": [], "reason": reason}
    world.reconcile()
    world.reconcile()
    [again] = checks(world)
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    world.seconds += OperatorSettings().settle
    again["status"] = {"phase": "Failed", "conditions": [], "reason": reason}
    world.reconcile()
    assert world.condition("Stalled") == "True/DeadlineExceeded"


def test_a_check_that_does_not_end_is_ended_and_refuses_the_edit(world: World) -> None:
    check_with(world, EDITED, None)
    [pod] = checks(world)
    assert pod["spec"]["activeDeadlineSeconds"] == OperatorSettings().settle
    terminated = {"exitCode": 137, "message": ""}
    pod["status"] = {
        "phase": "Failed",
        "conditions": [],
        "reason": "DeadlineExceeded",
        "containerStatuses": [{"name": "driver", "state": {"terminated": terminated}}],
    }
    world.reconcile()
    assert world.conditions("Ready", "Stalled") == ["True/Delivering", "True/DeadlineExceeded"]


def test_an_edit_for_which_the_state_is_of_another_query_is_refused_without_a_check() -> None:
    world = World(STATEFUL).settle()
    before = driver(world)
    other = {"sql": "SELECT origin AS key, CAST(max(at) AS STRING) AS value FROM source GROUP BY origin"}
    check_with(world, STATEFUL | {"transform": other}, Ending(0))
    assert world.conditions(*CHECKS) == ["True/Delivering", "True/Running", "False/Stalled", "True/InvalidTransform"]
    assert driver(world) == before
    assert checks(world) == []
    [message] = [c["message"] for c in world.resource["status"]["conditions"] if c["type"] == "Stalled"]
    assert "spec.transform.sql cannot change while the pipeline has state: the stored state is of the other" in message
    writes = len(world.kubernetes.writes)
    world.reconcile()
    assert world.kubernetes.writes[writes:] == [], "the same edit is refused again"
    check_with(world, STATEFUL, Ending(0))
    assert world.conditions(*CHECKS) == ["True/Delivering", "True/Running", "False/Settled", "False/NotStalled"]


def test_why_a_topic_cannot_be_removed_from_the_source_of_a_stateful_pipeline() -> None:
    two = {**STATEFUL["source"], "topics": ["in", "more"]}
    topics = [*SPEC["topics"], {"name": "more", "partitions": 1}]
    world = World(STATEFUL | {"source": two, "topics": topics}).settle()
    check_with(world, STATEFUL | {"topics": topics}, None)
    [message] = [c["message"] for c in world.resource["status"]["conditions"] if c["type"] == "Stalled"]
    assert "spec.source.topics cannot change" in message
    assert "the stored state has records of a topic that is removed" in message
