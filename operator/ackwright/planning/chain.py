"""The chain from the application that writes the source to the one that reads the sink, and its weakest link.

A guarantee holds from end to end only if each link keeps it, and Ackwright does not run the two applications at the
ends. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ackwright.planning import state
from ackwright.planning.guarantees import TERMS, Setting
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.topics import TopicPlan
from ackwright.sinks.base import Link


@dataclass(frozen=True)
class Chain:
    """All links, in the order in which a record passes them."""

    links: tuple[Link, ...]

    @property
    def weakest(self) -> Link:
        """The link with the greatest weakness; the first of equals. The applications at both ends always have one."""
        return max(self.links, key=lambda link: link.weakness)


def chain(plan: DeliveryPlan) -> Chain:
    """The chain of a plan."""
    source = Link("Spark source", "Kafka source of Spark", (*plan.consumer, *plan.source_options), *_expiry(plan))
    declared = plan.sink.dead_letters
    letters = (declared.name,) if declared and declared.name in plan.sink.topics else ()
    outputs = ("column topic",) if plan.sink.routed else tuple(t for t in plan.sink.topics if t not in letters)
    return Chain(
        (
            _upstream(plan),
            *(_topic("source topic", name, plan) for name in plan.source.topics),
            source,
            _transform(plan),
            *((state.link(plan.state, plan.state_secret),) if plan.state else ()),
            plan.sink.link,
            Link("commit", f"group {plan.group}", plan.commit),
            *(_topic("sink topic", name, plan) for name in outputs),
            *(_topic("dead-letter topic", name, plan) for name in letters),
            _downstream(plan),
        )
    )


def _upstream(plan: DeliveryPlan) -> Link:
    caveat = plan.promise.upstream
    return Link(
        "upstream producer", "application that writes the source", plan.upstream.java, caveat.text, caveat.weakness
    )


def _topic(link: str, name: str, plan: DeliveryPlan) -> Link:
    topic: TopicPlan | None = next((t for t in plan.topics if t.name == name), None)
    may_lose = TERMS[plan.guarantee].promise.may_lose
    if topic is None:
        caveat = "not declared under spec.topics: Ackwright does not check or repair its replication"
        return Link(link, name, (), caveat, 1 if may_lose else 5)
    replication = Setting("replication.factor", str(topic.replication_factor), topic.replication_reason)
    if plan.broker_failures == 0:
        caveat = "tolerate.brokerFailures is 0: the loss of one broker may lose acknowledged records and stop writes"
        return Link(link, name, (replication, *topic.config), caveat, 1 if may_lose else 7)
    return Link(link, name, (replication, *topic.config))


def _expiry(plan: DeliveryPlan) -> tuple[str | None, int]:
    caveat = plan.promise.expiry
    return (caveat.text, caveat.weakness) if caveat else (None, 0)


def _transform(plan: DeliveryPlan) -> Link:
    names = {
        "spark.task.maxFailures",
        "spark.speculation",
        "spark.sql.adaptive.streaming.stateless.enabled",
        "spark.sql.ansi.enabled",
    }
    settings = tuple(s for s in plan.spark if s.name in names)
    transform = plan.transform
    subject = f"{transform.module}:{transform.function}" if transform.function else "sql"
    if plan.source.skip_malformed:
        caveat = "onMalformed is skip: malformed records are counted and not delivered"
        return Link("transform", subject, settings, caveat, 4 if TERMS[plan.guarantee].promise.may_lose else 6)
    if letters := plan.sink.dead_letters:
        caveat = (
            f"malformed records go to the {letters.kind} {letters.name}; with more than {letters.max_fraction:g} of "
            "the records the pipeline halts"
        )
        return Link("transform", subject, settings, caveat, 2)
    return Link("transform", subject, settings)


def _downstream(plan: DeliveryPlan) -> Link:
    if plan.sink.reader:
        return plan.sink.reader
    caveat = plan.promise.downstream
    return Link(
        "downstream consumer", "application that reads the sink", plan.downstream.java, caveat.text, caveat.weakness
    )
