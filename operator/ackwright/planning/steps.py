"""The steps from a pipeline's actual state to its desired objects. Pure.

Steps that make the pipeline safer come first: the finalizer before the topics that need it, topics before the job,
access and configuration before the driver that needs them. Removals come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ackwright.api.status import seconds_since
from ackwright.planning.bounded_runs import run_of_job, ttl_has_expired
from ackwright.planning.declared import topics_to_delete
from ackwright.planning.kafka_work import KafkaWork
from ackwright.planning.observation import Observation
from ackwright.planning.observed import DriverPod, Object, Workload, is_complete
from ackwright.planning.topic_steps import TopicStep
from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import ExitCode

DRIVERS = ("StatefulSet", "Job")  # kinds of objects that create the driver's pod

# Lists to which others may add items that server-side apply of the operator neither takes over nor removes. To treat
# these as drift would mean to apply forever.
# https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
_MERGED_BY = {
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


@dataclass(frozen=True)
class Finalizer:
    """Adds or removes the finalizer: a deletion then waits until topics and throttles are removed."""

    present: bool

    def __str__(self) -> str:
        return f"{'add' if self.present else 'remove'} the finalizer"


@dataclass(frozen=True)
class Apply:
    desired: Object
    why: str  # missing; changed: the object is an older rendering; drifted: something else changed it

    def __str__(self) -> str:
        return f"apply {self.desired['kind']} {self.desired['metadata']['name']} ({self.why})"


@dataclass(frozen=True)
class Delete:
    api_version: str
    kind: str
    name: str
    uid: str
    why: str
    grace_seconds: int | None = None  # 0: without waiting for the node

    def __str__(self) -> str:
        return f"delete {self.kind} {self.name} ({self.why})"


Step = Finalizer | TopicStep | Apply | Delete


@dataclass(frozen=True)
class Situation:
    """What the steps depend on besides the objects."""

    may_start: bool  # topics and brokers are as the job needs them
    topics: tuple[TopicStep, ...] = ()
    fences: bool = True  # the sink refuses writes of an older driver, so an unreachable driver may be replaced
    stuck: bool = False  # the driver has lag and makes no progress
    overdue: frozenset[str] = frozenset()  # uids of drivers that were deleted and should have ended long ago
    retry_now: bool = False  # the driver has waited long enough for its next start
    finalizer: bool | None = None  # whether to add or remove it; None: it is as it should be
    outdated_checks: frozenset[str] = frozenset()  # uids of pods that checked another edit, or are to check again
    ttl_expired: bool = False  # the Job of the completed bounded run has had its time to live
    edit: bool = False  # whether an edit is checked or refused, whose check's pod has a log


def situation(
    observation: Observation, work: KafkaWork, *, has_finalizer: bool, settings: OperatorSettings, now: datetime
) -> Situation:
    """The situation of an observed pipeline. has_finalizer: whether the resource has the operator's finalizer."""
    workload, driver = observation.workload, observation.workload.driver
    waits = driver is not None and driver.waiting == "CrashLoopBackOff" and driver.ended_at is not None
    # A driver that halted, or whose spec is invalid, waits for a person: a new pod would fail again.
    transient = driver is not None and driver.exit_code not in (ExitCode.HALTED, ExitCode.INVALID)
    waited = seconds_since(driver.ended_at if driver else None, now)
    # A throttle that these steps set counts too: only the operator would ever remove it.
    topics = observation.topic_statuses(observation.status.topics, work, done=False)
    needs_finalizer = any(t.throttled_brokers is not None for t in topics) or bool(
        topics_to_delete(observation.pipeline)
    )
    return Situation(
        may_start=observation.may_start(work),
        topics=work.steps,
        stuck=observation.stuck,
        overdue=frozenset(d.uid for d in workload.drivers if seconds_since(d.gone_by, now) > settings.node_lost),
        retry_now=waits and transient and waited > settings.crash_delay_max,
        finalizer=needs_finalizer if needs_finalizer != has_finalizer else None,
        outdated_checks=observation.decision.outdated,
        ttl_expired=workload.finished and ttl_has_expired(observation.pipeline, observation.status.finished_run, now),
        edit=observation.decision.held is not None,
    )


