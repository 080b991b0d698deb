"""The status of a DeliveryPipeline, as frozen values. Only the operator writes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from ackwright.api import spec
from ackwright.api.fields import About, map_by
from ackwright.api.job_fields import LONGEST_SCHEDULE
from ackwright_stream.jobspec import Guarantee

Truth = Literal["True", "False", "Unknown"]
EditState = Literal["Checking", "Refused", "RolledBack"]
CHECKING: EditState = "Checking"
REFUSED: EditState = "Refused"
ROLLED_BACK: EditState = "RolledBack"
Time = Annotated[
    str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$", json_schema_extra={"format": "date-time"})
]

# Of these conditions False is the good status, of the others True.
GOOD_IF_FALSE = frozenset({"Stalled", "Reconciling", "RolledBack"})
_LAST_S = 253_402_300_799  # the last second of year 9999
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def format_time(moment: datetime) -> str:
    """The moment (UTC) as RFC 3339 with whole seconds, as Kubernetes writes times."""
    return moment.strftime(_TIME)


def time_of(seconds: float) -> str:
    """The moment, in seconds since the epoch, as format_time() writes it; the last moment of year 9999 for later ones,
    as records with a wrong event time have them."""
    moment = datetime.fromtimestamp(max(0, min(seconds, _LAST_S)), UTC)
    return format_time(moment)


def is_time(text: str) -> bool:
    """Whether the text is a time of format_time()."""
    try:
        datetime.strptime(text, _TIME)
    except ValueError:
        return False
    return True


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

    type: Annotated[str, Field(max_length=64), About("The aspect that the condition describes.")]
    status: Annotated[Truth, About("Whether it is true.")]
    reason: Annotated[str, Field(max_length=128), About("The reason, in one word.")]
    message: Annotated[str, Field(max_length=4096), About("The reason in a sentence, with the remedy.")] = ""
    last_transition_time: Annotated[Time, About("When the status last changed.")]
    observed_generation: Annotated[int | None, About("The generation of the spec that the condition describes.")] = None


class Accepted(Model):
    """The spec that the pipeline runs by: the last that is valid and has passed its check."""

    generation: Annotated[int, About("The generation of that spec.")]
    hash: Annotated[str, Field(max_length=64), About("The hash of everything that the job is started with.")]
    spec: Annotated[
        Mapping[str, Any], About("The spec itself.", schema={"x-kubernetes-preserve-unknown-fields": True})
    ] = Field(default_factory=dict)
    since: Annotated[Time | None, About("When the pipeline was switched to that spec.")] = None
    delivered: Annotated[bool, About("Whether a driver has delivered with that spec.")] = False
    expects_positions: Annotated[
        bool,
        About(
            "Whether the pipeline had delivered when spec.sink was last changed. A sink without its positions is then "
            "another one, and the pipeline halts."
        ),
    ] = False
    namespace_uid: Annotated[
        str | None,
        Field(max_length=64),
        About(
            "The uid of the namespace, which the positions name: a pipeline of the same name in another cluster does "
            "not take them over. Absent until the first edit of a pipeline that an earlier release has started."
        ),
    ] = None


class EditStatus(Model):
    """The present spec, while the pipeline runs by an earlier one."""

    generation: Annotated[int, About("The generation of the present spec.")]
    hash: Annotated[str, Field(max_length=64), About("The hash of the present spec.")]
    state: Annotated[
        EditState,
        About(
            "Checking: a pod checks the edit before the driver is drained. Refused: the edit would not run. "
            "RolledBack: it did not deliver within spec.rollback.after."
        ),
    ]
    reason: Annotated[str, Field(max_length=128), About("The reason, in one word.")]
    message: Annotated[str, Field(max_length=2048), About("The reason in a sentence.")] = ""
    check: Annotated[
        Annotated[str, Field(max_length=64)] | None, About("The uid of the pod that refused the edit.")
    ] = None
    since: Annotated[Time, About("Since when it has been in this state.")]


LONGEST_ACTION = 512  # characters


class Intent(Model):
    """The steps that the operator was about to take when it last wrote the status.

    After a crash its successor checks them.
    """

    actions: Annotated[
        Annotated[tuple[Annotated[str, Field(max_length=LONGEST_ACTION)], ...], Field(max_length=64)],
        About("The intended writes."),
    ]
    since: Annotated[Time, About("When they were decided.")]


class FinishedRun(Model):
    """The last bounded run that has completed."""

    run: Annotated[
        str,
        Field(max_length=64),
        About(
            "Which run: the hash of what it depends on, or with a schedule the time at which it was due. Without a "
            "schedule the pipeline runs again with another hash."
        ),
    ]
    completed_at: Annotated[Time, About("When it completed.")]


class ScheduleStatus(Model):
    """The runs of trigger.schedule."""

    schedule: Annotated[str, Field(max_length=LONGEST_SCHEDULE), About("The schedule that the times are of.")]
    time_zone: Annotated[str, Field(max_length=64), About("Its time zone.")]
    last_schedule_time: Annotated[
        Time | None, About("When the last run was due that was started; absent before the first.")
    ] = None
    next_schedule_time: Annotated[
        Time | None,
        About("When the next run is due; in the past while it cannot start. Absent while the pipeline is suspended."),
    ] = None


class DriverStatus(Model):
    """The driver's pod, as last observed."""

    pod: Annotated[str, Field(max_length=253), About("The name of the pod.")]
    uid: Annotated[str, Field(max_length=64), About("The uid of the pod.")] = ""
    node: Annotated[Annotated[str, Field(max_length=253)] | None, About("The node of the pod.")] = None
    number: Annotated[
        int | None,
        About("The number of the driver. A driver exits when there is one with a higher number."),
    ] = None
    restarts: Annotated[int, About("How often the container was restarted.")] = 0
    last_error: Annotated[Annotated[str, Field(max_length=2048)] | None, About("Why the driver last ended.")] = None


