"""From any state, and wherever the operator is killed, steps reach the desired objects and never run two drivers.

With the cluster of drawn_workloads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright.planning.observed import DriverPod, EndedExecutor, Workload
from ackwright.planning.steps import DRIVERS, Apply, Delete, Finalizer, Situation, Step, contains, steps
from ackwright.planning.topic_steps import CreateTopics
from unit.fake_kubernetes import NOW, Object
from unit.planning.drawn_workloads import (
    ACCIDENTS,
    BOUNDED,
    DRIFT,
    EDITED,
    ENDLESS,
    PIPELINES,
    TOPIC,
    World,
    adds_fields,
    check_order,
    disturb,
    kills,
    numbers,
    rendered,
)


@settings(max_examples=100)
@given(
    history=st.lists(st.tuples(numbers, st.integers(0, 12), st.integers(0, 3)), max_size=2),
    drift=st.lists(
        st.tuples(
            st.sampled_from([o["kind"] for n in (ENDLESS, BOUNDED) for o in rendered(n)]), st.sampled_from(DRIFT)
        ),
        max_size=3,
    ),
    accidents=st.lists(st.sampled_from(ACCIDENTS), max_size=2, unique=True),
    desired=numbers,
    killed=kills,
    topics=st.booleans(),
    ready=st.booleans(),
)
def test_from_any_state_and_through_any_kills_the_desired_objects_are_reached(
    *,
    history: list[tuple[int, int, int]],
    drift: list[tuple[str, Callable[[Object], None]]],
    accidents: list[Callable[[World], None]],
    desired: int,
    killed: list[tuple[int, int]],
    topics: bool,
    ready: bool,
) -> None:
    world = World(topics)
    for number, count, rounds in history:
        world.take(world.todo(number)[:count])
        for _ in range(rounds):
            world.run()
    for kind, change in drift:
        disturb(world, kind, change)
    for accident in accidents:
        accident(world)
    # With a standby, an edit whose driver does not become ready leaves the old driver in place.
    world.ready = ready or bool(PIPELINES[desired].get("standby"))
    for count, rounds in killed:
        world.take(world.todo(desired)[:count])
        for _ in range(rounds):
            world.run()
    world.converge(desired)
    world.check_converged(desired)


@pytest.mark.parametrize("before", [None, *range(len(PIPELINES))])
@pytest.mark.parametrize("after", [ENDLESS, BOUNDED])
def test_a_change_interrupted_after_any_step_is_completed(before: int | None, after: int) -> None:
    start = World(topics=before is not None)
    if before is not None:
        start.converge(before)
    todo = start.todo(after)
    for count in range(len(todo) + 1):
        world = copy.deepcopy(start)
        world.take(todo[:count])
        world.converge(after)
        world.check_converged(after)


def test_a_converged_pipeline_gets_no_further_writes() -> None:
    world = World()
    world.converge(ENDLESS)
    writes = len(world.writes)
    world.converge(ENDLESS)
    assert len(world.writes) == writes


def test_fields_that_others_add_are_kept() -> None:
    world = World()
    world.converge(ENDLESS)
    disturb(world, "StatefulSet", adds_fields)
    world.converge(ENDLESS)
    pod = world.stored["StatefulSet", "p"]["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["containers"]] == ["driver", "another"]


# -- single decisions ------------------------------------------------------------------------------------------


def observed(number: int = ENDLESS, **pod: Any) -> Workload:
    """A workload with all rendered objects and one driver's pod."""
    children = {(o["kind"], o["metadata"]["name"]): copy.deepcopy(o) for o in rendered(number)}
    for o in children.values():
        o["metadata"]["uid"] = "u"
    children["StatefulSet", "p"]["status"] = {"updateRevision": "new"}
    fields: dict[str, Any] = {"ready": True, "revision": "new"} | pod
    return Workload(children, drivers=(DriverPod("p-0", "pod", **fields),))


def only(result: tuple[Step, ...]) -> Delete | None:
    assert len(result) <= 1
    for step in result:
        assert isinstance(step, Delete)
        return step
    return None


