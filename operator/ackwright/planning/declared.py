"""What a resource of the API server declares: a pipeline, and what it shares with other pipelines. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ackwright.api.spec import ACCEPTED_LOSSES_ANNOTATION, DeliveryPipeline, examine
from ackwright.api.status import Status
from ackwright.errors import Violation
from ackwright.planning import validation
from ackwright.planning.changes import Change, changes
from ackwright.planning.guarantees import values
from ackwright.planning.judgement import of_texts, text_at, texts_of
from ackwright.planning.policy import Policy, combined
from ackwright.planning.topics import TopicPlan, topic_plans

Resource = Mapping[str, Any]


@dataclass(frozen=True)
class Declaration:
    """The pipeline that is to run now."""

    pipeline: DeliveryPipeline  # of the spec, or of the last accepted spec while the present one is invalid
    invalid: str | None  # what is wrong with the present spec; None: it is valid
    edit: tuple[Change, ...]  # differences from the last accepted spec


@dataclass(frozen=True)
class NeverValid:
    """No spec of the resource has ever been valid."""

    invalid: str  # what is wrong with the present one


def declaration(resource: Resource, status: Status, policy: Policy) -> Declaration | NeverValid:
    """What a resource declares."""
    pipeline, violations = parse_resource(resource)
    invalid = combined(violations)
    if pipeline is not None:
        invalid = combined(policy.violations(pipeline, resource)) or _refused_texts(resource, status, pipeline)
        pipeline = None if invalid else pipeline
    if pipeline is None:
        pipeline = accepted_pipeline(resource, status)
        if pipeline and (refused := combined(policy.violations(pipeline, _with_accepted_spec(resource, status)))):
            return NeverValid(invalid or refused)
    if pipeline is None:
        return NeverValid(invalid or "")
    return Declaration(pipeline, invalid, changes_since_accepted(resource, status, pipeline))


def parse_resource(resource: Resource) -> tuple[DeliveryPipeline | None, tuple[Violation, ...]]:
    """The pipeline that a resource declares, or everything that is wrong with it."""
    pipeline, violations = examine(dict(resource))
    if pipeline is None:
        return None, violations
    violations = (*violations, *validation.check(pipeline, violations))
    return (None, violations) if violations else (pipeline, ())


def _refused_texts(resource: Resource, status: Status, pipeline: DeliveryPipeline) -> str | None:
    """What Spark or the job would certainly refuse in a new transform or schema, each with line and column.

    A driver with it could not start, and would replace one that delivers. Texts that were accepted once are not judged
    again: neither an upgrade nor another edit stops a pipeline for them.
    """
    if status.accepted is not None and status.accepted.spec == resource["spec"]:
        return None
    earlier = accepted_pipeline(resource, status)
    if earlier is not None and texts_of(earlier) == texts_of(pipeline):
        return None
    return "; ".join(_with_place(v, pipeline) for v in of_texts(pipeline).errors) or None


def _with_place(violation: Violation, pipeline: DeliveryPipeline) -> str:
    text = text_at(pipeline, violation.field)
    if text is None or violation.offset is None:
        return str(violation)
    before = text[: violation.offset]
    line, column = before.count("\n") + 1, violation.offset - before.rfind("\n")
    return f"line {line}, column {column} of {violation}"


def _with_accepted_spec(resource: Resource, status: Status) -> Resource:
    return {**resource, "spec": status.accepted.spec} if status.accepted else resource


def in_force(resource: Resource) -> Resource:
    """The resource with the spec that its pipeline runs by, read without validating it.

    That is the last accepted spec: an edit that is invalid, refused or still checked has no effect. Before one was
    accepted it is the resource's own.
    """
    status = resource.get("status")
    accepted = status.get("accepted") if isinstance(status, Mapping) else None
    spec = accepted.get("spec") if isinstance(accepted, Mapping) else None
    return {**resource, "spec": spec} if isinstance(spec, Mapping) and spec else resource


def accepted_pipeline(resource: Resource, status: Status) -> DeliveryPipeline | None:
    """The pipeline of the last valid spec; None if there never was one, or if this release finds it invalid."""
    if status.accepted is None:
        return None
    pipeline, _ = parse_resource(_with_accepted_spec(resource, status))
    return pipeline


def changes_since_accepted(resource: Resource, status: Status, pipeline: DeliveryPipeline) -> tuple[Change, ...]:
    """How the pipeline differs from the last accepted spec."""
    if status.accepted is None or status.accepted.spec == resource["spec"]:
        return ()
    earlier = accepted_pipeline(resource, status)
    return changes(earlier, pipeline) if earlier else ()


def suspended(pipeline: DeliveryPipeline) -> DeliveryPipeline:
    """The same pipeline with spec.suspend set."""
    return pipeline.model_copy(update={"spec": pipeline.spec.model_copy(update={"suspend": True})})


def accepted_losses(annotations: Mapping[str, str]) -> dict[str, str]:
    """By topic, the id of the deleted topic whose loss was accepted.

    A value that `ackwright accept-topic` did not write accepts nothing.
    """
    text = annotations.get(ACCEPTED_LOSSES_ANNOTATION, "{}")
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(topic): str(topic_id) for topic, topic_id in ids.items()} if isinstance(ids, dict) else {}


def conflicting_declarations(
    resource: Resource, pipeline: DeliveryPipeline, others: Iterable[Resource], policy: Policy
) -> dict[str, str]:
    """By topic, the pipeline (visible_name) whose declaration applies, if it differs from this pipeline's.

    Of the valid pipelines on the same brokers, the oldest that declares a topic decides, by its spec in force. The
    others do not count, so a pipeline has no conflict with one that is in conflict itself. others: pipelines that
    declare one of this pipeline's topics.
    """
    older = [in_force(r) for r in sorted(others, key=_age) if _age(r) < _age(resource)]
    if not older:
        return {}
    own = {t.name: t for t in topic_plans(pipeline) if not t.internal}
    brokers = frozenset(b for name in own for b in _brokers_of(pipeline, name))
    older = [r for r in older if _all_brokers(r) & brokers]
    # After an invalid edit the pipeline is that of the last valid spec, so the resource's text cannot be compared.
    is_current = bool(older) and parse_resource(resource)[0] == pipeline
    if is_current and all(_same_text(other, resource, own) for other in older):
        return {}
    undecided, conflicts = set(own), dict[str, str]()
    for other in older:
        if not undecided & topics_of(other):
            continue
        declaring = parse_resource(other)[0]
        if declaring is None or policy.violations(declaring, other):
            continue
        for topic in topic_plans(declaring):
            if topic.name in undecided and _brokers_of(declaring, topic.name) & _brokers_of(pipeline, topic.name):
                undecided.remove(topic.name)
                if not _same_settings(topic, own[topic.name]):
                    conflicts[topic.name] = visible_name(other, resource)
    return conflicts


def shared_topics(resource: Resource, others: Iterable[Resource]) -> frozenset[str]:
    """Topics of this pipeline that another pipeline on the same brokers declares too.

    Of both, the spec in force counts and an edit of it: a topic stays that one of them needs. Pipelines that are being
    deleted do not count.
    """
    own = _specs(resource)
    remaining = [r for r in others if _age(r) != _age(resource) and not r["metadata"].get("deletionTimestamp")]
    return frozenset(
        topic
        for theirs in (spec for r in remaining for spec in _specs(r))
        for ours in own
        if _all_brokers(theirs) & _all_brokers(ours)
        for topic in topics_of(theirs) & topics_of(ours)
    )


def _specs(resource: Resource) -> tuple[Resource, ...]:
    """The resource with its spec in force, and with its own."""
    accepted = in_force(resource)
    return (resource,) if accepted.get("spec") == resource.get("spec") else (accepted, resource)


def shares(resource: Resource) -> frozenset[tuple[str, str]]:
    """What the pipeline may share with others, by its spec in force or by an edit: the kind, and the name."""
    specs = _specs(resource)
    return frozenset(
        {*(("group", group_of(r)) for r in specs), *(("topic", topic) for r in specs for topic in topics_of(r))}
    )


def _same_text(other: Resource, resource: Resource, names: Iterable[str]) -> bool:
    """Whether both specs declare the shared topics in the same words.

    It saves parsing the other spec, which takes a hundred times as long: many pipelines may declare the source that
    they share.
    """

    def declared(pipeline: Resource) -> tuple[object, object, list[Any]]:
        spec = pipeline["spec"]
        return spec.get("guarantee"), spec.get("tolerate"), [t for t in spec.get("topics", ()) if t["name"] in names]

    try:
        *theirs, their_topics = declared(other)
        *ours, our_topics = declared(resource)
    except (KeyError, TypeError):
        return False
    shared = {t["name"] for t in their_topics}
    return theirs == ours and their_topics == [t for t in our_topics if t["name"] in shared]


def _same_settings(a: TopicPlan, b: TopicPlan) -> bool:
    return (a.partitions, a.replication_factor, values(a.config)) == (
        b.partitions,
        b.replication_factor,
        values(b.config),
    )


def group_of(resource: Resource) -> str:
    """The consumer group whose offsets are the pipeline's positions, read without validating the spec."""
    meta, source = resource["metadata"], resource.get("spec", {}).get("source", {})
    group = source.get("groupId") if isinstance(source, Mapping) else None
    return str(group or f"{meta['namespace']}.{meta['name']}")


