"""The fields of the resource that describe the job: when micro-batches start, its checkpoint, its size and settings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ackwright.api.checks import Check, Transition, unchangeable
from ackwright.api.fields import About, ChangeClass, Model, exactly_one_of, map_by
from ackwright.api.pod_fields import PodTemplate, PullPolicy
from ackwright.api.pod_sources import ObjectName
from ackwright.api.quantities import (
    Count,
    Cpu,
    Duration,
    Line,
    Memory,
    Pattern,
    Properties,
    Seconds,
    SecretName,
    Size,
    Switch,
    size_kib,
)
from ackwright.api.secret_fields import S3
from ackwright.api.spark_conf import ALLOWED
from ackwright.api.storage_fields import EventLogDirectory
from ackwright_stream.jobspec import S3A_SCHEME

_CPU_REQUEST = About("The CPU that Kubernetes reserves: 500m, 1. Default: `cores`.")


LONGEST_SCHEDULE = 5 * 64 + 4
_FIELD = "[0-9A-Za-z*/,#-]{1,64}"
_SCHEDULE = Pattern(
    f"^{_FIELD}( {_FIELD}){{4}}$",
    "must be a cron expression of five fields: minute, hour, day of the month, month, day of the week",
    "write for instance 0 3 * * *, which is 03:00 every day",
    longest=LONGEST_SCHEDULE,
)
_TIME_ZONE = Pattern(
    "^[A-Za-z][0-9A-Za-z_+/-]{0,63}$",
    "must be the name of a time zone",
    "write for instance UTC or Europe/Berlin",
    longest=64,
)


class Trigger(Model):
    """spec.trigger."""

    interval: Annotated[
        Duration | None,
        About("The time from the start of one micro-batch to the start of the next: 500ms, 1s, 5m. Default: 1s."),
    ] = None
    available_now: Annotated[Switch, About("Deliver what is available now, and end.")] = False
    ttl_seconds_after_finished: Annotated[
        Seconds | None,
        About(
            "With availableNow: how long the Job and its pod stay after the run has completed. Default: until the "
            "pipeline is deleted. A run whose Job is deleted does not run again.",
            ChangeClass.LIVE,
            "it affects the Job of a completed run only",
        ),
    ] = None
    schedule: Annotated[
        Annotated[str, _SCHEDULE] | None,
        About(
            "With availableNow: when runs start, as a cron expression of minute, hour, day of the month, month and day "
            "of the week, such as 0 3 * * *. A time that comes while a run is going is skipped. Default: one run, now.",
            ChangeClass.LIVE,
            "it affects the times of later runs only",
        ),
    ] = None
    time_zone: Annotated[
        Annotated[str, _TIME_ZONE] | None,
        About(
            "The time zone of the schedule, such as Europe/Berlin. Default: UTC.",
            ChangeClass.LIVE,
            "it affects the times of later runs only",
        ),
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (_ONE_TRIGGER, _TTL_OF_BOUNDED_RUN, _SCHEDULE_OF_BOUNDED_RUNS, _TIME_ZONE_OF_SCHEDULE)


_ONE_TRIGGER = Check[Trigger](
    lambda trigger: trigger.interval is None or not trigger.available_now,
    "must have at most one of interval, availableNow, and has interval and availableNow",
    "remove all but one",
    cel="!has(self.interval) || !self.availableNow",
)


_TTL_OF_BOUNDED_RUN = Check[Trigger](
    lambda trigger: trigger.ttl_seconds_after_finished is None or trigger.available_now,
    "belongs to a bounded run: a stream does not complete",
    "write availableNow: true, or remove it",
    cel="!has(self.ttlSecondsAfterFinished) || self.availableNow",
    field="ttlSecondsAfterFinished",
)


_SCHEDULE_OF_BOUNDED_RUNS = Check[Trigger](
    lambda trigger: trigger.schedule is None or trigger.available_now,
    "belongs to bounded runs: a stream always runs",
    "write availableNow: true, or remove it",
    cel="!has(self.schedule) || self.availableNow",
    field="schedule",
)


_TIME_ZONE_OF_SCHEDULE = Check[Trigger](
    lambda trigger: trigger.time_zone is None or trigger.schedule is not None,
    "belongs to a schedule",
    "write schedule, or remove it",
    cel="!has(self.timeZone) || has(self.schedule)",
    field="timeZone",
)


class Volume(Model):
    """spec.checkpoint.volume."""

    size: Annotated[
        Size,
        About(
            "The size. It can grow, if the storage class allows it.",
            ChangeClass.LIVE,
            "the volume grows, if its storage class allows it",
        ),
        Transition[str](
            lambda before, after: size_kib(after) >= size_kib(before),
            "a volume cannot shrink",
            "write the old size or more, or recreate the pipeline",
            cel="quantity(self.{field}).compareTo(quantity(oldSelf.{field})) >= 0",
        ),
    ]
    storage_class_name: Annotated[
        SecretName | None,
        About("The storage class. Default: that of the cluster. Cannot be changed."),
        unchangeable("a volume cannot change its class", "write the old one, or recreate the pipeline"),
    ] = None


class Checkpoint(Model):
    """spec.checkpoint."""

    volume: Annotated[
        Volume | None,
        About("A volume for the driver. A stateful pipeline with a volume has no executors."),
    ] = None
    uri: Annotated[
        Line | None,
        About(
            "The state of a stateful pipeline in a bucket: s3a://bucket/prefix, for this pipeline alone. Of a "
            "stateless pipeline a directory in the driver's pod: file:///path.",
            ChangeClass.RESTART,
            "the state has to be copied to the new place before; without it the driver halts",
        ),
    ] = None
    s3: Annotated[S3 | None, About("How to reach the bucket of an s3a:// uri.")] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (exactly_one_of(cls, "s3"), _S3_OF_BUCKET)


_S3_OF_BUCKET = Check[Checkpoint](
    lambda checkpoint: checkpoint.s3 is None or (checkpoint.uri or "").startswith(S3A_SCHEME),
    f"s3 belongs to a uri that begins with {S3A_SCHEME}",
    f"write uri: {S3A_SCHEME}bucket/prefix, or remove s3",
    cel=f"!has(self.s3) || (has(self.uri) && self.uri.startsWith('{S3A_SCHEME}'))",
    field="s3",
)


class Driver(Model):
    """spec.spark.driver."""

    cores: Annotated[Count, About("The number of cores.")] = 1
    cpu_request: Annotated[Cpu | None, _CPU_REQUEST] = None
    memory: Annotated[Memory, About("The JVM's heap: 512m, 1g. The pod's memory is larger.")] = "1g"
    pod_template: Annotated[PodTemplate, About("More fields of the driver's pod.")] = PodTemplate()


class Autoscaling(Model):
    """spec.spark.executor.autoscaling."""

    max_instances: Annotated[Count, About("The largest number of executors. At least executor.instances.")]
    drain_target: Annotated[
        Duration,
        About("The time in which a lag is to be delivered: 30s, 5m. The shorter, the more executors for the same lag."),
        Check[str](
            lambda duration: not duration.startswith("0"),
            "must be above zero",
            "write for instance 5m",
            cel="!self.startsWith('0')",
        ),
    ] = "5m"


class Executor(Model):
    """spec.spark.executor."""

    instances: Annotated[Count, About("The number of executors; with autoscaling the smallest number.")] = 1
    autoscaling: Annotated[
        Autoscaling | None,
        About("More executors while there is a lag. Default: the number is fixed. Not with spec.state."),
    ] = None
    cores: Annotated[Count, About("The number of cores of each executor: each core runs one task at a time.")] = 1
    cpu_request: Annotated[Cpu | None, _CPU_REQUEST] = None
    memory: Annotated[Memory, About("The JVM's heap of each: 512m, 1g. The pod's memory is larger.")] = "1g"
    pod_template: Annotated[PodTemplate, About("More fields of the executors' pods.")] = PodTemplate()

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (_MOST_EXECUTORS,)


_MOST_EXECUTORS = Check[Executor](
    lambda executor: executor.autoscaling is None or executor.autoscaling.max_instances >= executor.instances,
    "autoscaling.maxInstances is below instances, which is the smallest number",
    "raise autoscaling.maxInstances, or lower instances",
    cel="!has(self.autoscaling) || self.autoscaling.maxInstances >= self.instances",
    field="autoscaling",
)


class EventLog(Model):
    """spec.spark.eventLog."""

    directory: Annotated[
        EventLogDirectory,
        About(
            "Where the driver writes: s3a://bucket/prefix, with the classes of S3A in the image, or file:///directory "
            "below a volumeMount of driver.podTemplate."
        ),
    ]


class Spark(Model):
    """spec.spark."""

    image: Annotated[
        Line | None, About("The image of the job. Default: the operator's setting (image.spark of the chart).")
    ] = None
    image_pull_policy: Annotated[
        PullPolicy | None,
        About("When the image is pulled. Default: the operator's setting (image.pullPolicy of the chart)."),
    ] = None
    image_pull_secrets: Annotated[
        Annotated[tuple[ObjectName, ...], Field(max_length=16)],
        About(
            "Secrets with which the images of the pods are pulled, besides those of the operator's setting "
            "(image.sparkPullSecrets of the chart).",
            schema=map_by("name"),
        ),
    ] = ()
    driver: Annotated[Driver, About("The driver's pod, which plans the micro-batches.")] = Driver()
    executor: Annotated[
        Executor,
        About("The executors' pods, which do the work. With checkpoint.volume and spec.state the driver does it."),
    ] = Executor()
    event_log: Annotated[
        EventLog | None,
        About("Spark's event log, for its history server. The pipeline delivers also if it cannot be written."),
    ] = None
    conf: Annotated[Properties, About(f"More settings of Spark. Allowed: {', '.join(sorted(ALLOWED))}.")] = Field(
        default_factory=dict
    )
