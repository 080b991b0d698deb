"""Kafka's brokers for one lane, as pure functions from a state of the lane to the next (transaction protocol v1).

A lane is an immutable tuple, indexed by the names below. The functions follow Apache Kafka's TransactionCoordinator and
TransactionMetadata (fencing, epochs, strict equality of epochs), ProducerAppendInfo and UnifiedLog (epoch and sequence
checks, verification before the first transactional append), and OffsetMetadataManager (pending offsets per producer id;
the order of the log decides between a pending and a plain commit).
"""

from __future__ import annotations

from typing import Any, Protocol

Lane = tuple[Any, ...]
Pairs = tuple[tuple[Any, ...], ...]
Request = tuple[Any, ...]  # (kind, lane, producer id, epoch, ...)

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
# The partitions of a lane's transaction. The lanes topic is the compacted topic ackwright-lanes, which contains a
# record of each lane that has had a position (docs/protocol.md#rule-4).
SINK, GROUP, LANES_TOPIC = 1, 2, 4
PARTITION = {SINK: "the sink", GROUP: "__consumer_offsets", LANES_TOPIC: "the lanes topic"}

# coordinator: PID, EPOCH, STATE, PARTS (registered), MARKERS (to be written), NEXT_PID
# sink: LOG ((pid, from, until, open), ...), LOG_EPOCHS ((pid, epoch, next sequence), ...)
# lanes topic: RECORDS ((pid, 0, 0, open), ...), RECORD_EPOCHS as LOG_EPOCHS; pid 0 is a producer without transactions
# group: OFFSETS in the order of the log: (0, v) committed, (pid, v) pending, (pid, v, 1) marker written but not yet
#        materialised; GROUP_EPOCHS ((pid, epoch), ...)
# history, for the invariants: BASE = first position of the lane, PREVIOUS = the position before the current one
(PID, EPOCH, STATE, PARTS, MARKERS, NEXT_PID, LOG, LOG_EPOCHS, OFFSETS, GROUP_EPOCHS) = range(10)
(BASE, PREVIOUS, RECORDS, RECORD_EPOCHS) = range(10, 14)
LOGS = {SINK: (LOG, LOG_EPOCHS), LANES_TOPIC: (RECORDS, RECORD_EPOCHS)}

RETRY, ERROR, OK = "retry", "error", "ok"
Reply = str | tuple[int, int]


class Brokers(Protocol):
    """The configuration of the brokers, see config.Cfg."""

    @property
    def verify(self) -> bool: ...
    @property
    def tv2(self) -> bool: ...
    @property
    def max_epoch(self) -> int: ...


def new_lane(initialised: bool) -> Lane:
    """The initial state of a lane, with position 0 or without a position."""
    base, offsets = (0, ((0, 0),)) if initialised else (None, ())
    return (0, 0, EMPTY, 0, 0, 1, (), (), offsets, (), base, None, (), ())


def update(lane: Lane, *changes: tuple[int, Any]) -> Lane:
    """The lane with other values at some indexes."""
    fields = list(lane)
    for i, v in changes:
        fields[i] = v
    return tuple(fields)


def entry(pairs: Pairs, key: int) -> tuple[Any, ...] | None:
    for e in pairs:
        if e[0] == key:
            return e
    return None


def with_entry(pairs: Pairs, new: tuple[Any, ...]) -> Pairs:
    return tuple(sorted([e for e in pairs if e[0] != new[0]] + [new]))


def position(lane: Lane) -> int | None:
    e = entry(lane[OFFSETS], 0)
    return e[1] if e else None


def unstable(lane: Lane) -> bool:
    return any(e[0] != 0 for e in lane[OFFSETS])


def recorded(lane: Lane) -> bool:
    """Whether a read_committed reader of the lanes topic, up to its end after the init, gets the lane's record."""
    return any(not e[3] for e in lane[RECORDS])


def open_offsets(lane: Lane, pid: int) -> bool:
    return any(e[0] == pid and len(e) == 2 for e in lane[OFFSETS])


def completing(lane: Lane) -> bool:
    """Whether markers are being written: output, position and record may temporarily differ."""
    return lane[STATE] in (PREPARE_COMMIT, PREPARE_ABORT) or any(len(e) == 3 for e in lane[OFFSETS])


def set_offsets(lane: Lane, offsets: Pairs) -> Lane:
    old, committed = position(lane), entry(offsets, 0)
    new = committed[1] if committed else None
    base = new if lane[BASE] is None else lane[BASE]
    return update(lane, (OFFSETS, offsets), (BASE, base), (PREVIOUS, old if old != new else lane[PREVIOUS]))


