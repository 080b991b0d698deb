"""A model of a stateful pipeline: each batch is decided once, by a record in the transaction of its output.

A batch is evaluated from the state that the batch before has left. Every evaluation writes separate state, which
differs from that of any other evaluation, because a transform need not be deterministic. A decision says which
evaluation counts: its transaction has the positions, the output and the id of the state. A start joins, which refuses
the offsets of every earlier member; reads positions and decisions; rebuilds Spark's log of commits from them; and lets
Spark load the state that the log names. Anything may have changed the log: a driver that was replaced, or a person who
restored the directory.

In a database, a transaction locks the generation of the pipeline and compares it with that of its driver. No driver
joins before it ends, and what it commits is visible at once.

In a table with versions nothing is locked: a commit creates the version behind the one that was read, or fails. It has
the name of a file with the decision, which is written before.

In files nothing is locked, and no driver is refused: a batch is one file, named by its number, and created if absent.

Two drivers; the output has two partitions, which one transaction covers, or one each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .variants import DUPLICATED, LOST, Variant

T = TypeVar("T")
IDLE, JOINED, POSITIONED, READ, REBUILT = "idle", "joined", "positioned", "read", "rebuilt"
RUNNING, EVALUATED, SENDING, DECIDED = "running", "evaluated", "sending", "decided"
OPEN, COMMITTED = "open", "committed"
MIXED = "state and output of different evaluations"
ELSEWHERE = "computed from a state that no decision names"
PARTITIONS = (0, 1)


@dataclass(frozen=True)
class Cfg:
    """The parameters of one variant."""

    fenced: bool = True  # offsets carry the membership
    stable: bool = True  # a start waits for pending offsets
    reads_to_end: bool = True  # it reads the decisions up to the end of their log, also behind an open transaction
    must_agree: bool = True  # positions and decisions name the same batch
    rebuilds: bool = True  # the log of commits is rebuilt from the decision
    state_in_decision: bool = True  # a decision has the id of the state; otherwise the log alone has it
    compares_base: bool = True  # the evaluation's base is the decided state
    unique_names: bool = True  # state is stored under the id of its evaluation; otherwise under the number of its batch
    one_entry: bool = True  # an evaluation whose tasks have run twice is refused; otherwise the first state counts
    together: bool = True  # one transaction for the output of a batch; otherwise one for each partition
    output_first: bool = False  # the output is committed in a transaction before that of the decision
    database: bool = False  # positions, decisions and output are in a database
    locks: bool = True  # there, a transaction locks the generation that it compares
    versions: bool = False  # positions, a decision's name and output are in a table with versions
    compares_version: bool = True  # there, a commit fails if the version that was read is not the last one
    removes_late: bool = True  # there, a file is removed after the commit that replaces its decision
    named: bool = False  # positions, decision and output are a file that is named by the number of its batch
    if_absent: bool = True  # there, a file is created only if none has its name; otherwise it replaces that one
    retained: int = 3  # batches whose state is not deleted, counted from the last evaluation's
    batches: int = 2
    evaluations: int = 4  # the budgets: number of events in one run
    starts: int = 3
    reruns: int = 1  # of tasks that have finished, after the loss of an executor
    damages: int = 1  # changes of the log of commits by somebody else


class Evaluation(NamedTuple):
    batch: int
    base: int  # the evaluation whose state it has used; 0: none
    like: int = 0  # replay.py: the decided evaluation whose output it has, too; 0: it has another one


class Log(NamedTuple):
    """The last entry of Spark's log of commits."""

    batch: int
    state: int


class Decision(NamedTuple):
    state: int
    output: int


class Driver(NamedTuple):
    mode: str = IDLE
    member: int = 0
    batch: int = 0  # the last decided one, as it knows
    state: int = 0  # of that batch, by the decision
    loaded: Log = Log(0, 0)  # what Spark has loaded
    entries: tuple[int, ...] = ()  # the states that its evaluation has written
    output: int = 0  # the evaluation whose output it has


