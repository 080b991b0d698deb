"""What fields must not say together, and what is not built yet: refused by name, never half done.

Each rule names the fields that it reads, so that it stays silent about fields that are already known to be wrong by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ackwright.api.spec import DeliveryPipeline
from ackwright.api.violations import Problem
from ackwright.errors import Violation
from ackwright.planning import conf
from ackwright.planning.guarantees import TERMS
from ackwright.planning.topics import LANES_TOPIC, replication_violations
from ackwright_stream.jobspec import Guarantee

_WHY_NOT = {
    Guarantee.AT_MOST_ONCE: "a request that a leader gives up while it waits for its replicas is sent again, and may be written twice",
    Guarantee.AT_LEAST_ONCE: "a record that nobody acknowledges may be lost",
    Guarantee.EXACTLY_ONCE: "a transaction needs the acknowledgement of every replica in sync",
}


@dataclass(frozen=True)
class Rule:
    """reads: paths of fields, a path standing for all that is below it."""

    reads: tuple[str, ...]
    check: Callable[[DeliveryPipeline], Iterator[Violation]]


def check(pipeline: DeliveryPipeline, broken: Sequence[Violation] = ()) -> tuple[Violation, ...]:
    """Every violation of a rule. broken: violations of shape that are known already; a rule that reads one of their fields is not asked."""
    return tuple(
        v
        for rule in RULES
        if not any(_touches(b.field, r) for b in broken for r in rule.reads)
        for v in rule.check(pipeline)
    )


def _touches(field: str, read: str) -> bool:
    return any(a == b or a.startswith((f"{b}.", f"{b}[")) for a, b in ((field, read), (read, field)))


def _acks(pipeline: DeliveryPipeline) -> Iterator[Violation]:
    sink, guarantee = pipeline.spec.sink.kafka, pipeline.spec.guarantee
    allowed = TERMS[guarantee].allowed_acks
    if sink is not None and sink.acks is not None and sink.acks not in allowed:
        yield Problem(
            "spec.sink.kafka.acks",
            sink.acks,
            f"contradicts guarantee: {guarantee}, which allows {' or '.join(allowed)}: {_WHY_NOT[guarantee]}",
            "remove it, or declare a weaker guarantee"
            if guarantee is not Guarantee.AT_MOST_ONCE
            else 'remove it, or set it to "1"',
        )


def _loops(pipeline: DeliveryPipeline) -> Iterator[Violation]:
    sink = pipeline.spec.sink.kafka
    if sink is not None and sink.topic in pipeline.spec.source.topics:
        yield Problem(
            "spec.sink.kafka.topic",
            sink.topic,
            "is also a source: the pipeline would read its own output for ever",
            "choose another topic",
        )


def _names_twice(pipeline: DeliveryPipeline) -> Iterator[Violation]:
    listed = [(f"spec.source.topics[{i}]", t) for i, t in enumerate(pipeline.spec.source.topics)]
    managed = [(f"spec.topics[{i}].name", t.name) for i, t in enumerate(pipeline.spec.topics)]
    for fields in (listed, managed):
        seen: dict[str, str] = {}
        for field, name in fields:
            # Brokers refuse to create a topic that differs from another in . and _ alone: their metrics would collide.
            first = seen.setdefault(name.replace(".", "_"), name)
            if (
                first == name
                and [n for _, n in fields].count(name) > 1
                and field != next(f for f, n in fields if n == name)
            ):
                yield Problem(field, name, "is listed more than once", "remove one of them")
            elif first != name and fields is managed:
                yield Problem(
                    field, name, f"differs from {first} in . and _ alone, which brokers refuse", "choose another name"
                )


def _reserved(pipeline: DeliveryPipeline) -> Iterator[Violation]:
    sink = pipeline.spec.sink.kafka
    named = [(f"spec.source.topics[{i}]", t) for i, t in enumerate(pipeline.spec.source.topics)]
    named += [("spec.sink.kafka.topic", sink.topic)] if sink is not None and sink.topic else []
    named += [(f"spec.topics[{i}].name", t.name) for i, t in enumerate(pipeline.spec.topics)]
    for field, name in named:
        if name == LANES_TOPIC or name.startswith("__"):
            owner = "Ackwright" if name == LANES_TOPIC else "Kafka"
            yield Problem(field, name, f"is a topic of {owner}'s own", "choose another topic")


def _preserve_partition(pipeline: DeliveryPipeline) -> Iterator[Violation]:
    sink = pipeline.spec.sink.kafka
    if sink is None or not sink.preserve_partition:
        return
    declared = {t.name: t.partitions for t in pipeline.spec.topics}
    there = declared.get(sink.topic or "")
    for name in pipeline.spec.source.topics:
        if there is not None and declared.get(name, 0) > there:
            yield Problem(
                "spec.sink.kafka.preservePartition",
                True,
                f"needs partitions of {sink.topic} ≥ partitions of {name}: {there} < {declared[name]}",
                f"give {sink.topic} at least {declared[name]} partitions",
            )


def _spark_conf(pipeline: DeliveryPipeline) -> Iterator[Violation]:
    yield from (v for key in pipeline.spec.spark.conf if (v := conf.refuse(key)))


def _checkpoint(pipeline: DeliveryPipeline) -> Iterator[Violation]:
    uri = pipeline.spec.checkpoint.uri if pipeline.spec.checkpoint else None
    if uri is None or uri.startswith(("/", "file:///")):
        return
    rule = "checkpoints in remote storage are not built yet" if ":" in uri else "must be an absolute path"
    yield Problem(
        "spec.checkpoint.uri",
        uri,
        rule,
        "write file:///path, or remove it: a stateless pipeline keeps its positions in Kafka",
    )


def _one_cluster(pipeline: DeliveryPipeline) -> Iterator[Violation]:
    sink = pipeline.spec.sink.kafka
    other = sink.bootstrap_servers if sink is not None else None
    if other is not None and _servers(other) != _servers(pipeline.spec.kafka.bootstrap_servers):
        yield Problem(
            "spec.sink.kafka.bootstrapServers", other, "source and sink on two clusters are not built yet", "remove it"
        )


def _servers(text: str) -> set[str]:
    return {s.strip() for s in text.split(",")}


def _other_sinks(pipeline: DeliveryPipeline) -> Iterator[Violation]:
    sink = pipeline.spec.sink
    for name in ("postgres", "delta", "iceberg", "files"):
        if getattr(sink, name) is not None:
            yield Problem.without_value(f"spec.sink.{name}", f"the sink {name} is not built yet", "use sink.kafka")


RULES = (
    Rule(("spec.guarantee", "spec.tolerate", "spec.topics"), replication_violations),
    Rule(("spec.guarantee", "spec.sink.kafka.acks"), _acks),
    Rule(("spec.source.topics", "spec.sink.kafka.topic"), _loops),
    Rule(("spec.source.topics", "spec.topics"), _names_twice),
    Rule(("spec.source.topics", "spec.sink.kafka.topic", "spec.topics"), _reserved),
    Rule(("spec.source.topics", "spec.sink.kafka", "spec.topics"), _preserve_partition),
    Rule(("spec.spark.conf",), _spark_conf),
    Rule(("spec.checkpoint",), _checkpoint),
    Rule(("spec.kafka.bootstrapServers", "spec.sink.kafka.bootstrapServers"), _one_cluster),
    Rule((), _other_sinks),
)
