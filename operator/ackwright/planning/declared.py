"""From a resource of the API server to what it declares: the pipeline of its spec, or of the last spec that was valid. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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


def needed_topics(pipeline: DeliveryPipeline) -> tuple[str, ...]:
    """The topics without which the job cannot run."""
    sink = pipeline.spec.sink.kafka
    return (*pipeline.spec.source.topics, *((sink.topic,) if sink and sink.topic else ()))


def topics_to_delete(pipeline: DeliveryPipeline) -> tuple[str, ...]:
    """The topics that go with the pipeline, because it says so."""
    return tuple(t.name for t in pipeline.spec.topics if t.deletion_policy == "Delete")