def begin_abort(lane: Lane) -> Lane:
    """Fences the current epoch and aborts its transaction: InitProducerId on an open transaction, or a timeout."""
    return update(lane, (EPOCH, lane[EPOCH] + 1), (STATE, PREPARE_ABORT), (MARKERS, lane[PARTS]))


def init_producer_id(lane: Lane, max_epoch: int) -> tuple[Lane, Reply]:
    if lane[STATE] == ONGOING:
        return begin_abort(lane), RETRY
    if lane[STATE] in (PREPARE_COMMIT, PREPARE_ABORT):
        return lane, RETRY  # CONCURRENT_TRANSACTIONS
    if lane[PID] == 0 or lane[EPOCH] >= max_epoch - 1:  # new, expired, or epochs exhausted: a new producer id
        pid = lane[NEXT_PID]
        return update(lane, (PID, pid), (EPOCH, 0), (STATE, EMPTY), (PARTS, 0), (NEXT_PID, pid + 1)), (pid, 0)
    return update(lane, (EPOCH, lane[EPOCH] + 1), (STATE, EMPTY), (PARTS, 0)), (lane[PID], lane[EPOCH] + 1)


def add_partitions(lane: Lane, pid: int, epoch: int, parts: int) -> tuple[Lane, Reply]:
    if lane[PID] != pid or lane[EPOCH] != epoch:
        return lane, ERROR
    if lane[STATE] in (PREPARE_COMMIT, PREPARE_ABORT):
        return lane, RETRY
    return update(lane, (STATE, ONGOING), (PARTS, lane[PARTS] | parts)), OK


def verified(lane: Lane, pid: int, epoch: int, part: int) -> str:
    """KIP-890 part 1: before the first transactional append the partition's leader asks the coordinator."""
    if lane[PID] != pid or lane[EPOCH] != epoch:
        return ERROR
    if lane[STATE] in (PREPARE_COMMIT, PREPARE_ABORT):
        return RETRY
    return OK if lane[PARTS] & part else ERROR


def produce(lane: Lane, part: int, m: Request, verify: bool) -> tuple[Lane, Reply]:
    """A transactional append of m = (kind, lane, pid, epoch, sequence, from, until) to the sink or the lanes topic."""
    log, epochs = LOGS[part]
    _, _, pid, epoch, seq, a, b = m
    last = entry(lane[epochs], pid)
    if last and epoch < last[1]:
        return lane, ERROR
    if last and epoch == last[1] and seq < last[2]:
        return lane, OK  # a duplicate of a batch in the log
    if verify and not any(e[0] == pid and e[3] for e in lane[log]):
        answer = verified(lane, pid, epoch, part)
        if answer is not OK:
            return lane, answer
    if last and seq != (last[2] if epoch == last[1] else 0):
        return lane, ERROR
    appended = lane[log] + ((pid, a, b, 1),)
    return update(lane, (log, appended), (epochs, with_entry(lane[epochs], (pid, epoch, seq + 1)))), OK


def record(lane: Lane) -> tuple[Lane, Reply]:
    """Produces the lane's record to the lanes topic, outside a transaction."""
    if recorded(lane):
        return lane, OK  # the topic is compacted: an equal record changes nothing
    return update(lane, (RECORDS, lane[RECORDS] + ((0, 0, 0, 0),))), OK


def txn_offset_commit(lane: Lane, pid: int, epoch: int, value: int, verify: bool) -> tuple[Lane, Reply]:
    last = entry(lane[GROUP_EPOCHS], pid)
    if last and epoch < last[1]:
        return lane, ERROR
    if verify and not open_offsets(lane, pid):
        answer = verified(lane, pid, epoch, GROUP)
        if answer is not OK:
            return lane, answer
    offsets = (*(e for e in lane[OFFSETS] if e[0] != pid or len(e) == 3), (pid, value))
    return update(lane, (OFFSETS, offsets), (GROUP_EPOCHS, with_entry(lane[GROUP_EPOCHS], (pid, epoch)))), OK


def offset_commit(lane: Lane, value: int) -> tuple[Lane, Reply]:
    """A commit outside a transaction, which is not fenced."""
    return set_offsets(lane, (*(e for e in lane[OFFSETS] if e[0] != 0), (0, value))), OK


