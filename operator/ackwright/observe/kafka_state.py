"""Reads the state of the brokers and of a pipeline's topics. Reads only, and decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe.cluster import job_premises
from ackwright.observe.topics import topics
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.durability import INTERNAL
from ackwright.planning.observed import KafkaState
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.replicas import Racks
from ackwright.planning.topic_steps import RATES
from ackwright.planning.topic_work import needs_moves
from ackwright_stream.jobspec import Reason


def kafka_state(
    kafka: Kafka, plan: DeliveryPlan, needed: Sequence[str], throttled: Collection[str], *, check_brokers: bool
) -> KafkaState:
    """The state of Kafka as far as the plan depends on it. Raises AckwrightError if the brokers cannot be read.

    needed: topics that must exist, planned or not; throttled: topics whose replication the operator throttled.
    check_brokers: also the brokers' own settings and the group, which takes as many calls as there are brokers.
    """
    names = [*topic_names(plan, needed), *INTERNAL]
    racks = kafka.racks()
    state = KafkaState(racks, topics(kafka, names))
    if throttled or _needs_moves(plan, state.topics):
        # Moves are read before topics: a move that ended in between would look like too many replicas.
        state = replace(_with_moves(kafka, state), topics=topics(kafka, names))
    return replace(state, premises=job_premises(kafka, plan, racks)) if check_brokers else state


def topic_names(plan: DeliveryPlan, needed: Sequence[str]) -> tuple[str, ...]:
    """The topics that a plan depends on, without those of the brokers. needed: as for kafka_state()."""
    return tuple(dict.fromkeys((*(t.name for t in plan.topics), *needed)))


def digest(racks: Racks, observed: Mapping[str, ObservedTopic], names: Sequence[str]) -> int:
    """Changes whenever the brokers, a topic of these names or one of the brokers' own changes."""
    return hash(repr((sorted(racks.items()), [_sorted(observed.get(name)) for name in (*names, *INTERNAL)])))


def _sorted(topic: ObservedTopic | None) -> tuple[object, ...] | None:
    if topic is None:
        return None
    layout = [(p.number, p.replicas, sorted(p.in_sync), p.leader) for p in topic.layout]
    return topic.id, layout, sorted(topic.config.items())


def _needs_moves(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic]) -> bool:
    return any(needs_moves(t, observed[t.name]) for t in plan.topics if t.name in observed)


def _with_moves(kafka: Kafka, state: KafkaState) -> KafkaState:
    """The state with the moves under way and the rates of brokers, or with the reason why they may not be read."""
    try:
        return replace(state, moving=kafka.moving(), rated=_rated(kafka, state.racks))
    except AckwrightError as e:
        if e.reason is not Reason.AUTHORIZATION_FAILED:
            raise
        return replace(state, moves_forbidden=e)


def _rated(kafka: Kafka, racks: Racks) -> frozenset[int]:
    """The brokers that have a rate of replication."""
    return frozenset(b for b in racks if kafka.broker_config(b).keys() & RATES)
