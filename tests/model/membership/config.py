"""The parameters of one search: programs of drivers and tasks, what a request carries, and the budgets of events."""

from __future__ import annotations

from dataclasses import dataclass

from ..budgets import limits

STEPS = {
    "I": "InitProducerId of the attempt's transactional id",
    "0": "InitProducerId of slot 0, only to end what it left open; 1: of slot 1; 2: of the driver's id",
    "3": "InitProducerId of lane 0's id of the previous protocol, the epoch is stored; 4: of lane 1's id",
    "A": "AddPartitionsToTxn(sink partitions of the attempt's lanes)",
    "P": "read the rows from the source and produce them to the sink",
    "O": "AddOffsetsToTxn",
    "B": "A (a task) or L (a start, a stop), and O as one step (reduces the state space of larger searches)",
    "T": "TxnOffsetCommit of all lanes of the attempt",
    "L": "AddPartitionsToTxn(lanes topic)",
    "M": "Produce the lanes' records to the lanes topic, in the transaction",
    "E": "EndTxn(commit)",
    "C": "OffsetCommit outside a transaction",
    "N": "Produce the lanes' records to the lanes topic, outside a transaction",
    "J": "join the group with a new member id; a start without this step begins with it",
    # local steps
    "R": "read the lanes' positions. All at `from`: continue; all at `until` or above: skip; else: fail",
    "G": "a starting driver reads all positions",
    "D": "a starting driver halts, or chooses its number; part of the step before",
    "U": "read the lanes topic and store the lanes' records",
    "Z": "compare the topic's id with the one that the driver read when it started",
    "X": "process outside a transaction",
    "x": "continue with lane 0 alone and its id of the previous protocol; y: with lane 1",
    "z": "continue with all lanes and the driver's id",
}
REQUESTS = frozenset("I01234APOBTLMECN")


class Budget:
    """Indexes of a state's budgets: how often each event may occur in one run (integers, which hash fast)."""

    ATTEMPTS = 0
    STARTS = 1
    DUPLICATES = 2
    TIMEOUTS = 3
    SESSIONS = 4
    REJOINS = 5
    LATE_JOINS = 6
    FOREIGN_PLAIN = 7
    FOREIGN_TXN = 8
    RECREATIONS = 9
    EXPIRIES = 10
    STOPS = 11
    ABANDONS = 12
    MARKER_DELETIONS = 13


TOGETHER = "IR(OT|AP)E"  # librdkafka sends enqueued rows while send_offsets_to_transaction waits
SETTLE = "GDIOTE"  # read all positions, then commit all of them again in one transaction


@dataclass(frozen=True)
class Cfg:
    """The parameters of one variant. A pair has one value per driver."""

    guarantee: str = "EO"  # EO | AMO | ALO | MIX (one driver at-least-once, one exactly-once)
    n: int = 2  # source offsets 0..n-1 in each lane
    program: tuple[str, str] = (TOGETHER, TOGETHER)  # of a task
    start: tuple[str, str] = (SETTLE, SETTLE)  # of a starting driver, after it has joined
    settle_id: str = "driver"  # transactional id of a start: driver (an id for it alone) | slot (slot 0)
    tasks: tuple[str, str] = ("slots", "slots")  # ids of tasks: slots | lanes (previous protocol) | driver
    stop: str = ""  # program of an orderly stop
    abandon: str = ""  # program of a task whose batch failed
    adopted: bool = False  # in the initial state another program has committed all positions, without a record
    stopped: bool = False  # the lanes topic has final positions in the initial state
    running: str = ""  # the first driver runs in the initial state: as a member | old (as one of the previous protocol)
    initialised: tuple[bool, bool] = (True, True)  # lanes that have a position in the initial state
    starting_offset: tuple[int, int] = (0, 0)  # the offset that startingOffsets resolves to
    # ---- the protections
    membership: str = "offsets"  # the requests that carry it: offsets | rows | "" (none)
    join: bool = True  # each start joins with a new member id; otherwise only a driver's first start
    stable_start: bool = True  # a starting driver waits for pending offsets
    stable_tasks: bool = True  # a task waits for pending offsets
    stable_records: bool = True  # a starting driver reads the lanes topic to its end, beyond open transactions
    own_number: bool = True  # a task skips its range only if the positions carry its driver's number
    halts_if_moved: bool = True  # a starting driver halts at a recorded lane's position without a driver number
    rejoin: str = ""  # a removed member that rejoins continues its query; the new membership is used by:
    # plans (later tasks) | attempts (running ones as well)
    keep_number: bool = False  # a driver that restarts its query keeps its number
    topic_snapshot: bool = False  # a driver that restarts its query keeps the topic id that it has read first
    resume: bool = False  # a missing position resumes from the final position in the lanes topic
    overwrite: str = "final"  # records that the start's transaction overwrites: final (those with one) | all | ""
    # ---- a driver of the previous protocol
    old_checks_group: bool = True  # it starts only in an empty group
    old_reads_numbers: bool = True  # it understands the driver numbers of this protocol
    marked: bool = False  # positions of this protocol have a mark at which it halts
    marked_last: bool = False  # of a start's transactions, only those after its last D have the mark
    # ---- what is checked
    exact_topic: bool = False  # rows of a recreated topic never count for a position of the earlier one
    no_false_halt: bool = True  # a driver halts with PositionLost only if positions have expired
    monotone: bool = True  # this program's commits never move a position backwards
    reuse: bool = False  # a driver's tasks use the epoch of its start
    idle_lanes: bool = False  # a batch may leave out lanes
    # ---- the budgets: number of events in one run
    attempts: int = 2
    starts: int = 2
    duplicates: int = 0
    timeouts: int = 0
    sessions: int = 0  # the member's session times out
    rejoins: int = 0
    late_joins: int = 0  # a join arrives late: a member that no driver is
    foreign_plain: int = 0  # another program's OffsetCommit
    foreign_txn: int = 0  # another program's transactional commit without membership
    recreations: int = 0
    marker_deletions: int = 0  # on two clusters: the topic that carries the positions is deleted, beside a live member
    expiries: int = 0
    stops: int = 0
    abandons: int = 0

    @property
    def budgets(self) -> tuple[int, ...]:
        return limits(self, Budget)