def end_txn(lane: Lane, pid: int, epoch: int, tv2: bool) -> tuple[Lane, Reply]:
    if lane[PID] != pid or not (tv2 or lane[EPOCH] == epoch):
        return lane, ERROR
    if tv2:  # KIP-890 part 2: every end of a transaction raises the epoch
        if lane[STATE] == ONGOING and lane[EPOCH] == epoch:
            committing = ((STATE, PREPARE_COMMIT), (MARKERS, lane[PARTS]), (EPOCH, epoch + 1))
            return update(lane, *committing), (pid, epoch + 1)
        if lane[STATE] == COMPLETE_COMMIT and lane[EPOCH] == epoch + 1:
            return lane, (pid, epoch + 1)
        return lane, RETRY if lane[STATE] == PREPARE_COMMIT and lane[EPOCH] == epoch + 1 else ERROR
    if lane[STATE] == ONGOING:
        return update(lane, (STATE, PREPARE_COMMIT), (MARKERS, lane[PARTS])), OK
    return lane, {COMPLETE_COMMIT: OK, PREPARE_COMMIT: RETRY}.get(lane[STATE], ERROR)


def materialise(lane: Lane, pid: int) -> Lane:
    """A pending offset becomes the position, unless a commit that is later in the log has become it meanwhile."""
    offsets = lane[OFFSETS]
    pending = next((i for i, e in enumerate(offsets) if e[0] == pid), None)
    if pending is None:
        return lane
    committed = next((i for i, e in enumerate(offsets) if e[0] == 0), -1)
    if committed < pending:
        offsets = tuple((0, e[1]) if i == pending else e for i, e in enumerate(offsets) if i != committed)
    else:
        offsets = tuple(e for i, e in enumerate(offsets) if i != pending)
    return set_offsets(lane, offsets)


def write_marker(lane: Lane, part: int, asynchronous: bool) -> Lane:
    """Writes the outstanding marker of one partition; after the last marker the transaction is complete."""
    commit, pid, epoch = lane[STATE] == PREPARE_COMMIT, lane[PID], lane[EPOCH]
    if part in LOGS:  # ends every open batch of the producer id, of any epoch
        log_index, epochs = LOGS[part]
        last = entry(lane[epochs], pid)
        if commit:
            log = tuple((e[0], e[1], e[2], 0) if e[0] == pid else e for e in lane[log_index])
        else:
            log = tuple(e for e in lane[log_index] if e[0] != pid or not e[3])
        seq = last[2] if last and last[1] == epoch else 0
        lane = update(lane, (log_index, log), (epochs, with_entry(lane[epochs], (pid, epoch, seq))))
    else:
        lane = update(lane, (GROUP_EPOCHS, with_entry(lane[GROUP_EPOCHS], (pid, epoch))))
        if not commit:
            lane = update(lane, (OFFSETS, tuple(e for e in lane[OFFSETS] if e[0] != pid or len(e) == 3)))
        elif asynchronous:
            lane = update(lane, (OFFSETS, tuple((e[0], e[1], 1) if e[0] == pid else e for e in lane[OFFSETS])))
        else:
            lane = materialise(lane, pid)
    outstanding = lane[MARKERS] & ~part
    if outstanding:
        return update(lane, (MARKERS, outstanding))
    return update(lane, (MARKERS, 0), (PARTS, 0), (STATE, COMPLETE_COMMIT if commit else COMPLETE_ABORT))


REGISTERS = {"A": SINK, "O": GROUP, "B": SINK | GROUP, "L": LANES_TOPIC}
APPENDS = {"P": SINK, "M": LANES_TOPIC}


def deliver(lane: Lane, m: Request, brokers: Brokers) -> tuple[Lane, Reply]:
    """Delivers a request to its broker and returns (lane, reply); a request without effect returns the same object."""
    kind, pid, epoch = m[0], m[2], m[3]
    if kind in REGISTERS:
        result = add_partitions(lane, pid, epoch, REGISTERS[kind])
    elif kind in APPENDS:
        result = produce(lane, APPENDS[kind], m, brokers.verify)
    elif kind == "I":
        result = init_producer_id(lane, brokers.max_epoch)
    elif kind == "T":
        result = txn_offset_commit(lane, pid, epoch, m[4], brokers.verify)
    elif kind == "E":
        result = end_txn(lane, pid, epoch, brokers.tv2)
    elif kind == "N":
        result = record(lane)
    else:
        result = offset_commit(lane, m[4])
    return result


def dead(lane: Lane, m: Request, brokers: Brokers) -> bool:
    """Whether no broker will ever accept the request: the model may drop it, and its sender has failed."""
    kind, pid, epoch = m[0], m[2], m[3]
    if kind in "ICN" or (kind == "E" and brokers.tv2):
        return False
    current = lane[PID] == pid and lane[EPOCH] == epoch
    if kind in REGISTERS or kind == "E":
        return not current
    log, epochs = LOGS[APPENDS[kind]] if kind in APPENDS else (OFFSETS, GROUP_EPOCHS)
    last = entry(lane[epochs], pid)
    if last and epoch < last[1]:
        return True
    if not brokers.verify or current:
        return False
    return not (open_offsets(lane, pid) if kind == "T" else any(e[0] == pid and e[3] for e in lane[log]))
