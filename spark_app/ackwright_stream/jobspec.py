"""The contract between the operator or command line, which write a jobspec, and the job, which runs it, as JSON.

The operator's plan decides every value; the job reads its settings from nowhere else, so nearly every field is
required. Standard library only. It contains the paths of mounted secrets and never a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ackwright_stream.jobspec_sinks import (
    DeadLetterTopic,
    DeltaSink,
    FilesSink,
    IcebergSink,
    KafkaPositions,
    KafkaSink,
    OutputSchema,
    PostgresSink,
    SinkSpec,
    register_sink,
    sink_from_json,
)
from ackwright_stream.jobspec_values import (
    CREATES_NO_TOPICS,
    DEFAULT_TIME_ZONE,
    INSTANCE_ID,
    READER,
    RULE_1,
    RULE_8,
    S3A_SCHEME,
    STATE,
    TIME_ZONE,
    WRITER,
    Cluster,
    Format,
    Guarantee,
    Required,
    s3_region,
)
from ackwright_stream.jobspec_versions import added, checked, require_readable, values_of, version_of
from ackwright_stream.reasons import ExitCode, Reason

__all__ = [
    "DEFAULT_TIME_ZONE",
    "INSTANCE_ID",
    "S3A_SCHEME",
    "STATE",
    "TIME_ZONE",
    "Autoscaling",
    "Cluster",
    "DeadLetterTopic",
    "DeltaSink",
    "ExitCode",
    "FilesSink",
    "Format",
    "Guarantee",
    "IcebergSink",
    "JobSpec",
    "KafkaPositions",
    "KafkaSink",
    "OutputSchema",
    "PostgresSink",
    "Reason",
    "Required",
    "Restart",
    "SchemaRegistry",
    "SinkSpec",
    "Source",
    "StandbyTimes",
    "StateSettings",
    "Transform",
    "from_json",
    "register_sink",
    "s3_region",
    "to_json",
]

# Functions of Spark's SQL that call any method of the job's JVM, and thereby read its Secrets or start programs.
REFUSED_FUNCTIONS = ("java_method", "reflect", "try_reflect")


@dataclass(frozen=True)
class SchemaRegistry:
    """How a client connects to a Confluent-compatible schema registry."""

    url: str
    credentials: str | None  # directory with the files `username` and `password`, as a mounted Secret; None: no login
    ca: str | None  # file of the CA certificate; None: the CAs that the image trusts
    timeout_ms: int  # of one operation with its repetitions


@dataclass(frozen=True)
class Source:
    """What is read."""

    topics: tuple[str, ...]
    starting_offsets: str  # earliest | latest, for lanes that never had a position
    max_offsets_per_trigger: int | None  # limit of a batch, as declared; None: offsets_per_transaction decides
    offsets_per_transaction: int | None  # limit of a batch for each of its transactions; None: no limit
    smallest_batch: int | None  # offsets; transaction time-outs do not reduce the limit further; None: there is none
    format: Format
    # Of json: Spark DDL. Of formats with a registry: the reader's schema, which the driver reads there; None until
    # then.
    schema: str | None
    subject: str | None  # in the registry, of the reader's schema; None for formats without one
    schema_version: int | None  # of the subject; None: the latest when the driver starts
    # Schemas of the subject's latest versions by id, which workers need not ask the registry for. The driver's, too.
    writer_schemas: Mapping[str, str]
    skip_malformed: bool  # False: a malformed record fails the query, or is a dead letter
    # Malformed records are dead letters, if they are at most this fraction of the records; None: they are none.
    dead_letter_fraction: float | None


@dataclass(frozen=True)
class Transform:
    """What computes the output: exactly one of sql and module with function."""

    sql: str | None = None
    module: str | None = None
    function: str | None = None


@dataclass(frozen=True)
class StateSettings:
    """How a stateful pipeline keeps its state."""

    partitions: int  # of the state, for as long as it is kept
    # Directory of the state, or s3a://<bucket>/<prefix>: on storage that every executor can write and that outlives the
    # driver.
    checkpoint: str
    output_mode: str  # append | update, as Spark's
    event_time: str | None  # column of the view `source`; None: the query has no watermark, or sets it itself
    watermark_delay: str | None  # how late a record may come, as Spark reads an interval; None without event_time
    # Of the output of a batch in the driver's memory, until it has committed it. A task that has more than its part of
    # them stores its output beside the state.
    batch_bytes: int
    endpoint: str | None = None  # of S3; None: AWS
    region: str | None = None  # of S3
    credentials: str | None = None  # of S3, as in DeltaSink

    @property
    def bucket(self) -> str | None:
        """The bucket of S3 that has the state; None: it is in a directory."""
        place = self.checkpoint
        return place.removeprefix(S3A_SCHEME).partition("/")[0] if place.startswith(S3A_SCHEME) else None


@dataclass(frozen=True)
class Autoscaling:
    """How many executors a driver asks Spark for."""

    min_executors: int  # never fewer
    max_executors: int
    cores: int  # of each executor: tasks that it runs at a time
    drain_target_ms: int  # the time in which a lag is to be delivered
    window_ms: int  # of one measurement
    cool_down_ms: int  # after a change, before executors are released


@dataclass(frozen=True)
class StandbyTimes:
    """When a standby driver takes a silent owner for gone."""

    silent_ms: int  # without a sign of life
    silent_max_ms: int  # the longest that a standby waits: then the group's coordinator decides


@dataclass(frozen=True)
class Restart:
    """Back-off between restarts of the query: initial_ms * 2^(n-1) after n failures, at most max_ms, often less."""

    initial_ms: int
    max_ms: int
    forgive_after_ms: int  # a query that ran this long without a failure sets n back to 0
    max_attempts: int  # after this many failures in a row the job exits, and its supervisor decides


Spec = TypeVar("Spec", bound=SinkSpec)


@dataclass(frozen=True)
class JobSpec:
    """Everything that the job needs to know."""

    name: str
    namespace: str
    guarantee: Guarantee
    group: str  # the consumer group whose committed offsets are the positions
    # Of this pipeline among those with the same group, without spaces and semicolons: in a cluster the uids of its
    # namespace and of the resource with a slash between them; of the resource alone if an earlier release has set it.
    identity: str
    cluster: Cluster
    schema_registry: SchemaRegistry | None  # None: no format needs it
    source: Source
    transform: Transform
    sink: SinkSpec
    slots: int  # tasks of a batch, at most; each has a separate transaction
    autoscaling: Autoscaling | None  # slots do not change with it; None: the number of executors is fixed
    state: StateSettings | None  # None: the transform is stateless

    # Settings of clients. librdkafka's names:
    producer: Mapping[str, str]  # of the producers of rows (exactly-once, at-most-once)
    positions_consumer: Mapping[str, str]  # of the consumer that reads positions in Kafka, and the source's ends
    topic_consumer: Mapping[str, str]  # of the consumer that reads a topic to its end: lanes topic; source, in an audit
    # Java's names:
    sink_options: Mapping[str, str]  # of the producer of Spark's Kafka sink (at-least-once)
    # Of the consumer of Spark's Kafka source; a name without a dot is an option of the source itself.
    consumer: Mapping[str, str]
    # Spark's names, spark.master included:
    spark: Mapping[str, str]
    stream_options: Mapping[str, str]  # of the query's writer

    accepted_losses: Mapping[str, str]  # by source topic, the id of a deleted topic whose loss a person has accepted
    # positions.fingerprint() of offsets that another program has set and a person has accepted; None: of none
    accepted_positions: str | None
    # decisions.loss_of() the state whose loss a person has accepted; None: of none
    accepted_state_loss: str | None
    trigger_interval_ms: int | None  # 0: a batch starts as soon as the last one has ended; None: a bounded run
    available_now: bool  # a bounded run: the job ends when it has delivered what was in the source at the start
    # The driver waits, with Spark started, as long as another driver owns the pipeline; None: it takes it at once.
    standby: StandbyTimes | None
    checkpoint: str | None  # directory under which each query creates its own; None: a temporary one
    progress_host: str
    progress_port: int  # 0: any free port
    operation_timeout_ms: int  # of one call to Kafka
    restart: Restart
    # A sink without any trace of the pipeline is another one: it had delivered when its sink was last changed.
    expects_positions: bool = added(6, default=False)

    def __post_init__(self) -> None:
        """Raises ValueError for settings that break the protocol."""
        reader = {"group.id": (self.group, RULE_1), **READER}
        sections = [
            ("positions_consumer", self.positions_consumer, reader),
            ("topic_consumer", self.topic_consumer, reader),
            ("cluster.every_client", self.cluster.every_client, CREATES_NO_TOPICS),
            *self.sink.required(self.group),
        ]
        if self.guarantee is Guarantee.EXACTLY_ONCE and self.producer:  # empty: the sink's rows go through no producer
            sections.append(("producer", self.producer, WRITER))
        problems = [
            f"{section}: {name} is {settings.get(name)!r} and must be {value!r} ({why})"
            for section, settings, required in sections
            for name, (value, why) in required.items()
            if settings.get(name) != value
        ]
        problems += self._state_problems()
        if not re.fullmatch(r"[^\s;]*", self.identity):  # own positions would look like those of another program
            problems.append(f"identity: {self.identity!r} must have neither spaces nor semicolons ({RULE_8})")
        if problems:
            raise ValueError(f"jobspec breaks the protocol: {'; '.join(problems)}")

    @property
    def keeps_identity(self) -> bool:
        """Whether positions are still this pipeline's after an orderly stop, because a driver is started again."""
        return "/" in self.identity

    @property
    def may_repeat_rows(self) -> bool:
        """Whether a row may be written again while it is there, to a sink whose commits have state and rows as one."""
        return self.guarantee is Guarantee.AT_LEAST_ONCE and self.state is None

    def _state_problems(self) -> Iterator[str]:
        if self.state is None:
            return
        required = {**STATE, "spark.sql.shuffle.partitions": (str(self.state.partitions), "state.partitions")}
        for name, (value, why) in required.items():
            if self.spark.get(name) != value:
                yield f"spark: {name} is {self.spark.get(name)!r} and must be {value!r} ({why})"
        if self.guarantee is Guarantee.AT_LEAST_ONCE and self.producer.get("acks") == "0":
            yield "producer: acks is '0', and a batch is decided when its output is acknowledged"
        if self.stream_options.get("asyncProgressTrackingEnabled", "false") != "false":
            yield "stream_options: a decision has the text of Spark's log, which must not be written later"
        if getattr(self.sink, "preserve_partition", False):
            yield "sink: a stateful pipeline has no source partition to preserve"

    @property
    def transaction_timeout_ms(self) -> int:
        """After this time the sink's store ends a transaction that is still open."""
        return self.sink.transaction_timeout_ms

    def sink_of(self, kind: type[Spec]) -> Spec:
        """The sink, which is of this kind. Raises TypeError for another."""
        if not isinstance(self.sink, kind):
            raise TypeError(f"the sink is no {kind.__name__}: {self.sink}")
        return self.sink


