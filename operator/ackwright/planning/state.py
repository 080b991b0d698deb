"""The state of a stateful pipeline in its plan, and the conditions on such a pipeline. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.api.quantities import duration_ms
from ackwright.api.secret_fields import S3
from ackwright.api.spec import DeliveryPipeline
from ackwright.planning.guarantees import (
    OFFSETS_PER_TRANSACTION,
    STATE_SOURCE,
    TERMS,
    GuaranteeTerms,
    Setting,
    Settings,
    replaced,
)
from ackwright.planning.promises import STATEFUL_PROMISES, Promise
from ackwright.sinks.base import Link
from ackwright.sinks.registry import SinkSpec
from ackwright.wording import listed
from ackwright_stream.jobspec import S3A_SCHEME, STATE, Guarantee, StateSettings, s3_region

BATCH_BYTES = 64 * 1024 * 1024  # of the output of a batch in the driver's memory; more is in files beside the state
ROCKSDB_MIB = 256  # of all stores of a process together, outside of its heap
# A file appears when its last request has succeeded. Other managers rename a file, which is a copy in S3.
_FILE_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_OF_LOGIN = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_OF_POD = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
# Without a bound each store has up to 128 MiB of rows that are not in files yet.
_ROCKSDB = (
    Setting(
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage", "true", "all stores of a process have one limit"
    ),
    Setting(
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB",
        str(ROCKSDB_MIB),
        "the pods that run the tasks have as much more memory",
    ),
)
# A batch that fails is evaluated again, from the last decision: nothing is gained by waiting for long.
_S3A_TIMES = (
    ("attempts.maximum", "3", "of one request"),
    ("retry.limit", "3", "of one operation, over the attempts of its requests"),
    ("connection.timeout", "20s", "without an answer the server counts as gone"),
)


def state_settings(pipeline: DeliveryPipeline) -> StateSettings | None:
    """How the pipeline keeps its state; None for a stateless one.

    A directory depends on the place of the job, and is left out, as is the path of the credentials.
    """
    state, event_time = pipeline.spec.state, pipeline.spec.source.event_time
    if state is None:
        return None
    s3 = (pipeline.spec.checkpoint.s3 if pipeline.spec.checkpoint else None) or S3()
    return StateSettings(
        partitions=state.partitions,
        checkpoint=state_uri(pipeline) or "",
        output_mode=state.output_mode,
        event_time=event_time.column if event_time else None,
        watermark_delay=f"{duration_ms(event_time.watermark)} milliseconds" if event_time else None,
        batch_bytes=BATCH_BYTES,
        endpoint=s3.endpoint,
        region=s3.region,
    )


def state_uri(pipeline: DeliveryPipeline) -> str | None:
    """The bucket and prefix of the state, as s3a://bucket/prefix; None if it is not in a bucket."""
    uri = pipeline.spec.checkpoint.uri if pipeline.spec.checkpoint else None
    return uri if uri is not None and uri.startswith(S3A_SCHEME) else None


def has_executors(pipeline: DeliveryPipeline) -> bool:
    """Whether executors run the tasks. With state on a volume, which one node at a time can mount, the driver does."""
    return pipeline.spec.state is None or state_uri(pipeline) is not None


def state_secret(pipeline: DeliveryPipeline) -> str | None:
    """The name of the Secret with the login of the state's bucket; None: there is none."""
    s3 = pipeline.spec.checkpoint.s3 if pipeline.spec.checkpoint else None
    return s3.credentials_secret.name if s3 and s3.credentials_secret else None


def spark_settings(state: StateSettings | None, secret: str | None) -> Settings:
    """Spark's settings for state, none for a stateless pipeline. secret: as of state_secret()."""
    if state is None:
        return ()
    required = (*(Setting(name, value, why) for name, (value, why) in STATE.items()), *_ROCKSDB)
    why = "spec.state.partitions: the number cannot change while the state is kept"
    of_bucket = tuple(_s3a_settings(state, state.bucket, secret)) if state.bucket else ()
    return (*required, Setting("spark.sql.shuffle.partitions", str(state.partitions), why), *of_bucket)


