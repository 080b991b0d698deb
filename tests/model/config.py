"""What one search is about: the programs of drivers and tasks, the behaviour of brokers, the budgets that bound it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

STEPS = {
    "I": "InitProducerId",
    "A": "AddPartitionsToTxn(sink)",
    "P": "Produce",
    "O": "AddOffsetsToTxn",
    "B": "AddPartitionsToTxn and AddOffsetsToTxn in one (a reduction, for the larger searches)",
    "T": "TxnOffsetCommit",
    "L": "AddPartitionsToTxn(ledger of lanes)",
    "M": "Produce the lane's record into the ledger, in the transaction",
    "E": "EndTxn(commit)",
    "C": "OffsetCommit outside of a transaction",
    "N": "Produce the lane's record into the ledger, outside of a transaction",
    # local steps
    "R": "read the position: >= until: done; == from: go on; between: fail (or drop rows); below from or missing: fail",
    "U": "read the ledger and remember whether the lane is recorded",
    "V": "read the ledger: recorded: halt; else go on",
    "Q": "read the position: present: done; missing: halt if the lane is recorded, else go on with the start",
    "K": "the same, but present: go on with the same value",
    "H": "read the position and go on with the same value",
    "W": "read the position: >= until: done; else go on",
    "X": "produce or process outside of a transaction",
}
REQUESTS = frozenset("IAPOBTLMECN")


@cache
def edges(rest: str) -> tuple[tuple[str, str], ...]:
    """The steps that may be taken next in the rest of a program, each with what then remains.

    A program is a text of steps; "(AP|OT)" holds two chains that run concurrently, and what follows waits for both.
    """
    block = re.fullmatch(r"\((\w*)\|(\w*)\)(\w*)", rest)
    if not block:
        return ((rest[0], rest[1:] if rest[1:2] != "(" else join(rest[1:])),)
    left, right, tail = block.groups()
    return ((left[0], join(f"({left[1:]}|{right}){tail}")), (right[0], join(f"({left}|{right[1:]}){tail}")))


def join(rest: str) -> str:
    """Of a concurrent block with one chain left only that chain."""
    block = re.fullmatch(r"\((\w*)\|(\w*)\)(\w*)", rest)
    if block and not (block[1] and block[2]):
        return block[1] + block[2] + block[3]
    return rest


class Budget:
    """What may happen only so often in one run; the indexes of a state's budgets (plain integers: hashed often)."""

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
    """One variant. Counts are numbers of events in a whole run."""

    guarantee: str = "EO"  # EO | AMO | ALO | MIX (one driver ALO, one EO)
    n: int = 2  # source offsets 0..n-1 in each lane
    lanes: int = 1
    program: tuple[str, str] = ("IRAPOTE", "IRAPOTE")  # of a task, per driver
    start: tuple[str, str] = ("I", "I")  # what a starting driver does for each lane before it reads positions
    starting_offset: tuple[int, int] = (0, 0)  # as each driver resolves it
    initialised: bool = True  # lanes have a position from the beginning
    heartbeat: str = ""
    abandon: str = ""  # what a driver does with a lane whose batch failed
    filtered: frozenset[int] = frozenset()  # offsets whose rows the transform drops
    filtered_program: str = ""  # used for a range without any row
    speculation: bool = True  # a driver may start further attempts of a lane
    between: str = "fail"  # fail | drop
    missing: str = "halt"  # halt | assume (that it is the starting offset)
    reuse: bool = False  # keep a producer for the next transaction, in the same epoch
    verify: bool = True  # KIP-890 part 1: brokers verify
    tv2: bool = False  # KIP-890 part 2: epoch bumped by each EndTxn
    stable: bool = True  # require_stable
    monotone: bool = True  # check that the position never moves backwards
    ledger: bool = False  # check that a lane is recorded exactly if it ever had a position
    no_false_halt: bool = True  # check that a driver halts only if a position was lost
    asynchronous: bool = False  # the group coordinator before Kafka 4: offsets materialise after the marker
    max_epoch: int = 99
    attempts: int = 2  # budgets, over the whole run
    starts: int = 2
    duplicates: int = 1
    timeouts: int = 1
    heartbeats: int = 0
    stale_reads: int = 0
    id_expiry: int = 0
    position_expiry: int = 0
    prepares: int = 0  # producers that a driver initialises ahead, before it has a range for them
    abandons: int = 0

    @property
    def budgets(self) -> tuple[int, ...]:
        names = sorted((index, name) for name, index in vars(Budget).items() if name.isupper())
        return tuple(getattr(self, name.lower()) for _, name in names)