def steps(desired: Sequence[Object], observed: Workload, situation: Situation) -> tuple[Step, ...]:
    """The steps from the observed to the desired objects; none if these are equal."""
    todo: list[Step] = [] if situation.finalizer is None else [Finalizer(situation.finalizer)]
    todo += situation.topics
    driver = next((o for o in desired if o["kind"] in DRIVERS), None)
    todo += [step for o in desired if o is not driver and o["kind"] != "Pod" if (step := _applied(o, observed))]
    todo += [Apply(o, "missing") for o in desired if o["kind"] == "Pod" and not _is_present(o, observed)]
    if driver is not None:
        todo += _driver_steps(driver, observed, situation)
    todo += _pod_steps(observed, situation)
    todo += _leftovers(desired, observed)
    return tuple(todo)


def without_driver_change(todo: Sequence[Step]) -> tuple[Step, ...]:
    """The steps without those that replace a driver, for which it has to wait."""
    return tuple(step for step in todo if not _replaces_driver(step))


def replaces_driver(todo: Sequence[Step]) -> bool:
    """Whether the steps replace a driver by one of another rendering."""
    return any(map(_replaces_driver, todo))


def _replaces_driver(step: Step) -> bool:
    if isinstance(step, Apply):
        return step.desired["kind"] in DRIVERS and step.why == "changed"
    return isinstance(step, Delete) and step.kind in DRIVERS


def _applied(desired: Object, observed: Workload) -> Apply | None:
    key = desired["kind"], desired["metadata"]["name"]
    present = observed.children.get(key)
    if present is None:
        return None if key in observed.in_the_way else Apply(desired, "missing")
    if present["metadata"].get("deletionTimestamp"):
        return None  # the watch reports when it is gone
    if not contains(present["metadata"].get("annotations", {}), desired["metadata"]["annotations"]):
        return Apply(desired, "changed")
    return None if contains(present, desired) else Apply(desired, "drifted")


def _driver_steps(desired: Object, observed: Workload, situation: Situation) -> list[Step]:
    name = desired["metadata"]["name"]
    others = [
        o for (kind, n), o in observed.children.items() if kind in DRIVERS and (kind, n) != (desired["kind"], name)
    ]
    if others:  # a bounded run became a continuous one, or the reverse: the old driver has to end first
        return [
            _deleted(o, "another kind runs the pipeline now")
            for o in others
            if not o["metadata"].get("deletionTimestamp")
        ]
    present = observed.children.get((desired["kind"], name))
    # A completed run does not run again, and its Job stays as it is until its time to live has expired.
    if observed.finished or observed.idle:
        if present is None or present["metadata"].get("deletionTimestamp") or not situation.ttl_expired:
            return []
        return [_deleted(present, "its time to live has expired")]
    if present is None:
        blocked = observed.drivers or any(kind in DRIVERS for kind, _ in observed.in_the_way)
        return [Apply(desired, "missing")] if situation.may_start and not blocked else []
    if _is_of_another_run(present, desired, observed):
        return [] if present["metadata"].get("deletionTimestamp") else [_deleted(present, "another run is due")]
    change = _applied(desired, observed)
    if change is None or (observed.scheduled and _may_end_first(present, desired, observed)):
        return []
    if desired["kind"] == "Job" and not _only_suspension_differs(present, desired):
        return [_deleted(present, "a Job's pod template is immutable, so the Job is recreated")]
    return [change]


def _is_of_another_run(present: Object, desired: Object, observed: Workload) -> bool:
    """Whether a Job has to be recreated for another run. To change its annotation would call that run complete."""
    is_another = desired["kind"] == "Job" and run_of_job(present) != run_of_job(desired)
    return is_another and (observed.scheduled or is_complete(present))


def _may_end_first(present: Object, desired: Object, observed: Workload) -> bool:
    """Whether a run of a schedule continues as it is: an edit, or another release of the operator, has the next one."""
    delivers = observed.driver is not None and observed.driver.ready and not observed.driver.deleting
    return delivers and present["spec"].get("suspend", False) == desired["spec"]["suspend"]


def _only_suspension_differs(present: Object, desired: Object) -> bool:
    return contains(present["spec"]["template"], desired["spec"]["template"])


