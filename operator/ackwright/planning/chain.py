"""The chain from the application that writes the source to the one that reads the sink, and its weakest link.

A guarantee holds from end to end only if each link keeps it, and Ackwright does not run the two applications at the
ends. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ackwright.planning.guarantees import Setting, Settings, values
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.topics import TopicPlan
from ackwright_stream.jobspec import Guarantee


@dataclass(frozen=True)
class Link:
    """One link."""

    name: str
    subject: str
    settings: Settings
    caveat: str | None = None  # what the link does not guarantee; None: it keeps the guarantee
    weakness: int = 0  # how much the caveat matters, 0 (not at all) to 9


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
    outputs = (plan.sink.topic,) if plan.sink.topic else ("column topic",)
    return Chain(
        (
            _upstream(plan),
            *(_topic("source topic", name, plan) for name in plan.source.topics),
            source,
            _transform(plan),
            _sink(plan),
            Link("commit", f"group {plan.group}", plan.commit),
            *(_topic("sink topic", name, plan) for name in outputs),
            _downstream(plan),
        )
    )


def _upstream(plan: DeliveryPlan) -> Link:
    caveats = {
        Guarantee.AT_MOST_ONCE: (
            "not run by Ackwright: an application that sends a record again after an error duplicates it in the source",
            3,
        ),
        Guarantee.AT_LEAST_ONCE: (
            "not run by Ackwright: an application that drops a record before it is acknowledged loses it",
            3,
        ),
        Guarantee.EXACTLY_ONCE: (
            "not run by Ackwright: an application that crashes and sends again duplicates a record in the source",
            2,
        ),
    }
    return Link("upstream producer", "application that writes the source", plan.upstream.java, *caveats[plan.guarantee])


def _topic(link: str, name: str, plan: DeliveryPlan) -> Link:
    topic: TopicPlan | None = next((t for t in plan.topics if t.name == name), None)
    may_lose = plan.guarantee is Guarantee.AT_MOST_ONCE
    if topic is None:
        caveat = "not declared under spec.topics: Ackwright does not check or repair its replication"
        return Link(link, name, (), caveat, 1 if may_lose else 5)
    replication = Setting("replication.factor", str(topic.replication_factor), topic.replication_reason)
    if plan.broker_failures == 0:
        caveat = "tolerate.brokerFailures is 0: the loss of one broker may lose acknowledged records and stop writes"
        return Link(link, name, (replication, *topic.config), caveat, 1 if may_lose else 7)
    return Link(link, name, (replication, *topic.config))


def _expiry(plan: DeliveryPlan) -> tuple[str | None, int]:
    if plan.guarantee is Guarantee.AT_MOST_ONCE:
        return "records that expire before they are read are skipped and counted", 2
    return None, 0


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
        return Link("transform", subject, settings, caveat, 4 if plan.guarantee is Guarantee.AT_MOST_ONCE else 6)
    return Link("transform", subject, settings)


def _sink(plan: DeliveryPlan) -> Link:
    acks = values(plan.sink_options or plan.producer)["acks"]
    caveat, weakness = None, 0
    if plan.guarantee is Guarantee.AT_LEAST_ONCE and acks == "1":
        caveat, weakness = (
            'acks is "1": a record that only the leader has acknowledged is lost with the leader and not sent again',
            9,
        )
    elif plan.guarantee is Guarantee.AT_MOST_ONCE and acks == "0":
        caveat, weakness = "acks is 0: a record is sent once, and its loss goes unnoticed; at-most-once allows it", 8
    elif plan.guarantee is Guarantee.AT_MOST_ONCE:
        caveat, weakness = "retries is 0: a record whose request fails is lost, which at-most-once allows", 8
    if plan.sink_options:
        return Link("sink producer", "Kafka sink of Spark", plan.sink_options, caveat, weakness)
    return Link("sink producer", "producer of each lane", plan.producer, caveat, weakness)


def _downstream(plan: DeliveryPlan) -> Link:
    caveats = {
        Guarantee.AT_MOST_ONCE: (
            "not run by Ackwright: a reader that commits after processing reads records again after a crash",
            2,
        ),
        Guarantee.AT_LEAST_ONCE: ("not run by Ackwright: a reader has to deduplicate, or upsert by key", 2),
        Guarantee.EXACTLY_ONCE: (
            "not run by Ackwright: a Java reader sees aborted records unless it sets isolation.level=read_committed, "
            "which is not the default",
            3,
        ),
    }
    return Link(
        "downstream consumer", "application that reads the sink", plan.downstream.java, *caveats[plan.guarantee]
    )
