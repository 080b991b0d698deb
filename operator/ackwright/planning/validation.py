"""The conditions on fields of a pipeline together.

The conditions on a single field are part of its type (ackwright.api), those on a sink are part of the sink
(ackwright.sinks).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from ackwright.api import spark_conf
from ackwright.api.checks import Broken, Cel, Validation, literal
from ackwright.api.spec import DeliveryPipeline
from ackwright.api.storage_fields import S3A_PREFIX
from ackwright.errors import Violation
from ackwright.formats import WITH_REGISTRY, can_be_malformed, needs_registry
from ackwright.planning import state
from ackwright.planning.pod_validation import POD_VALIDATIONS
from ackwright.planning.schedule import is_time_zone, problem_of_expression
from ackwright.planning.topic_validation import TOPIC_VALIDATIONS
from ackwright.planning.topics import CLEANUP, COMPACT, is_compacted
from ackwright.sinks.base import Sink, SinkContext
from ackwright.sinks.registry import SinkSpec
from ackwright.wording import listed
from ackwright_stream.jobspec import S3A_SCHEME, Format

_POSITIONS_IN_KAFKA = "write file:///path, or remove it: a stateless pipeline commits its offsets to Kafka"


def check(pipeline: DeliveryPipeline, known: Sequence[Violation] = ()) -> tuple[Violation, ...]:
    """Every violation of a validation.

    known: violations of the shape that are already known. A validation that reads one of their fields is skipped.
    """
    applicable = (
        validation
        for validation in validations(type(pipeline.spec.sink))
        if not any(_overlap(violation.field, read) for violation in known for read in validation.reads)
    )
    return tuple(violation for validation in applicable for violation in validation.violations(pipeline))


@cache
def validations(sinks: type[SinkSpec] = SinkSpec) -> tuple[Validation[DeliveryPipeline], ...]:
    """Every validation of a pipeline whose spec.sink is of this model."""
    return (
        *TOPIC_VALIDATIONS,
        *(_of_sink(sink, validation) for sink in sinks.kinds().values() for validation in sink.validations()),
        *_VALIDATIONS,
        *state.validations(sinks),
        *POD_VALIDATIONS,
        _standby_outside_kafka(sinks),
        _without_registry(sinks),
        *_dead_letters(sinks),
        _topics_of_letters(sinks, keyed=True),
        _topics_of_letters(sinks, keyed=False),
    )


def _overlap(field: str, read: str) -> bool:
    """Whether one of two paths is the other, or is below it."""
    return any(a == b or a.startswith((f"{b}.", f"{b}[")) for a, b in ((field, read), (read, field)))


def _of_sink(sink: type[Sink], validation: Validation[SinkContext[Any]]) -> Validation[DeliveryPipeline]:
    """A sink's validation, for a whole pipeline."""

    def find(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        context = pipeline.sink_context
        if context is not None and isinstance(context.sink, sink):
            yield from validation.find(context)

    return Validation(
        validation.message, validation.remedy, validation.reads, find, validation.cel, validation.not_in_cel
    )


def _standby_outside_kafka(sinks: type[SinkSpec]) -> Validation[DeliveryPipeline]:
    names = [name for name, sink in sinks.kinds().items() if sink.IN_KAFKA]

    def find(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        sink = pipeline.spec.sink.declared_if_valid
        if pipeline.spec.standby and sink is not None and not sink.IN_KAFKA:
            yield Broken("spec.standby")

    return Validation(
        f"drivers find each other by a topic of the source's cluster, which only {one_of(names)} uses",
        f"remove standby, or choose {one_of(names)}",
        ("spec.standby", "spec.sink"),
        find,
        cel=(
            Cel(
                f"!self.standby || {' || '.join(f'has(self.sink.{name})' for name in names)}", on="spec", at=".standby"
            ),
        ),
    )


def _without_registry(sinks: type[SinkSpec]) -> Validation[DeliveryPipeline]:
    def find(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        spec, sink = pipeline.spec, pipeline.spec.sink.declared_if_valid
        needed = needs_registry(spec.source.format) or (sink is not None and sink.has_subject)
        if needed and spec.schema_registry is None:
            yield Broken("spec.schemaRegistry")

    of_sinks = {name: sink.has_subject_cel(f"self.sink.{name}") for name, sink in sinks.kinds().items()}
    needed = [f"self.source.format == {literal(format)}" for format in WITH_REGISTRY]
    needed += [f"(has(self.sink.{name}) && {cel})" for name, cel in of_sinks.items() if cel]
    return Validation(
        f"is required by the format {listed(WITH_REGISTRY, 'or')}, whose schemas are there",
        "add schemaRegistry: {url: https://…}",
        ("spec.schemaRegistry", "spec.source.format", "spec.sink"),
        find,
        cel=(Cel(f"has(self.schemaRegistry) || !({' || '.join(needed)})", on="spec", at=".schemaRegistry"),),
    )


def _dead_letters(sinks: type[SinkSpec]) -> Iterator[Validation[DeliveryPipeline]]:
    """That source and sink agree on dead letters, and that records can be malformed."""
    names = [name for name, sink in sinks.kinds().items() if sink.can_have_dead_letters()]
    reads, at = ("spec.source", "spec.sink"), ".source.onMalformed"
    declared = " || ".join(f"(has(self.sink.{name}) && has(self.sink.{name}.deadLetter))" for name in names)
    formats = tuple(format for format in Format if can_be_malformed(format))

    def undeclared(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        sink, chosen = pipeline.spec.sink.declared_if_valid, pipeline.spec.source.on_malformed
        if chosen == "deadLetter" and (sink is None or sink.dead_letters() is None):
            possible = [name for name in names if isinstance(sink, sinks.kinds()[name])] or names
            yield Broken("spec.source.onMalformed", chosen, remedy=remedy(possible))

    def unused(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        sink, chosen = pipeline.spec.sink.declared_if_valid, pipeline.spec.source.on_malformed
        if sink is not None and sink.dead_letters() is not None and chosen != "deadLetter":
            yield Broken("spec.source.onMalformed", chosen)

    def never(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        source = pipeline.spec.source
        if source.on_malformed == "deadLetter" and source.format not in formats:
            yield Broken("spec.source.onMalformed", source.on_malformed, f": the format is {source.format}")

    def remedy(possible: Sequence[str]) -> str:
        places = {name: sinks.kinds()[name].DEAD_LETTERS_IN for name in possible}
        fields = " or ".join(f"sink.{name}.deadLetter.{place}" for name, place in places.items())
        created = " (a topic must exist or be listed under spec.topics)" if "topic" in places.values() else ""
        return f"declare {fields}{created}, or use skip"

    # A sink without dead letters may be declared: then the field that the remedy names does not exist there.
    yield Validation(
        "needs the deadLetter of the sink, which says where malformed records go",
        remedy(names),
        reads,
        undeclared,
        cel=(Cel(f"self.source.onMalformed != 'deadLetter' || {declared}", on="spec", at=at),),
    )
    yield Validation(
        "must be deadLetter for a sink with a deadLetter: no record would go there",
        "write onMalformed: deadLetter, or remove the sink's deadLetter",
        reads,
        unused,
        cel=(Cel(f"self.source.onMalformed == 'deadLetter' || !({declared})", on="spec", at=at),),
    )
    yield Validation(
        f"is for the formats {listed(formats)}, whose records can be malformed",
        "write format: json with a schema, or use fail",
        reads,
        never,
        cel=(
            Cel(
                "self.source.onMalformed != 'deadLetter' || "
                + " || ".join(f"self.source.format == {literal(format)}" for format in formats),
                on="spec",
                at=at,
            ),
        ),
    )


def _topics_of_letters(sinks: type[SinkSpec], *, keyed: bool) -> Validation[DeliveryPipeline]:
    """That a topic of dead letters is compacted if they are keyed, and otherwise not, as far as it is declared."""
    names = [
        name
        for name, sink in sinks.kinds().items()
        if sink.can_have_dead_letters() and sink.DEAD_LETTERS_IN == "topic" and sink.KEYED_DEAD_LETTERS is keyed
    ]

    def find(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        sink = pipeline.spec.sink.declared_if_valid
        letters = sink.dead_letters() if sink else None
        if letters is None or letters.kind != "topic" or letters.keyed is not keyed:
            return
        for i, topic in enumerate(pipeline.spec.topics):
            policy = topic.config.get(CLEANUP)
            if topic.name == letters.name and policy is not None and is_compacted(policy) is not keyed:
                yield Broken(f"spec.topics[{i}].config[{CLEANUP!r}]", policy)

    def cel(name: str) -> Cel:
        letters, compacted = f"self.sink.{name}.deadLetter", f"t.config['{CLEANUP}'].contains('{COMPACT}')"
        return Cel(
            f"!has(self.topics) || !has(self.sink.{name}) || !has({letters}) || self.topics.all(t, "
            f"t.name != {letters}.topic || !has(t.config) || !('{CLEANUP}' in t.config) || "
            f"{compacted if keyed else f'!{compacted}'})",
            on="spec",
            at=".topics",
        )

    of = f"for the dead-letter topic of {one_of(names)}"
    message = (
        f"must have {COMPACT} {of}: a repeated batch replaces its dead letters there by their keys"
        if keyed
        else f"must not have {COMPACT} {of}: dead letters have the keys of their records, and only one of each key "
        "would stay"
    )
    remedy = f"remove it, or write {COMPACT}" if keyed else "remove it, or write delete"
    return Validation(message, remedy, ("spec.topics", "spec.sink"), find, cel=tuple(map(cel, names)))


def one_of(names: Iterable[str]) -> str:
    """The sinks with these names, for a message."""
    return " or ".join(f"sink.{name}" for name in names)


def _checkpoints(is_refused: Callable[[str], bool]) -> Callable[[DeliveryPipeline], Iterator[Broken]]:
    """Finds a spec.checkpoint.uri that is no absolute path and is refused by this validation."""

    def find(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        uri = pipeline.spec.checkpoint.uri if pipeline.spec.checkpoint else None
        if uri is not None and not uri.startswith(("/", "file:///")) and is_refused(uri):
            yield Broken("spec.checkpoint.uri", uri)

    return find


def _spark_conf(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    for key in pipeline.spec.spark.conf:
        violation = spark_conf.refuse(key)
        if violation is not None:
            yield Broken(violation.field, remedy=violation.remedy)


def _schedule(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    expression = pipeline.spec.trigger.schedule
    if expression is not None and (problem := problem_of_expression(expression)):
        yield Broken("spec.trigger.schedule", expression, f": {problem}")


def _time_zone(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    name = pipeline.spec.trigger.time_zone
    if name is not None and not is_time_zone(name):
        yield Broken("spec.trigger.timeZone", name)


def _rollback_of_schedule(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    if pipeline.spec.rollback and pipeline.spec.trigger.schedule is not None:
        yield Broken("spec.rollback")


def _standby_of_bounded_run(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    if pipeline.spec.standby and pipeline.spec.trigger.available_now:
        yield Broken("spec.standby")


def _standby_with_volume(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    """Of a stateful pipeline, which needs its volume, the standby is refused anyway."""
    spec = pipeline.spec
    if spec.standby and spec.state is None and spec.checkpoint and spec.checkpoint.volume:
        yield Broken("spec.standby")


def _autoscaling_of_stateful(*, on_executors: bool) -> Callable[[DeliveryPipeline], Iterator[Broken]]:
    """Finds autoscaling of a stateful pipeline whose tasks run on executors, or in the driver."""

    def find(pipeline: DeliveryPipeline) -> Iterator[Broken]:
        declared = pipeline.spec.state and pipeline.spec.spark.executor.autoscaling
        if declared and state.has_executors(pipeline) is on_executors:
            yield Broken("spec.spark.executor.autoscaling")

    return find


_SPARK_SETTINGS = f"[{', '.join(literal(name) for name in sorted(spark_conf.ALLOWED))}]"
_IS_PATH = "self.startsWith('/') || self.startsWith('file:///')"

_VALIDATIONS: tuple[Validation[DeliveryPipeline], ...] = (
    Validation(
        spark_conf.NOT_ALLOWED,
        spark_conf.REMEDY,
        ("spec.spark.conf",),
        _spark_conf,
        cel=(
            Cel(
                f"self.all(key, key in {_SPARK_SETTINGS})",
                on="spec.spark.conf",
                # Names the key, and never its value, which may be a credential.
                expand=lambda text: f"self.map(key, !(key in {_SPARK_SETTINGS}), key + {literal(': ' + text)})[0]",
            ),
        ),
    ),
    Validation(
        "must be an absolute path",
        _POSITIONS_IN_KAFKA,
        ("spec.checkpoint",),
        _checkpoints(lambda uri: ":" not in uri),
        cel=(Cel(f"{_IS_PATH} || self.contains(':')", on="spec.checkpoint.uri"),),
    ),
    Validation(
        "is built for directories, and for buckets of s3a://",
        f"write {S3A_SCHEME}bucket/prefix for the state of a stateful pipeline, or file:///path",
        ("spec.checkpoint",),
        _checkpoints(lambda uri: ":" in uri and not uri.startswith(S3A_SCHEME)),
        cel=(
            Cel(
                f"{_IS_PATH} || !self.contains(':') || self.startsWith('{S3A_SCHEME}')",
                on="spec.checkpoint.uri",
            ),
        ),
    ),
    Validation(
        f"must be {S3A_SCHEME}bucket/prefix, of letters, digits and . _ = + -",
        f"write for instance {S3A_SCHEME}state/orders-per-minute",
        ("spec.checkpoint",),
        _checkpoints(lambda uri: uri.startswith(S3A_SCHEME) and not re.fullmatch(S3A_PREFIX, uri)),
        cel=(Cel(f"!self.startsWith('{S3A_SCHEME}') || self.matches('{S3A_PREFIX}')", on="spec.checkpoint.uri"),),
    ),
    Validation(
        "is no cron expression with a time within fifty years",
        "write for instance 0 3 * * *, which is 03:00 every day",
        ("spec.trigger.schedule",),
        _schedule,
        not_in_cel="CEL does not know calendars",
    ),
    Validation(
        "must be the name of a time zone",
        "write for instance UTC or Europe/Berlin",
        ("spec.trigger.timeZone",),
        _time_zone,
        not_in_cel="CEL reports an unknown time zone as an error of the rule, without the field",
    ),
    Validation(
        "cannot be set with trigger.schedule: an edit has effect with the next run only",
        "remove rollback, or trigger.schedule",
        ("spec.rollback", "spec.trigger"),
        _rollback_of_schedule,
        cel=(Cel("!has(self.rollback) || !has(self.trigger.schedule)", on="spec", at=".rollback"),),
    ),
    Validation(
        "a bounded run has no standby",
        "remove standby, or trigger.availableNow",
        ("spec.standby", "spec.trigger"),
        _standby_of_bounded_run,
        cel=(Cel("!self.standby || !self.trigger.availableNow", on="spec", at=".standby"),),
    ),
    Validation(
        "the drivers run on two nodes, and only one node at a time can mount the checkpoint's volume",
        "remove standby, or checkpoint.volume, which a stateless pipeline does not need",
        ("spec.standby", "spec.checkpoint", "spec.state"),
        _standby_with_volume,
        cel=(
            Cel(
                "!self.standby || has(self.state) || !has(self.checkpoint) || !has(self.checkpoint.volume)",
                on="spec",
                at=".standby",
            ),
        ),
    ),
    Validation(
        state.IN_DRIVER,
        f"remove autoscaling and choose driver.cores; with checkpoint.uri: {S3A_SCHEME}bucket/prefix in place of the "
        "volume, executor.instances executors run them",
        ("spec.spark.executor", "spec.state", "spec.checkpoint"),
        _autoscaling_of_stateful(on_executors=False),
        cel=(
            Cel(
                f"!has(self.state) || !has(self.spark.executor.autoscaling) || {state.IN_BUCKET}",
                on="spec",
                at=".spark.executor.autoscaling",
            ),
        ),
    ),
    Validation(
        "the number of executors is fixed for a stateful pipeline: each has a part of the state, and the measurements "
        "of autoscaling do not count what its move costs",
        "remove autoscaling, and choose executor.instances",
        ("spec.spark.executor", "spec.state", "spec.checkpoint"),
        _autoscaling_of_stateful(on_executors=True),
        cel=(
            Cel(
                f"!has(self.state) || !has(self.spark.executor.autoscaling) || !{state.IN_BUCKET}",
                on="spec",
                at=".spark.executor.autoscaling",
            ),
        ),
    ),
)
