"""The controller of one shard: it reconciles the pipelines of its namespaces, and knows what those of others share."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from ackwright.clients.kubernetes import Kubernetes
from ackwright.controller import CHILDREN, Controller
from ackwright.render.names import PIPELINE_LABEL, ROLE_LABEL
from ackwright.settings import OperatorSettings
from ackwright.shards import Shard
from unit.world import SPEC

SHARD = Shard(1, 2)
OURS, THEIRS = (
    next(n for i in range(99) if SHARD.owns(n := f"team-{i}") is owned) for owned in (True, False)
)  # namespaces
KEY, OTHER = (OURS, "p"), (THEIRS, "older")


def pipeline(namespace: str, name: str, created: str, version: str = "1", generation: int = 1) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": version}
    spec = copy.deepcopy(SPEC)
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {**meta, "generation": generation, "creationTimestamp": created},
        "spec": spec | {"source": {**spec["source"], "groupId": f"{OURS}.shared"}},
        "status": {"delivery": {"lag": 7}},
    }


def pod(namespace: str, name: str) -> dict[str, Any]:
    meta = {"name": f"{name}-0", "namespace": namespace, "uid": f"uid-{name}-0", "resourceVersion": "1"}
    labels = {PIPELINE_LABEL: name, ROLE_LABEL: "driver"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "labels": labels}}


class Adds(list[Any]):
    """A worklist that only records what is added."""

    def add(self, key: Any, delay: float = 0.0) -> None:
        self.append(key)

    def forget(self, key: Any) -> None: ...


def new_controller(settings: OperatorSettings) -> Controller:
    controller = Controller(cast(Kubernetes, object()), settings)
    controller.worklist = cast(Any, Adds())
    return controller


def added(controller: Controller) -> list[Any]:
    return cast(Any, controller.worklist)  # type: ignore[no-any-return]


@pytest.fixture
def controller() -> Controller:
    """With one pipeline, and an older one of another shard."""
    controller = new_controller(OperatorSettings(shard=SHARD, allow_any_group=True))
    controller.replace_pipelines(None, [pipeline(*KEY, "2026-11-22"), pipeline(*OTHER, "2026-11-21")])
    return controller


def test_only_pipelines_of_its_own_namespaces_are_reconciled(controller: Controller) -> None:
    assert added(controller) == [KEY]
    assert set(controller.pipelines) == {KEY}
    controller.update_pipeline("MODIFIED", pipeline(*OTHER, "2026-11-21", "2", generation=2))
    assert added(controller) == [KEY]


def test_objects_of_other_shards_are_not_kept(controller: Controller) -> None:
    controller.replace_children("Pod", None, [pod(*KEY), pod(*OTHER)])
    controller.update_child("ADDED", pod(*OTHER))
    assert set(controller.children) == {KEY}


def test_an_older_pipeline_of_another_shard_owns_its_group(controller: Controller) -> None:
    ours = controller.pipelines[KEY]
    assert controller._index.group_owner(ours) == "of another namespace"
    controller.worklist = cast(Any, Adds())
    controller.update_pipeline("DELETED", pipeline(*OTHER, "2026-11-21"))
    assert controller._index.group_owner(ours) is None
    assert added(controller) == [KEY], "it may have waited for the group"


def test_a_list_takes_pipelines_of_other_shards_that_are_gone(controller: Controller) -> None:
    controller.replace_pipelines(THEIRS, [])
    assert controller._index.group_owner(controller.pipelines[KEY]) is None
    assert set(controller.pipelines) == {KEY}


def test_the_status_of_a_pipeline_of_another_shard_takes_no_memory(controller: Controller) -> None:
    known = controller._others[OTHER]
    assert known["status"] == {"accepted": None}
    controller.update_pipeline("MODIFIED", pipeline(*OTHER, "2026-11-21", "2"))
    assert controller._others[OTHER] is known, "only its status has changed"


def test_the_accepted_spec_of_a_pipeline_of_another_shard_is_known(controller: Controller) -> None:
    """An edit of it that was refused has no effect. That it is accepted later changes no generation."""
    edited, ours = pipeline(*OTHER, "2026-11-21", "2"), controller.pipelines[KEY]
    elsewhere = {**edited["spec"], "kafka": {"bootstrapServers": "other:9092"}}
    edited["status"] |= {"accepted": {"spec": elsewhere}}
    controller.update_pipeline("MODIFIED", edited)
    assert controller._index.group_owner(ours) is None
    accepted = pipeline(*OTHER, "2026-11-21", "3")
    accepted["status"] |= {"accepted": {"spec": accepted["spec"]}}
    controller.update_pipeline("MODIFIED", accepted)
    assert controller._index.group_owner(ours) == "of another namespace"


def test_children_are_watched_in_its_own_namespaces_and_pipelines_in_all() -> None:
    controller = new_controller(OperatorSettings(shard=SHARD, namespaces=(OURS, THEIRS)))
    targets = controller._watches._targets
    assert {namespace for _, kind, namespace in targets if kind == "DeliveryPipeline"} == {OURS, THEIRS}
    assert {namespace for _, kind, namespace in targets if kind != "DeliveryPipeline"} == {OURS}
    assert len(targets) == 2 + len(CHILDREN)
    everywhere = new_controller(OperatorSettings(shard=SHARD))._watches._targets
    assert {namespace for _, _, namespace in everywhere} == {None}


def test_a_lost_namespace_of_another_shard_is_that_ones_matter() -> None:
    controller = new_controller(OperatorSettings(shard=SHARD, namespaces=(OURS, THEIRS)))
    controller.update_lost(THEIRS, "DeliveryPipeline", "it is deleted")
    assert controller.lost.by_namespace() == {OURS: False}


def test_the_metrics_have_the_number_of_shards(controller: Controller) -> None:
    text = generate_latest(controller._metrics.registry).decode()
    assert "\nackwright_operator_shards 2.0\n" in text
    assert OTHER[1] not in text