class DeliveryStatus(Model):
    """The figures that the driver last reported. The counters start at 0 with each driver."""

    batch: Annotated[int | None, About("The number of the last micro-batch since the query started.")] = None
    lag: Annotated[
        int | None,
        About(
            "The number of offsets between the committed offsets and the ends of the source; absent until a driver has "
            "measured it."
        ),
    ] = None
    records_per_second: Annotated[float | None, About("Records written per second, over the last ten seconds.")] = None
    abandoned_records: Annotated[
        int,
        About(
            "Offsets abandoned with their micro-batch since the driver started, some of which may have been processed "
            "(at-most-once)."
        ),
    ] = 0
    malformed_records: Annotated[int, About("Malformed records that were skipped since the driver started.")] = 0
    dead_letters: Annotated[
        int, About("Malformed records that were written as dead letters since the driver started.")
    ] = 0
    late_rows: Annotated[
        int,
        About(
            "Rows that the state of a stateful pipeline left out as late since the driver started. With GROUP BY, the "
            "records of a group count once for each micro-batch and partition."
        ),
    ] = 0
    watermark: Annotated[
        Time | None,
        About(
            "The watermark of a stateful pipeline: windows that end before it are written, and records of them that "
            "arrive later are late. Absent without source.eventTime, and until a micro-batch has moved it."
        ),
    ] = None
    expired_records: Annotated[
        int, About("Offsets that expired before they were read, since the driver started (at-most-once).")
    ] = 0
    executors: Annotated[int | None, About("The number of executors that are connected to the driver.")] = None
    executors_requested: Annotated[
        int | None, About("The number of executors that the driver has requested, with autoscaling.")
    ] = None
    observed_at: Annotated[Time | None, About("When the driver reported.")] = None


class TopicStatus(Model):
    """A topic, as last observed."""

    name: Annotated[str, Field(max_length=249), About("The name of the topic.")]
    id: Annotated[
        str,
        Field(max_length=64),
        About("Kafka's id of the topic. A topic that was deleted and created again has another one."),
    ]
    partitions: Annotated[int, About("The number of partitions.")]
    replication_factor: Annotated[int, About("The number of replicas, of the partition with the fewest.")]
    min_insync_replicas: Annotated[
        int, About("min.insync.replicas in force: with fewer replicas in sync the topic accepts no records.")
    ]
    in_sync_replicas: Annotated[int, About("The number of replicas in sync, of the partition with the fewest.")]
    moving: Annotated[int, About("The number of partitions whose replicas are being moved.")] = 0
    # The operator set the replication rate for this topic's moves.
    throttled_brokers: Annotated[
        Annotated[tuple[int, ...], Field(max_length=1000)] | None,
        About("The brokers with a throttle for that move; absent when there is no throttle to remove."),
    ] = None
    cluster: Annotated[
        Literal["source", "sink"] | None,
        About("The cluster that the topic is on; absent if source and sink are on one."),
    ] = None


