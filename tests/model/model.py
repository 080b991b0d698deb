"""Drivers, tasks and the network on top of brokers.py: all possible next steps of a state.

The network is a multiset of requests. A request is delivered in any order, at any time or never; a client's retry
leaves a second copy. Lost replies, crashes and pauses need no steps: an actor that is not scheduled again has crashed,
and its requests stay in the network. An actor does not know that it is a zombie. A driver starts (fences and reads
positions), chooses any [from, until) and runs a task per lane. At any time it may start further attempts of a lane
(speculation, or a retry while the old attempt runs), see its batch fail, or restart.

Whether a retry has left a copy is decided when the request is delivered first: before that, a copy has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from . import brokers as K
from .brokers import Lane, Request, position, unstable
from .budgets import spend
from .config import REQUESTS, Budget, Cfg, edges
from .invariants import Invariants, backwards
from .text import describe


class Kind:
    """The purpose of an attempt (integers, which hash fast)."""

    START = 0
    BATCH = 1
    HEARTBEAT = 2
    FILTERED = 3
    PREPARE = 4
    ABANDON = 5


class Attempt(NamedTuple):
    """One run of a program."""

    driver: int
    lane: int
    kind: int
    rest: str  # the steps that are left
    pid: int
    epoch: int
    seq: int
    start: int
    until: int
    value: int
    recorded: bool  # whether it has read a record of the lane


class Driver(NamedTuple):
    """One driver."""

    mode: str  # (N)ot started, (F)encing, (R)eading, (I)dle, in a (B)atch, (D)one
    start: tuple[int, ...]
    until: tuple[int, ...]
    done: int  # one bit per lane
    cached: tuple[tuple[int, int, int] | None, ...]


class State(NamedTuple):
    """A state of the model. net and attempts are sorted, because their order has no meaning."""

    lanes: tuple[Lane, ...]
    net: tuple[Request, ...]
    attempts: tuple[Attempt, ...]
    drivers: tuple[Driver, ...]
    budgets: tuple[int, ...]


Step = tuple[str, State | None, str | None]  # label, the next state or None, the violation or None


class Model:
    """The transitions of one variant."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg
        self.invariants = Invariants(cfg)
        self.all_done = (1 << cfg.lanes) - 1

    def initial(self) -> State:
        c = self.c
        zero = (0,) * c.lanes
        drivers = (Driver("N", zero, zero, 0, (None,) * c.lanes),) * len(c.program)
        return State((K.new_lane(c.initialised),) * c.lanes, (), (), drivers, c.budgets)

    def check(self, s: State) -> str | None:
        return self.invariants.check(s.lanes, any(d.mode == "D" for d in s.drivers))

    def successors(self, s: State) -> Iterator[Step]:
        """Every next state, without requests and attempts that can have no effect."""
        for label, t, violation in self.steps(s):
            yield label, t and self.prune(t), violation

    def steps(self, s: State) -> Iterator[Step]:
        for j, att in enumerate(s.attempts):
            if j and att == s.attempts[j - 1]:
                continue
            without = s._replace(attempts=s.attempts[:j] + s.attempts[j + 1 :])
            for k, rest in edges(att.rest):
                if k in REQUESTS:
                    yield from self.send(without, att, k, rest)
                else:
                    yield from self.local(without, att, k, rest)
        for j, m in enumerate(s.net):
            if j and m == s.net[j - 1]:
                continue
            lane, _ = K.deliver(s.lanes[m[1]], m, self.c)
            if lane is not s.lanes[m[1]]:
                rest_of_net = s.net[:j] + s.net[j + 1 :]
                yield self.replace_lane(s._replace(net=rest_of_net), m[1], lane, f"late copy of {describe(m)}")
        for ln, lane in enumerate(s.lanes):
            for label, lane2, budgets in self.broker_steps(lane, s.budgets):
                yield self.replace_lane(s._replace(budgets=budgets), ln, lane2, label)
        for d in range(len(s.drivers)):
            yield from self.driver(s, d)

    def replace_lane(self, s: State, ln: int, lane: Lane, label: str) -> Step:
        """The step to the state with another lane; a violation if the lane's position moved backwards."""
        if lane is s.lanes[ln]:
            return label, s, None
        violation = backwards(s.lanes[ln], lane, self.c)
        return label, None if violation else with_lane(s, ln, lane), violation

    # ------------------------------------------------------------ attempts
    def program(self, d: int, kind: int) -> str:
        c = self.c
        return (c.start[d], c.program[d], c.heartbeat, c.filtered_program, "I", c.abandon)[kind]

    def spawn(self, s: State, d: int, ln: int, kind: int, span: tuple[int, int]) -> State:
        a, b = span
        rest, drv = self.program(d, kind), s.drivers[d]
        att = Attempt(d, ln, kind, rest, 0, 0, 0, a, b, self.c.starting_offset[d] if kind == Kind.START else b, False)
        producer = drv.cached[ln]
        if kind == Kind.BATCH and producer:
            s = with_driver(s, d, drv._replace(cached=(*drv.cached[:ln], None, *drv.cached[ln + 1 :])))
            pid, epoch, seq = producer
            att = att._replace(rest=rest.partition("I")[2], pid=pid, epoch=epoch, seq=seq)
        return self.enter(s, att)

    def enter(self, s: State, att: Attempt) -> State:
        """The state with att before its next step, or finished if it has none."""
        if att.rest:
            return s._replace(attempts=tuple(sorted((*s.attempts, att))))
        return self.finish(s, att, True)

    def finish(self, s: State, att: Attempt, ran: bool) -> State:
        """The state in which the driver knows that an attempt succeeded. ran: False if it skipped its range."""
        d, ln, kind = att.driver, att.lane, att.kind
        drv = s.drivers[d]
        mode, start, until, done, cached = drv
        producer = (*cached[:ln], (att.pid, att.epoch, att.seq), *cached[ln + 1 :])
        if kind == Kind.START and mode == "F":
            done |= 1 << ln
            if done == self.all_done:
                mode, done = "R", 0
        elif kind == Kind.PREPARE:
            cached = producer
        elif kind in (Kind.BATCH, Kind.FILTERED, Kind.ABANDON) and mode == "B":
            if (start[ln], until[ln]) != (att.start, att.until):
                return s
            done |= 1 << ln
            if self.c.reuse and ran and kind == Kind.BATCH:
                cached = producer
            if done == self.all_done:
                start, done, mode = until, 0, "D" if all(x >= self.c.n for x in until) else "I"
        return with_driver(s, d, Driver(mode, start, until, done, cached))

    @staticmethod
    def request(k: str, att: Attempt) -> Request:
        if k == "P":
            return (k, att.lane, att.pid, att.epoch, att.seq, att.start, att.until)
        if k == "M":
            return (k, att.lane, att.pid, att.epoch, 0, 0, 0)
        if k == "T":
            return (k, att.lane, att.pid, att.epoch, att.value)
        if k == "C":
            return (k, att.lane, 0, 0, att.value)
        return (k, att.lane, 0, 0) if k in "IN" else (k, att.lane, att.pid, att.epoch)

    def send(self, s: State, att: Attempt, k: str, rest: str) -> Iterator[Step]:
        """A request of att reaches its broker. s: the state without att."""
        m, ln = self.request(k, att), att.lane
        label = f"D{att.driver + 1}: {describe(m)}"
        lane, reply = K.deliver(s.lanes[ln], m, self.c)
        if reply is K.RETRY:
            if lane is not s.lanes[ln]:
                yield self.replace_lane(self.enter(s, att), ln, lane, label + " (aborts the open transaction; retries)")
            return
        if reply is K.ERROR:
            # Requests that were sent concurrently are still in the network.
            others = [self.request(other, att) for other, _ in edges(att.rest) if other != k and other in REQUESTS]
            after = s._replace(net=tuple(sorted((*s.net, *others))))
            label += " -> error, the attempt ends"
        else:
            pid, epoch, seq = (*reply, 0) if isinstance(reply, tuple) else (att.pid, att.epoch, att.seq)
            att = att._replace(rest=rest, pid=pid, epoch=epoch, seq=seq + (k == "P"))
            after = self.enter(s, att)
        yield self.replace_lane(after, ln, lane, label)
        if s.budgets[Budget.DUPLICATES] and not K.dead(lane, m, self.c):
            budgets = spend(after.budgets, Budget.DUPLICATES)
            with_copy = after._replace(net=tuple(sorted((*after.net, m))), budgets=budgets)
            yield self.replace_lane(with_copy, ln, lane, label)

    def local(self, s: State, att: Attempt, k: str, rest: str) -> Iterator[Step]:
        """A step without a request: a read, which has no effect, or processing outside a transaction."""
        ln, lane, advanced = att.lane, s.lanes[att.lane], att._replace(rest=rest)
        in_batch = att.kind in (Kind.BATCH, Kind.FILTERED, Kind.ABANDON)
        actor = f"D{att.driver + 1}: task [{att.start},{att.until})" if in_batch else f"D{att.driver + 1}:"
        if k == "X":
            lane = K.update(lane, (K.LOG, lane[K.LOG] + ((0, att.start, att.until, 0),)))
            yield f"{actor} processes", with_lane(self.enter(s, advanced), ln, lane), None
        elif k == "U":
            is_recorded = K.recorded(lane)
            after = self.enter(s, advanced._replace(recorded=is_recorded))
            yield f"{actor} reads the lanes topic: recorded: {is_recorded}", after, None
        elif k == "V":
            if K.recorded(lane):
                yield self.halt(s, f"{actor} reads the lanes topic: the lane is recorded: halts")
            else:
                yield f"{actor} reads the lanes topic: no record: continues", self.enter(s, advanced), None
        else:
            for p, budgets, note in self.reads(lane, s.budgets):
                verdict, decided = self.decide(k, att, p)
                label, s2 = f"{actor} reads position {p}{note}: {verdict}", s._replace(budgets=budgets)
                if verdict == "halt":
                    yield self.halt(s2, label)
                elif verdict == "fail":
                    yield label, s2, None
                elif verdict == "done":
                    yield label, self.finish(s2, att, False), None
                else:
                    yield label, self.enter(s2, decided._replace(rest=rest)), None

    def decide(self, k: str, att: Attempt, p: int | None) -> tuple[str, Attempt]:
        """The verdict of an attempt on position p: halt, fail, done or continue, and the attempt that continues."""
        verdict = "continue"
        if k == "Q":
            verdict = "done" if p is not None else "halt" if att.recorded else "continue"
        elif k == "K" and p is None:
            verdict = "halt" if att.recorded else "continue"
        elif k in "HK":
            verdict, att = ("continue", att._replace(value=p)) if p is not None else ("fail", att)
        elif k == "W":
            verdict = "done" if p is not None and p >= att.until else "continue"
        else:
            p = 0 if p is None and self.c.missing == "assume" else p
            if p is None or p < att.start:
                verdict = "fail"
            elif p > att.start:
                verdict = "done" if p >= att.until else "fail"
            if p is not None and att.start < p < att.until and self.c.between == "drop":
                verdict, att = "continue", att._replace(start=p)
        return verdict, att

    def halt(self, s: State, label: str) -> Step:
        """A driver halts with PositionLost; a violation unless a position has expired."""
        if self.c.no_false_halt and s.budgets[Budget.POSITION_EXPIRY] == self.c.position_expiry:
            return label, None, "halts, but no position was ever lost"
        return label, s, None

    # ------------------------------------------------------------ brokers and drivers
    def broker_steps(self, lane: Lane, bud: tuple[int, ...]) -> Iterator[tuple[str, Lane, tuple[int, ...]]]:
        """The steps of brokers without a request: markers, materialised offsets, timeouts and expiries."""
        for part, name in K.PARTITION.items():
            if lane[K.MARKERS] & part:
                end = "commit" if lane[K.STATE] == K.PREPARE_COMMIT else "abort"
                yield f"marker {end} on {name}", K.write_marker(lane, part, self.c.asynchronous), bud
        for e in lane[K.OFFSETS]:
            if len(e) == 3:
                yield f"offset {e[1]} materialises", K.materialise(lane, e[0]), bud
        if bud[Budget.TIMEOUTS] and lane[K.STATE] == K.ONGOING:
            yield "the transaction times out", K.begin_abort(lane), spend(bud, Budget.TIMEOUTS)
        idle = lane[K.STATE] in (K.EMPTY, K.COMPLETE_COMMIT, K.COMPLETE_ABORT)
        if bud[Budget.ID_EXPIRY] and lane[K.PID] and idle:
            expired = K.update(lane, (K.PID, 0), (K.EPOCH, 0), (K.STATE, K.EMPTY), (K.PARTS, 0))
            yield "the transactional.id expires", expired, spend(bud, Budget.ID_EXPIRY)
        if bud[Budget.POSITION_EXPIRY] and lane[K.OFFSETS] and not unstable(lane):
            yield "the position expires", K.update(lane, (K.OFFSETS, ())), spend(bud, Budget.POSITION_EXPIRY)

    def reads(self, lane: Lane, bud: tuple[int, ...]) -> Iterator[tuple[int | None, tuple[int, ...], str]]:
        """All possible answers to an OffsetFetch: (position, budgets, note)."""
        if not (self.c.stable and unstable(lane)):
            yield position(lane), bud, ""
        if bud[Budget.STALE_READS] and lane[K.PREVIOUS] is not None:
            yield lane[K.PREVIOUS], spend(bud, Budget.STALE_READS), " (from a deposed coordinator)"

    def driver(self, s: State, d: int) -> Iterator[Step]:
        c, drv = self.c, s.drivers[d]
        if drv.mode in "NBIR" and s.budgets[Budget.STARTS] and not self.symmetric(s, d):
            zero = (0,) * c.lanes
            new_driver = Driver("F" if c.start[d] else "R", zero, zero, 0, (None,) * c.lanes)
            t = with_driver(s, d, new_driver)._replace(budgets=spend(s.budgets, Budget.STARTS))
            for ln in range(c.lanes if c.start[d] else 0):
                t = self.spawn(t, d, ln, Kind.START, (0, 0))
            yield f"D{d + 1} {'starts' if drv.mode == 'N' else 'restarts its query'}", t, None
        if drv.mode == "R":
            yield from self.read_positions(s, d)
        if drv.mode == "I":
            yield from self.plan(s, d)
        if drv.mode == "B":
            running = [ln for ln in range(c.lanes) if not drv.done >> ln & 1]
            for ln in running:
                a, b = drv.start[ln], drv.until[ln]
                if c.speculation:
                    label = f"D{d + 1} starts another attempt of [{a},{b})"
                    yield from self.begin(s, (d, ln), self.kind(a, b), Budget.ATTEMPTS, label)
                yield from self.begin(s, (d, ln), Kind.ABANDON, Budget.ABANDONS, f"D{d + 1} abandons [{a},{b})")
        if drv.mode in "BI":
            for ln in range(c.lanes):
                yield from self.begin(s, (d, ln), Kind.HEARTBEAT, Budget.HEARTBEATS, f"D{d + 1} begins a heartbeat")
                yield from self.begin(s, (d, ln), Kind.PREPARE, Budget.PREPARES, f"D{d + 1} prepares a producer")

    def symmetric(self, s: State, d: int) -> bool:
        """Whether driver d equals the one before it and neither has started: only the first of them may start then."""
        c = self.c
        equal = (
            d and c.program[d] == c.program[d - 1] and c.start[d] == c.start[d - 1] and len({*c.starting_offset}) == 1
        )
        return bool(equal) and s.drivers[d].mode == "N" and s.drivers[d - 1].mode == "N"

    def begin(self, s: State, owner: tuple[int, int], kind: int, budget: int, label: str) -> Iterator[Step]:
        d, ln = owner
        if s.budgets[budget]:
            drv, t = s.drivers[d], s._replace(budgets=spend(s.budgets, budget))
            in_batch = kind in (Kind.BATCH, Kind.FILTERED, Kind.ABANDON)
            span = (drv.start[ln], drv.until[ln]) if in_batch else (0, 0)
            yield label, self.spawn(t, d, ln, kind, span), None

    def read_positions(self, s: State, d: int) -> Iterator[Step]:
        answers: list[tuple[tuple[int | None, ...], tuple[int, ...]]] = [((), s.budgets)]
        for lane in s.lanes:
            answers = [((*ps, p), b2) for ps, b1 in answers for p, b2, _ in self.reads(lane, b1)]
        for ps, budgets in answers:
            if None in ps and self.c.missing != "assume":
                continue
            start = tuple(p or 0 for p in ps)
            drv = s.drivers[d]._replace(
                mode="D" if all(p >= self.c.n for p in start) else "I", start=start, until=start
            )
            yield f"D{d + 1} reads positions {list(start)}", with_driver(s, d, drv)._replace(budgets=budgets), None

    def plan(self, s: State, d: int) -> Iterator[Step]:
        c, drv = self.c, s.drivers[d]
        choices: list[tuple[int, ...]] = [()]
        for a in drv.start:
            choices = [(*ch, u) for ch in choices for u in (range(a + 1, c.n + 1) if a < c.n else (a,))]
        for until in choices:
            busy = [ln for ln in range(c.lanes) if until[ln] != drv.start[ln]]
            if len(busy) > s.budgets[Budget.ATTEMPTS]:
                continue
            done = self.all_done & ~sum(1 << ln for ln in busy)
            t = with_driver(s, d, drv._replace(mode="B", until=until, done=done))
            t = t._replace(budgets=spend(s.budgets, Budget.ATTEMPTS, len(busy)))
            for ln in busy:
                span = (drv.start[ln], until[ln])
                t = self.spawn(t, d, ln, self.kind(*span), span)
            ranges = " ".join(f"[{a},{b})" for a, b in zip(drv.start, until, strict=True))
            yield f"D{d + 1} plans {ranges}", t, None

    def kind(self, a: int, b: int) -> int:
        empty = self.c.filtered_program and all(o in self.c.filtered for o in range(a, b))
        return Kind.FILTERED if empty else Kind.BATCH

    def prune(self, s: State) -> State:
        """The state without requests that every broker will refuse, and without attempts that have only such steps."""
        attempts = tuple(att for att in s.attempts if not self.stuck(s.lanes[att.lane], att))
        net = tuple(m for m in s.net if not K.dead(s.lanes[m[1]], m, self.c))
        if len(attempts) == len(s.attempts) and len(net) == len(s.net):
            return s
        return s._replace(net=net, attempts=attempts)

    def stuck(self, lane: Lane, att: Attempt) -> bool:
        return all(k in REQUESTS and K.dead(lane, self.request(k, att), self.c) for k, _ in edges(att.rest))


def with_lane(s: State, ln: int, lane: Lane) -> State:
    return s._replace(lanes=(*s.lanes[:ln], lane, *s.lanes[ln + 1 :]))


def with_driver(s: State, d: int, drv: Driver) -> State:
    return s._replace(drivers=(*s.drivers[:d], drv, *s.drivers[d + 1 :]))
