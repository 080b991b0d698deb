"""From any state, and wherever the operator is killed, the steps lead to the desired objects, and never to two drivers.

With the cluster of unit.fake_kubernetes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright.api.spec import parse
from ackwright.apply import objects as apply
from ackwright.observe.workload import workload
from ackwright.planning.observed import DriverPod, EndedExecutor, Workload
from ackwright.planning.plan import plan
from ackwright.planning.steps import DRIVERS, Apply, Delete, Finalizer, Situation, Step, contains, steps
from ackwright.planning.topic_steps import CreateTopics
from ackwright.planning.topics import TopicPlan
from ackwright.render.names import ROLE_LABEL
from ackwright.render.workload import objects
from ackwright.settings import OperatorSettings
from unit.fake_kubernetes import NOW, FakeKubernetes, Object

UID, NAMESPACE = "uid-of-the-pipeline", "ops"
TOPIC = TopicPlan("t", 1, 1, "because", ())
SPEC: dict[str, Any] = {
    "guarantee": "exactly-once",
    "kafka": {"bootstrapServers": "k:9092"},
    "source": {"topics": ["in"]},
    "transform": {"sql": "SELECT * FROM source"},
    "sink": {"kafka": {"topic": "out"}},
}
SECURED = {
    "bootstrapServers": "k:9092",
    "auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": "user"}},
    "tls": {"caSecret": {"name": "ca"}},
}
PIPELINES: tuple[dict[str, Any], ...] = (
    {},
    {"transform": {"sql": "SELECT 1 AS value"}},
    {"trigger": {"availableNow": True}},
    {"trigger": {"availableNow": True}, "transform": {"sql": "SELECT 1 AS value"}},
    {"suspend": True},
    {"suspend": True, "trigger": {"availableNow": True}},
    {"checkpoint": {"volume": {"size": "1Gi"}}},
    {"kafka": SECURED},
)
ENDLESS, EDITED, BOUNDED = 0, 1, 2


@cache
def rendered(number: int) -> tuple[Object, ...]:
    metadata = {"name": "p", "namespace": NAMESPACE}
    document = {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": metadata,
        "spec": SPEC | PIPELINES[number],
    }
    pipeline = parse(document)
    return objects(pipeline, plan(pipeline), UID, OperatorSettings())


class World(FakeKubernetes):
    """A cluster, brokers without the topic, and an operator. `take` checks each step before it takes it."""

    def __init__(self, topics: bool = True) -> None:
        super().__init__()
        self.topics = topics

    def todo(self, number: int, **situation: Any) -> tuple[Step, ...]:
        create = () if self.topics else (CreateTopics((TOPIC,)),)
        return steps(
            rendered(number), workload(self.children(), UID), Situation(may_start=True, topics=create, **situation)
        )

    def take(self, todo: tuple[Step, ...]) -> None:
        for step in todo:
            if isinstance(step, CreateTopics):
                self.topics = True
            elif isinstance(step, Apply):
                self._check_apply(step)
                apply.apply(self, step)
            elif isinstance(step, Delete):
                self._check_delete(step)
                apply.delete(self, NAMESPACE, step)

    def converge(self, number: int) -> None:
        for _ in range(40):
            todo = self.todo(number)
            check_order(todo)
            self.take(todo)
            if not self.run() and not todo:
                return
        raise AssertionError(f"still to do: {[str(s) for s in todo]}")

    def drivers(self) -> list[Object]:
        return [p for p in self.pods() if p["metadata"]["labels"][ROLE_LABEL] == "driver"]

    def _check_apply(self, step: Apply) -> None:
        kind = step.desired["kind"]
        if kind not in DRIVERS:
            return
        assert self.topics, "a driver before its topics"
        assert not [k for k, _ in self.stored if k in DRIVERS and k != kind], "two workloads that make drivers"
        assert (kind, "p") in self.stored or not self.drivers(), "a second driver while the first may live"

    def _check_delete(self, step: Delete) -> None:
        assert step.kind != "PersistentVolumeClaim"
        mounted = [v["configMap"]["name"] for p in self.pods() for v in p["spec"]["volumes"] if "configMap" in v]
        assert step.kind != "ConfigMap" or step.name not in mounted, "a living pod's configuration"

    def check_converged(self, number: int) -> None:
        desired = rendered(number)
        for o in desired:
            assert contains(self.stored[o["kind"], o["metadata"]["name"]], o)
        keys = {(o["kind"], o["metadata"]["name"]) for o in desired}
        assert {k for k in self.stored if k not in keys and k[0] not in ("Pod", "PersistentVolumeClaim")} == set()
        suspended = PIPELINES[number].get("suspend", False)
        assert len(self.pods()) == (0 if suspended else 1)
        for pod in self.pods():
            config = next(v["configMap"]["name"] for v in pod["spec"]["volumes"] if "configMap" in v)
            assert config in {o["metadata"]["name"] for o in desired}, "the driver is of the present rendering"


def check_order(todo: tuple[Step, ...]) -> None:
    rank: dict[type, Callable[[Any], int]] = {
        Finalizer: lambda _: 0,
        CreateTopics: lambda _: 1,
        Apply: lambda s: 3 if s.desired["kind"] in DRIVERS else 2,
        Delete: lambda _: 4,
    }
    ranks = [rank[type(step)](step) for step in todo]
    assert ranks == sorted(ranks), [str(s) for s in todo]


# -- changes by others to a pipeline's objects -----------------------------------------------------------------


def _relabels(o: Object) -> None:
    o["metadata"]["labels"]["app.kubernetes.io/name"] = "other"


def _forgets_the_hash(o: Object) -> None:
    o["metadata"]["annotations"].clear()


def _changes(o: Object) -> None:
    template = o.get("spec", {}).get("template")
    if o["kind"] == "StatefulSet":
        o["spec"]["replicas"] = 1 - o["spec"]["replicas"]
        template["spec"]["containers"][0]["args"].append("--more")
    elif o["kind"] == "Job":
        o["spec"]["suspend"] = not o["spec"]["suspend"]
    elif o["kind"] == "RoleBinding":
        o["subjects"].append({"kind": "ServiceAccount", "name": "another", "namespace": NAMESPACE})
    elif o["kind"] == "ConfigMap" and not o.get("immutable"):
        o["data"]["producer.properties"] = "acks=0\n"


def _adds(o: Object) -> None:
    if o["kind"] == "StatefulSet":
        pod = o["spec"]["template"]["spec"]
        pod["containers"].append({"name": "another", "image": "i"})
        pod["containers"][0]["env"].append({"name": "ANOTHER", "value": "1"})
        pod["volumes"].append({"name": "another", "emptyDir": {}})
    o["metadata"]["annotations"] |= {"another": "1"}


def _deletes(_: Object) -> None: ...


def leftover(world: World, uid: str = UID, kind: str = "ConfigMap", **meta: Any) -> None:
    """An object with the pipeline's label that no rendering has."""
    result = copy.deepcopy(next(o for o in rendered(ENDLESS) if o["kind"] == kind))
    result["metadata"] |= {"ownerReferences": [{"uid": uid}], "uid": f"of-{uid}-{kind}", "resourceVersion": "1", **meta}
    result["metadata"]["annotations"] = {}
    world.stored.setdefault((kind, result["metadata"]["name"]), result)


