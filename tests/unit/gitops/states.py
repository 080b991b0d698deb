"""A pipeline in each state that tools are told of, as the API server has it then: made by the operator, not by hand.

`python tests/unit/gitops/states.py`, with operator/, spark_app/ and tests/ on the path, writes them to deploy/argocd/testdata.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from unit.world import SPEC, World

Object = dict[str, Any]

TESTDATA = Path(__file__).parents[3] / "deploy" / "argocd" / "testdata"
_BOUNDED = {"trigger": {"availableNow": True}}


def states() -> dict[str, Object]:
    """By name."""
    found = {
        "delivering": World().settle(),
        "new": World(),
        "starting": _starting(),
        "suspended": _edited(suspend=True),
        "draining": _looked_once(suspend=True),
        "invalid": _edited(kafka={"bootstrapServers": "k:9092"}, source={"topics": []}),
        "never-valid": _never_valid(),
        "guarantee-not-met": _lagging(),
        "suspended-guarantee-not-met": _lagging(suspend=True),
        "stalled": _without_an_image(),
        "completed": _completed(),
    }
    resources = {name: copy.deepcopy(world.resource) for name, world in found.items()}
    resources["new"]["status"] = {"observedGeneration": -1}  # the default of the definition
    deleted, edited, bare = (copy.deepcopy(resources["delivering"]) for _ in range(3))
    deleted["metadata"] |= {"deletionTimestamp": "2026-11-21T12:10:00Z", "finalizers": ["ackwright.io/topics"]}
    edited["metadata"]["generation"] += 1
    bare.pop("status")
    return {**resources, "deleted": deleted, "edited": edited, "without-status": bare}


def _starting() -> World:
    found = World()
    found.kubernetes.ready = False
    for _ in range(3):
        found.reconcile()
    return found


def _edited(**spec: Any) -> World:
    found = World().settle()
    found.kubernetes.declare("p", SPEC | spec)
    return found.settle()


def _looked_once(**spec: Any) -> World:
    found = World().settle()
    found.kubernetes.declare("p", SPEC | spec)
    found.reconcile()
    return found


def _never_valid() -> World:
    found = World(SPEC | {"source": {"topics": []}})
    return found.settle()


def _lagging(**spec: Any) -> World:
    found = _edited(**spec) if spec else World().settle()
    found.kafka.lagging = {1, 2}
    return found.settle()


def _without_an_image() -> World:
    found = _starting()
    pod = next(o for (kind, _), o in found.kubernetes.stored.items() if kind == "Pod")
    pod["status"] |= {
        "phase": "Pending",
        "containerStatuses": [
            {"name": "driver", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
        ],
    }
    found.progress = None
    found.reconcile()
    return found


def _completed() -> World:
    found = World(SPEC | _BOUNDED).settle()
    job = next(o for (kind, _), o in found.kubernetes.stored.items() if kind == "Job")
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    return found.settle()


def main() -> None:
    TESTDATA.mkdir(exist_ok=True)
    for name, resource in states().items():
        (TESTDATA / f"{name}.yaml").write_text(yaml.safe_dump(resource, sort_keys=False, width=140))


if __name__ == "__main__":
    main()