@pytest.mark.parametrize(
    ("pod", "situation", "why"),
    [
        ({}, {}, None),
        ({"ready": False}, {}, None),
        ({"ready": False, "revision": "old"}, {}, "older revision"),
        ({"ready": True, "revision": "old"}, {}, None),  # the StatefulSet replaces it
        ({}, {"stuck": True}, "no progress"),
        ({"ready": False}, {"retry_now": True}, "back-off"),
        ({"deleting": True}, {"stuck": True, "retry_now": True}, None),
        ({"deleting": True, "node_lost": True}, {}, "does not answer"),
        ({"deleting": True, "node_lost": True}, {"fences": False}, None),
        ({"deleting": True}, {"overdue": {"pod"}}, "does not answer"),
        ({"deleting": True}, {"overdue": {"another"}}, None),  # the pod has a separate deadline
    ],
)
def test_the_drivers_pod_is_deleted_only_if_no_controller_does_it(
    pod: dict[str, Any], situation: dict[str, Any], why: str | None
) -> None:
    result = only(steps(rendered(ENDLESS), observed(**pod), Situation(may_start=True, **situation)))
    assert (result is None) == (why is None)
    if result is not None and why is not None:
        assert why in result.why
        assert (result.kind, result.name, result.uid) == ("Pod", "p-0", "pod")
        assert result.grace_seconds == (0 if pod.get("deleting") else None), (
            "only a node that is lost is not waited for"
        )


def present(number: int) -> Workload:
    return Workload(
        {(o["kind"], o["metadata"]["name"]): o | {"metadata": o["metadata"] | {"uid": "u"}} for o in rendered(number)}
    )


def kind_of(step: Step) -> str:
    """The kind of the object that the step writes or deletes."""
    assert isinstance(step, Apply | Delete)
    return step.kind if isinstance(step, Delete) else str(step.desired["kind"])


def test_a_driver_of_another_kind_is_deleted_before_the_new_one_is_created() -> None:
    result = steps(rendered(BOUNDED), present(ENDLESS), Situation(may_start=True))
    drivers = [s for s in result if kind_of(s) in DRIVERS]
    assert [str(s) for s in drivers] == ["delete StatefulSet p (another kind runs the pipeline now)"]


@pytest.mark.parametrize(
    ("after", "expected"),
    [(5, "apply Job p (changed)"), (3, "delete Job p (a Job's pod template is immutable, so the Job is recreated)")],
)
def test_a_job_is_suspended_in_place_and_recreated_for_any_other_change(after: int, expected: str) -> None:
    result = steps(rendered(after), present(BOUNDED), Situation(may_start=True))
    assert expected in [str(s) for s in result]


def test_objects_that_are_being_deleted_are_awaited() -> None:
    leaving = {"deletionTimestamp": NOW, "annotations": {}}
    children = {k: {**o, "metadata": o["metadata"] | leaving} for k, o in present(EDITED).children.items()}
    assert {type(s) for s in steps(rendered(EDITED), Workload(children), Situation(may_start=True))} == set()


def test_ended_executors_are_deleted() -> None:
    there = observed()
    swept = Workload(there.children, drivers=there.drivers, ended=(EndedExecutor("e", "u"),))
    result = only(steps(rendered(ENDLESS), swept, Situation(may_start=True)))
    assert result == Delete("v1", "Pod", "e", "u", "an executor that has ended")


def test_no_driver_is_created_before_kafka_is_ready() -> None:
    result = steps(rendered(ENDLESS), Workload(), Situation(may_start=False))
    assert {s.desired["kind"] for s in result if isinstance(s, Apply)} == {o["kind"] for o in rendered(ENDLESS)} - set(
        DRIVERS
    )


def test_the_finalizer_is_set_before_topics_are_created() -> None:
    result = steps(
        rendered(ENDLESS), Workload(), Situation(may_start=True, topics=(CreateTopics((TOPIC,)),), finalizer=True)
    )
    assert result[:2] == (Finalizer(True), CreateTopics((TOPIC,)))
    check_order(result)


@pytest.mark.parametrize(
    ("present", "desired", "there"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        ({"a": None}, {"a": {}}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": [1]}, {"a": (1,)}, True),
        ({"a": "1"}, {"a": ["1"]}, False),
        ({"rules": [{"verbs": ["get"], "x": 1}]}, {"rules": [{"verbs": ["get"]}]}, True),
        ({"subjects": [{"name": "a"}, {"name": "b"}]}, {"subjects": [{"name": "a"}]}, False),
        ({"env": [{"name": "b"}, {"name": "a", "value": "1"}]}, {"env": [{"name": "a", "value": "1"}]}, True),
        ({"env": [{"name": "a", "value": "2"}]}, {"env": [{"name": "a", "value": "1"}]}, False),
        ({"env": [{"name": "b"}]}, {"env": [{"name": "a"}]}, False),
        (
            {"volumeMounts": [{"name": "t", "mountPath": "/x"}]},
            {"volumeMounts": [{"name": "t", "mountPath": "/y"}]},
            False,
        ),
    ],
)
def test_only_a_changed_or_missing_desired_field_is_drift(present: Any, desired: Any, *, there: bool) -> None:
    assert contains(present, desired) is there
