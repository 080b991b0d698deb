"""What to do next: desired objects against observed ones, as a list of steps. Pure.

What makes the pipeline safer comes first: the finalizer before the topics that it is for, topics before the job, access and
configuration before the driver that needs them; what takes something away comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ackwright.planning.observed import DriverPod, Object, Workload
from ackwright.planning.topic_steps import TopicStep

DRIVERS = ("StatefulSet", "Job")

# Lists to which others may add items of their own, that our apply neither takes over nor removes: who took them for drift would
# apply for ever. https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
_MERGED_BY = {
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
    "ports": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


@dataclass(frozen=True)
class Finalizer:
    """Whether the pipeline's end waits for what it leaves on the brokers: topics that go with it, throttles."""

    wanted: bool

    def __str__(self) -> str:
        return f"{'add' if self.wanted else 'remove'} the finalizer"


@dataclass(frozen=True)
class Apply:
    """why: missing, changed (an older rendering), drifted (somebody else's change)."""

    wanted: Object
    why: str

    def __str__(self) -> str:
        return f"apply {self.wanted['kind']} {self.wanted['metadata']['name']} ({self.why})"


@dataclass(frozen=True)
class Delete:
    """grace_seconds 0: at once, without waiting for whoever runs it."""

    api_version: str
    kind: str
    name: str
    uid: str
    why: str
    grace_seconds: int | None = None

    def __str__(self) -> str:
        return f"delete {self.kind} {self.name} ({self.why})"


Step = Finalizer | TopicStep | Apply | Delete


@dataclass(frozen=True)
class Situation:
    """What the steps depend on besides the objects.

    may_start: topics and brokers are as the job needs them. topics: what is to be done about topics. fences: the sink refuses an older
    driver's writes, so a driver that cannot be reached may be replaced. overdue: the uids of drivers that were told to end and should have
    gone long ago. stuck: the driver has lag and has not moved for too long. retry_now: a driver that waits for its next try has waited
    long enough. finalizer: whether it is to be added or removed; None: it is as it should be.
    """

    may_start: bool
    topics: tuple[TopicStep, ...] = ()
    fences: bool = True
    stuck: bool = False
    overdue: frozenset[str] = frozenset()
    retry_now: bool = False
    finalizer: bool | None = None


def steps(desired: Sequence[Object], observed: Workload, situation: Situation) -> tuple[Step, ...]:
    """The steps from what is to what shall be; none if they are the same."""
    found: list[Step] = [] if situation.finalizer is None else [Finalizer(situation.finalizer)]
    found += situation.topics
    wanted_driver = next((o for o in desired if o["kind"] in DRIVERS), None)
    found += [a for o in desired if o is not wanted_driver if (a := _applied(o, observed))]
    if wanted_driver is not None:
        found += _driver_steps(wanted_driver, observed, situation)
    found += _pod_steps(observed, situation)
    found += _leftovers(desired, observed)
    return tuple(found)


def _applied(wanted: Object, observed: Workload) -> Apply | None:
    key = wanted["kind"], wanted["metadata"]["name"]
    present = observed.children.get(key)
    if present is None:
        return None if key in observed.in_the_way else Apply(wanted, "missing")
    if present["metadata"].get("deletionTimestamp"):
        return None  # it has to be gone first; its going is an event
    if not contains(present["metadata"].get("annotations", {}), wanted["metadata"]["annotations"]):
        return Apply(wanted, "changed")
    return None if contains(present, wanted) else Apply(wanted, "drifted")


def _driver_steps(wanted: Object, observed: Workload, situation: Situation) -> list[Step]:
    name = wanted["metadata"]["name"]
    others = [
        o for (kind, n), o in observed.children.items() if kind in DRIVERS and (kind, n) != (wanted["kind"], name)
    ]
    if others:  # a bounded run became an endless one, or the other way round: the old driver has to be gone first
        return [
            _deleted(o, "the pipeline is now run by another kind")
            for o in others
            if not o["metadata"].get("deletionTimestamp")
        ]
    present = observed.children.get((wanted["kind"], name))
    if present is None:
        blocked = observed.drivers or any(kind in DRIVERS for kind, _ in observed.in_the_way)
        return [Apply(wanted, "missing")] if situation.may_start and not blocked else []
    change = _applied(wanted, observed)
    if change is None:
        return []
    if wanted["kind"] == "Job" and not _only_suspension_differs(present, wanted):
        return [_deleted(present, "a Job's pods cannot be changed; it is made anew")]
    return [change]


def _only_suspension_differs(present: Object, wanted: Object) -> bool:
    return contains(present["spec"]["template"], wanted["spec"]["template"])


def _pod_steps(observed: Workload, situation: Situation) -> list[Step]:
    found: list[Step] = []
    for pod in observed.drivers:
        if pod.deleting:
            if (pod.node_lost or pod.uid in situation.overdue) and situation.fences:
                found.append(_pod_deleted(pod, "its node does not answer, and the sink fences it", grace_seconds=0))
        elif not pod.ready and observed.has_newer(pod):
            # https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#forced-rollback
            found.append(_pod_deleted(pod, "it is of an older revision and not ready, so nothing else replaces it"))
        elif situation.stuck:
            found.append(_pod_deleted(pod, "it has lag and makes no progress"))
        elif situation.retry_now:
            found.append(_pod_deleted(pod, "it waits for its next try for longer than it should"))
    found += [Delete("v1", "Pod", e.name, e.uid, "an executor that has ended") for e in observed.ended]
    return found


def _leftovers(desired: Sequence[Object], observed: Workload) -> list[Step]:
    """Children that are no longer wanted. What a living pod was made for stays until the pod is gone; a driver's kind is judged above."""
    wanted = {(o["kind"], o["metadata"]["name"]) for o in desired}
    in_use = {("ConfigMap", pod.config) for pod in observed.drivers}
    return [
        _deleted(o, "no longer needed")
        for key, o in sorted(observed.children.items())
        if key not in wanted
        and key not in in_use
        and key[0] not in DRIVERS
        and key[0] != "PersistentVolumeClaim"
        and not o["metadata"].get("deletionTimestamp")
    ]


def _deleted(present: Object, why: str) -> Delete:
    return Delete(present["apiVersion"], present["kind"], present["metadata"]["name"], present["metadata"]["uid"], why)


def _pod_deleted(pod: DriverPod, why: str, grace_seconds: int | None = None) -> Delete:
    return Delete("v1", "Pod", pod.name, pod.uid, why, grace_seconds)


def contains(present: Any, wanted: Any, key: str | None = None) -> bool:
    """Whether everything that is wanted is there. What others add to mappings (defaults, say) does not matter, nor do the items that they
    add to lists which the API server merges item by item; other lists are compared whole. key: by which a list's items are told apart."""
    if isinstance(wanted, Mapping):
        return isinstance(present, Mapping) and all(
            name in present and contains(present[name], value, _MERGED_BY.get(name)) for name, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        if not isinstance(present, list | tuple):
            return False
        if key:
            there = {item.get(key): item for item in present if isinstance(item, Mapping)}
            return all(contains(there.get(item[key]), item) for item in wanted)
        return len(present) == len(wanted) and all(contains(a, b) for a, b in zip(present, wanted, strict=True))
    return bool(present == wanted)
