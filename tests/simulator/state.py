"""Settings and states of the simulator: one producer, one partition, one consumer group. Frozen values without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

RECORDS = 9  # that the application sends at most
IN_FLIGHT = 5  # requests without an answer: max.in.flight.requests.per.connection


@dataclass(frozen=True)
class Settings:
    """The settings of a simulation, named as on the page."""

    acks: str = "all"  # 0 | 1 | all
    retries: bool = True  # until delivery.timeout.ms; False: retries=0
    idempotence: bool = True
    transactions: bool = False  # of the producer; the consumer then reads with read_committed
    replicas: int = 3
    min_insync: int = 2  # min.insync.replicas
    unclean: bool = False  # unclean.leader.election.enable
    commit: str = "after"  # before | after | transaction: the consumer's commit, relative to its processing


def refusal(s: Settings) -> str | None:
    """The reason why Kafka refuses these settings, as a key of sentences.json, or None."""
    if s.idempotence and s.acks != "all":
        return "refused.idempotence-acks"
    if s.idempotence and not s.retries:
        return "refused.idempotence-retries"
    if s.transactions and not s.idempotence:
        return "refused.transactions"
    if s.min_insync > s.replicas:
        return "refused.min-insync"
    return None


class Entry(NamedTuple):
    """One offset of the log."""

    kind: str  # record | commit | abort; the last two are the markers that end a transaction
    value: int  # the record's number in the order of sending; 0 in a marker
    pid: int  # producer id; -1 without idempotence
    epoch: int
    seq: int
    leader_epoch: int


class Request(NamedTuple):
    """One produce request with one record."""

    value: int
    pid: int
    epoch: int
    seq: int
    phase: str  # request: on its way | stored: waits for replicas | reply: the acknowledgement is on its way
    offset: int  # of the record in the leader's log; -1 before it is stored


class Producer(NamedTuple):
    """The current instance of the producer."""

    instance: int
    pid: int
    epoch: int
    next_seq: int


class Broker(NamedTuple):
    """One replica of the partition."""

    alive: bool
    log: tuple[Entry, ...]


class Consumer(NamedTuple):
    """One instance of the consumer."""

    instance: int
    position: int  # the offset that it reads next
    held: int  # the record in its memory; 0: none
    phase: str  # idle | held | committed (not yet processed) | processed (not yet committed)


class State(NamedTuple):
    """A state. Brokers have the ids 1 to replicas; outcomes[n] is what the application knows of record n + 1."""

    outcomes: tuple[str, ...]  # waiting | unconfirmed (acks=0) | acknowledged | failed
    producer: Producer
    requests: tuple[Request, ...]
    zombie_requests: tuple[Request, ...]  # of the producer's previous instance
    transaction: tuple[int, ...]  # the records of the open transaction
    brokers: tuple[Broker, ...]
    leader: int  # 0: the partition has none
    leader_epoch: int
    isr: tuple[int, ...]  # in-sync replicas
    elr: tuple[int, ...]  # eligible leader replicas: left the in-sync replicas, but have every acknowledged record
    high_watermark: int
    committed: int  # the group's committed offset
    consumer: Consumer
    zombie: Consumer | None  # the consumer's previous instance, which hangs
    output: tuple[int, ...]  # the records whose effect is visible, in order


class Step(NamedTuple):
    """The result of an action."""

    state: State
    reason: str  # a key of simulator/src/sentences.json
    number: int  # the record, or the broker, that the sentence names


def initial(s: Settings) -> State:
    """The state before the first record."""
    pid = 1 if s.idempotence else -1
    producer = Producer(1, pid, 0 if s.idempotence else -1, 0 if s.idempotence else -1)
    ids = tuple(range(1, s.replicas + 1))
    brokers = (Broker(True, ()),) * s.replicas
    return State((), producer, (), (), (), brokers, 1, 1, ids, (), 0, 0, Consumer(1, 0, 0, "idle"), None, ())


def log_of(t: State) -> tuple[Entry, ...]:
    """The partition's log: the leader's, or without a leader that of the first replica that may become one."""
    source = t.leader or next(iter((*t.isr, *t.elr)))
    return t.brokers[source - 1].log


def plain(value: Any) -> Any:
    """A state as JSON values: an object for each named tuple."""
    if hasattr(value, "_asdict"):
        return {name: plain(v) for name, v in value._asdict().items()}
    return [plain(v) for v in value] if isinstance(value, tuple) else value
