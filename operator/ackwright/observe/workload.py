"""The state of a pipeline's workload, out of the objects of the Kubernetes API. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ackwright.planning.observed import (
    CheckPod,
    DriverError,
    DriverPod,
    EndedExecutor,
    LastLogLine,
    OutOfMemory,
    Workload,
)
from ackwright.planning.steps import DRIVERS
from ackwright.render.check import CHECK_ROLE, EDIT_LABEL
from ackwright.render.names import ROLE_LABEL
from ackwright.render.workload import PROGRESS_PORT
from ackwright_stream.reports import Ending

Object = Mapping[str, Any]

_LOG_PREFIX = "ackwright: "  # of the line on stderr with which the job says why it ends
_NODE_LOST = "DeletionByTaintManager"
# Names in the pod, also in that of a check; others may add containers and volumes, such as a service mesh.
_CONTAINER, _CONFIG = "driver", "job"
# A pipeline has two drivers at most, and for a moment their successors. Authors can create pods with the same labels.
_DRIVERS_READ = 4


def workload(objects: Iterable[Object], uid: str) -> Workload:
    """The workload of the pipeline with this uid, out of the objects that carry its label."""
    children: dict[tuple[str, str], Object] = {}
    in_the_way: list[tuple[str, str]] = []
    driver_pods, ended, checks = [], [], []
    for item in objects:
        meta = item["metadata"]
        if item["kind"] == "Pod":
            if _is_driver(item):
                driver_pods.append(driver_pod(item))
            elif _role(item) == CHECK_ROLE:
                if any(o.get("uid") == uid for o in meta.get("ownerReferences", ())):
                    checks.append(check_pod(item))
            elif item.get("status", {}).get("phase") in ("Succeeded", "Failed") and not meta.get("deletionTimestamp"):
                ended.append(EndedExecutor(meta["name"], meta["uid"]))
        elif any(o.get("uid") == uid for o in meta.get("ownerReferences", ())):
            children[item["kind"], meta["name"]] = item
        else:
            in_the_way.append((item["kind"], meta["name"]))
    return Workload(
        children,
        frozenset(in_the_way),
        tuple(sorted(driver_pods, key=lambda d: d.name)),
        tuple(sorted(ended, key=lambda e: e.name)),
        tuple(sorted(checks, key=lambda c: c.name)),
    )


def hidden_owners(objects: Iterable[Object]) -> tuple[tuple[str, str, str, str], ...]:
    """What controls drivers and is not among the objects: its apiVersion, kind, name and uid.

    It may have lost the labels by which it is watched. If it were taken for missing, it would neither be recreated as
    long as its driver runs, nor changed by an edit.
    """
    known = {item["metadata"]["uid"] for item in objects}
    controllers = (
        owner
        for item in objects
        if _is_driver(item) and not item["metadata"].get("deletionTimestamp")
        for owner in item["metadata"].get("ownerReferences", ())
        if owner.get("controller") and owner["kind"] in DRIVERS and owner["uid"] not in known
    )
    owners = dict.fromkeys((o["apiVersion"], o["kind"], o["name"], o["uid"]) for o in controllers)
    return tuple(owners)[:_DRIVERS_READ]


def driver_pod(pod: Object) -> DriverPod:
    """The driver's pod out of its object."""
    meta, status, spec = pod["metadata"], pod.get("status", {}), pod.get("spec", {})
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    container: Object = next((c for c in status.get("containerStatuses", ()) if c["name"] == _CONTAINER), {})
    state, last_state = container.get("state", {}), container.get("lastState", {})
    terminated = state.get("terminated") or last_state.get("terminated") or {}
    waiting = state.get("waiting") or {}
    scheduled = conditions.get("PodScheduled", {})
    return DriverPod(
        name=meta["name"],
        uid=meta["uid"],
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        deleting=bool(meta.get("deletionTimestamp")),
        gone_by=meta.get("deletionTimestamp"),
        drain_s=spec.get("terminationGracePeriodSeconds"),
        node_lost=conditions.get("DisruptionTarget", {}).get("reason") == _NODE_LOST,
        node=spec.get("nodeName"),
        restarts=container.get("restartCount", 0),
        waiting=waiting.get("reason"),
        waiting_message=waiting.get("message", ""),
        unschedulable=scheduled.get("message") if scheduled.get("status") == "False" else None,
        exit_code=terminated.get("exitCode"),
        error=_error(terminated),
        ended_at=terminated.get("finishedAt"),
        config=next(
            (v["configMap"]["name"] for v in spec.get("volumes", ()) if v["name"] == _CONFIG and "configMap" in v), None
        ),
        revision=meta.get("labels", {}).get("controller-revision-hash"),
        address=_progress_address(status.get("podIP")),
    )


def check_pod(pod: Object) -> CheckPod:
    """The pod of an edit's check out of its object."""
    state, phase = driver_pod(pod), pod.get("status", {}).get("phase")
    return CheckPod(
        name=state.name,
        uid=state.uid,
        edit=pod["metadata"].get("labels", {}).get(EDIT_LABEL, ""),
        deleting=state.deleting,
        ended=phase in ("Succeeded", "Failed"),
        passed=phase == "Succeeded",
        out_of_time=pod.get("status", {}).get("reason") == "DeadlineExceeded",
        waiting=state.waiting,
        waiting_message=state.waiting_message,
        unschedulable=state.unschedulable,
        exit_code=state.exit_code,
        error=state.error,
    )


def _progress_address(ip: str | None) -> str | None:
    if not ip:
        return None
    return f"[{ip}]:{PROGRESS_PORT}" if ":" in ip else f"{ip}:{PROGRESS_PORT}"


def _error(terminated: Object) -> DriverError | None:
    """Why a container ended, out of its terminated state; None if it ended successfully, or if nothing tells why."""
    if terminated.get("reason") == "OOMKilled":
        return OutOfMemory()
    if not terminated.get("exitCode"):
        return None
    message = terminated.get("message", "")
    ending = Ending.from_json(message)
    if ending is not None:
        return ending.failure
    line = last_log_line(message)
    return LastLogLine(line) if line else None


def last_log_line(log: str) -> str | None:
    """The line of a log that says why the job ended: the job's own, else the last one; None without lines."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    own = next((line.removeprefix(_LOG_PREFIX) for line in reversed(lines) if line.startswith(_LOG_PREFIX)), None)
    return own or (lines[-1] if lines else None)


def progress_addresses(drivers: Iterable[DriverPod]) -> tuple[str, ...]:
    """Where running drivers report their progress (host:port), in the order of their pods' names."""
    running = [d for d in sorted(drivers, key=lambda d: d.name) if d.phase == "Running"]
    return tuple(d.address for d in running if d.address)[:_DRIVERS_READ]


def drivers(objects: Iterable[Object]) -> tuple[DriverPod, ...]:
    """The drivers' pods out of the objects that carry a pipeline's label."""
    return tuple(driver_pod(o) for o in objects if _is_driver(o))


def _is_driver(item: Object) -> bool:
    return item["kind"] == "Pod" and _role(item) == "driver"


def _role(item: Object) -> str | None:
    role: str | None = item["metadata"].get("labels", {}).get(ROLE_LABEL)
    return role