class Transaction(NamedTuple):
    """A transaction whose offsets the group's coordinator has accepted."""

    driver: int
    awaited: bool  # whether the driver waits for the outcome
    partitions: tuple[int, ...]
    batch: int
    decision: Decision
    member: int
    status: str = OPEN
    offsets_marked: bool = False
    records_marked: bool = False


class State(NamedTuple):
    member: int  # the group's current one
    positions: tuple[int, int]  # batches, by partition of the output
    decisions: tuple[Decision, ...]
    outputs: tuple[tuple[int, ...], tuple[int, ...]]  # evaluations, by partition
    evaluations: tuple[Evaluation, ...]  # number e is at e - 1
    stored: frozenset[int]  # evaluations whose state has not been deleted
    log: Log
    drivers: tuple[Driver, Driver]
    transaction: Transaction | None  # of the pipeline's transactional id
    files: frozenset[int]  # of decisions, by the evaluation of their state
    starts: int
    reruns: int
    damages: int
    losses: int = 0  # replay.py: how often an older copy of the state may be restored
    replayed: int = 0  # replay.py: the evaluation that a driver has recorded in place of one whose state is lost


Step = tuple[str, State | None, str | None]


class Model:
    """The transitions of one variant."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg

    def initial(self) -> State:
        budgets = (self.c.starts, self.c.reruns, self.c.damages)
        return State(
            0, (0, 0), (), ((), ()), (), frozenset(), Log(0, 0), (Driver(), Driver()), None, frozenset(), *budgets
        )

    def check(self, s: State) -> str | None:
        for output in s.outputs:
            base = 0
            for batch, e in enumerate(output, 1):
                if s.evaluations[e - 1].batch != batch:
                    return f"output {output}: {DUPLICATED}"
                if s.evaluations[e - 1].base != base:
                    return f"evaluation {e} of batch {batch}: {ELSEWHERE}"
                base = e
        for d, *parts in zip(s.decisions, *s.outputs, strict=False):
            if set(parts) != {d.state}:
                return f"{d}, output {parts}: {MIXED}"
        if s.decisions and self.c.unique_names and s.decisions[-1].state not in s.stored:
            return f"the state of {s.decisions[-1]} is {LOST}"
        if s.decisions and self.c.versions and not s.transaction and s.decisions[-1].state not in s.files:
            return f"the file of {s.decisions[-1]} is {LOST}"
        return None

    def successors(self, s: State) -> Iterator[Step]:
        if s.damages:
            entries = [Log(x.batch, e) for e, x in enumerate(s.evaluations, 1) if e in s.stored]
            for log in {Log(0, 0), *entries} - {s.log}:
                yield f"the log is now {log}", s._replace(log=log, damages=s.damages - 1), None
        retained = frozenset(e for e in s.stored if s.evaluations[e - 1].batch > self._last_batch(s) - self.c.retained)
        if retained != s.stored:
            yield f"state is deleted, except that of {set(retained)}", s._replace(stored=retained), None
        if s.transaction:
            yield from self._transaction(s, s.transaction)
        for i, driver in enumerate(s.drivers):
            yield from self._driver(s, i, driver, f"D{i + 1}")

    @property
    def _at_once(self) -> bool:
        """Whether a commit is visible at once, as a whole."""
        return self.c.database or self.c.versions or self.c.named

    def _last_batch(self, s: State) -> int:
        return max((x.batch for x in s.evaluations), default=0)

    def _transaction(self, s: State, t: Transaction) -> Iterator[Step]:
        if t.status == OPEN:
            yield f"{t}: times out", self._answer(s._replace(transaction=None), t, known=False), None
            if self.c.versions and self.c.compares_version and (t.member != s.member or t.batch != s.positions[0] + 1):
                return
            if self.c.named and self.c.if_absent and t.batch != s.positions[0] + 1:
                return
            committed = s._replace(transaction=t._replace(status=COMMITTED, awaited=False))
            if self._at_once:
                committed = self._publish(_with_positions(s, t), t)._replace(transaction=None)
            yield f"{t}: is committed", self._answer(committed, t), None
            yield f"{t}: is committed, outcome unknown", self._answer(committed, t, known=False), None
            return
        if not t.offsets_marked:
            marked = _marked(_with_positions(s, t), t._replace(offsets_marked=True))
            yield f"{t}: offsets are marked", marked, None
        if not t.records_marked:
            yield f"{t}: records are marked", _marked(self._publish(s, t), t._replace(records_marked=True)), None

    def _publish(self, s: State, t: Transaction) -> State:
        """The output becomes visible, and with the batch's last partition its decision."""
        if self.c.named and t.batch <= len(s.decisions):
            first, second = (_replaced(o, t.batch, t.decision.output) for o in s.outputs)
            return s._replace(outputs=(first, second), decisions=_replaced(s.decisions, t.batch, t.decision))
        if not self.c.output_first:
            s = _with_output(s, t.partitions, t.decision.output)
        return s._replace(decisions=(*s.decisions, t.decision)) if PARTITIONS[-1] in t.partitions else s

    def _answer(self, s: State, t: Transaction, *, known: bool = True) -> State:
        d = s.drivers[t.driver]
        if not t.awaited:
            return s
        if not known:
            return with_driver(s, t.driver, Driver())
        if PARTITIONS[-1] not in t.partitions:
            return with_driver(s, t.driver, d._replace(mode=EVALUATED))
        if self.c.versions and self.c.removes_late:
            s = s._replace(files=s.files - {d.state})
        return with_driver(s, t.driver, d._replace(mode=DECIDED, batch=t.batch, state=t.decision.state))

    def _driver(self, s: State, i: int, d: Driver, name: str) -> Iterator[Step]:
        """A driver may start again at any time: its process was killed, or its query failed."""
        t = s.transaction
        if s.starts and not (t and self.c.database and self.c.locks):
            forgotten = t and t._replace(awaited=t.awaited and t.driver != i)
            joined = s._replace(member=s.member + 1, starts=s.starts - 1, transaction=forgotten)
            yield f"{name}: joins", with_driver(joined, i, Driver(JOINED, s.member + 1)), None
        match d.mode:
            case mode if mode in (JOINED, POSITIONED):
                yield from self._reads(s, i, d, name)
            case mode if mode == READ:
                # Without ids in the decision only the log can name the state.
                named = d.state if self.c.state_in_decision or s.log.batch != d.batch else s.log.state
                rebuilt = s._replace(log=Log(d.batch, named)) if self.c.rebuilds else s
                yield f"{name}: rebuilds the log", with_driver(rebuilt, i, d._replace(mode=REBUILT)), None
            case mode if mode == REBUILT:
                yield from self._loads(s, i, d, name)
            case mode if mode == RUNNING:
                yield from self._evaluates(s, i, d, name)
            case mode if mode == EVALUATED:
                yield from self._sends(s, i, d, name)
            case mode if mode == DECIDED:
                decided = Log(d.batch, d.entries[0])
                running = d._replace(mode=RUNNING, loaded=decided, entries=(), output=0)
                yield f"{name}: writes the log", with_driver(s._replace(log=decided), i, running), None

    def _reads(self, s: State, i: int, d: Driver, name: str) -> Iterator[Step]:
        t = None if self._at_once else s.transaction  # a reader there does not wait for a transaction
        if d.mode == JOINED:
            if self.c.stable and t and not t.offsets_marked:
                return
            # Partitions that differ continue where the batch was left.
            read = d._replace(mode=POSITIONED, batch=min(s.positions))
            yield f"{name}: reads positions {s.positions}", with_driver(s, i, read), None
            return
        if self.c.reads_to_end and t and not t.records_marked:
            return
        known = d.batch if self.c.named else len(s.decisions)  # of a file both are read at once
        if self.c.must_agree and known != d.batch:
            yield f"{name}: halts, decision {known} and position {d.batch}", with_driver(s, i, Driver()), None
            return
        state = s.decisions[known - 1].state if known else 0
        if self.c.versions and known and state not in s.files:
            yield f"{name}: halts, decision {known} has no file", with_driver(s, i, Driver()), None
            return
        yield f"{name}: reads decision {known}", with_driver(s, i, d._replace(mode=READ, state=state)), None

    def _loads(self, s: State, i: int, d: Driver, name: str) -> Iterator[Step]:
        """Spark resumes behind the batch of the log, from the state that it names."""
        batch, state = s.log
        if not self.c.unique_names:
            state = max((e for e, x in enumerate(s.evaluations, 1) if x.batch == batch), default=0)
        elif state and state not in s.stored:
            yield f"{name}: {state} is not stored", with_driver(s, i, Driver()), None
            return
        yield f"{name}: loads {state}", with_driver(s, i, d._replace(mode=RUNNING, loaded=Log(batch, state))), None

    def _evaluates(self, s: State, i: int, d: Driver, name: str) -> Iterator[Step]:
        new = Evaluation(d.loaded.batch + 1, d.loaded.state)
        if new.batch > self.c.batches or len(s.evaluations) >= self.c.evaluations:
            return
        e = len(s.evaluations) + 1
        once = s._replace(evaluations=(*s.evaluations, new), stored=s.stored | {e})
        evaluated = d._replace(mode=EVALUATED, entries=(e,), output=e)
        yield f"{name}: evaluates {e}: {new}", with_driver(once, i, evaluated), None
        if s.reruns:
            twice = once._replace(
                evaluations=(*once.evaluations, new), stored=once.stored | {e + 1}, reruns=s.reruns - 1
            )
            for output in (e, e + 1):
                ran = evaluated._replace(entries=(e, e + 1), output=output)
                yield f"{name}: evaluates {e} and {e + 1}", with_driver(twice, i, ran), None

    def _sends(self, s: State, i: int, d: Driver, name: str) -> Iterator[Step]:
        if self.c.one_entry and len(d.entries) > 1:
            yield f"{name}: more than one state", with_driver(s, i, Driver()), None
            return
        # What compares the base sees names: without unique ones that of a batch is the same for every evaluation.
        is_decided = d.loaded == Log(d.batch, d.state) if self.c.unique_names else d.loaded.batch == d.batch
        if self.c.compares_base and not is_decided:
            yield f"{name}: another base", with_driver(s, i, Driver()), None
            return
        batch = d.loaded.batch + 1
        remaining = tuple(p for p in PARTITIONS if s.positions[p] < batch)
        if s.transaction:
            return  # the id's last transaction has not ended
        if self.c.fenced and d.member != s.member:
            yield f"{name}: is fenced", with_driver(s, i, Driver()), None
            return
        if self.c.output_first:
            s = _with_output(s, PARTITIONS, d.output)
            yield f"{name}: dies behind the output", with_driver(s, i, Driver()), None
        partitions = PARTITIONS if self.c.together else remaining[:1]
        if self.c.versions:
            s = s._replace(files=(s.files - ({d.state} if not self.c.removes_late else set())) | {d.entries[0]})
        t = Transaction(i, True, partitions, batch, Decision(d.entries[0], d.output), d.member)
        yield f"{name}: sends {t}", with_driver(s._replace(transaction=t), i, d._replace(mode=SENDING)), None