def _s3a_settings(state: StateSettings, bucket: str, secret: str | None) -> Iterator[Setting]:
    """Settings of Hadoop's file system for the state's bucket, and for no other one."""

    def of_bucket(name: str, value: str, why: str) -> Setting:
        return Setting(f"spark.hadoop.fs.s3a.bucket.{bucket}.{name}", value, why)

    yield Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        _FILE_MANAGER,
        "a file is stored without a copy under another name",
    )
    if state.endpoint:
        yield of_bucket("endpoint", state.endpoint, "spec.checkpoint.s3.endpoint")
        yield of_bucket("path.style.access", "true", "servers other than AWS have no host for each bucket")
    if region := s3_region(state.region, state.endpoint):
        why = "spec.checkpoint.s3.region" if state.region else "of a server that names none"
        yield of_bucket("endpoint.region", region, why)
    provider, why = (_OF_LOGIN, "of the Secret, which the driver reads") if secret else (_OF_POD, "that of the pod")
    yield of_bucket("aws.credentials.provider", provider, f"the identity: {why}")
    for name, value, why in _S3A_TIMES:
        yield of_bucket(name, value, why)
    if secret:
        yield Setting(
            "spark.io.encryption.enabled",
            "true",
            "executors get the login in a broadcast, which Spark writes to disk when memory is short",
        )


def promised(promise: Promise, declared: Guarantee, effective: Guarantee) -> Promise:
    """A guarantee's promise with state. effective: what the commits of the sink keep, as SinkPlan.guarantee."""
    with_state = STATEFUL_PROMISES[effective]
    stronger = "; nothing is lost or repeated, because one commit has output and decision"
    return replace(
        promise,
        position=with_state.position,
        after_a_crash=f"{with_state.after_a_crash}{stronger if declared is not effective else ''}",
        cost=with_state.cost,
        downstream=replace(promise.downstream, text=f"{promise.downstream.text}{with_state.downstream}"),
        expiry=None,  # a record that expires unread halts the pipeline
    )


def with_state(terms: GuaranteeTerms) -> GuaranteeTerms:
    """What a guarantee requires of a stateful pipeline: its tasks commit nothing, and its state counts every record."""
    why = "a failed task runs again; a batch is decided when each of its tasks has stored its state once"
    return replace(
        terms,
        offsets_per_transaction=OFFSETS_PER_TRANSACTION,  # of a batch, which is one transaction
        source=STATE_SOURCE,
        spark=replaced(terms.spark, "spark.task.maxFailures", "4", why),
    )


def order(declared: Guarantee, effective: Guarantee) -> Setting:
    """When a position moves, as `ackwright plan` prints it. effective: as for promised()."""
    stronger = "; as under exactly-once, because two commits would be more work" if declared is not effective else ""
    terms = TERMS[effective]
    return Setting("advance", terms.order, f"{terms.state_order_reason}{stronger}")


def slots_reason(state: StateSettings | None) -> str:
    """Why there are so many slots, as `ackwright plan` prints it. state: None for a stateless pipeline."""
    if state is None:
        return "tasks of a batch, each with one transaction: Spark's processors"
    if state.bucket:
        return "tasks at a time: the processors of all executors, which share the bucket"
    return "tasks at a time: the driver's processors, because one node at a time can mount the volume"


def link(state: StateSettings, secret: str | None) -> Link:
    """The state as a link of the chain, behind the transform. secret: as of state_secret()."""
    if state.bucket:
        caveat = "if the objects are deleted, the pipeline halts, and only a copy of them continues it"
        return Link("state", state.checkpoint, printed(state, secret), caveat, 1)
    caveat = "on one volume: if it is lost, the pipeline halts, and only a copy of the directory continues it"
    return Link("state", "directory of the checkpoint", printed(state, secret), caveat, 2)


def printed(state: StateSettings | None, secret: str | None) -> Settings:
    """The state as `ackwright plan` prints it. secret: as of state_secret()."""
    if state is None:
        return ()
    timed = (
        (
            Setting("source.eventTime.column", state.event_time, "spec.source.eventTime.column"),
            Setting("source.eventTime.watermark", state.watermark_delay or "", "spec.source.eventTime.watermark"),
        )
        if state.event_time
        else ()
    )
    s3 = (("endpoint", state.endpoint), ("region", state.region), ("credentialsSecret", secret))
    return (
        Setting("state.partitions", str(state.partitions), "spec.state.partitions"),
        Setting("state.outputMode", state.output_mode, "spec.state.outputMode"),
        *timed,
        *(
            (
                Setting("state.uri", state.checkpoint, "spec.checkpoint.uri"),
                *(Setting(f"state.s3.{name}", value, f"spec.checkpoint.s3.{name}") for name, value in s3 if value),
            )
            if state.bucket
            else (Setting("state.directory", "a volume", "spec.checkpoint.volume"),)
        ),
        Setting(
            "output of a batch",
            str(state.batch_bytes),
            "bytes in the driver's memory; what exceeds an equal part of them for each partition is in files",
        ),
    )


