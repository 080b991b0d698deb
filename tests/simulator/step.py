"""The transitions of the simulator: an action, the next state, and the reason for it.

They follow Apache Kafka 4.1: ProducerAppendInfo (sequences and epochs), Partition (high watermark, minimum of in-sync
replicas), PartitionChangeBuilder (leader election, KIP-966), and the Java client where clients differ (KIP-360: a
producer whose sequence is lost begins a new epoch). The coordinators of groups and transactions do not fail here.
"""

from __future__ import annotations

from collections.abc import Callable

from . import brokers, consumer, producer
from .brokers import log_at
from .counts import readable
from .state import IN_FLIGHT, RECORDS, Settings, State, Step


def actions(s: Settings, t: State) -> tuple[str, ...]:
    """The actions that are possible in a state, in the order of the page's buttons."""
    phases = [r.phase for r in t.requests]
    followers = [b + 1 for b, broker in enumerate(t.brokers) if broker.alive and b + 1 in t.isr and b + 1 != t.leader]
    absent = [b + 1 for b, x in enumerate(t.brokers) if not x.alive or (t.leader and b + 1 not in t.isr)]
    ends_transaction = bool(t.leader) and len(t.isr) >= s.min_insync  # markers need all in-sync replicas
    c, zombie = t.consumer, t.zombie
    order = {"before": ("commit", "process"), "after": ("process", "commit"), "transaction": ("process", "commit")}
    first, second = order[s.commit]
    is_next_readable = bool(t.leader) and any(offset >= c.position for offset, _ in readable(s, t))
    possible = {
        "send": bool(t.leader) and len(t.outcomes) < RECORDS and len(t.requests) < IN_FLIGHT,
        "deliver": bool(t.leader) and "request" in phases,
        "lose-request": bool(t.leader) and "request" in phases,
        "replicate": bool(t.leader) and any(log_at(t, b) != log_at(t, t.leader) for b in followers),
        "deliver-ack": "reply" in phases,
        "lose-ack": "reply" in phases or "stored" in phases,
        "commit-transaction": ends_transaction and bool(t.transaction) and not t.requests,
        "time-out": (ends_transaction or not s.transactions) and bool(t.requests) and s.acks != "0",
        "replace-producer": (ends_transaction if s.transactions else bool(t.leader))
        and bool(t.requests or t.transaction),
        "zombie-produces": bool(t.leader and t.zombie_requests),
        "kill-leader": bool(t.leader),
        **{f"lag-{b}": bool(t.leader) for b in followers},
        **{f"return-{b}": True for b in absent},
        "poll": c.phase == "idle" and is_next_readable,
        first: c.phase == "held",
        second: c.phase in ("processed", "committed"),
        "kill-consumer": c.phase != "idle",
        "pause-consumer": c.phase != "idle" and zombie is None,
        "zombie-consumer": zombie is not None,
    }
    return tuple(name for name, is_possible in possible.items() if is_possible)


def step(s: Settings, t: State, action: str) -> Step:
    """The state after a possible action. Raises ValueError for an impossible one."""
    if action not in actions(s, t):
        raise ValueError(f"{action} is not possible in this state")
    name, _, number = action.rpartition("-")
    if number.isdigit():
        return brokers.lag(s, t, int(number)) if name == "lag" else brokers.return_(s, t, int(number))
    return STEPS[action](s, t)


STEPS: dict[str, Callable[[Settings, State], Step]] = {
    "send": producer.send,
    "deliver": producer.deliver,
    "lose-request": producer.lose_request,
    "replicate": brokers.replicate,
    "deliver-ack": producer.deliver_ack,
    "lose-ack": producer.lose_ack,
    "commit-transaction": producer.commit_transaction,
    "time-out": producer.time_out,
    "replace-producer": producer.replace_producer,
    "zombie-produces": producer.zombie_produces,
    "kill-leader": brokers.kill_leader,
    "poll": consumer.poll,
    "process": consumer.process,
    "commit": consumer.commit,
    "kill-consumer": consumer.kill_consumer,
    "pause-consumer": consumer.pause_consumer,
    "zombie-consumer": consumer.zombie_consumer,
}