def _with_positions(s: State, t: Transaction) -> State:
    first, second = (t.batch if p in t.partitions else old for p, old in enumerate(s.positions))
    return s._replace(positions=(first, second))


def _replaced(of_batches: tuple[T, ...], batch: int, new: T) -> tuple[T, ...]:
    """What there is of each batch, with another one of this batch."""
    return (*of_batches[: batch - 1], new, *of_batches[batch:])


def _with_output(s: State, partitions: tuple[int, ...], evaluation: int) -> State:
    first, second = (o if p not in partitions else (*o, evaluation) for p, o in enumerate(s.outputs))
    return s._replace(outputs=(first, second))


def _marked(s: State, t: Transaction) -> State:
    return s._replace(transaction=None if t.offsets_marked and t.records_marked else t)


def with_driver(s: State, i: int, d: Driver) -> State:
    return s._replace(drivers=(d, s.drivers[1]) if i == 0 else (s.drivers[0], d))


def safe(about: str, *, slow: bool = False, **cfg: Any) -> Variant:
    """A variant without a violation."""
    return Variant(about, Cfg(**cfg), None, slow, Model)


def unsafe(violation: str, about: str, **cfg: Any) -> Variant:
    """A variant that must end with a violation."""
    return Variant(about, Cfg(**cfg), violation, False, Model)


