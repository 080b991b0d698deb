"""The DeliveryPipeline resource: what a user declares, as frozen values. What its fields mean together is for planning to judge.

`parse` and `load` are the only doors. They report everything that is wrong at once, because a user who is told of one mistake at a
time needs as many attempts as there are mistakes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from ackwright.api import document as documents
from ackwright.api.quantities import (
    BootstrapServers,
    Count,
    Cpu,
    Duration,
    FunctionName,
    GroupId,
    Line,
    Memory,
    ModuleName,
    Name,
    Namespace,
    Offsets,
    Properties,
    SecretKey,
    SecretName,
    Size,
    Switch,
    Text,
    TopicName,
)
from ackwright.api.violations import Problem, translate
from ackwright.errors import InvalidSpec, Violation
from ackwright_stream.jobspec import Format, Guarantee

API_VERSION: Literal["ackwright.io/v1alpha1"] = "ackwright.io/v1alpha1"
KIND: Literal["DeliveryPipeline"] = "DeliveryPipeline"
GIVEN_UP_ANNOTATION = (
    "ackwright.io/given-up-topics"  # JSON: by topic, the id of the one whose loss a person has accepted
)

# What the API server adds to an object: `kubectl get -o yaml` is a spec, too.
_SERVER_FIELDS = frozenset(
    {
        *(
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ),
        *("managedFields", "selfLink", "finalizers", "ownerReferences", "generateName"),
    }
)
# Stands in for required fields that are missing or wrong, so that rules on the other fields can still be checked.
_STAND_IN: Mapping[str, Any] = {
    "metadata": {"name": "x"},
    "spec": {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "x:1"},
        "source": {"topics": ["x"]},
        "transform": {},
        "sink": {},
    },
}


class Model(BaseModel):
    """Frozen, camelCase in YAML, and strict about names: a field that is silently ignored is a promise that is silently broken."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)


def _one_of(model: BaseModel, info: ValidationInfo, *, at_most: bool = False) -> None:
    """Exactly one (or at most one) of a model's fields is set. Not asked of a partial document, whose fields may have been taken out."""
    if info.context == "partial":
        return
    names = [f.alias or n for n, f in type(model).model_fields.items()]
    given = [f.alias or n for n, f in type(model).model_fields.items() if getattr(model, n) not in (None, False)]
    if len(given) == 1 or (at_most and not given):
        return
    raise PydanticCustomError(
        "one_of",
        "must have {how} one of {names}, and has {given}",
        {
            "how": "at most" if at_most else "exactly",
            "names": ", ".join(names),
            "given": " and ".join(given) or "none",
            "remedy": "remove all but one" if given else "add one of them",
        },
    )


class Metadata(Model):
    name: Name
    namespace: Namespace = "default"
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)


class Tolerate(Model):
    """How many brokers may be lost (f). None: 1, and 0 for at-most-once."""

    broker_failures: Annotated[int, Field(strict=True, ge=0, le=16_383)] | None = (
        None  # 2f+1 replicas are an int16 in Kafka's protocol
    )


class CredentialsSecret(Model):
    """A Secret with the keys username and password."""

    name: SecretName


class Auth(Model):
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    credentials_secret: CredentialsSecret


class CaSecret(Model):
    """A Secret that holds the certificate of the authority which signed the brokers' certificates, in PEM."""

    name: SecretName
    key: SecretKey = "ca.crt"


class Tls(Model):
    """Without caSecret the authorities that the system trusts are trusted."""

    ca_secret: CaSecret | None = None


class Kafka(Model):
    bootstrap_servers: BootstrapServers
    auth: Auth | None = None
    tls: Tls | None = None


class Source(Model):
    """max_offsets_per_trigger: records a batch, over all topics. schema_ddl: Spark DDL, for json and only for json."""

    topics: Annotated[tuple[TopicName, ...], Field(min_length=1, max_length=100)]
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    max_offsets_per_trigger: Offsets | None = None
    format: Format = Format.BINARY
    schema_ddl: Annotated[Text | None, Field(alias="schema")] = None
    on_malformed: Literal["fail", "skip"] = "fail"
    group_id: GroupId | None = None

    @model_validator(mode="after")
    def _schema_belongs_to_json(self, info: ValidationInfo) -> Self:
        if info.context == "partial" or (self.format is Format.JSON) == (self.schema_ddl is not None):
            return self
        if self.schema_ddl is None:
            raise PydanticCustomError(
                "schema",
                "the format json needs a schema",
                {"remedy": 'add for instance schema: "name STRING, age INT"', "at": "schema"},
            )
        raise PydanticCustomError(
            "schema",
            "a schema belongs to the format json only",
            {"remedy": "write format: json, or remove the schema", "at": "schema"},
        )


