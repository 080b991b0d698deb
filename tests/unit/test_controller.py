"""How the controller handles events of the watches."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from ackwright.clients.attempts import ConnectionBusy
from ackwright.clients.fence import Fence, Fenced
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.controller import Controller
from ackwright.lease import ENDED_S, WRITABLE_S
from ackwright.render.names import PIPELINE_LABEL, ROLE_LABEL
from ackwright.settings import OperatorSettings
from ackwright.worklist import Postponed, Worklist
from unit.world import SPEC

KEY = ("ops", "p")


def child(
    name: str = "p-0",
    version: str = "1",
    *,
    uid: str | None = None,
    kind: str = "Pod",
    namespace: str = "ops",
    **more: Any,
) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": version,
    }
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {**meta, "labels": {PIPELINE_LABEL: "p", ROLE_LABEL: "driver"}},
        **more,
    }


def pipeline(version: str = "1") -> dict[str, Any]:
    meta = {
        "name": "p",
        "namespace": "ops",
        "uid": "u",
        "resourceVersion": version,
        "creationTimestamp": "2026-11-22T00:00:00Z",
    }
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": meta,
        "spec": copy.deepcopy(SPEC),
    }


class Adds(list[Any]):
    """A worklist that only records what is added."""

    def add(self, key: Any, delay: float = 0.0) -> None:
        self.append(key)

    def forget(self, key: Any) -> None: ...


@pytest.fixture
def controller() -> Controller:
    controller_ = Controller(cast(Kubernetes, object()), OperatorSettings())
    controller_.worklist = cast(Any, Adds())
    controller_.update_pipeline(None, pipeline())
    cast(Any, controller_.worklist).clear()
    return controller_


def added(controller: Controller) -> int:
    """How often the pipeline was added since it was asked last."""
    worklist = cast(Any, controller.worklist)
    assert set(worklist) <= {KEY}
    number = len(worklist)
    worklist.clear()
    return number


def names(controller: Controller) -> list[str]:
    return sorted(name for _, name in controller.children.get(KEY, {}))


def test_what_changes_is_news_once(controller: Controller) -> None:
    for version, news in (("1", 1), ("1", 0), ("2", 1)):
        controller.update_child("ADDED", child(version=version))
        assert added(controller) == news
        controller.update_pipeline("MODIFIED", pipeline(version))
        assert added(controller) == (version == "2")


def test_a_list_brings_what_is_new_and_takes_what_is_gone(controller: Controller) -> None:
    controller.replace_children("Pod", None, [child("a"), child("b")])
    controller.replace_children("ConfigMap", None, [child("c", kind="ConfigMap")])
    added(controller)
    controller.replace_children("Pod", None, [child("b"), child("d")])
    assert names(controller) == ["b", "c", "d"], "another kind stays"
    assert added(controller) == 2
    controller.replace_children("Pod", "elsewhere", [])
    assert names(controller) == ["b", "c", "d"], "it was a list of another namespace"
    controller.replace_children("Pod", "ops", [])
    controller.replace_children("ConfigMap", "ops", [])
    assert KEY not in controller.children


def test_one_of_the_same_name_is_another(controller: Controller) -> None:
    controller.replace_children("Pod", None, [child(uid="first")])
    controller.replace_children("Pod", None, [child(uid="second")])
    assert controller.children[KEY]["Pod", "p-0"]["metadata"]["uid"] == "second"


def test_of_executors_only_the_end_matters(controller: Controller) -> None:
    executor = child("e")
    executor["metadata"]["labels"] = {PIPELINE_LABEL: "p", ROLE_LABEL: "executor"}
    controller.update_child("ADDED", executor)
    assert added(controller) == 0
    ended = copy.deepcopy(executor)
    ended["metadata"]["resourceVersion"], ended["status"] = "2", {"phase": "Failed"}
    controller.update_child("MODIFIED", ended)
    assert added(controller) == 1
    controller.update_child("DELETED", ended)
    assert (added(controller), names(controller)) == (0, [])


@pytest.mark.parametrize(("status", "counted"), [(409, 0), (503, 1)])
def test_what_somebody_else_has_changed_meanwhile_is_no_error(
    controller: Controller, status: int, counted: int
) -> None:
    class Refusing:
        def reconcile(self, *_: Any) -> float:
            raise ApiError(status, "PUT p/status failed")

    async def reconcile() -> None:
        with contextlib.suppress(ApiError):
            await controller._reconcile(KEY)

    controller._reconciler = cast(Any, Refusing())
    asyncio.run(reconcile())
    assert (
        sum(s.value for m in controller._metrics.errors.collect() for s in m.samples if s.name.endswith("_total"))
        == counted
    )


def test_conflicts_are_counted_and_wait_for_longer_each_time(controller: Controller) -> None:
    """Two writers that answer each other's writes at once would keep a worker busy for good."""
    conflicting = True

    class Reconciler:
        def reconcile(self, *_: Any) -> float:
            if conflicting:
                raise ApiError(409, "PUT p/status failed")
            return 30.0

    async def reconcile() -> float:
        return await controller._reconcile(KEY) or 0.0

    controller._reconciler = cast(Any, Reconciler())
    first, *_, last = [asyncio.run(reconcile()) for _ in range(9)]
    assert 0.25 <= first <= 0.5
    assert 15 <= last <= 30
    [counted] = [
        s.value for m in controller._metrics.conflicts.collect() for s in m.samples if s.name.endswith("_total")
    ]
    assert counted == 9
    conflicting = False
    asyncio.run(reconcile())
    conflicting = True
    assert asyncio.run(reconcile()) <= 0.5, "a success ends the series"


