"""The DeliveryPipeline resource as frozen values: each field with its type, its description, and what a change takes.

What the fields mean together is for planning.validation to check.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ackwright.api.checks import Cel, Check, Transition, unchangeable
from ackwright.api.fields import SET, About, ChangeClass, Model, exactly_one_of, map_by
from ackwright.api.job_fields import Checkpoint, Spark, Trigger
from ackwright.api.quantities import (
    NAME,
    Count,
    Duration,
    FunctionName,
    GroupId,
    ModuleName,
    Name,
    Namespace,
    Offsets,
    Properties,
    Subject,
    Switch,
    Text,
    TopicName,
)
from ackwright.api.schema_fields import SchemaRegistry
from ackwright.api.secret_fields import Kafka
from ackwright.api.state_fields import EventTime, State
from ackwright.formats import WITH_REGISTRY, WITH_SCHEMA, can_be_malformed, needs_registry
from ackwright.planning.guarantees import OFFSETS_PER_TRANSACTION, TRANSACTION_TIMEOUT_MS
from ackwright.planning.promises import PROMISES
from ackwright.sinks.base import SinkContext
from ackwright.sinks.registry import SinkSpec
from ackwright.wording import listed
from ackwright_stream.jobspec import Format, Guarantee

API_VERSION: Literal["ackwright.io/v1alpha1"] = "ackwright.io/v1alpha1"
KIND: Literal["DeliveryPipeline"] = "DeliveryPipeline"
# JSON: for each topic, the id of the lost topic whose loss the user has accepted.
ACCEPTED_LOSSES_ANNOTATION = "ackwright.io/given-up-topics"
# Identifies offsets that another program has set for the group and that the user has accepted.
ACCEPTED_POSITIONS_ANNOTATION = "ackwright.io/accepted-positions"
# Identifies state that is lost and whose loss the user has accepted.
ACCEPTED_STATE_LOSS_ANNOTATION = "ackwright.io/accepted-state-loss"

_ANOTHER_PIPELINE = "write the old value, or create another pipeline"
_REGISTERED = listed(WITH_REGISTRY, "or")
_CAN_BE_MALFORMED = tuple(format for format in Format if can_be_malformed(format))
_LIVE, _RESTART, _IMMUTABLE = ChangeClass.LIVE, ChangeClass.RESTART, ChangeClass.IMMUTABLE
_NEW_STATE = ChangeClass.NEW_STATE


class Metadata(Model):
    """The part of an object's metadata that belongs to the user."""

    name: Annotated[Name, About("The name.", _IMMUTABLE, "another name is another pipeline, with other positions")]
    namespace: Annotated[
        Namespace, About("The namespace.", _IMMUTABLE, "another namespace is another pipeline, with other positions")
    ] = "default"
    labels: Annotated[Mapping[str, str], About("Labels.")] = Field(default_factory=dict)
    annotations: Annotated[
        Mapping[str, str],
        About(
            "Annotations.",
            keys={
                ACCEPTED_LOSSES_ANNOTATION: (_RESTART, "the driver starts over with the topic"),
                ACCEPTED_POSITIONS_ANNOTATION: (_RESTART, "the driver continues from the accepted offsets"),
                ACCEPTED_STATE_LOSS_ANNOTATION: (_RESTART, "the state starts empty"),
            },
        ),
    ] = Field(default_factory=dict)


class Tolerate(Model):
    """spec.tolerate."""

    # 2f+1 replicas are an int16 in Kafka's protocol.
    broker_failures: Annotated[
        Annotated[int, Field(strict=True, ge=0, le=16_383)] | None,
        About(
            "How many brokers (f) may be lost without losing acknowledged records or the ability to write. "
            "Default: 1; 0 for at-most-once."
        ),
    ] = None


def _has_schema(format: Format, source: Source) -> bool:
    """Whether a source of this format has a schema."""
    return source.format is not format or source.schema_ddl is not None


def _schema_checks() -> tuple[Check[Source], ...]:
    """Which formats need a schema, and that no other has one."""
    missing = tuple(
        Check[Source](
            partial(_has_schema, format),
            f"the format {format} needs a schema",
            'add for instance schema: "name STRING, age INT"',
            cel=f"self.format != '{format}' || has(self.schema)",
            field="schema",
        )
        for format in WITH_SCHEMA
    )
    with_schema = " or ".join(WITH_SCHEMA)
    superfluous = Check[Source](
        lambda source: source.format in WITH_SCHEMA or source.schema_ddl is None,
        f"a schema belongs to the format {with_schema} only",
        f"write format: {with_schema}, or remove the schema",
        cel=" || ".join((*(f"self.format == '{format}'" for format in WITH_SCHEMA), "!has(self.schema)")),
        field="schema",
    )
    return (*missing, superfluous)


