"""The state of a stateful pipeline in its plan, and the conditions on such a pipeline. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.api.quantities import duration_ms
from ackwright.api.spec import DeliveryPipeline
from ackwright.planning.guarantees import TERMS, Setting, Settings, replaced
from ackwright.planning.promises import STATEFUL_PROMISES, Promise
from ackwright.sinks.base import Link
from ackwright.sinks.registry import SinkSpec
from ackwright.wording import listed
from ackwright_stream.jobspec import STATE, Guarantee, StateSettings

BATCH_BYTES = 64 * 1024 * 1024  # of the output of a batch, which the driver has in memory


def state_settings(pipeline: DeliveryPipeline) -> StateSettings | None:
    """How the pipeline keeps its state; None for a stateless one. The directory depends on the place of the job."""
    state, event_time = pipeline.spec.state, pipeline.spec.source.event_time
    if state is None:
        return None
    return StateSettings(
        partitions=state.partitions,
        checkpoint="",
        output_mode=state.output_mode,
        event_time=event_time.column if event_time else None,
        watermark_delay=f"{duration_ms(event_time.watermark)} milliseconds" if event_time else None,
        batch_bytes=BATCH_BYTES,
    )


def spark_settings(state: StateSettings | None) -> Settings:
    """Spark's settings for state, none for a stateless pipeline."""
    if state is None:
        return ()
    required = tuple(Setting(name, value, why) for name, (value, why) in STATE.items())
    why = "spec.state.partitions: the number cannot change while the state is kept"
    return (*required, Setting("spark.sql.shuffle.partitions", str(state.partitions), why))


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


def task_settings(spark: Settings) -> Settings:
    """Spark's settings of a guarantee, for tasks that commit nothing."""
    why = "a failed task runs again; a batch is decided when each of its tasks has stored its state once"
    return replaced(spark, "spark.task.maxFailures", "4", why)


def order(declared: Guarantee, effective: Guarantee) -> Setting:
    """When a position moves, as `ackwright plan` prints it. effective: as for promised()."""
    stronger = "; as under exactly-once, because two commits would be more work" if declared is not effective else ""
    terms = TERMS[effective]
    return Setting("advance", terms.order, f"{terms.state_order_reason}{stronger}")


def link(state: StateSettings) -> Link:
    """The state as a link of the chain, behind the transform."""
    caveat = "on one volume: if it is lost, the pipeline halts, and only a copy of the directory continues it"
    return Link("state", "directory of the checkpoint", printed(state), caveat, 2)


def printed(state: StateSettings | None) -> Settings:
    """The state as `ackwright plan` prints it."""
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
    return (
        Setting("state.partitions", str(state.partitions), "spec.state.partitions"),
        Setting("state.outputMode", state.output_mode, "spec.state.outputMode"),
        *timed,
        Setting("state.directory", "a volume", "spec.checkpoint.volume"),
        Setting(
            "output of a batch", str(state.batch_bytes), "bytes that the driver has in memory; more fail the batch"
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


_VALIDATIONS: tuple[Validation[DeliveryPipeline], ...] = (
    Validation(
        "needs checkpoint.volume: without its directory the state is lost with the driver's pod",
        "add checkpoint: {volume: {size: 1Gi}}",
        ("spec.state", "spec.checkpoint"),
        _where(
            lambda p: p.spec.state is not None and (p.spec.checkpoint is None or p.spec.checkpoint.volume is None),
            "spec.state",
        ),
        cel=(Cel("!has(self.state) || (has(self.checkpoint) && has(self.checkpoint.volume))", on="spec", at=".state"),),
    ),
    Validation(
        "cannot be deadLetter with state: a micro-batch of a stateful pipeline has no dead letters yet",
        "write fail or skip",
        ("spec.source.onMalformed", "spec.state"),
        _where(
            lambda p: p.spec.state is not None and p.spec.source.on_malformed == "deadLetter",
            "spec.source.onMalformed",
            lambda p: p.spec.source.on_malformed,
        ),
        cel=(Cel("!has(self.state) || self.source.onMalformed != 'deadLetter'", on="spec", at=".source.onMalformed"),),
    ),
    Validation(
        "is for stateful pipelines: a stateless transform treats each record on its own",
        "add state, or remove eventTime",
        ("spec.source.eventTime", "spec.state"),
        _where(lambda p: p.spec.source.event_time is not None and p.spec.state is None, "spec.source.eventTime"),
        cel=(Cel("!has(self.source.eventTime) || has(self.state)", on="spec", at=".source.eventTime"),),
    ),
)