def _earlier_pipeline(world: World) -> None:
    if not any(kind in DRIVERS for kind, _ in world.stored):  # it was there first
        for kind in ("StatefulSet", "Role"):
            leftover(world, uid="earlier", kind=kind, deletionTimestamp=NOW)


def _old_config(world: World) -> None:
    leftover(world, name="p-job-0000000000")


def _pod_is_deleted(world: World) -> None:
    for pod in world.drivers():
        pod["metadata"]["deletionTimestamp"] = NOW


def _node_is_lost(world: World) -> None:
    for pod in world.drivers():
        world.lose_node(pod["metadata"]["name"])


def _pod_is_not_ready(world: World) -> None:
    for pod in world.drivers():
        pod["status"]["conditions"] = [c for c in pod["status"]["conditions"] if c["type"] != "Ready"]


def _executor_ended(world: World) -> None:
    labels = {ROLE_LABEL: "executor"}
    owner = [{"uid": "driver"}]
    meta = {"name": "exec-1", "uid": "exec-1", "labels": labels, "ownerReferences": owner}
    world.stored["Pod", "exec-1"] = {
        "kind": "Pod",
        "metadata": meta,
        "spec": {"volumes": []},
        "status": {"phase": "Failed"},
    }


DRIFT = (_relabels, _forgets_the_hash, _changes, _adds, _deletes)
ACCIDENTS = (_earlier_pipeline, _old_config, _pod_is_deleted, _node_is_lost, _pod_is_not_ready, _executor_ended)
numbers = st.integers(0, len(PIPELINES) - 1)
kills = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=4
)  # steps taken, rounds of the controllers after them


def disturb(world: World, kind: str, drift: Callable[[Object], None]) -> None:
    for key, result in list(world.stored.items()):
        if key[0] == kind and drift is _deletes:
            world.vanish(*key)
        elif key[0] == kind:
            drift(result)