class Source(Model):
    """spec.source."""

    topics: Annotated[
        Annotated[tuple[TopicName, ...], Field(min_length=1, max_length=100)], About("The topics to read.", schema=SET)
    ]
    starting_offsets: Annotated[
        Literal["earliest", "latest"], About("Where to start in a partition that has no committed offset yet.")
    ] = "earliest"
    max_offsets_per_trigger: Annotated[
        Offsets | None,
        About(
            "The largest number of records in a micro-batch, over all topics. Default under exactly-once, and for a "
            "sink that ends a transaction of any guarantee after a time: "
            f"{OFFSETS_PER_TRANSACTION:,} for each task, of which there are as many as partitions and at most as many "
            "as processors of Spark, with autoscaling those of executor.instances; a task's transaction may last "
            f"{TRANSACTION_TIMEOUT_MS // 1000} s. Otherwise unlimited."
        ),
    ] = None
    format: Annotated[Format, About("How values are read.")] = Format.BINARY
    schema_ddl: Annotated[Text | None, Field(alias="schema"), About("The columns of a json value, in Spark's DDL.")] = (
        None
    )
    subject: Annotated[
        Subject | None,
        About(
            f"The subject of the schema that {_REGISTERED} values are read with. Default: <topic>-value, of the only "
            "topic."
        ),
    ] = None
    schema_version: Annotated[
        Count | None,
        About(
            f"The version of the subject that {_REGISTERED} values are read with. Default: the latest when the driver "
            "starts; an audit needs a fixed one."
        ),
    ] = None
    on_malformed: Annotated[
        Literal["fail", "skip", "deadLetter"],
        About(
            "What a record that does not fit the schema does: stop the pipeline, be skipped and counted, or go where "
            f"the deadLetter of the sink says (formats {listed(_CAN_BE_MALFORMED)})."
        ),
    ] = "fail"
    event_time: Annotated[
        EventTime | None,
        About(
            "The time of the events, for a stateful transform.",
            _NEW_STATE,
            "the state was computed with the other event time",
        ),
    ] = None
    group_id: Annotated[
        GroupId | None,
        About("The consumer group that holds the committed offsets. Default: <namespace>.<name>. Cannot be changed."),
        unchangeable(
            "cannot be changed: the committed offsets belong to the group, and under another one everything would be "
            "delivered again, or skipped",
            _ANOTHER_PIPELINE,
        ),
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (*_SCHEMA_CHECKS, *_SUBJECT_CHECKS)


_SCHEMA_CHECKS = _schema_checks()
_IN_REGISTRY = " || ".join(f"self.format == '{format}'" for format in WITH_REGISTRY)
_SUBJECT_CHECKS = (
    Check[Source](
        lambda source: needs_registry(source.format) or (source.subject is None and source.schema_version is None),
        f"subject and schemaVersion belong to the format {_REGISTERED} only",
        f"write format: {_REGISTERED}, or remove them",
        cel=f"{_IN_REGISTRY} || !(has(self.subject) || has(self.schemaVersion))",
        field="subject",
    ),
    Check[Source](
        lambda source: not needs_registry(source.format) or source.subject is not None or len(source.topics) == 1,
        "several topics with schemas need a subject: all are read with the same schema",
        "name the subject whose schema has the columns, or give each topic a pipeline",
        cel=f"!({_IN_REGISTRY}) || has(self.subject) || size(self.topics) == 1",
        field="subject",
    ),
)


class PythonTransform(Model):
    """spec.transform.python."""

    module: Annotated[ModuleName, About("The module, with dots.")]
    function: Annotated[FunctionName, About("The name of the function.")]


class Transform(Model):
    """spec.transform."""

    sql: Annotated[
        Text | None,
        About("A query on the view `source`. The columns key, topic and headers are special; see docs/pipelines.md."),
    ] = None
    python: Annotated[
        PythonTransform | None, About("A function from DataFrame to DataFrame, in a module of the image.")
    ] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (exactly_one_of(cls),)


class Topic(Model):
    """An entry of spec.topics."""

    name: Annotated[TopicName, About("The name of the topic.")]
    partitions: Annotated[
        Count,
        About("The number of partitions. It can grow, not shrink."),
        Transition[int](
            lambda before, after: after >= before,
            "Kafka cannot take partitions away from a topic",
            "write the old number or more, or recreate the topic",
            cel="self >= oldSelf",
        ),
    ]
    replication_factor: Annotated[
        Annotated[int, Field(strict=True, ge=1, le=32_767)] | None,
        About("The number of replicas. Default: min.insync.replicas + brokerFailures."),
    ] = None
    config: Annotated[
        Properties,
        About("Settings of the topic, by Kafka's names. Default of min.insync.replicas: brokerFailures + 1."),
    ] = Field(default_factory=dict)
    deletion_policy: Annotated[
        Literal["Retain", "Delete"], About("What happens to the topic when the pipeline is deleted.")
    ] = "Retain"
    drift_policy: Annotated[
        Literal["repair", "alert", "pause"],
        About("What to do when the topic differs from this declaration: repair it, report it, or pause the pipeline."),
    ] = "repair"


class Rollback(Model):
    """spec.rollback."""

    after: Annotated[
        Duration,
        About("How long an edit may take until it delivers: 90s, 5m. It includes the drain and Spark's start."),
    ]


class Spec(Model):
    """spec: what the user declares. Every field says what a change of it takes."""

    guarantee: Annotated[
        Guarantee,
        About(
            "How often a record of the source reaches the sink. It can be changed.",
            _RESTART,
            "committed offsets mean the same under each guarantee; the next driver takes over the lanes",
        ),
    ]
    tolerate: Annotated[
        Tolerate, About("The failures that the guarantee has to survive.", _LIVE, "it affects the topics only")
    ] = Tolerate()
    kafka: Annotated[
        Kafka,
        About(
            "The brokers of the source; also those of the sink, unless it names its own.",
            _RESTART,
            "new connections; it has to be the same Kafka cluster, which holds the committed offsets",
        ),
    ]
    schema_registry: Annotated[
        SchemaRegistry | None,
        About(
            f"A Confluent-compatible schema registry, for the formats {listed(WITH_REGISTRY)}.",
            _RESTART,
            "the driver resolves the schemas again, and resumes from the committed offsets",
        ),
    ] = None
    source: Annotated[
        Source, About("What is read.", _RESTART, "the query changes, and resumes from the committed offsets")
    ]
    transform: Annotated[
        Transform,
        About(
            "What is done with the records.", _RESTART, "records that are already delivered are not transformed again"
        ),
    ]
    state: Annotated[
        State | None,
        About(
            "Makes the pipeline stateful: the transform may group, aggregate and drop duplicates.",
            _NEW_STATE,
            "the stored state fits no other setting",
        ),
    ] = None
    sink: Annotated[
        SinkSpec,
        About("Where the output goes.", _RESTART, "records that are already delivered are not written again"),
    ]
    topics: Annotated[
        Annotated[tuple[Topic, ...], Field(max_length=100)],
        About(
            "The topics that the operator may create and configure.",
            _LIVE,
            "topics change while the job runs",
            schema=map_by("name"),
        ),
    ] = ()
    trigger: Annotated[Trigger, About("When a micro-batch starts.", _RESTART, "the query changes")] = Trigger()
    checkpoint: Annotated[
        Checkpoint | None,
        About(
            "Where Spark keeps its checkpoint. A stateful pipeline needs a volume or bucket for its state. A stateless "
            "one needs none: its committed offsets are in Kafka.",
            _RESTART,
            "offsets are committed to Kafka; a stateless pipeline's checkpoint holds nothing that is needed",
        ),
    ] = None
    spark: Annotated[Spark, About("The size and the settings of the job.", _RESTART, "the pods change")] = Spark()
    standby: Annotated[
        Switch,
        About(
            "Keep a second driver with Spark started, which takes over within seconds when the first one is gone. It "
            "needs as many resources as the job.",
            _RESTART,
            "the pods change",
        ),
    ] = False
    rollback: Annotated[
        Rollback | None,
        About(
            "Return to the last spec that delivered when an edit does not deliver in time. Without it the pipeline "
            "stays with the edit.",
            _LIVE,
            "it affects later edits only",
        ),
    ] = None
    suspend: Annotated[
        Switch,
        About(
            "Stop after the current micro-batch. With false the pipeline resumes where it stopped.",
            _LIVE,
            "the driver drains and ends, or starts again",
        ),
    ] = False

    @property
    def broker_failures(self) -> int:
        """f: how many brokers may be lost without losing acknowledged records or the ability to write."""
        if self.tolerate.broker_failures is not None:
            return self.tolerate.broker_failures
        return PROMISES[self.guarantee].broker_failures


class DeliveryPipeline(Model):
    """The resource."""

    # Of the resource as a whole, for the CRD.
    DESCRIPTION: ClassVar[str] = "A pipeline from Kafka through Spark to a sink, with a declared delivery guarantee."
    CEL: ClassVar[tuple[dict[str, str], ...]] = (
        # The API server checks names itself, but allows more than is unambiguous and fits (quantities.NAME).
        Cel("self.metadata.name.size() <= 52 && !self.metadata.name.contains('.')", at=".metadata.name").entry(
            NAME.message, NAME.remedy
        ),
    )

    api_version: Annotated[Literal["ackwright.io/v1alpha1"], About("The version of the API.", _IMMUTABLE, "as named")]
    kind: Annotated[Literal["DeliveryPipeline"], About("The kind of resource.", _IMMUTABLE, "as named")]
    metadata: Annotated[Metadata, About("The object's metadata.", _LIVE, "labels and annotations belong to the user")]
    spec: Annotated[Spec, About("What the pipeline delivers, and how.")]

    @property
    def group(self) -> str:
        """The consumer group that holds the committed offsets: source.groupId, else <namespace>.<name>."""
        return self.spec.source.group_id or f"{self.metadata.namespace}.{self.metadata.name}"

    @property
    def sink_context(self) -> SinkContext[Any] | None:
        """The sink with the parts of the pipeline with which it has to agree; None if its fields are wrong."""
        sink = self.spec.sink.declared_if_valid
        if sink is None:
            return None
        return SinkContext(
            sink,
            guarantee=self.spec.guarantee,
            source_servers=self.spec.kafka.bootstrap_servers,
            source_topics=self.spec.source.topics,
            declared_partitions={topic.name: topic.partitions for topic in self.spec.topics},
            output_mode=self.spec.state.output_mode if self.spec.state else None,
        )