VARIANTS = {
    "state": safe("two drivers that start three times, tasks that run twice, a log that somebody has replaced"),
    "state-large": safe("the same with three batches and five evaluations", slow=True, batches=3, evaluations=5),
    "state-unfenced": unsafe(DUPLICATED, "offsets without membership", fenced=False),
    "state-unstable": unsafe(DUPLICATED, "a start does not wait for pending offsets", stable=False, must_agree=False),
    "state-open-end": safe(
        "decisions are read only to an open transaction: the start halts, because positions disagree",
        slow=True,
        reads_to_end=False,
    ),
    "state-disagree": unsafe(
        ELSEWHERE,
        "the same, and the start does not compare them with the positions",
        reads_to_end=False,
        must_agree=False,
    ),
    "state-believes": unsafe(
        DUPLICATED, "Spark's log is believed, and bases are not compared", rebuilds=False, compares_base=False
    ),
    "state-base": unsafe(
        DUPLICATED,
        "the log is rebuilt, but bases are not compared: a driver that starts late rebuilds it for another batch",
        compares_base=False,
        damages=0,
    ),
    "state-no-ids": unsafe(
        DUPLICATED, "decisions without the ids of states", state_in_decision=False, compares_base=False, damages=0
    ),
    "state-names": unsafe(
        ELSEWHERE, "state is stored by the number of its batch (Spark's checkpoint format 1)", unique_names=False
    ),
    "state-entries": unsafe(MIXED, "tasks that have run twice: the first state counts", one_entry=False),
    "state-partitions": unsafe(MIXED, "a transaction for each partition of the output", together=False),
    "state-output-first": unsafe(DUPLICATED, "the output is committed before the decision", output_first=True),
    "state-retained": unsafe(LOST, "state is deleted before the next batch is decided", retained=1),
    "state-table": safe("positions, decisions and output in a database", database=True),
    "state-table-generation": unsafe(
        DUPLICATED, "a transaction of the database does not compare the generation", database=True, fenced=False
    ),
    "state-table-unlocked": unsafe(
        DUPLICATED, "it compares the generation, and does not lock it", database=True, locks=False
    ),
    "state-table-two": unsafe(
        DUPLICATED,
        "the output is committed in a transaction before that of the decision",
        database=True,
        output_first=True,
    ),
    "state-versions": safe("positions, a decision's name and output are a commit of a table's version", versions=True),
    "state-versions-blind": unsafe(
        DUPLICATED, "a commit that was overtaken is rebased to the later version", versions=True, compares_version=False
    ),
    "state-versions-two": unsafe(
        DUPLICATED, "the output is committed in a version before that of the decision", versions=True, output_first=True
    ),
    "state-versions-removed": unsafe(
        LOST, "the file of a decision is removed before the next one is committed", versions=True, removes_late=False
    ),
    "state-files": safe(
        "positions, decision and output are a file of the batch's number", slow=True, named=True, fenced=False
    ),
    "state-files-replaced": unsafe(
        ELSEWHERE, "a file replaces the one of its number", named=True, fenced=False, if_absent=False
    ),
    "state-files-two": unsafe(
        DUPLICATED, "the output is in a file before that of the decision", named=True, fenced=False, output_first=True
    ),
}