class PythonTransform(Model):
    """A function DataFrame -> DataFrame in a module of the user's image."""

    module: ModuleName
    function: FunctionName


class Transform(Model):
    sql: Text | None = None
    python: PythonTransform | None = None

    @model_validator(mode="after")
    def _one(self, info: ValidationInfo) -> Self:
        _one_of(self, info)
        return self


class KafkaSink(Model):
    """topic may be absent if the transform yields a column `topic`. bootstrap_servers: a second cluster, which is not built yet."""

    topic: TopicName | None = None
    format: Format = Format.BINARY
    acks: Literal["0", "1", "all"] | None = None
    preserve_partition: Switch = False
    bootstrap_servers: BootstrapServers | None = None


class Sink(Model):
    """The fields of sinks other than Kafka are fixed when these are built; until then they are known by name alone, and refused."""

    kafka: KafkaSink | None = None
    postgres: Mapping[str, Any] | None = None
    delta: Mapping[str, Any] | None = None
    iceberg: Mapping[str, Any] | None = None
    files: Mapping[str, Any] | None = None

    @model_validator(mode="after")
    def _one(self, info: ValidationInfo) -> Self:
        _one_of(self, info)
        return self


class Topic(Model):
    """A topic that may be managed. replication_factor: None: derived from tolerate.brokerFailures. drift_policy: what is done when
    the topic is not as declared: repair it, tell of it, or tell of it and pause the pipeline."""

    name: TopicName
    partitions: Count
    replication_factor: Annotated[int, Field(strict=True, ge=1, le=32_767)] | None = None
    config: Properties = Field(default_factory=dict)
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    drift_policy: Literal["repair", "alert", "pause"] = "repair"


class Trigger(Model):
    """interval: from the start of one batch to the start of the next, 1s if neither is given; available_now: a bounded run."""

    interval: Duration | None = None
    available_now: Switch = False

    @model_validator(mode="after")
    def _one(self, info: ValidationInfo) -> Self:
        _one_of(self, info, at_most=True)
        return self


class Volume(Model):
    size: Size
    storage_class_name: SecretName | None = None


class Checkpoint(Model):
    volume: Volume | None = None
    uri: Line | None = None

    @model_validator(mode="after")
    def _one(self, info: ValidationInfo) -> Self:
        _one_of(self, info)
        return self


class Driver(Model):
    """cpu_request: what Kubernetes reserves, cores if absent. memory: of the heap; the pod gets more (docs/pipelines.md)."""

    cores: Count = 1
    cpu_request: Cpu | None = None
    memory: Memory = "1g"


class Executor(Model):
    """As the driver; cores: tasks that run at once in each."""

    instances: Count = 1
    cores: Count = 1
    cpu_request: Cpu | None = None
    memory: Memory = "1g"


class Spark(Model):
    image: Line | None = None
    driver: Driver = Driver()
    executor: Executor = Executor()
    conf: Properties = Field(default_factory=dict)


class Spec(Model):
    guarantee: Guarantee
    tolerate: Tolerate = Tolerate()
    kafka: Kafka
    source: Source
    transform: Transform
    sink: Sink
    topics: Annotated[tuple[Topic, ...], Field(max_length=100)] = ()
    trigger: Trigger = Trigger()
    checkpoint: Checkpoint | None = None
    spark: Spark = Spark()
    suspend: Switch = False

    @property
    def broker_failures(self) -> int:
        """f: how many brokers may be lost before an acknowledged record or the ability to write is."""
        if self.tolerate.broker_failures is not None:
            return self.tolerate.broker_failures
        return 0 if self.guarantee is Guarantee.AT_MOST_ONCE else 1


