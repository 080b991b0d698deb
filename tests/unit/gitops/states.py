"""The resource of a pipeline in each state that GitOps tools evaluate, created by the operator.

`python tests/unit/gitops/states.py`, with operator/, spark_app/ and tests/ on the path, writes the resources to
deploy/argocd/testdata.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from ackwright.api.status import format_time
from unit.world import SPEC, World

Object = dict[str, Any]

TESTDATA = Path(__file__).parents[3] / "deploy" / "argocd" / "testdata"
_BOUNDED = {"trigger": {"availableNow": True}}


def states() -> dict[str, Object]:
    """The resources by state."""
    worlds = {
        "delivering": World().settle(),
        "new": World(),
        "starting": _starting(),
        "suspended": _edited(suspend=True),
        "draining": _reconciled_once(suspend=True),
        "invalid": _edited(kafka={"bootstrapServers": "k:9092"}, source={"topics": []}),
        "never-valid": _never_valid(),
        "guarantee-not-met": _lagging(),
        "suspended-guarantee-not-met": _lagging(suspend=True),
        "stalled": _without_an_image(),
        "completed": _completed(),
        "scheduled": _scheduled(),
    }
    resources = {name: copy.deepcopy(world.resource) for name, world in worlds.items()}
    resources["new"]["status"] = {"observedGeneration": -1}  # the default in the CRD
    deleted, edited, bare = (copy.deepcopy(resources["delivering"]) for _ in range(3))
    deleted["metadata"] |= {"deletionTimestamp": "2026-11-21T12:10:00Z", "finalizers": ["ackwright.io/topics"]}
    edited["metadata"]["generation"] += 1
    bare.pop("status")
    return {**resources, "deleted": deleted, "edited": edited, "without-status": bare}


def _starting() -> World:
    world = World()
    world.kubernetes.ready = False
    for _ in range(3):
        world.reconcile()
    return world


def _edited(**spec: Any) -> World:
    world = World().settle()
    world.kubernetes.declare("p", SPEC | spec)
    return world.settle()


def _reconciled_once(**spec: Any) -> World:
    world = World().settle()
    world.kubernetes.declare("p", SPEC | spec)
    world.reconcile()
    return world


def _never_valid() -> World:
    world = World(SPEC | {"source": {"topics": []}})
    return world.settle()


def _lagging(**spec: Any) -> World:
    world = _edited(**spec) if spec else World().settle()
    world.kafka.lagging = {1, 2}
    return world.settle()


def _without_an_image() -> World:
    world = _starting()
    pod = next(o for (kind, _), o in world.kubernetes.stored.items() if kind == "Pod")
    pod["status"] |= {
        "phase": "Pending",
        "containerStatuses": [
            {"name": "driver", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
        ],
    }
    world.progress = None
    world.reconcile()
    return world


def _completed() -> World:
    world = World(SPEC | _BOUNDED).settle()
    job = next(o for (kind, _), o in world.kubernetes.stored.items() if kind == "Job")
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    return world.settle()


def _scheduled() -> World:
    """After the run of 13:00."""
    world = World(SPEC | {"trigger": {"availableNow": True, "schedule": "0 * * * *"}}).settle()
    world.seconds = 3600
    world.settle().kubernetes.complete("p", format_time(world.now()))
    world.progress = None
    return world.settle()


def main() -> None:
    TESTDATA.mkdir(exist_ok=True)
    for name, resource in states().items():
        (TESTDATA / f"{name}.yaml").write_text(yaml.safe_dump(resource, sort_keys=False, width=140))


if __name__ == "__main__":
    main()