def topics_of(resource: Resource) -> frozenset[str]:
    """The names of the topics under spec.topics, read without validating the spec."""
    return frozenset(str(t["name"]) for t in _listed_topics(resource))


def retained_topics(resource: Resource) -> frozenset[str]:
    """The topics under spec.topics that are not to be deleted with the pipeline, read without validating the spec."""
    topics = _listed_topics(resource)
    return frozenset(str(t["name"]) for t in topics if t.get("deletionPolicy", "Retain") == "Retain")


def unparsed_topics_to_delete(resource: Resource, status: Status) -> frozenset[str]:
    """As topics_to_delete(), of the last accepted spec, read without validating it."""
    topics = _listed_topics(_with_accepted_spec(resource, status))
    return frozenset(str(t["name"]) for t in topics if t.get("deletionPolicy") == "Delete")


def _listed_topics(resource: Resource) -> tuple[Mapping[str, Any], ...]:
    topics = resource.get("spec", {}).get("topics", ())
    listed = topics if isinstance(topics, list | tuple) else ()
    return tuple(t for t in listed if isinstance(t, Mapping) and "name" in t)


def group_owner(resource: Resource, others: Iterable[Resource], policy: Policy) -> str | None:
    """The oldest pipeline (visible_name) with the same consumer group on the same brokers that is older than this
    one; None: none. The brokers are those that have the positions. Of the others, the spec in force counts.

    Two pipelines with one group would fence each other forever (docs/protocol.md#rule-7).
    """
    same = [
        r
        for r in map(in_force, others)
        if policy.allows_group(r)
        and group_of(r) == group_of(resource)
        and _sink_brokers(r) & _sink_brokers(resource)
        and _age(r) < _age(resource)
    ]
    oldest = min(same, key=_age, default=None)
    return visible_name(oldest, resource) if oldest else None


