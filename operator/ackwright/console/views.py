"""What the console's page shows of pipelines, as JSON values. Pure.

From objects of the Kubernetes API and the progress report of a driver, as they were read. The page only draws: what is
good or bad, and what a reason means, is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from ackwright.api.status import GOOD_IF_FALSE, Status, parse_status
from ackwright.console.chain import chain_view
from ackwright.planning.declared import declaration
from ackwright.planning.plan import plan
from ackwright.planning.policy import Policy
from ackwright.reasons import ConditionReason, consequences
from ackwright.render.names import ROLE_LABEL

View = dict[str, Any]
Object = Mapping[str, Any]

_EVENTS_MAX = 100  # the latest


@dataclass(frozen=True)
class Details:
    """What is read of one pipeline beside its resource."""

    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    progress: Object | None = None  # as the driver's /progress serves it; None: not read
    audits: Sequence[View] = ()
    missing: Sequence[str] = ()  # what could not be read, and why

    def as_json(self) -> View:
        return {name: value for name, value in vars(self).items() if value}

    @classmethod
    def of_json(cls, value: Object) -> Details:
        """Raises TypeError for a mapping that as_json() did not return."""
        return cls(**value)


@dataclass(frozen=True)
class Remedies:
    """What docs/conditions.md says about each reason: cause, remedy and command, by reason."""

    by_reason: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, reason: str) -> Mapping[str, str] | None:
        return self.by_reason.get(reason)


def row(resource: Object) -> View:
    """A pipeline in the list of all pipelines."""
    meta, status = resource["metadata"], resource.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    ready, met = conditions.get("Ready", {}), conditions.get("GuaranteeMet", {})
    delivery = status.get("delivery", {})
    return {
        "namespace": meta.get("namespace", ""),
        "name": meta["name"],
        "guarantee": status.get("guarantee") or resource.get("spec", {}).get("guarantee", ""),
        "health": _health(resource, conditions),
        "ready": ready.get("status", ""),
        "met": met.get("status", ""),
        "reason": ready.get("reason", "NotReconciled"),
        "message": ready.get("message", "") if ready else "The operator has not reconciled this pipeline yet.",
        "metMessage": met.get("message", ""),
        "lag": delivery.get("lag"),
        "rate": delivery.get("recordsPerSecond"),
        "batch": delivery.get("batch"),
        "observedAt": delivery.get("observedAt"),
        "restarts": status.get("driver", {}).get("restarts"),
        "topicsReady": status.get("topicsReady"),
    }


def _health(resource: Object, conditions: Mapping[str, Object]) -> str:
    """ready, attention (a person is needed, the guarantee is broken, or it is not observed), suspended, or waiting."""

    def status(kind: str) -> str:
        return str(conditions.get(kind, {}).get("status", ""))

    not_observed = conditions.get("Ready", {}).get("reason") == ConditionReason.NOT_OBSERVED
    if status("Stalled") == "True" or status("GuaranteeMet") == "False" or not_observed:
        return "attention"
    if status("Ready") == "True":
        return "ready"
    suspended = conditions.get("Ready", {}).get("reason") == ConditionReason.SUSPENDED
    return "suspended" if suspended and resource.get("spec", {}).get("suspend") else "waiting"


def detail(resource: Object, details: Details, remedies: Remedies) -> View:
    """Everything that the console shows of one pipeline."""
    meta, raw = resource["metadata"], resource.get("status", {})
    status = parse_status(raw)
    chain, invalid = _chain(resource, status)
    return {
        "row": row(resource),
        "current": not raw or raw.get("observedGeneration") == meta.get("generation"),
        "conditions": [_condition(c, remedies) for c in raw.get("conditions", ())],
        "chain": chain,
        "invalid": invalid,
        "yaml": spec_yaml(resource),
        "group": raw.get("group"),
        "lanes": lanes(details.progress),
        "topics": [dict(t) for t in raw.get("topics", ()) if isinstance(t, Mapping)],
        "driver": raw.get("driver"),
        "delivery": raw.get("delivery"),
        "progress": _progress(details.progress),
        "pods": [_pod(p) for p in details.pods],
        "events": _events(details.events),
        "audits": list(details.audits),
        "missing": list(details.missing),
    }


def _chain(resource: Object, status: Status) -> tuple[View | None, str | None]:
    """The chain of the spec in force, and what is wrong with the present spec."""
    declared = declaration(resource, status, Policy())  # a person may not read the platform's settings
    pipeline = getattr(declared, "pipeline", None)
    return (chain_view(plan(pipeline)) if pipeline else None), declared.invalid


def _condition(condition: Object, remedies: Remedies) -> View:
    kind, status = condition["type"], condition["status"]
    good = status == ("False" if kind in GOOD_IF_FALSE else "True")
    return {
        "type": kind,
        "status": status,
        "good": good,
        "expected": consequences(condition["reason"]).expected,
        "reason": condition["reason"],
        "message": condition.get("message", ""),
        "since": condition.get("lastTransitionTime", ""),
        "remedy": None if good else remedies.of(condition["reason"]),
    }


def lanes(progress: Object | None) -> list[View]:
    """Each lane with its position, and with its end and lag if the driver reports them."""
    if progress is None:
        return []
    ends = progress.get("ends") or {}
    return [
        _lane(topic, partition, position, ends.get(topic, {}).get(partition))
        for topic, partitions in progress.get("positions", {}).items()
        for partition, position in sorted(partitions.items(), key=lambda item: int(item[0]))
    ]


def _lane(topic: str, partition: str, position: int, end: int | None) -> View:
    lag = None if end is None else max(0, end - position)
    return {"topic": topic, "partition": int(partition), "position": position, "end": end, "lag": lag}


def _progress(progress: Object | None) -> View | None:
    """The driver's report without its positions, which are in the lanes."""
    if not progress:
        return None
    measured = progress.get("ends") or progress.get("lag")  # as ProgressReport.measured_lag
    hidden = ("positions", "ends") if measured else ("positions", "ends", "lag")
    return {k: v for k, v in progress.items() if k not in hidden}


