"""From objects of the Kubernetes API to what is known of a pipeline's workload; and what its driver tells. Reads only."""

from __future__ import annotations

import json
import urllib.request
import zlib
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from typing import Any

from ackwright.planning.observed import DriverPod, EndedExecutor, Progress, Workload
from ackwright.render.names import ROLE_LABEL
from ackwright.render.workload import PROGRESS_PORT

Object = Mapping[str, Any]

_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy knows nothing of pods
_SENTENCE = "ackwright: "  # what a job ends with, on stderr
_NODE_LOST = "DeletionByTaintManager"
_CONTAINER, _CONFIG = "driver", "job"  # of the pod's containers and volumes ours: a mesh, say, adds its own
_PROGRESS_MAX = 1 << 22  # bytes; the answer comes from a user's image


def workload(objects: Iterable[Object], uid: str) -> Workload:
    """The workload of the pipeline with this uid, out of objects that carry its label."""
    children: dict[tuple[str, str], Object] = {}
    in_the_way: list[tuple[str, str]] = []
    drivers, ended = [], []
    for found in objects:
        meta = found["metadata"]
        if found["kind"] == "Pod":
            if meta.get("labels", {}).get(ROLE_LABEL) == "driver":
                drivers.append(driver_pod(found))
            elif found.get("status", {}).get("phase") in ("Succeeded", "Failed") and not meta.get("deletionTimestamp"):
                ended.append(EndedExecutor(meta["name"], meta["uid"]))
        elif any(o.get("uid") == uid for o in meta.get("ownerReferences", ())):
            children[found["kind"], meta["name"]] = found
        else:
            in_the_way.append((found["kind"], meta["name"]))
    return Workload(
        children,
        frozenset(in_the_way),
        tuple(sorted(drivers, key=lambda d: d.name)),
        tuple(sorted(ended, key=lambda e: e.name)),
    )


def driver_pod(pod: Object) -> DriverPod:
    meta, status, spec = pod["metadata"], pod.get("status", {}), pod.get("spec", {})
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    container: Object = next((c for c in status.get("containerStatuses", ()) if c["name"] == _CONTAINER), {})
    now, last = container.get("state", {}), container.get("lastState", {})
    end = now.get("terminated") or last.get("terminated") or {}
    waiting = now.get("waiting") or {}
    scheduled = conditions.get("PodScheduled", {})
    address = status.get("podIP")
    return DriverPod(
        name=meta["name"],
        uid=meta["uid"],
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        deleting=bool(meta.get("deletionTimestamp")),
        gone_by=meta.get("deletionTimestamp"),
        node_lost=conditions.get("DisruptionTarget", {}).get("reason") == _NODE_LOST,
        node=spec.get("nodeName"),
        restarts=container.get("restartCount", 0),
        waiting=waiting.get("reason"),
        waiting_message=waiting.get("message", ""),
        unschedulable=scheduled.get("message") if scheduled.get("status") == "False" else None,
        exit_code=end.get("exitCode"),
        error=_error(end),
        ended_at=end.get("finishedAt"),
        config=next(
            (v["configMap"]["name"] for v in spec.get("volumes", ()) if v["name"] == _CONFIG and "configMap" in v), None
        ),
        revision=meta.get("labels", {}).get("controller-revision-hash"),
        address=f"[{address}]:{PROGRESS_PORT}"
        if address and ":" in address
        else f"{address}:{PROGRESS_PORT}"
        if address
        else None,
    )


def _error(end: Object) -> str | None:
    if end.get("reason") == "OOMKilled":
        return "OutOfMemory: the kernel ended it; raise spec.spark.driver.memory"
    return sentence(end.get("message", "")) if end.get("exitCode") else None


def sentence(log: str) -> str | None:
    """The sentence that a job ended with, from the end of its log; its last line if there is none, as when the kernel killed it."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    ours = next((line.removeprefix(_SENTENCE) for line in reversed(lines) if line.startswith(_SENTENCE)), None)
    return ours or (lines[-1] if lines else None)


def progress(address: str, timeout: float = 2.0) -> Progress | None:
    """What the driver at this address tells of itself; None if it does not answer in time (seconds)."""
    try:
        with _DIRECTLY.open(f"http://{address}/progress", timeout=timeout) as answer:
            found: dict[str, Any] = json.loads(answer.read(_PROGRESS_MAX))
            error = found["lastError"]
            return Progress(
                state=found["state"],
                driver=found["driver"],
                batch=found["batchId"],
                lag=found["lag"],
                records_per_second=found["recordsPerSecond"],
                abandoned=found["abandonedRecords"],
                malformed=found["malformedRecords"],
                expired=found["expiredRecords"],
                positions=zlib.crc32(json.dumps(found["positions"], sort_keys=True).encode()),
                last_error=f"{error['reason']}: {error['message']}" if error else None,
            )
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return None