@settings(max_examples=100, deadline=None)
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
def test_from_any_state_and_through_any_kills_to_what_is_declared(
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
    for number, taken, rounds in history:
        world.take(world.todo(number)[:taken])
        for _ in range(rounds):
            world.run()
    for kind, change in drift:
        disturb(world, kind, change)
    for accident in accidents:
        accident(world)
    world.ready = ready
    for taken, rounds in killed:
        world.take(world.todo(desired)[:taken])
        for _ in range(rounds):
            world.run()
    world.converge(desired)
    world.check_converged(desired)


@pytest.mark.parametrize("before", [None, *range(len(PIPELINES))])
@pytest.mark.parametrize("after", [ENDLESS, BOUNDED])
def test_every_interrupted_prefix_of_a_change_is_brought_to_its_end(before: int | None, after: int) -> None:
    start = World(topics=before is not None)
    if before is not None:
        start.converge(before)
    whole = start.todo(after)
    for taken in range(len(whole) + 1):
        world = copy.deepcopy(start)
        world.take(whole[:taken])
        world.converge(after)
        world.check_converged(after)


def test_nothing_is_done_twice() -> None:
    world = World()
    world.converge(ENDLESS)
    writes = len(world.writes)
    world.converge(ENDLESS)
    assert len(world.writes) == writes


def test_what_others_add_stays_and_is_not_fought_over() -> None:
    world = World()
    world.converge(ENDLESS)
    disturb(world, "StatefulSet", _adds)
    world.converge(ENDLESS)
    pod = world.stored["StatefulSet", "p"]["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["containers"]] == ["driver", "another"]


# -- single decisions ------------------------------------------------------------------------------------------


def observed(number: int = ENDLESS, **pod: Any) -> Workload:
    """Everything in place, and one driver's pod."""
    children = {(o["kind"], o["metadata"]["name"]): copy.deepcopy(o) for o in rendered(number)}
    for o in children.values():
        o["metadata"]["uid"] = "u"
    children["StatefulSet", "p"]["status"] = {"updateRevision": "new"}
    return Workload(children, drivers=(DriverPod("p-0", "pod", **{"ready": True, "revision": "new"} | pod),))


def only(result: tuple[Step, ...]) -> Delete | None:
    assert len(result) <= 1
    assert not result or isinstance(result[0], Delete)
    return next(iter(result), None)  # type: ignore[return-value]


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
        ({"deleting": True}, {"overdue": {"another"}}, None),  # it has its own time to drain
    ],
)
def test_a_pod_is_removed_when_nobody_else_does_it(
    pod: dict[str, Any], situation: dict[str, Any], why: str | None
) -> None:
    result = only(steps(rendered(ENDLESS), observed(**pod), Situation(may_start=True, **situation)))
    assert (result is None) == (why is None)
    if result is not None:
        assert why in result.why
        assert (result.kind, result.name, result.uid) == ("Pod", "p-0", "pod")
        assert result.grace_seconds == (0 if pod.get("deleting") else None), (
            "only a node that is lost is not waited for"
        )


def present(number: int) -> Workload:
    return Workload(
        {(o["kind"], o["metadata"]["name"]): o | {"metadata": o["metadata"] | {"uid": "u"}} for o in rendered(number)}
    )


def test_the_other_kind_of_driver_goes_first_and_alone() -> None:
    result = steps(rendered(BOUNDED), present(ENDLESS), Situation(may_start=True))
    # type: ignore[union-attr]
    drivers = [s for s in result if (s.kind if isinstance(s, Delete) else s.desired["kind"]) in DRIVERS]
    assert [str(s) for s in drivers] == ["delete StatefulSet p (another kind runs the pipeline now)"]


@pytest.mark.parametrize(
    ("after", "expected"),
    [(5, "apply Job p (changed)"), (3, "delete Job p (a Job's pod template is immutable, so the Job is recreated)")],
)
def test_a_job_is_suspended_in_place_and_made_anew_for_all_else(after: int, expected: str) -> None:
    result = steps(rendered(after), present(BOUNDED), Situation(may_start=True))
    assert expected in [str(s) for s in result]


def test_what_is_on_its_way_out_is_waited_for() -> None:
    there = present(EDITED)
    for o in there.children.values():
        o["metadata"] |= {"deletionTimestamp": NOW, "annotations": {}}
    assert {type(s) for s in steps(rendered(EDITED), there, Situation(may_start=True))} == set()


def test_ended_executors_are_swept() -> None:
    there = observed()
    swept = Workload(there.children, drivers=there.drivers, ended=(EndedExecutor("e", "u"),))
    result = only(steps(rendered(ENDLESS), swept, Situation(may_start=True)))
    assert result == Delete("v1", "Pod", "e", "u", "an executor that has ended")


def test_no_driver_before_kafka_is_fit_for_it() -> None:
    result = steps(rendered(ENDLESS), Workload(), Situation(may_start=False))
    assert {s.desired["kind"] for s in result if isinstance(s, Apply)} == {o["kind"] for o in rendered(ENDLESS)} - set(
        DRIVERS
    )


def test_the_finalizer_comes_before_the_topics_that_it_is_for() -> None:
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
def test_what_counts_as_drift(present: Any, desired: Any, *, there: bool) -> None:
    assert contains(present, desired) is there