def visible_name(other: Resource, resource: Resource) -> str:
    """How the author of this resource may know another one: namespace/name only in the same namespace."""
    namespace = other["metadata"]["namespace"]
    if namespace != resource["metadata"]["namespace"]:
        return "of another namespace"
    return f"{namespace}/{other['metadata']['name']}"


def _age(pipeline: Resource) -> tuple[str, str, str]:
    """A sort key: older resources first."""
    meta = pipeline["metadata"]
    return meta.get("creationTimestamp", ""), meta["namespace"], meta["name"]


def _brokers(resource: Resource) -> frozenset[str]:
    return _split(str(resource.get("spec", {}).get("kafka", {}).get("bootstrapServers", "")))


def _sink_brokers(resource: Resource) -> frozenset[str]:
    """Of Kafka: the sink's own, else those of the source."""
    sink = resource.get("spec", {}).get("sink")
    kafka = sink.get("kafka") if isinstance(sink, Mapping) else None
    own = kafka.get("bootstrapServers") if isinstance(kafka, Mapping) else None
    return _split(str(own)) if own else _brokers(resource)


def _all_brokers(resource: Resource) -> frozenset[str]:
    return _brokers(resource) | _sink_brokers(resource)


def _brokers_of(pipeline: DeliveryPipeline, topic: str) -> frozenset[str]:
    """Of the cluster that a declared topic is on."""
    sink = pipeline.spec.sink.declared
    own = sink.cluster() if topic not in pipeline.spec.source.topics else None
    return _split((own or pipeline.spec.kafka).bootstrap_servers)


def _split(servers: str) -> frozenset[str]:
    return frozenset(s.strip() for s in servers.split(","))


def topics_to_delete(pipeline: DeliveryPipeline) -> tuple[str, ...]:
    """The topics with deletionPolicy Delete: they are deleted together with the pipeline."""
    return tuple(t.name for t in pipeline.spec.topics if t.deletion_policy == "Delete")