def to_json(job: JobSpec) -> str:
    """The jobspec as JSON text, keys sorted, so that equal jobs are equal texts, also in a later release."""
    return json.dumps({**values_of(job), "version": version_of(job)}, sort_keys=True, indent=2) + "\n"


def from_json(text: str) -> JobSpec:
    """The jobspec that to_json of this release or an earlier one wrote.

    Raises ValueError for a version that this job does not read, for unknown or missing fields by their names, and for
    anything else that is not a jobspec.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        require_readable(data.pop("version"))
        source = checked(Source, data, "source")
        return JobSpec(
            **{
                **checked(JobSpec, data),
                "guarantee": Guarantee(data["guarantee"]),
                "cluster": Cluster(**checked(Cluster, data, "cluster")),
                "schema_registry": (
                    SchemaRegistry(**checked(SchemaRegistry, data, "schema_registry"))
                    if data["schema_registry"]
                    else None
                ),
                "source": Source(**{**source, "topics": tuple(source["topics"]), "format": Format(source["format"])}),
                "transform": Transform(**checked(Transform, data, "transform")),
                "sink": sink_from_json(data),
                "restart": Restart(**checked(Restart, data, "restart")),
                "state": StateSettings(**checked(StateSettings, data, "state")) if data["state"] else None,
                "standby": StandbyTimes(**checked(StandbyTimes, data, "standby")) if data["standby"] else None,
                "autoscaling": (
                    Autoscaling(**checked(Autoscaling, data, "autoscaling")) if data["autoscaling"] else None
                ),
            }
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"not a jobspec: {e!r}") from e
