"""The summary of a plan: what it guarantees, what that costs, and what it does not guarantee. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ackwright.planning.chain import chain
from ackwright.planning.guarantees import TERMS
from ackwright.planning.plan import DeliveryPlan
from ackwright.sinks.base import Link
from ackwright.wording import counted


@dataclass(frozen=True)
class Summary:
    """What a user wants to know first."""

    pipeline: str
    flow: str  # from the source's topics to the sink
    guarantee: str
    reader: str  # what the reader of the output has to do
    survives: str
    costs: tuple[str, ...]
    weakest_link: str
    not_guaranteed: tuple[str, ...]  # the other links' caveats


def summary(plan: DeliveryPlan) -> Summary:
    """The summary of a plan."""
    links, promise, output = chain(plan), plan.promise, plan.sink.summary
    letters = plan.sink.dead_letters
    topics = [topic for topic in plan.sink.topics if letters is None or topic != letters.name]
    target = output.target if output else ", ".join(topics) or "topics that the transform names"
    aside = f", malformed records → {letters.name}" if letters else ""
    at = f" at {plan.sink.cluster.bootstrap_servers}" if plan.sink.cluster else ""
    others = (link for link in links.links if link.caveat and link is not links.weakest)
    return Summary(
        pipeline=f"{plan.namespace}/{plan.name}",
        flow=f"{', '.join(plan.source.topics)} → {target}{at}{aside}",
        guarantee=f"{plan.guarantee}: after a crash {promise.after_a_crash}",
        reader=promise.reader,
        survives=_survives(plan),
        costs=_costs(plan),
        weakest_link=_caveat(links.weakest),
        not_guaranteed=tuple(_caveat(link) for link in others),
    )


def _caveat(link: Link) -> str:
    return f"{link.name} ({link.subject}): {link.caveat}"


def _survives(plan: DeliveryPlan) -> str:
    brokers = counted(plan.broker_failures, "broker")
    if plan.broker_failures == 0:
        return "crashes of the job; not the loss of a broker"
    return f"crashes of the job, and the loss of {brokers} at a time"


def _costs(plan: DeliveryPlan) -> tuple[str, ...]:
    declared = [topic for topic in plan.topics if not topic.internal]
    replicas = max((topic.replication_factor for topic in declared), default=0)
    what = "each record" if plan.sink.in_kafka else "each record of the source"
    stored = (f"{what} is stored on {counted(replicas, 'broker')}",) if replicas > 1 else ()
    interval = plan.trigger_interval_ms
    waits = (f"a record waits up to {interval:,} ms for its micro-batch",) if interval else ()
    by_task = TERMS[plan.guarantee].transactional and plan.sink.summary is None and plan.state is None
    transactions = (f"at most {counted(plan.slots, 'transaction')} at a time",) if by_task else ()
    return (plan.promise.cost, *transactions, *stored, *waits)