def test_an_operator_whose_workers_never_become_free_is_unhealthy(controller: Controller) -> None:
    seconds = 0.0
    controller.worklist = Worklist(lambda: seconds)
    assert controller.healthy()
    controller.worklist.add(KEY)
    seconds = 299.0
    assert controller.healthy()
    seconds = 301.0
    assert not controller.healthy()
    assert controller.sentinel.healthy(), "the control: the watches are alive, which was all that counted"


def test_a_pipeline_whose_cluster_keeps_other_workers_waiting_is_postponed_for_longer_each_time(
    controller: Controller,
) -> None:
    class Busy:
        def reconcile(self, *_: Any) -> float:
            raise ConnectionBusy

    class Free:
        def reconcile(self, *_: Any) -> float:
            return 10.0

    async def postponed() -> float | None:
        try:
            await controller._reconcile(KEY)
        except Postponed as e:
            return e.seconds
        return None

    controller._reconciler = cast(Any, Busy())
    for longest in (1.0, 2.0, 4.0, 8.0, 16.0, 16.0):
        seconds = asyncio.run(postponed())
        assert seconds is not None
        assert longest / 2 <= seconds <= longest
    controller._reconciler = cast(Any, Free())
    assert asyncio.run(postponed()) is None
    controller._reconciler = cast(Any, Busy())
    assert (asyncio.run(postponed()) or 99) <= 1.0
    assert not [s for m in controller._metrics.errors.collect() for s in m.samples], "it is no error"


def test_nothing_is_done_in_a_lost_namespace_until_all_kinds_are_listed_again() -> None:
    """An object that cannot be listed must not count as missing."""
    created: list[dict[str, Any]] = []

    class Server:
        def create(self, desired: dict[str, Any]) -> None:
            created.append(desired)

    controller = Controller(cast(Kubernetes, Server()), OperatorSettings(namespaces=("ops", "other")))
    controller.worklist = cast(Any, Adds())
    controller.update_pipeline(None, pipeline())
    added(controller)

    def samples() -> str:
        return generate_latest(controller._metrics.registry).decode()

    controller.update_lost("ops", "Pod", "pods is forbidden")
    controller.update_lost("ops", "Role", "roles is forbidden")
    assert asyncio.run(controller._reconcile(KEY)) is None
    assert 'ackwright_namespace_lost{namespace="ops"} 1.0' in samples()
    assert 'ackwright_namespace_lost{namespace="other"} 0.0' in samples()
    controller.update_lost("ops", "Pod", None)
    assert added(controller) == 0
    assert "ops" in controller.lost
    controller.update_lost("ops", "Role", None)
    assert added(controller) == 1
    assert 'ackwright_namespace_lost{namespace="ops"} 0.0' in samples()
    controller._own_threads.shutdown(wait=True)
    assert [(e["type"], e["reason"]) for e in created] == [("Warning", "NamespaceLost"), ("Normal", "NamespaceBack")]
    assert "pods is forbidden" in created[0]["message"]