class LostTopicStatus(Model):
    """A topic that the pipeline needs, and that was recreated or does not exist."""

    name: Annotated[str, Field(max_length=249), About("The name of the topic.")]
    id: Annotated[
        Annotated[str, Field(max_length=64)] | None,
        About(
            "Kafka's id of the topic whose records are lost. Absent: the operator does not know of an earlier topic."
        ),
    ] = None
    current_id: Annotated[
        Annotated[str, Field(max_length=64)] | None,
        About("Kafka's id of the topic that has the name now. Absent: there is none."),
    ] = None


class MovedPositions(Model):
    """Positions that another program has set, and that halt the driver."""

    fingerprint: Annotated[
        str,
        Field(max_length=64),
        About("Identifies exactly these partitions and offsets; offsets that are set later have another one."),
    ]


class LostState(Model):
    """State of a stateful pipeline that is lost, and that halts the driver."""

    fingerprint: Annotated[
        str, Field(max_length=64), About("Identifies exactly this state; state that is lost later has another one.")
    ]


class Status(Model):
    """The status. Each field says in its declaration what `kubectl explain dpl.status` says of it."""

    # Of the status as a whole, for the CRD. kstatus compares generations: with -1 a new pipeline does not count as
    # current before its first reconciliation.
    ABOUT: ClassVar[About] = About(
        "The observed state. Only the operator writes it.", schema={"default": {"observedGeneration": -1}}
    )

    observed_generation: Annotated[
        int | None,
        About("The generation of the spec that the status describes; -1 before the first reconciliation."),
    ] = None
    observed_at: Annotated[
        Time | None,
        About(
            "When the operator last observed the pipeline; renewed every five minutes if nothing else changes. After "
            "fifteen minutes nobody knows whether the conditions still hold."
        ),
    ] = None
    guarantee: Annotated[Guarantee | None, About("The guarantee that is in force: that of the accepted spec.")] = None
    group: Annotated[
        Annotated[str, Field(max_length=256)] | None, About("The consumer group that holds the committed offsets.")
    ] = None
    topics_ready: Annotated[
        Annotated[str, Field(max_length=32)] | None, About("How many of the managed topics exist: 2/2.")
    ] = None
    topics: Annotated[
        Annotated[tuple[TopicStatus, ...], Field(max_length=256)],
        About("The topics as last observed.", schema=map_by("name")),
    ] = ()
    conditions: Annotated[
        Annotated[tuple[Condition, ...], Field(max_length=16)],
        About(
            "Ready, GuaranteeMet and others; docs/conditions.md lists every reason with its cause and remedy.",
            schema=map_by("type"),
        ),
    ] = ()
    # lost_topics, moved_positions and lost_state are present as long as a condition reports them.
    lost_topics: Annotated[
        Annotated[tuple[LostTopicStatus, ...], Field(max_length=256)] | None,
        About(
            "Topics that were deleted or recreated, or that the pipeline needs and that do not exist. "
            "`ackwright accept-topic` reads them.",
            schema=map_by("name"),
        ),
    ] = None
    moved_positions: Annotated[
        MovedPositions | None,
        About(
            "Committed offsets that another program has set, and that halt the driver. "
            "`ackwright accept-positions` reads them."
        ),
    ] = None
    lost_state: Annotated[
        LostState | None,
        About("State that is lost, and that halts the driver. `ackwright accept-state-loss` reads it."),
    ] = None
    accepted: Annotated[
        Accepted | None,
        About("The spec that the pipeline runs by, which keeps running while an edit is invalid, checked or refused."),
    ] = None
    previous: Annotated[
        Accepted | None,
        About("The last spec that delivered, until the accepted one does. A rollback returns to it."),
    ] = None
    edit: Annotated[
        EditStatus | None, About("An edit that is valid and that the pipeline does not run by; absent without one.")
    ] = None
    intent: Annotated[
        Intent | None,
        About("What the operator was about to do. After a crash the next operator checks whether it was done."),
    ] = None
    finished_run: Annotated[
        FinishedRun | None,
        About("The last bounded run that has completed. Its Job is deleted after trigger.ttlSecondsAfterFinished."),
    ] = None
    schedule: Annotated[
        ScheduleStatus | None, About("The last and the next run of trigger.schedule; absent without a schedule.")
    ] = None
    driver: Annotated[DriverStatus | None, About("The driver as last observed.")] = None
    delivery: Annotated[DeliveryStatus | None, About("The driver's last progress report.")] = None

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