def _pod_steps(observed: Workload, situation: Situation) -> list[Step]:
    todo: list[Step] = []
    replaced = _driver_to_replace(observed)
    for pod in observed.drivers:
        if pod.deleting:
            if (pod.node_lost or pod.uid in situation.overdue) and situation.fences:
                todo.append(_pod_deleted(pod, "its node does not answer, and the sink fences it", grace_seconds=0))
        elif not pod.ready and observed.has_newer(pod):
            # https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#forced-rollback
            todo.append(
                _pod_deleted(pod, "it has an older revision and is not ready, so its StatefulSet does not replace it")
            )
        elif pod is replaced:
            todo.append(_pod_deleted(pod, "it has an older revision, and the other driver is ready"))
        elif pod is not observed.driver:
            continue  # a standby, of which nothing of the following is known
        elif situation.stuck:
            todo.append(_pod_deleted(pod, "it has lag and makes no progress"))
        elif situation.retry_now:
            todo.append(_pod_deleted(pod, "its back-off is longer than the operator allows"))
    todo += [Delete("v1", "Pod", e.name, e.uid, "an executor that has ended") for e in observed.ended]
    todo += [
        Delete("v1", "Pod", check.name, check.uid, "its edit is decided, or is checked again")
        for check in observed.checks
        if not check.deleting and (check.uid in situation.outdated_checks or not situation.edit)
    ]
    return todo


def _is_present(pod: Object, observed: Workload) -> bool:
    """Whether there is a pod of this name, also if it is being deleted. Of desired pods there are only those of checks,
    which never change."""
    return any(check.name == pod["metadata"]["name"] for check in observed.checks)


def _driver_to_replace(observed: Workload) -> DriverPod | None:
    """Of a driver and its standby, the one to replace next: one at a time, the standby first. None without an edit.

    A driver that delivers is replaced only when the other one is ready: an edit whose driver does not start leaves the
    old one in place.
    """
    if not observed.wants_standby or len(observed.drivers) < 2:
        return None
    if not all(driver.ready and not driver.deleting for driver in observed.drivers):
        return None
    older = [driver for driver in observed.drivers if observed.has_newer(driver)]
    return max(older, key=lambda driver: (driver is not observed.driver, driver.name), default=None)


def _leftovers(desired: Sequence[Object], observed: Workload) -> list[Step]:
    """The removal of children that are no longer desired, other than drivers and volumes.

    A ConfigMap stays until the pod that mounts it is gone, and as long as a Job names it: an audit copies the Job's
    template.
    """
    keys = {(o["kind"], o["metadata"]["name"]) for o in desired}
    volumes = observed.job["spec"]["template"]["spec"]["volumes"] if observed.job else ()
    of_job = (volume["configMap"]["name"] for volume in volumes if "configMap" in volume)
    in_use = {("ConfigMap", name) for name in (*(pod.config for pod in observed.drivers), *of_job)}
    return [
        _deleted(o, "no longer needed")
        for key, o in sorted(observed.children.items())
        if key not in keys
        and key not in in_use
        and key[0] not in DRIVERS
        and key[0] != "PersistentVolumeClaim"
        and not o["metadata"].get("deletionTimestamp")
    ]


def _deleted(present: Object, why: str) -> Delete:
    return Delete(present["apiVersion"], present["kind"], present["metadata"]["name"], present["metadata"]["uid"], why)


def _pod_deleted(pod: DriverPod, why: str, grace_seconds: int | None = None) -> Delete:
    return Delete("v1", "Pod", pod.name, pod.uid, why, grace_seconds)


def contains(present: Any, desired: Any, key: str | None = None) -> bool:
    """Whether everything that is desired is present.

    What others add to mappings (such as defaults) does not matter, nor do items that they add to lists which the API
    server merges by item. Other lists are compared as a whole. key: the field that identifies the items of a list.
    """
    if isinstance(desired, Mapping):
        return isinstance(present, Mapping) and all(
            name in present and contains(present[name], value, _MERGED_BY.get(name)) for name, value in desired.items()
        )
    if isinstance(desired, list | tuple):
        if not isinstance(present, list | tuple):
            return False
        if key:
            items = {item.get(key): item for item in present if isinstance(item, Mapping)}
            return all(contains(items.get(item[key]), item) for item in desired)
        return len(present) == len(desired) and all(contains(a, b) for a, b in zip(present, desired, strict=True))
    return bool(present == desired)