class DeliveryPipeline(Model):
    api_version: Literal["ackwright.io/v1alpha1"]
    kind: Literal["DeliveryPipeline"]
    metadata: Metadata
    spec: Spec

    @property
    def group(self) -> str:
        """The consumer group whose offsets are the positions: source.groupId, else <namespace>.<name>."""
        return self.spec.source.group_id or f"{self.metadata.namespace}.{self.metadata.name}"


def examine(document: object) -> tuple[DeliveryPipeline | None, tuple[Violation, ...]]:
    """A document's pipeline and all that is wrong with its shape.

    With violations the pipeline is what is left of the document without the offending fields (required ones replaced by anything
    valid), for rules on the other fields to be checked on; None if nothing can be made of it. It must not be used for anything else.
    """
    stranger = _stranger(document)
    if stranger:
        return None, stranger
    document = _without_server_fields(document)
    try:
        return DeliveryPipeline.model_validate(document), ()
    except ValidationError as e:
        errors = [_placed(error) for error in e.errors(include_url=False)]
    return _partial(document, errors), translate(DeliveryPipeline, errors)


def parse(document: object) -> DeliveryPipeline:
    """The pipeline that a document (as of YAML or JSON) declares. Raises InvalidSpec with every violation of its shape."""
    pipeline, violations = examine(document)
    if violations or pipeline is None:
        raise InvalidSpec(violations)
    return pipeline


def load(path: Path) -> DeliveryPipeline:
    """The pipeline that a YAML file declares. Raises InvalidSpec if the file cannot be read, and with every violation of its shape."""
    return parse(documents.read(path))


def _stranger(document: object) -> tuple[Violation, ...]:
    """Of a document of another kind only that is worth saying."""
    if not isinstance(document, Mapping):
        # Its content is not shown: it is not ours, and may be anything.
        return (
            Problem.without_value(
                "the document", "must be a mapping of fields", f"begin with apiVersion: {API_VERSION}, kind: {KIND}"
            ),
        )
    wrong = [
        Problem(name, document[name], f"must be {right}", f"write {name}: {right}")
        if name in document
        else Problem.without_value(name, "is required", f"add {name}: {right}")
        for name, right in (("apiVersion", API_VERSION), ("kind", KIND))
        if document.get(name) != right
    ]
    return tuple(wrong)


def _without_server_fields(document: object) -> object:
    if not isinstance(document, Mapping):
        return document
    own = {name: value for name, value in document.items() if name != "status"}
    if isinstance(own.get("metadata"), Mapping):
        own["metadata"] = {name: value for name, value in own["metadata"].items() if name not in _SERVER_FIELDS}
    return own


def _placed(error: ErrorDetails) -> ErrorDetails:
    """An error of a whole model that is due to one of its fields is placed there."""
    at = error.get("ctx", {}).get("at")
    if at is None:
        return error
    value = error["input"].get(at) if isinstance(error["input"], Mapping) else None
    return {**error, "loc": (*error["loc"], at), "input": value}


def _partial(document: object, errors: Sequence[ErrorDetails]) -> DeliveryPipeline | None:
    rest: Any = copy.deepcopy(document)
    for _ in range(4):  # a required field below an optional one takes that one along, and so on upwards
        for error in errors:
            at = error["loc"]
            if error["type"] not in {"one_of", "schema"}:  # these are not asked of a partial document
                _remove(rest, at[:-1] if error["type"] == "missing" and len(at) > 2 else at)
        rest = _filled(rest, _STAND_IN)
        try:
            return DeliveryPipeline.model_validate(rest, context="partial")
        except ValidationError as e:
            errors = e.errors(include_url=False)
    return None


def _remove(rest: Any, at: tuple[int | str, ...]) -> None:
    """Takes a field out. Of a list all goes: else later indices would shift."""
    path = list(takewhile(lambda part: isinstance(part, str), at))
    for part in path[:-1]:
        rest = rest.get(part) if isinstance(rest, dict) else None
    if isinstance(rest, dict) and path:
        rest.pop(path[-1], None)


def _filled(given: Any, stand_in: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return dict(stand_in)
    missing = {n: v for n, v in stand_in.items() if n not in given}
    return {
        **{n: _filled(v, stand_in[n]) if isinstance(stand_in.get(n), Mapping) else v for n, v in given.items()},
        **missing,
    }
