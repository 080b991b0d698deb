"""The parameters of one search: programs of drivers and tasks, behaviour of brokers, and the budgets that bound it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from .budgets import limits

STEPS = {
    "I": "InitProducerId",
    "A": "AddPartitionsToTxn(sink)",
    "P": "Produce",
    "O": "AddOffsetsToTxn",
    "B": "AddPartitionsToTxn and AddOffsetsToTxn as one step (reduces the state space of larger searches)",
    "T": "TxnOffsetCommit",
    "L": "AddPartitionsToTxn(lanes topic)",
    "M": "Produce the lane's record to the lanes topic, in the transaction",
    "E": "EndTxn(commit)",
    "C": "OffsetCommit outside a transaction",
    "N": "Produce the lane's record to the lanes topic, outside a transaction",
    # local steps
    "R": "read the position. until or above: done; from: continue; between: fail or drop rows; else: fail",
    "U": "read the lanes topic and store whether the lane is recorded",
    "V": "read the lanes topic. Recorded: halt; otherwise continue",
    "Q": "read the position. Present: done; missing: halt if the lane is recorded, otherwise continue with the start",
    "K": "as Q, but present: continue with the same value",
    "H": "read the position and continue with the same value",
    "W": "read the position. until or above: done; otherwise continue",
    "X": "produce or process outside a transaction",
}
REQUESTS = frozenset("IAPOBTLMECN")


@cache
def edges(rest: str) -> tuple[tuple[str, str], ...]:
    """The possible next steps of the rest of a program, each with the rest after it.

    A program is a string of steps. "(AP|OT)" contains two chains that run concurrently; later steps wait for both.
    """
    block = re.fullmatch(r"\((\w*)\|(\w*)\)(\w*)", rest)
    if not block:
        return ((rest[0], rest[1:] if rest[1:2] != "(" else join(rest[1:])),)
    left, right, tail = block.groups()
    return ((left[0], join(f"({left[1:]}|{right}){tail}")), (right[0], join(f"({left}|{right[1:]}){tail}")))


def join(rest: str) -> str:
    """The program without a leading concurrent block that has only one chain left."""
    block = re.fullmatch(r"\((\w*)\|(\w*)\)(\w*)", rest)
    if block and not (block[1] and block[2]):
        return block[1] + block[2] + block[3]
    return rest


class Budget:
    """Indexes of a state's budgets: how often each event may occur in one run (integers, which hash fast)."""

    ATTEMPTS = 0
    STARTS = 1
    DUPLICATES = 2
    TIMEOUTS = 3
    HEARTBEATS = 4
    STALE_READS = 5
    ID_EXPIRY = 6
    POSITION_EXPIRY = 7
    PREPARES = 8
    ABANDONS = 9


@dataclass(frozen=True)
class Cfg:
    """The parameters of one variant."""

    guarantee: str = "EO"  # EO | AMO | ALO | MIX (one driver ALO, one EO)
    n: int = 2  # source offsets 0..n-1 in each lane
    lanes: int = 1
    program: tuple[str, str] = ("IRAPOTE", "IRAPOTE")  # of a task, per driver
    start: tuple[str, str] = ("I", "I")  # of a starting driver, for each lane, before it reads positions
    starting_offset: tuple[int, int] = (0, 0)  # the offset that startingOffsets resolves to, per driver
    initialised: bool = True  # lanes have a position in the initial state
    heartbeat: str = ""  # program of a heartbeat
    abandon: str = ""  # program for a lane whose batch failed
    filtered: frozenset[int] = frozenset()  # offsets whose rows the transform drops
    filtered_program: str = ""  # program for a range without rows
    speculation: bool = True  # a driver may start further attempts of a lane
    between: str = "fail"  # position inside the range: fail | drop (the rows below it)
    missing: str = "halt"  # no position: halt | assume (the starting offset)
    reuse: bool = False  # keep a producer for the next transaction, in the same epoch
    verify: bool = True  # KIP-890 part 1: brokers verify
    tv2: bool = False  # KIP-890 part 2: every EndTxn raises the epoch
    stable: bool = True  # OffsetFetch with require_stable
    monotone: bool = True  # check that the position never moves backwards
    check_records: bool = False  # check that a lane is recorded exactly if it ever had a position
    no_false_halt: bool = True  # check that a driver halts only if a position was lost
    asynchronous: bool = False  # group coordinator before Kafka 4: offsets materialise after the marker
    max_epoch: int = 99
    attempts: int = 2  # the budgets: number of events in one run
    starts: int = 2
    duplicates: int = 1
    timeouts: int = 1
    heartbeats: int = 0
    stale_reads: int = 0
    id_expiry: int = 0
    position_expiry: int = 0
    prepares: int = 0  # producers that a driver initialises before it has a range for them
    abandons: int = 0

    @property
    def budgets(self) -> tuple[int, ...]:
        return limits(self, Budget)