def validations(sinks: type[SinkSpec]) -> Iterator[Validation[DeliveryPipeline]]:
    """The conditions on stateful pipelines that do not depend on one sink."""
    yield from _VALIDATIONS
    names = [name for name, sink in sinks.kinds().items() if sink.TAKES_DECISIONS]
    if len(names) == len(sinks.kinds()):
        return  # each sink of this release takes decisions; one that another package adds may not

    def find(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        sink = pipeline.spec.sink.declared_if_valid
        if pipeline.spec.state is not None and sink is not None and not sink.TAKES_DECISIONS:
            yield Broken("spec.state")

    among = " || ".join(f"has(self.sink.{name})" for name in names)
    yield Validation(
        f"is built for {listed([f'sink.{name}' for name in names], 'or')} only",
        "remove state, or choose another sink",
        ("spec.state", "spec.sink"),
        find,
        cel=(Cel(f"!has(self.state) || {among}", on="spec", at=".state"),),
    )


def _where(
    is_broken: Callable[[DeliveryPipeline], bool], field: str, value: Callable[[DeliveryPipeline], object] | None = None
) -> Callable[[DeliveryPipeline], Iterator[Broken]]:
    """Finds a field that is wrong as a whole."""

    def find(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        if is_broken(pipeline):
            yield Broken(field, value(pipeline)) if value else Broken(field)

    return find


def _keeps_state(pipeline: DeliveryPipeline) -> bool:
    checkpoint = pipeline.spec.checkpoint
    return checkpoint is not None and (checkpoint.volume is not None or state_uri(pipeline) is not None)


IN_DRIVER = "the driver runs the tasks itself, because one node at a time can mount the volume with the state"
# In CEL, of the spec: whether the state is in a bucket.
IN_BUCKET = f"(has(self.checkpoint) && has(self.checkpoint.uri) && self.checkpoint.uri.startsWith('{S3A_SCHEME}'))"
_VALIDATIONS: tuple[Validation[DeliveryPipeline], ...] = (
    Validation(
        f"needs checkpoint.volume, or checkpoint.uri with {S3A_SCHEME}: the state would be lost with the driver's pod",
        "add checkpoint: {volume: {size: 1Gi}}",
        ("spec.state", "spec.checkpoint"),
        _where(lambda p: p.spec.state is not None and not _keeps_state(p), "spec.state"),
        cel=(
            Cel(
                f"!has(self.state) || {IN_BUCKET} || (has(self.checkpoint) && has(self.checkpoint.volume))",
                on="spec",
                at=".state",
            ),
        ),
    ),
    Validation(
        "is for the state of stateful pipelines",
        "write file:///path, or remove it: a stateless pipeline commits its offsets to Kafka",
        ("spec.checkpoint", "spec.state"),
        _where(lambda p: p.spec.state is None and state_uri(p) is not None, "spec.checkpoint.uri", state_uri),
        cel=(Cel(f"has(self.state) || !{IN_BUCKET}", on="spec", at=".checkpoint.uri"),),
    ),
    Validation(
        "is not built for stateful pipelines",
        "remove standby",
        ("spec.standby", "spec.state"),
        _where(lambda p: p.spec.standby and p.spec.state is not None, "spec.standby"),
        cel=(Cel("!self.standby || !has(self.state)", on="spec", at=".standby"),),
    ),
    Validation(
        "is for stateful pipelines: a stateless transform treats each record on its own",
        "add state, or remove eventTime",
        ("spec.source.eventTime", "spec.state"),
        _where(lambda p: p.spec.source.event_time is not None and p.spec.state is None, "spec.source.eventTime"),
        cel=(Cel("!has(self.source.eventTime) || has(self.state)", on="spec", at=".source.eventTime"),),
    ),
)
