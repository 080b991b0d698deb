"""From a resource of the API server to what it declares: the pipeline of its spec, or of the last spec that was valid. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ackwright.api.spec import ACCEPTED_LOSSES_ANNOTATION, DeliveryPipeline, examine
from ackwright.api.status import Status
from ackwright.errors import Violation
from ackwright.planning import validation
from ackwright.planning.changes import Change, changes
from ackwright.planning.guarantees import values
from ackwright.planning.topics import TopicPlan, topic_plans

Resource = Mapping[str, Any]


def judged(resource: Resource) -> tuple[DeliveryPipeline | None, tuple[Violation, ...]]:
    """The pipeline that a resource declares, or everything that is wrong with it."""
    pipeline, violations = examine(dict(resource))
    if pipeline is None:
        return None, violations
    found = (*violations, *validation.check(pipeline, violations))
    return (None, found) if found else (pipeline, ())


def accepted(resource: Resource, status: Status) -> DeliveryPipeline | None:
    """The pipeline of the last valid spec; None if there never was one, or if this release refuses it."""
    if status.accepted is None:
        return None
    pipeline, _ = judged({**resource, "spec": status.accepted.spec})
    return pipeline


def edit(resource: Resource, status: Status, pipeline: DeliveryPipeline) -> tuple[Change, ...]:
    """What differs from the spec that was accepted before."""
    if status.accepted is None or status.accepted.spec == resource["spec"]:
        return ()
    earlier = accepted(resource, status)
    return changes(earlier, pipeline) if earlier else ()


def suspended(pipeline: DeliveryPipeline) -> DeliveryPipeline:
    """The same, not delivering."""
    return pipeline.model_copy(update={"spec": pipeline.spec.model_copy(update={"suspend": True})})


def given_up(annotations: Mapping[str, str]) -> dict[str, str]:
    """By topic, the id of the one whose loss a person has accepted. What is not as `ackwright accept-topic` writes it is nothing."""
    text = annotations.get(ACCEPTED_LOSSES_ANNOTATION, "{}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(topic): str(old) for topic, old in found.items()} if isinstance(found, dict) else {}


def declared_before(resource: Resource, pipeline: DeliveryPipeline, rivals: Iterable[Resource]) -> dict[str, str]:
    """By topic, the oldest pipeline, as namespace/name, that declares it on the same brokers and otherwise. A declaration that is refused
    binds nobody. rivals: those that declare one of the topics."""
    ours = {t.name: t for t in topic_plans(pipeline) if not t.internal}
    brokers = _split(pipeline.spec.kafka.bootstrap_servers)
    older = [r for r in sorted(rivals, key=_age) if _age(r) < _age(resource) and _brokers(r) & brokers]
    # After an invalid edit the pipeline is that of an older spec, and how the resource is written tells nothing of it.
    as_written = bool(older) and judged(resource)[0] == pipeline
    found: dict[str, str] = {}
    for rival in older:
        theirs = None if as_written and _written_alike(rival, resource, ours) else judged(rival)[0]
        for topic in topic_plans(theirs) if theirs else ():
            if topic.name in ours and not _alike(topic, ours[topic.name]):
                found.setdefault(topic.name, f"{rival['metadata']['namespace']}/{rival['metadata']['name']}")
    return found


def declared_elsewhere(resource: Resource, rivals: Iterable[Resource]) -> frozenset[str]:
    """Topics of this pipeline that another one on the same brokers declares as well, and that is to stay."""
    others = [r for r in rivals if _age(r) != _age(resource) and not r["metadata"].get("deletionTimestamp")]
    return frozenset(t for r in others if _brokers(r) & _brokers(resource) for t in topics_of(r) & topics_of(resource))


def _written_alike(rival: Resource, resource: Resource, names: Iterable[str]) -> bool:
    """Without judging the rival, which takes a hundred times as long: many pipelines may declare the source that they share."""

    def said(of: Resource) -> list[object]:
        spec = of["spec"]
        return [spec.get("guarantee"), spec.get("tolerate"), [t for t in spec.get("topics", ()) if t["name"] in names]]

    try:
        theirs, ours = said(rival), said(resource)
    except (KeyError, TypeError):
        return False
    names_there = {t["name"] for t in theirs[2]}  # type: ignore[attr-defined]
    return theirs[:2] == ours[:2] and theirs[2] == [t for t in ours[2] if t["name"] in names_there]  # type: ignore[attr-defined]


def _alike(a: TopicPlan, b: TopicPlan) -> bool:
    return (a.partitions, a.replication_factor, values(a.config)) == (
        b.partitions,
        b.replication_factor,
        values(b.config),
    )


def group_of(resource: Resource) -> str:
    """The consumer group whose offsets are the pipeline's positions, as far as the resource tells without being judged."""
    meta, source = resource["metadata"], resource.get("spec", {}).get("source", {})
    group = source.get("groupId") if isinstance(source, Mapping) else None
    return str(group or f"{meta['namespace']}.{meta['name']}")


def topics_of(resource: Resource) -> frozenset[str]:
    """The topics that a resource declares, as far as it tells without being judged."""
    topics = resource.get("spec", {}).get("topics", ())
    listed = topics if isinstance(topics, list | tuple) else ()
    return frozenset(str(t["name"]) for t in listed if isinstance(t, Mapping) and "name" in t)


def owner_of_group(resource: Resource, rivals: Iterable[Resource]) -> str | None:
    """The older pipeline, as namespace/name, that has the same positions: the same group on the same brokers. None: there is none. Two that
    shared them would fence each other for ever (design, section 3, rule 7)."""
    same = [
        r
        for r in rivals
        if group_of(r) == group_of(resource) and _brokers(r) & _brokers(resource) and _age(r) < _age(resource)
    ]
    oldest = min(same, key=_age, default=None)
    return f"{oldest['metadata']['namespace']}/{oldest['metadata']['name']}" if oldest else None


def _age(of: Resource) -> tuple[str, str, str]:
    return of["metadata"].get("creationTimestamp", ""), of["metadata"]["namespace"], of["metadata"]["name"]


def _brokers(resource: Resource) -> frozenset[str]:
    return _split(str(resource.get("spec", {}).get("kafka", {}).get("bootstrapServers", "")))


def _split(servers: str) -> frozenset[str]:
    return frozenset(s.strip() for s in servers.split(","))


def needed_topics(pipeline: DeliveryPipeline) -> tuple[str, ...]:
    """The topics without which the job cannot run."""
    sink = pipeline.spec.sink.declared
    return (*pipeline.spec.source.topics, *(sink.topics() if sink else ()))


def topics_to_delete(pipeline: DeliveryPipeline) -> tuple[str, ...]:
    """The topics that go with the pipeline, because it says so."""
    return tuple(t.name for t in pipeline.spec.topics if t.deletion_policy == "Delete")
