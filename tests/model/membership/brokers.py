"""Kafka's brokers for one consumer group, as pure functions from a state to the next (transaction protocol v1).

They follow Apache Kafka's TransactionCoordinator (fencing and epochs of each transactional id), the verification of
the first transactional append to a partition (KIP-890, part 1), and the group coordinator: in ClassicGroup the member
id and the generation of a commit, in OffsetMetadataManager pending offsets (the order of the log decides between two
commits).

A join always has a new member id, so that the member's number stands for member id and generation. Each lane has a
sink partition; the lanes topic has one partition. The sinks' markers are written with the decision: nothing in the
protocol depends on when, and a reader gets batches in the order of the log.
"""

from __future__ import annotations

from typing import Any, NamedTuple

LANES = (0, 1)
SLOTS, DRIVER_ID, LANE_IDS, FOREIGN = (0, 1), 2, (3, 4), 5  # indexes of transactional ids
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT = range(5)
GROUP, LANES_TOPIC = 4, 8  # partitions of a transaction; 1 and 2 are the lanes' sink partitions
PARTITION = {GROUP: "__consumer_offsets", LANES_TOPIC: "the lanes topic"}
COMMITTED, PLAIN = -1, -2  # in the place of the transactional id: committed, written outside a transaction
NO_MEMBER = -1  # a request without membership

RETRY, ERROR, OK = "retry", "error", "ok"

# (offset, number of the driver that committed it or 0 if another program did, topic id)
Position = tuple[int, int, int]
# (topic id, final offset, number of the driver); the offset is None while a driver runs
Record = tuple[int, int | None, int]
Log = tuple[tuple[Any, ...], ...]
# (kind, transactional id, epoch, member, payload)
Request = tuple[str, int, int, int, tuple[Any, ...]]
Reply = str | int


class State(NamedTuple):
    """A state of the model. attempts and net are sorted, because their order has no meaning."""

    member: int  # the group's member, 0 if it is empty
    joins: int  # joins so far
    topic: int  # id of the source topic
    offsets: tuple[Log, Log]  # per lane: (transactional id, epoch, position) in the order of the log
    base: tuple[int | None, int | None]  # per lane: its first position, for the invariants
    txns: tuple[tuple[int, int, int], ...]  # per transactional id: epoch, state, registered partitions
    logs: tuple[Log, Log]  # per lane: (transactional id, epoch, from, until, topic id)
    records: tuple[Log, Log]  # per lane: (transactional id, epoch, record); of the committed ones the last
    drivers: tuple[Any, ...]
    attempts: tuple[Any, ...]
    net: tuple[Request, ...]
    budgets: tuple[int, ...]


def with_item(items: tuple[Any, ...], i: int, value: Any) -> tuple[Any, ...]:
    return (*items[:i], value, *items[i + 1 :])


def committed(log: Log) -> Any:
    """The last committed value of a lane's offsets or records, or None."""
    for e in reversed(log):
        if e[0] == COMMITTED:
            return e[2]
    return None


def pending(log: Log) -> bool:
    """Whether a transaction is open on a lane's offsets or records."""
    return any(e[0] != COMMITTED for e in log)


def completing(s: State) -> bool:
    """Whether markers are being written: output and positions may temporarily differ."""
    return any(t[1] in (PREPARE_COMMIT, PREPARE_ABORT) for t in s.txns)


def with_txn(s: State, tid: int, *txn: int) -> State:
    return s._replace(txns=with_item(s.txns, tid, txn))


def begin_abort(s: State, tid: int) -> State:
    """Fences the current epoch and aborts its transaction: InitProducerId on an open transaction, or a timeout."""
    return decide(s, tid, s.txns[tid][0] + 1, False)


def decide(s: State, tid: int, epoch: int, commit: bool) -> State:
    """Ends a transaction on the sinks; the other markers follow."""
    logs, parts = s.logs, s.txns[tid][2]
    for lane in LANES:
        if any(e[0] == tid for e in logs[lane]):
            rows = [(COMMITTED, 0, *e[2:]) if e[0] == tid else e for e in logs[lane] if commit or e[0] != tid]
            logs = with_item(logs, lane, tuple(rows))
    parts &= ~3
    state = (PREPARE_COMMIT if commit else PREPARE_ABORT) if parts else EMPTY
    return s._replace(logs=logs, txns=with_item(s.txns, tid, (epoch, state, parts)))


def init_producer_id(s: State, tid: int) -> tuple[State, Reply]:
    epoch, state, _ = s.txns[tid]
    if state == ONGOING:
        return begin_abort(s, tid), RETRY
    if state in (PREPARE_COMMIT, PREPARE_ABORT):
        return s, RETRY
    return with_txn(s, tid, epoch + 1, EMPTY, 0), epoch + 1


def add_partitions(s: State, tid: int, epoch: int, parts: int) -> tuple[State, Reply]:
    current, state, registered = s.txns[tid]
    if current != epoch:
        return s, ERROR
    if state in (PREPARE_COMMIT, PREPARE_ABORT):
        return s, RETRY
    return with_txn(s, tid, epoch, ONGOING, registered | parts), OK


def verified(s: State, tid: int, epoch: int, parts: int) -> str:
    """KIP-890 part 1: before the first transactional append the partition's leader asks the coordinator."""
    current, state, registered = s.txns[tid]
    if current != epoch:
        return ERROR
    if state in (PREPARE_COMMIT, PREPARE_ABORT):
        return RETRY
    return OK if state == ONGOING and registered & parts == parts else ERROR


def refused(s: State, member: int) -> bool:
    """Whether the group coordinator refuses a commit with this membership."""
    return member not in (NO_MEMBER, s.member)