def test_in_a_lost_namespace_deletions_are_completed_while_pipelines_are_listed() -> None:
    """As when a namespace is deleted: the operator's Role is gone, and the pipeline waits for its finalizer."""
    finished: list[str] = []

    class Finishing:
        def finish_in_lost_namespace(self, resource: dict[str, Any]) -> float:
            finished.append(resource["metadata"]["name"])
            return 2.0

    controller = Controller(cast(Kubernetes, object()), OperatorSettings(namespaces=("ops",)))

    def reconcile() -> float | None:
        return asyncio.run(controller._reconcile(KEY))

    controller.worklist, controller._reconciler = cast(Any, Adds()), cast(Any, Finishing())
    controller._write_event = cast(Any, lambda _: None)  # type: ignore[method-assign]
    deleted = pipeline()
    deleted["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:01Z"
    controller.pipelines[KEY] = deleted
    controller.update_lost("ops", "Pod", "pods is forbidden")
    assert added(controller) == 1
    assert (reconcile(), finished) == (2.0, ["p"])
    assert controller._pipelines_listed()
    controller.update_lost("ops", "DeliveryPipeline", "deliverypipelines is forbidden")
    assert (reconcile(), finished) == (None, ["p"]), "the finalizer could not be removed either"
    assert not controller._pipelines_listed()
    controller.update_lost("ops", "DeliveryPipeline", None)
    assert added(controller) == 1
    controller.pipelines[KEY] = pipeline()
    assert (reconcile(), finished) == (None, ["p"]), "it is not deleted"


def test_a_list_of_pipelines_forgets_those_that_are_gone(controller: Controller) -> None:
    controller.replace("DeliveryPipeline", "elsewhere", [])
    assert KEY in controller.pipelines, "it was a list of another namespace"
    controller.replace("DeliveryPipeline", "ops", [pipeline("2")])
    assert added(controller) == 1
    controller.replace("DeliveryPipeline", "ops", [])
    assert controller.pipelines == {}


def test_an_operator_that_stands_by_reconciles_nothing_and_begins_with_every_pipeline() -> None:
    fence = Fence(WRITABLE_S, ENDED_S)
    controller = Controller(Kubernetes(cast(Any, None)), OperatorSettings(), fence)
    controller.update_pipeline(None, pipeline())
    assert (len(controller.worklist), controller.leads) == (0, False)
    assert controller.healthy()
    text = generate_latest(controller._metrics.registry).decode()
    assert "ackwright_operator_leader 0.0" in text
    assert "ackwright_pipeline_condition{" not in text
    controller.lead(True)
    assert len(controller.worklist) == 1
    assert "ackwright_operator_leader 1.0" in generate_latest(controller._metrics.registry).decode()
    controller.lead(False)
    assert len(controller.worklist) == 0


def test_a_reconcile_that_may_not_write_is_postponed_and_is_no_error(controller: Controller) -> None:
    class Fencing:
        def reconcile(self, *_: Any) -> float:
            raise Fenced

    controller._reconciler = cast(Any, Fencing())
    with pytest.raises(Postponed):
        asyncio.run(controller._reconcile(KEY))
    assert not [s for m in controller._metrics.errors.collect() for s in m.samples]


def test_an_object_that_raises_an_error_is_skipped_with_a_warning(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would end the watch of its kind, in all namespaces, again and again."""
    update = controller._index.update

    def of_others(key: Any, resource: Any) -> None:
        if key[1] == "bad":
            raise RecursionError
        update(key, resource)

    monkeypatch.setattr(controller._index, "update", of_others)
    bad, good = pipeline("2"), pipeline("2")
    bad["metadata"] |= {"name": "bad", "uid": "bad"}
    controller.replace("DeliveryPipeline", None, [bad, good])
    assert added(controller) == 1
    for resource in ({**bad, "metadata": {**bad["metadata"], "resourceVersion": "3"}}, pipeline("3")):
        controller.update("MODIFIED", resource)
    assert added(controller) == 1
    assert "DeliveryPipeline ops/bad is skipped" in caplog.text
