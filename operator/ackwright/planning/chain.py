"""The chain from the application that writes the source to the one that reads the sink, and its weakest link.

A guarantee holds from end to end only if each link keeps it, and two of the links are not ours. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ackwright.api.spec import DeliveryPipeline
from ackwright.planning.guarantees import TERMS, Setting, Settings
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.topics import TopicPlan
from ackwright_stream.jobspec import Guarantee


@dataclass(frozen=True)
class Link:
    """One link. caveat: what it leaves open, None if nothing; weakness: how much that matters, 0 (nothing) to 9."""

    name: str
    subject: str
    settings: Settings
    caveat: str | None = None
    weakness: int = 0


@dataclass(frozen=True)
class Chain:
    links: tuple[Link, ...]

    @property
    def weakest(self) -> Link:
        """The link that leaves most open; the first of equals. There always is one: the applications at both ends are not ours."""
        return max(self.links, key=lambda link: link.weakness)


def chain(pipeline: DeliveryPipeline, plan: DeliveryPlan) -> Chain:
    """The links in the order in which a record passes them."""
    sources = pipeline.spec.source.topics
    sink = pipeline.spec.sink.kafka
    outputs = (sink.topic,) if sink is not None and sink.topic else ()
    return Chain(
        (
            _upstream(plan),
            *(_topic("source topic", name, plan) for name in sources),
            Link("Spark source", "Kafka source of Spark", (*plan.consumer, *plan.source_options), *_expiry(plan)),
            _transform(pipeline, plan),
            _sink(pipeline, plan),
            Link("commit", f"group {plan.group}", plan.commit),
            *(_topic("sink topic", name, plan) for name in outputs or ("column topic",)),
            _downstream(plan),
        )
    )


def _upstream(plan: DeliveryPlan) -> Link:
    if plan.guarantee is Guarantee.AT_MOST_ONCE:
        caveat, weakness = (
            "not ours: an application that sends a record again after an error duplicates it before it gets here",
            3,
        )
    elif plan.guarantee is Guarantee.AT_LEAST_ONCE:
        caveat, weakness = (
            "not ours: an application that forgets a record before it is acknowledged loses it before it gets here",
            3,
        )
    else:
        caveat, weakness = (
            "not ours: an application that crashes and sends again duplicates a record before it gets here",
            2,
        )
    return Link("upstream producer", "whoever writes the source", plan.upstream.java, caveat, weakness)


def _topic(link: str, name: str, plan: DeliveryPlan) -> Link:
    found: TopicPlan | None = next((t for t in plan.topics if t.name == name), None)
    careless = plan.guarantee is Guarantee.AT_MOST_ONCE
    if found is None:
        caveat = "not under spec.topics: its replication is whatever it is, and is not ensured"
        return Link(link, name, (), caveat, 1 if careless else 5)
    replication = Setting("replication.factor", str(found.replication_factor), found.replication_reason)
    if plan.broker_failures == 0:
        caveat = "tolerate.brokerFailures is 0: the loss of one broker may lose acknowledged records and stop writes"
        return Link(link, name, (replication, *found.config), caveat, 1 if careless else 7)
    return Link(link, name, (replication, *found.config))


def _expiry(plan: DeliveryPlan) -> tuple[str | None, int]:
    if plan.guarantee is Guarantee.AT_MOST_ONCE:
        return "records that expire before they are read are skipped and counted", 2
    return None, 0


def _transform(pipeline: DeliveryPipeline, plan: DeliveryPlan) -> Link:
    names = {
        "spark.task.maxFailures",
        "spark.speculation",
        "spark.sql.adaptive.streaming.stateless.enabled",
        "spark.sql.ansi.enabled",
    }
    settings = tuple(s for s in plan.spark if s.name in names)
    python = pipeline.spec.transform.python
    what = f"{python.module}:{python.function}" if python else "sql"
    if pipeline.spec.source.on_malformed == "skip":
        weakness = 4 if plan.guarantee is Guarantee.AT_MOST_ONCE else 6
        return Link(
            "transform",
            what,
            settings,
            "onMalformed is skip: malformed records are counted and not delivered",
            weakness,
        )
    return Link("transform", what, settings)


def _sink(pipeline: DeliveryPipeline, plan: DeliveryPlan) -> Link:
    sink = pipeline.spec.sink.kafka
    acks = (sink.acks if sink is not None else None) or TERMS[plan.guarantee].acks
    caveat, weakness = None, 0
    if plan.guarantee is Guarantee.AT_LEAST_ONCE and acks == "1":
        caveat, weakness = (
            'acks is "1": a record that only the leader had acknowledged is lost with the leader, and is not sent again',
            9,
        )
    elif plan.guarantee is Guarantee.AT_MOST_ONCE and acks == "0":
        caveat, weakness = "acks is 0: a record is sent once and its loss goes unnoticed, which at-most-once allows", 8
    elif plan.guarantee is Guarantee.AT_MOST_ONCE:
        caveat, weakness = "retries is 0: a record whose request fails is lost, which at-most-once allows", 8
    if plan.sink_options:
        return Link("sink producer", "Kafka sink of Spark", plan.sink_options, caveat, weakness)
    return Link("sink producer", "producer of each lane", plan.producer, caveat, weakness)


def _downstream(plan: DeliveryPlan) -> Link:
    caveats = {
        Guarantee.AT_MOST_ONCE: ("not ours: a reader that commits after it has processed reads again after a crash", 2),
        Guarantee.AT_LEAST_ONCE: ("not ours: a reader has to deduplicate, or upsert by key", 2),
        Guarantee.EXACTLY_ONCE: (
            "not ours: a Java reader sees aborted records unless it sets isolation.level=read_committed, which is not its default",
            3,
        ),
    }
    return Link("downstream consumer", "whoever reads the sink", plan.downstream.java, *caveats[plan.guarantee])
