"""Deletes pipelines whose namespace is deleted too, or in which the operator has lost its Role."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.clients.kubernetes import ApiError
from ackwright.errors import AckwrightError
from ackwright.observe.namespaces import has_no_pods
from ackwright_stream.jobspec import Reason
from unit.topic_worlds import declared, delete, is_gone, throttles, weak
from unit.world import World

FORBIDDEN = ApiError(403, "may not")
PIPELINES = "deliverypipelines.ackwright.io has 1 resource instances"
PODS = "pods. has 1 resource instances"


def namespace(*left: str, phase: str = "Terminating", **conditions: str) -> dict[str, Any]:
    """A namespace whose controller reports what is left in it. conditions: the status of further ones, by type."""
    statuses = {
        "NamespaceDeletionDiscoveryFailure": "False",
        "NamespaceDeletionGroupVersionParsingFailure": "False",
        "NamespaceDeletionContentFailure": "False",
        "NamespaceContentRemaining": "True" if left else "False",
        **conditions,
    }
    message = f"Some resources are remaining: {', '.join(left)}"
    conditions_ = [{"type": t, "status": s, "message": message} for t, s in statuses.items() if s != "absent"]
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "ops", "uid": "uid-ops", "ownerReferences": [{"uid": "uid-ops"}]},
        "status": {"phase": phase, "conditions": conditions_},
    }


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (namespace(PIPELINES), True),
        (namespace(PIPELINES, "rolebindings.rbac.authorization.k8s.io has 2 resource instances"), True),
        (namespace(PIPELINES, "pods.metrics.k8s.io has 1 resource instances"), True),
        (namespace(PIPELINES, PODS), False),
        (namespace(PODS), False),
        (namespace(), False),  # also while pods are deleted before everything else
        (namespace(PIPELINES, phase="Active"), False),
        (namespace(PIPELINES, NamespaceDeletionContentFailure="True"), False),
        (namespace(PIPELINES, NamespaceDeletionDiscoveryFailure="absent"), False),
        ({"status": {"phase": "Terminating"}}, False),
        ({}, False),
    ],
)
def test_only_a_complete_report_without_pods_proves_that_no_driver_is_left(
    reported: dict[str, Any], expected: bool
) -> None:
    assert has_no_pods(reported) is expected


def deleted(*left: str, world: World | None = None) -> World:
    """A settled pipeline that deletes its topic "in", and whose namespace is being deleted: it may do nothing there
    except for the finalizer.
    """
    world = delete((world or World(declared(deletionPolicy="Delete"))).settle())
    world.kubernetes.stored["Namespace", "ops"] = namespace(*left)
    for kind in ("StatefulSet", "Job", "Pod", "ConfigMap"):
        world.kubernetes.refuse |= {f"{verb} {kind}": FORBIDDEN for verb in ("delete", "create", "apply")}
    return world


def finish(world: World) -> float | None:
    """One step of the deletion."""
    return world.operator.finish_in_lost_namespace(world.resource)


def exists(world: World) -> bool:
    world.kubernetes.run()
    return ("DeliveryPipeline", "p") in world.kubernetes.stored


def test_a_namespace_without_pods_takes_the_pipeline_and_its_topics_along() -> None:
    world = deleted(PIPELINES)
    assert finish(world) is None
    assert not exists(world)
    assert ("in" in world.kafka.existing, "out" in world.kafka.existing) == (False, True)


@pytest.mark.parametrize("left", [(PIPELINES, PODS), ()])
def test_topics_stay_while_a_driver_may_write_and_the_pipeline_goes_after_the_limit(left: tuple[str, ...]) -> None:
    world = deleted(*left)
    assert finish(world) is not None
    assert exists(world)
    world.seconds += world.settings.settle
    assert finish(world) is not None, "the limit has not passed"
    world.seconds += 1
    assert finish(world) is None
    assert not exists(world)
    assert "in" in world.kafka.existing
    assert dict(world.kubernetes.recorded)["TopicsNotDeleted"] == (
        "ops/p: topics not deleted within 300 s: in: a driver may still write to them, because the pods of the "
        "namespace cannot be listed"
    )


def test_without_the_permission_to_read_the_namespace_topics_stay() -> None:
    world = deleted(PIPELINES)
    del world.kubernetes.stored["Namespace", "ops"]
    assert finish(world) is not None
    world.kubernetes.get = lambda *_: (_ for _ in ()).throw(FORBIDDEN)  # type: ignore[method-assign]
    assert finish(world) is not None
    assert exists(world)
    assert "in" in world.kafka.existing


def test_brokers_that_do_not_answer_delay_the_deletion_by_the_limit_at_most() -> None:
    world = deleted(PIPELINES)
    world.kafka.down = AckwrightError(Reason.BROKERS_UNREACHABLE, "no answer")
    assert finish(world) is not None
    world.seconds += world.settings.settle + 1
    assert finish(world) is None
    assert not exists(world)
    assert "no answer" in dict(world.kubernetes.recorded)["TopicsNotDeleted"]


def test_throttles_are_removed_also_if_drivers_are_unknown() -> None:
    world = delete(weak().settle())
    assert throttles(world)
    world.kafka.arrive()
    world.seconds += world.settings.settle + 1
    assert finish(world) is None
    assert throttles(world) == []
    assert not exists(world)


def test_topics_stay_if_pipelines_that_cannot_be_listed_may_declare_them() -> None:
    """As without the permission on pipelines of all namespaces, after a restart."""
    world = World(declared(deletionPolicy="Delete"))
    world.pipelines_listed = False
    delete(world.settle())
    assert not is_gone(world)
    world.seconds += world.settings.settle
    assert is_gone(world)
    assert "in" in world.kafka.existing
    assert "pipelines that cannot be listed may declare them" in dict(world.kubernetes.recorded)["TopicsNotDeleted"]


def test_a_driver_that_may_not_be_deleted_any_more_is_waited_for_until_kubernetes_has_removed_it() -> None:
    """The Role is gone, and the watches have not ended yet, which report what the namespace's controller removes."""
    world = deleted()
    del world.kubernetes.stored["Namespace", "ops"]
    assert not is_gone(world)
    for pod in world.kubernetes.pods():
        world.kubernetes.vanish("Pod", pod["metadata"]["name"])
    world.reconcile_alone()
    assert "in" in world.kafka.existing, "the StatefulSet may create another pod"
    for key, o in list(world.kubernetes.stored.items()):
        if o["kind"] != "DeliveryPipeline":
            world.kubernetes.vanish(*key)
    assert is_gone(world)
    assert "in" not in world.kafka.existing
