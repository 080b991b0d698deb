"""Pipelines in a cluster in memory, accidents that change their objects, and checks of each step before it is applied.

With the cluster of unit.fake_kubernetes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ackwright.api.spec import parse
from ackwright.apply import objects as apply
from ackwright.observe.workload import workload
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
    {"standby": True},
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
    return objects(pipeline, plan(pipeline), UID, OperatorSettings(), identity=UID)


class World(FakeKubernetes):
    """A cluster, brokers with or without the topic, and an operator."""

    def __init__(self, topics: bool = True) -> None:
        super().__init__()
        self.topics = topics

    def todo(self, number: int, **situation: Any) -> tuple[Step, ...]:
        create = () if self.topics else (CreateTopics((TOPIC,)),)
        return steps(
            rendered(number), workload(self.children(), UID), Situation(may_start=True, topics=create, **situation)
        )

    def take(self, todo: tuple[Step, ...]) -> None:
        """Checks and applies each step."""
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
        assert not [k for k, _ in self.stored if k in DRIVERS and k != kind], "two workloads that create drivers"
        assert (kind, "p") in self.stored or not self.drivers(), "a second driver while the first may still run"

    def _check_delete(self, step: Delete) -> None:
        assert step.kind != "PersistentVolumeClaim"
        mounted = [v["configMap"]["name"] for p in self.pods() for v in p["spec"]["volumes"] if "configMap" in v]
        assert step.kind != "ConfigMap" or step.name not in mounted, "the configuration of an existing pod"

    def check_converged(self, number: int) -> None:
        desired = rendered(number)
        for o in desired:
            assert contains(self.stored[o["kind"], o["metadata"]["name"]], o)
        keys = {(o["kind"], o["metadata"]["name"]) for o in desired}
        assert {k for k in self.stored if k not in keys and k[0] not in ("Pod", "PersistentVolumeClaim")} == set()
        suspended, standby = (PIPELINES[number].get(switch, False) for switch in ("suspend", "standby"))
        assert len(self.pods()) == (0 if suspended else 2 if standby else 1)
        for pod in self.pods():
            config = next(v["configMap"]["name"] for v in pod["spec"]["volumes"] if "configMap" in v)
            assert config in {o["metadata"]["name"] for o in desired}, "the driver runs the current configuration"


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


def adds_fields(o: Object) -> None:
    if o["kind"] == "StatefulSet":
        pod = o["spec"]["template"]["spec"]
        pod["containers"].append({"name": "another", "image": "i"})
        pod["containers"][0]["env"].append({"name": "ANOTHER", "value": "1"})
        pod["volumes"].append({"name": "another", "emptyDir": {}})
    o["metadata"]["annotations"] |= {"another": "1"}


def _deletes(_: Object) -> None: ...


def leftover(world: World, uid: str = UID, kind: str = "ConfigMap", **meta: Any) -> None:
    """Stores an object with the pipeline's label that is not rendered."""
    result = copy.deepcopy(next(o for o in rendered(ENDLESS) if o["kind"] == kind))
    result["metadata"] |= {"ownerReferences": [{"uid": uid}], "uid": f"of-{uid}-{kind}", "resourceVersion": "1", **meta}
    result["metadata"]["annotations"] = {}
    world.stored.setdefault((kind, result["metadata"]["name"]), result)


def _earlier_pipeline(world: World) -> None:
    if not any(kind in DRIVERS for kind, _ in world.stored):  # an earlier pipeline cannot come later
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


DRIFT = (_relabels, _forgets_the_hash, _changes, adds_fields, _deletes)
ACCIDENTS = (_earlier_pipeline, _old_config, _pod_is_deleted, _node_is_lost, _pod_is_not_ready, _executor_ended)
numbers = st.integers(0, len(PIPELINES) - 1)
# Number of steps before each kill, and rounds of the controllers after it.
kills = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=4)


def disturb(world: World, kind: str, drift: Callable[[Object], None]) -> None:
    for key, result in list(world.stored.items()):
        if key[0] == kind and drift is _deletes:
            world.vanish(*key)
        elif key[0] == kind:
            drift(result)
