"""The status of a DeliveryPipeline, as frozen values. Only the operator writes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from ackwright.api import spec
from ackwright_stream.jobspec import Guarantee

Truth = Literal["True", "False", "Unknown"]
Time = Annotated[
    str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$", json_schema_extra={"format": "date-time"})
]

_TIME = "%Y-%m-%dT%H:%M:%SZ"


def format_time(moment: datetime) -> str:
    """The moment (UTC) as RFC 3339 with whole seconds, as Kubernetes writes times."""
    return moment.strftime(_TIME)


def seconds_since(moment: str | None, now: datetime) -> float:
    """Seconds from a time of format_time() until now; 0 without one."""
    if moment is None:
        return 0.0
    return (now - datetime.strptime(moment, _TIME).replace(tzinfo=UTC)).total_seconds()


class Model(spec.Model):
    """A part of the status. The operator builds it, so Python's names of fields are accepted beside the aliases."""

    model_config = ConfigDict(populate_by_name=True)


class Condition(Model):
    """metav1.Condition: one aspect of the pipeline.

    https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties
    """

    type: Annotated[str, Field(max_length=64)]
    status: Truth
    reason: Annotated[str, Field(max_length=128)]
    message: Annotated[str, Field(max_length=4096)] = ""
    last_transition_time: Time  # moves only when `status` changes
    observed_generation: int | None = None


class Accepted(Model):
    """The last valid spec. The pipeline keeps running by it while an edit is invalid."""

    generation: int
    hash: Annotated[str, Field(max_length=64)]  # of the spec
    spec: Mapping[str, Any] = Field(
        default_factory=dict, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )


class Intent(Model):
    """The steps that the operator was about to take when it last wrote the status.

    After a crash its successor checks them.
    """

    actions: Annotated[tuple[Annotated[str, Field(max_length=512)], ...], Field(max_length=64)]
    since: Time


class DriverStatus(Model):
    """The driver's pod, as last observed."""

    pod: Annotated[str, Field(max_length=253)]
    uid: Annotated[str, Field(max_length=64)] = ""
    node: Annotated[str, Field(max_length=253)] | None = None
    number: int | None = None  # how many drivers the pipeline has had so far
    restarts: int = 0  # of the pod's container
    last_error: Annotated[str, Field(max_length=2048)] | None = None  # why the container last ended


class DeliveryStatus(Model):
    """The figures that the driver last reported. The counters start at 0 with each driver."""

    batch: int | None = None  # number of the last batch
    lag: int | None = None  # offsets between positions and ends
    records_per_second: float | None = None
    abandoned_records: int = 0
    malformed_records: int = 0
    expired_records: int = 0
    observed_at: Time | None = None


class TopicStatus(Model):
    """A topic, as last observed."""

    name: Annotated[str, Field(max_length=249)]
    id: Annotated[str, Field(max_length=64)]  # a topic of the same name with another id is another topic
    partitions: int
    replication_factor: int  # of the partition with the fewest replicas
    min_insync_replicas: int
    in_sync_replicas: int  # of the partition with the fewest replicas in sync
    moving: int = 0  # partitions whose replicas are being moved
    # Brokers with a replication rate that the operator set for this topic's moves; None: no throttle is left to remove.
    throttled_brokers: Annotated[tuple[int, ...], Field(max_length=1000)] | None = None


class LostTopicStatus(Model):
    """A topic that the pipeline needs, and that was recreated or does not exist."""

    name: Annotated[str, Field(max_length=249)]
    id: Annotated[str, Field(max_length=64)] | None = None  # of the topic whose loss can be accepted; None: unknown
    current_id: Annotated[str, Field(max_length=64)] | None = None  # None: no topic has the name now


class MovedPositions(Model):
    """Positions that another program has set, and that halt the driver."""

    fingerprint: Annotated[str, Field(max_length=64)]


class Status(Model):
    observed_generation: int | None = None
    guarantee: Guarantee | None = None
    group: Annotated[str, Field(max_length=256)] | None = None
    topics_ready: Annotated[str, Field(max_length=32)] | None = None
    topics: Annotated[tuple[TopicStatus, ...], Field(max_length=256)] = ()
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    # Present as long as a condition reports it.
    lost_topics: Annotated[tuple[LostTopicStatus, ...], Field(max_length=256)] | None = None
    moved_positions: MovedPositions | None = None
    accepted: Accepted | None = None
    intent: Intent | None = None
    driver: DriverStatus | None = None
    delivery: DeliveryStatus | None = None

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type; None if there is none."""
        return next((c for c in self.conditions if c.type == kind), None)

    def lost_topic(self, name: str) -> LostTopicStatus | None:
        """The lost topic of this name; None if there is none."""
        return next((t for t in self.lost_topics or () if t.name == name), None)

    def condition_is(self, kind: str, truth: Truth) -> bool:
        """Whether there is a condition of this type with this status."""
        condition = self.condition(kind)
        return condition is not None and condition.status == truth


def parse_status(status: object) -> Status:
    """The status of a resource.

    Fields that another release wrote in another form are ignored: everything that matters is observed again.
    """
    if not isinstance(status, Mapping):
        return Status()
    readable: dict[str, Any] = {}
    for name, field in Status.model_fields.items():
        alias = field.alias or name
        if alias not in status:
            continue
        try:
            Status.model_validate({alias: status[alias]})
        except ValueError:
            continue
        readable[alias] = status[alias]
    return Status.model_validate(readable)


def status_json(status: Status) -> dict[str, Any]:
    """The status as JSON values, without absent fields."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