def produce(s: State, m: Request) -> tuple[State, Reply]:
    """A transactional append of rows: payload ((lane, from, until, topic id), ...)."""
    _, tid, epoch, member, payload = m
    if refused(s, member):  # no broker does that: the control that sends the membership with the rows
        return s, ERROR
    rows = [(lane, (tid, epoch, *row)) for lane, *row in payload]
    if all(any(e[:4] == row[:4] for e in s.logs[lane]) for lane, row in rows):
        return s, OK  # the same sequence number
    answer = verified(s, tid, epoch, sum(1 << lane for lane, _ in rows))
    if answer is not OK:
        return s, answer
    logs = s.logs
    for lane, row in rows:
        logs = with_item(logs, lane, (*logs[lane], row))
    return s._replace(logs=logs), OK


def txn_offset_commit(s: State, m: Request) -> tuple[State, Reply]:
    """Pending offsets: payload ((lane, position), ...). All lanes are in one partition of __consumer_offsets."""
    _, tid, epoch, member, payload = m
    if refused(s, member):
        return s, ERROR
    if not any(e[0] == tid and e[1] == epoch for log in s.offsets for e in log):
        answer = verified(s, tid, epoch, GROUP)
        if answer is not OK:
            return s, answer
    offsets = s.offsets
    for lane, position in payload:
        others = tuple(e for e in offsets[lane] if e[0] != tid)
        offsets = with_item(offsets, lane, (*others, (tid, epoch, position)))
    return s._replace(offsets=offsets), OK


def offset_commit(s: State, m: Request) -> tuple[State, Reply]:
    """A commit outside a transaction. Without membership it is accepted only by an empty group."""
    _, _, _, member, payload = m
    if member != s.member and not (member == NO_MEMBER and not s.member):
        return s, ERROR
    for lane, position in payload:
        s = set_offsets(s, lane, (*s.offsets[lane], (COMMITTED, 0, position)))
    return s, OK


def set_offsets(s: State, lane: int, log: Log) -> State:
    """The state with another log of a lane's offsets, of whose committed entries the last one counts."""
    log = latest(log)
    position = committed(log)
    if s.base[lane] is None and position is not None:
        s = s._replace(base=with_item(s.base, lane, position[0]))
    return s._replace(offsets=with_item(s.offsets, lane, log))


def latest(log: Log) -> Log:
    """The log without the committed entries that a later committed one replaces."""
    last = max((i for i, e in enumerate(log) if e[0] == COMMITTED), default=0)
    return tuple(e for i, e in enumerate(log) if e[0] != COMMITTED or i == last)


def append_records(s: State, m: Request) -> tuple[State, Reply]:
    """Records of lanes, in a transaction (M) or outside (N): payload ((lane, record), ...)."""
    kind, tid, epoch, _, payload = m
    if kind == "M":
        answer = verified(s, tid, epoch, LANES_TOPIC)
        if answer is not OK:
            return s, answer
    records = s.records
    for lane, record in payload:
        new = (tid, epoch, record) if kind == "M" else (COMMITTED, 0, record)
        if new not in records[lane]:
            records = with_item(records, lane, latest((*records[lane], new)))
    return s._replace(records=records), OK


def end_txn(s: State, tid: int, epoch: int) -> tuple[State, Reply]:
    current, state, _ = s.txns[tid]
    if current != epoch:
        return s, ERROR
    if state == ONGOING:
        return decide(s, tid, epoch, True), OK
    return s, {COMPLETE_COMMIT: OK, PREPARE_COMMIT: RETRY}.get(state, ERROR)


def end_log(log: Log, tid: int, commit: bool) -> Log:
    """A lane's offsets or records after the marker of a transaction."""
    if commit:
        return latest(tuple((COMMITTED, 0, e[2]) if e[0] == tid else e for e in log))
    return tuple(e for e in log if e[0] != tid)


def write_marker(s: State, tid: int, part: int, reuse: bool) -> State:
    """Writes the marker of one partition; after the last one the transaction is complete."""
    epoch, state, parts = s.txns[tid]
    commit = state == PREPARE_COMMIT
    if part == GROUP:
        for lane in LANES:
            if any(e[0] == tid for e in s.offsets[lane]):
                s = set_offsets(s, lane, end_log(s.offsets[lane], tid, commit))
    else:
        first, second = s.records
        s = s._replace(records=(end_log(first, tid, commit), end_log(second, tid, commit)))
    parts &= ~part
    # Only a producer that uses its epoch again distinguishes a complete commit.
    complete = COMPLETE_COMMIT if commit and reuse else EMPTY
    return with_txn(s, tid, epoch, state if parts else complete, parts)


REGISTERS = {"O": GROUP, "L": LANES_TOPIC}


def deliver(s: State, m: Request) -> tuple[State, Reply]:
    """Delivers a request to its broker and returns (state, reply); a request without effect returns the same object."""
    kind, tid, epoch, _, payload = m
    if kind == "I":
        return init_producer_id(s, tid)
    if kind in "AOLB":
        return add_partitions(s, tid, epoch, REGISTERS.get(kind) or sum(payload))
    if kind == "P":
        return produce(s, m)
    if kind == "T":
        return txn_offset_commit(s, m)
    if kind == "E":
        return end_txn(s, tid, epoch)
    return offset_commit(s, m) if kind == "C" else append_records(s, m)


def dead(s: State, kind: str, tid: int, epoch: int, member: int) -> bool:
    """Whether no broker will ever accept such a request: the model may drop it, and its sender has failed."""
    if kind in "I01234N":
        return False
    if kind == "C":
        return refused(s, member)
    return s.txns[tid][0] != epoch or (kind in "PT" and refused(s, member))
