"""From a resource of the API server to what it declares: the pipeline of its spec, or of the last spec that was valid. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ackwright.api.spec import DeliveryPipeline, examine
from ackwright.api.status import Status
from ackwright.errors import Violation
from ackwright.planning import rules

Resource = Mapping[str, Any]


def judged(resource: Resource) -> tuple[DeliveryPipeline | None, tuple[Violation, ...]]:
    """The pipeline that a resource declares, or everything that is wrong with it."""
    pipeline, violations = examine(dict(resource))
    if pipeline is None:
        return None, violations
    found = (*violations, *rules.check(pipeline, violations))
    return (None, found) if found else (pipeline, ())


def accepted(resource: Resource, status: Status) -> DeliveryPipeline | None:
    """The pipeline of the last valid spec; None if there never was one, or if this release refuses it."""
    if status.accepted is None:
        return None
    pipeline, _ = judged({**resource, "spec": status.accepted.spec})
    return pipeline


def group_of(resource: Resource) -> str:
    """The consumer group whose offsets are the pipeline's positions, as far as the resource tells without being judged."""
    meta, source = resource["metadata"], resource.get("spec", {}).get("source", {})
    group = source.get("groupId") if isinstance(source, Mapping) else None
    return str(group or f"{meta['namespace']}.{meta['name']}")


def owner_of_group(resource: Resource, rivals: Iterable[Resource]) -> str | None:
    """The older pipeline, as namespace/name, that has the same positions: the same group on the same brokers. None: there is none. Two that
    shared them would fence each other for ever (design, section 3, rule 7)."""

    def age(of: Resource) -> tuple[str, str, str]:
        return of["metadata"].get("creationTimestamp", ""), of["metadata"]["namespace"], of["metadata"]["name"]

    same = [r for r in rivals if group_of(r) == group_of(resource) and _brokers(r) & _brokers(resource) and age(r) < age(resource)]
    oldest = min(same, key=age, default=None)
    return f"{oldest['metadata']['namespace']}/{oldest['metadata']['name']}" if oldest else None


def _brokers(resource: Resource) -> frozenset[str]:
    servers = resource.get("spec", {}).get("kafka", {}).get("bootstrapServers", "")
    return frozenset(s.strip() for s in str(servers).split(","))


def needed_topics(pipeline: DeliveryPipeline) -> tuple[str, ...]:
    """The topics without which the job cannot run."""
    sink = pipeline.spec.sink.kafka
    return (*pipeline.spec.source.topics, *((sink.topic,) if sink and sink.topic else ()))


def topics_to_delete(pipeline: DeliveryPipeline) -> tuple[str, ...]:
    """The topics that go with the pipeline, because it says so."""
    return tuple(t.name for t in pipeline.spec.topics if t.deletion_policy == "Delete")
