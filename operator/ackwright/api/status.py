"""What the operator says of a pipeline: the resource's status, as frozen values. Every field is written by the operator alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from ackwright.api import spec
from ackwright_stream.jobspec import Guarantee

Truth = Literal["True", "False", "Unknown"]
Time = Annotated[
    str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$", json_schema_extra={"format": "date-time"})
]


class Model(spec.Model):
    """As the spec's, and made by us, so in Python's names."""

    model_config = ConfigDict(populate_by_name=True)


class Condition(Model):
    """metav1.Condition: one aspect of the pipeline. last_transition_time moves only when the status does.

    https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties
    """

    type: Annotated[str, Field(max_length=64)]
    status: Truth
    reason: Annotated[str, Field(max_length=128)]
    message: Annotated[str, Field(max_length=4096)] = ""
    last_transition_time: Time
    observed_generation: int | None = None


class Accepted(Model):
    """The last valid spec, which keeps running while an edit is invalid. hash: of what it renders to."""

    generation: int
    hash: Annotated[str, Field(max_length=64)]
    spec: Mapping[str, Any] = Field(
        default_factory=dict, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )


class Intent(Model):
    """What the operator was about to do when it last wrote; whoever comes after a crash looks whether it was done."""

    actions: Annotated[tuple[Annotated[str, Field(max_length=512)], ...], Field(max_length=64)]
    since: Time


class DriverStatus(Model):
    """The driver's pod as last seen. number: how many drivers there have been; restarts: of its container; last_error: why it ended."""

    pod: Annotated[str, Field(max_length=253)]
    uid: Annotated[str, Field(max_length=64)] = ""
    node: Annotated[str, Field(max_length=253)] | None = None
    number: int | None = None
    restarts: int = 0
    last_error: Annotated[str, Field(max_length=2048)] | None = None


class Delivery(Model):
    """What the driver last told: offsets between positions and ends, batch number, records a second, counters since the driver began."""

    batch: int | None = None
    lag: int | None = None
    records_per_second: float | None = None
    abandoned_records: int = 0
    malformed_records: int = 0
    expired_records: int = 0
    observed_at: Time | None = None


class TopicStatus(Model):
    """A topic as last seen. id: a topic of the same name with another id is another topic. replication_factor and in_sync_replicas: of the
    partition with the fewest. moving: partitions whose replicas are being moved; throttled_brokers: those that were given a rate for that,
    absent when there is none to take back."""

    name: Annotated[str, Field(max_length=249)]
    id: Annotated[str, Field(max_length=64)]
    partitions: int
    replication_factor: int
    min_insync_replicas: int
    in_sync_replicas: int
    moving: int = 0
    throttled_brokers: Annotated[tuple[int, ...], Field(max_length=1000)] | None = None


class Status(Model):
    observed_generation: int | None = None
    guarantee: Guarantee | None = None
    group: Annotated[str, Field(max_length=256)] | None = None
    topics_ready: Annotated[str, Field(max_length=32)] | None = None
    topics: Annotated[tuple[TopicStatus, ...], Field(max_length=256)] = ()
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    accepted: Accepted | None = None
    intent: Intent | None = None
    driver: DriverStatus | None = None
    delivery: Delivery | None = None

    def condition(self, kind: str) -> Condition | None:
        return next((c for c in self.conditions if c.type == kind), None)

    def says(self, kind: str, truth: Truth) -> bool:
        """Whether there is such a condition, and this is its status."""
        found = self.condition(kind)
        return found is not None and found.status == truth


def read(status: object) -> Status:
    """The status of an object as the API server has it. Fields that another release wrote are passed over: what counts is observed anew."""
    if not isinstance(status, Mapping):
        return Status()
    found: dict[str, Any] = {}
    for name, field in Status.model_fields.items():
        alias = field.alias or name
        if alias not in status:
            continue
        try:
            Status.model_validate({alias: status[alias]})
        except ValueError:
            continue
        found[alias] = status[alias]
    return Status.model_validate(found)


def written(status: Status) -> dict[str, Any]:
    """The status as JSON values; what is absent is left out."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