def _pod(pod: Object) -> View:
    meta, status = pod["metadata"], pod.get("status", {})
    containers: Sequence[Object] = status.get("containerStatuses") or ()
    reasons = (c.get("state", {}).get("waiting", {}).get("reason") for c in containers)
    return {
        "name": meta["name"],
        "role": meta.get("labels", {}).get(ROLE_LABEL, "executor"),
        "phase": "Terminating" if meta.get("deletionTimestamp") else status.get("phase", "Pending"),
        "why": next((r for r in reasons if r), status.get("reason")),
        "ready": any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()),
        "restarts": sum(c.get("restartCount", 0) for c in containers),
        "node": pod.get("spec", {}).get("nodeName"),
    }


def _events(events: Iterable[Object]) -> list[View]:
    """The latest Events, the newest first."""
    views = [
        {
            "at": e.get("lastTimestamp") or e.get("eventTime") or e["metadata"].get("creationTimestamp") or "",
            "type": e.get("type", "Normal"),
            "reason": e.get("reason", ""),
            "message": e.get("message", ""),
            "count": e.get("count") or 1,
            "object": f"{e.get('involvedObject', {}).get('kind', '')} {e.get('involvedObject', {}).get('name', '')}",
        }
        for e in events
    ]
    return sorted(views, key=lambda e: str(e["at"]), reverse=True)[:_EVENTS_MAX]


def spec_yaml(resource: Object) -> str:
    """The resource as a user would write it, without what the API server and the operator add."""
    meta = {
        k: resource["metadata"][k]
        for k in ("name", "namespace", "labels", "annotations")
        if resource["metadata"].get(k)
    }
    own = {k: v for k, v in meta.get("annotations", {}).items() if not k.startswith("kubectl.kubernetes.io/")}
    meta = {k: v for k, v in meta.items() if k != "annotations"} | ({"annotations": own} if own else {})
    document = {
        "apiVersion": resource.get("apiVersion"),
        "kind": resource.get("kind"),
        "metadata": meta,
        "spec": resource.get("spec", {}),
    }
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))
