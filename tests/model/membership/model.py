"""Drivers, tasks and the network on top of brokers.py: all possible next steps of a state.

A driver starts: it joins the group with a new member id, which removes the member before it, reads positions, and
commits them again in one transaction. Then it chooses ranges for its lanes, and groups them into as many tasks as it
likes, at most one per slot. A paused, returned or restarted driver is an actor that is not scheduled for a while, or
starts again while its tasks continue. A request may leave a late copy, which is delivered at any time or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..budgets import spend
from ..config import edges
from . import brokers as K
from .brokers import LANES, NO_MEMBER, Position, Record, Request, State, with_item
from .config import REQUESTS, Budget, Cfg
from .events import events
from .invariants import Invariants
from .tasks import Range, groupings
from .text import NAMES, actor, describe

MARK = 50  # the numbers above it are of drivers that mark their positions, see Cfg.marked
Step = tuple[str, State | None, str | None]  # label, the next state or None, the violation or None


class Kind:
    """The purpose of an attempt."""

    START = 0
    TASK = 1
    STOP = 2
    ABANDON = 3


class Attempt(NamedTuple):
    """One run of a program."""

    driver: int
    query: int  # the driver's query that it belongs to
    kind: int
    tid: int
    ranges: tuple[Range, ...]
    rest: str  # the steps that are left
    member: int  # the membership that its offsets carry
    number: int  # its driver's number
    topic: int  # the topic id that its driver has read
    epoch: int = 0
    epochs: tuple[int, ...] = (0, 0)  # of the lanes' ids, if the start has initialised them
    records: tuple[Record | None, ...] = (None, None)  # the records that it has read
    positions: tuple[Position | None, ...] = ()  # the positions that a start has read
    actual_topic: int = 0  # the topic id when its driver started


class Driver(NamedTuple):
    """One driver."""

    mode: str  # (N)ot started, (S)tarting, (I)dle, in a (B)atch, s(T)opping, (D)one, (H)alted
    query: int
    member: int
    number: int
    topic: int
    epoch: int  # of the driver's id, if its tasks use it
    start: tuple[int, ...]
    until: tuple[int, ...]
    left: tuple[tuple[int, tuple[Range, ...]], ...]  # the tasks of the batch that are not done


class Model:
    """The transitions of one variant."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg
        self.invariants = Invariants(cfg)

    def initial(self) -> State:
        c = self.c
        first = (K.COMMITTED, 0, (0, 0 if c.adopted else 1, 0))
        offsets = tuple((first,) if present else () for present in c.initialised)
        record = (0, 0 if c.stopped else None, 1)
        records = tuple(((K.COMMITTED, 0, record),) if present and not c.adopted else () for present in c.initialised)
        base = tuple(0 if present else None for present in c.initialised)
        idle = Driver("N", 0, 0, 0, 0, 0, (0, 0), (0, 0), ())
        member = int(c.running == "member")
        running = Driver("I", 99, member or NO_MEMBER, 1, 0, 1, (0, 0), (0, 0), ())
        txns, drivers = ((1, K.EMPTY, 0),) * 5, (running if c.running else idle, idle)
        return State(member, member, 0, offsets, base, txns, ((), ()), records, drivers, (), (), c.budgets)  # type: ignore[arg-type]

    def check(self, s: State) -> str | None:
        return self.invariants.check(s)

    def successors(self, s: State) -> Iterator[Step]:
        """Every next state, without requests and attempts that can have no effect."""
        for label, t, violation in self.steps(s):
            backwards = self.invariants.backwards(s, t) if t else None
            yield label, None if backwards else t and self.prune(t), backwards or violation

    def steps(self, s: State) -> Iterator[Step]:
        for j, att in enumerate(s.attempts):
            if j and att == s.attempts[j - 1]:
                continue
            without = s._replace(attempts=s.attempts[:j] + s.attempts[j + 1 :])
            for k, rest in edges(att.rest):
                if k in REQUESTS:
                    yield from self.send(without, att, k, rest)
                else:
                    yield from self.local(without, att._replace(rest=rest), k)
        for j, m in enumerate(s.net):
            t, _ = K.deliver(s, m)
            if t is not s:
                yield f"late copy of {describe(m)}", t._replace(net=s.net[:j] + s.net[j + 1 :]), None
        yield from events(self.c, s)
        for d in range(len(s.drivers)):
            yield from self.driver(s, d)

    # ------------------------------------------------------------ attempts
    def enter(self, s: State, att: Attempt) -> State:
        """The state with att before its next step, or finished if it has none."""
        if att.rest:
            return s._replace(attempts=tuple(sorted((*s.attempts, att))))
        return self.finish(s, att)

    def finish(self, s: State, att: Attempt) -> State:
        """The state in which the driver knows that an attempt succeeded or had nothing to do."""
        drv = s.drivers[att.driver]
        if drv.query != att.query:
            return s
        if att.kind == Kind.START:
            start = tuple(a for _, a, _ in att.ranges)
            epoch = att.epoch if self.c.reuse else 0
            drv = drv._replace(mode="I", epoch=epoch, start=start, until=start)
        elif att.kind == Kind.STOP:
            drv = drv._replace(mode="D")
        else:
            left = tuple(task for task in drv.left if task != (att.tid, att.ranges))
            drv = drv._replace(left=left)
            if not left:
                drv = drv._replace(mode="I", start=drv.until)
        return s._replace(drivers=with_item(s.drivers, att.driver, drv))

    def request(self, k: str, att: Attempt, s: State) -> Request:
        payload: tuple[object, ...] = ()
        if k in "I01234":
            return ("I", att.tid if k == "I" else int(k), 0, NO_MEMBER, ())
        if k == "A":
            payload = tuple(1 << lane for lane, _, _ in att.ranges)
        elif k == "B":
            in_batch = att.kind == Kind.TASK
            payload = (K.GROUP, *(1 << lane for lane, _, _ in att.ranges)) if in_batch else (K.GROUP, K.LANES_TOPIC)
        elif k == "P":
            payload = tuple((lane, a, b, s.topic, att.topic) for lane, a, b in att.ranges)
        elif k in "TC":
            # A start through the lanes' ids of the previous protocol commits one lane in each transaction.
            one = att.tid - K.LANE_IDS[0] if att.kind == Kind.START and att.tid in K.LANE_IDS else None
            payload = tuple((ln, (b, att.number, att.topic)) for ln, _, b in att.ranges if one in (None, ln))
        elif k in "MN":
            payload = tuple(self.records(att))
        return (k, att.tid, att.epoch, self.membership(k, att), payload)

    def membership(self, k: str, att: Attempt) -> int:
        """The membership that a request carries."""
        return att.member if k in {"offsets": "TC", "rows": "P", "": ""}[self.c.membership] else NO_MEMBER

    def records(self, att: Attempt) -> Iterator[tuple[int, Record]]:
        """The records of lanes that a start or a stop writes."""
        for lane, _, b in att.ranges:
            record = att.records[lane]
            if att.kind == Kind.STOP:
                yield lane, (att.topic, b, att.number)
            elif record is None or self.c.overwrite == "all" or (self.c.overwrite and record[1] is not None):
                yield lane, (att.topic, None, att.number)

    def send(self, s: State, att: Attempt, k: str, rest: str) -> Iterator[Step]:
        """A request of att reaches its broker. s: the state without att."""
        m = self.request(k, att, s)
        t, reply = K.deliver(s, m)
        label = f"{actor(att.driver, att.kind)} {describe(m)}"
        if reply is K.RETRY:
            if t is not s:
                yield label + " (aborts the open transaction; retries)", self.enter(t, att), None
            return
        if reply is K.ERROR:
            # Requests that were sent concurrently are still in the network.
            others = [self.request(other, att, s) for other, _ in edges(att.rest) if other != k and other in REQUESTS]
            t = t._replace(net=tuple(sorted((*t.net, *others))))
            label += " -> refused, the attempt ends"
        else:
            if k in "34":
                att = att._replace(epochs=with_item(att.epochs, int(k) - 3, reply))
            elif k == "I":
                att = att._replace(epoch=int(reply))
            t = self.enter(t, att._replace(rest=rest))
        yield label, t, None
        if s.budgets[Budget.DUPLICATES] and not K.dead(t, *m[:4]):
            copied = t._replace(net=tuple(sorted((*t.net, m))), budgets=spend(t.budgets, Budget.DUPLICATES))
            yield label, copied, None

    def local(self, s: State, att: Attempt, k: str) -> Iterator[Step]:
        """A step without a request. s: the state without att."""
        name = actor(att.driver, att.kind)
        if k == "X":
            logs = s.logs
            for lane, a, b in att.ranges:
                logs = with_item(logs, lane, (*logs[lane], (K.PLAIN, 0, a, b, s.topic, att.topic)))
            yield f"{name} processes {list(att.ranges)}", self.enter(s._replace(logs=logs), att), None
        elif k == "Z":
            if s.topic == att.topic:
                yield f"{name} reads topic id {s.topic}: continue", self.enter(s, att), None
            else:
                yield f"{name} reads topic id {s.topic}: fail", s, None
        elif k in "xy":
            lane = "xy".index(k)
            own = att._replace(tid=K.LANE_IDS[lane], epoch=att.epochs[lane])
            yield f"{name} continues with lane {lane}", self.enter(s, own), None
        elif k == "z":
            yield f"{name} continues with the driver's id", self.enter(s, att._replace(tid=K.DRIVER_ID)), None
        elif k == "J":
            member, drv = s.joins + 1, s.drivers[att.driver]
            if drv.query == att.query:
                s = s._replace(drivers=with_item(s.drivers, att.driver, drv._replace(member=member)))
            t = self.enter(s._replace(member=member, joins=member), att._replace(member=member))
            yield f"{name} joins as member {member}", t, None
        elif k == "U":
            if not (self.c.stable_records and any(K.pending(log) for log in s.records)):
                records = tuple(K.committed(log) for log in s.records)
                yield self.decide_start(s, att._replace(records=records), f"{name} reads records {list(records)}")
        elif k == "G":
            if not (self.c.stable_start and any(K.pending(log) for log in s.offsets)):
                positions = tuple(K.committed(log) for log in s.offsets)
                yield self.decide_start(s, att._replace(positions=positions), f"{name} reads {list(positions)}")
        elif not (self.c.stable_tasks and any(K.pending(s.offsets[lane]) for lane, _, _ in att.ranges)):
            current = [K.committed(s.offsets[lane]) for lane, _, _ in att.ranges]
            verdict = self.decide(att, current)
            t = {"continue": self.enter, "skip": self.finish}.get(verdict, lambda s, _: s)(s, att)
            yield f"{name} reads {current} for {list(att.ranges)}: {verdict}", t, None

    def decide(self, att: Attempt, positions: list[Position | None]) -> str:
        """The verdict of a task on the positions of its lanes: continue, skip or fail."""
        present = [p for p in positions if p is not None]
        if len(present) < len(positions):
            return "fail"
        previous_protocol = self.c.tasks[att.driver] == "lanes"
        if any(p[1] > att.number for p in present) and (self.c.old_reads_numbers or not previous_protocol):
            return "fail"
        ours = previous_protocol or all(p[1] and p[2] == att.topic for p in present)
        own = all(p[1] == att.number and p[2] == att.topic for p in present)
        if ours and all(p[0] == a for p, (_, a, _) in zip(present, att.ranges, strict=True)):
            return "continue"
        beyond = all(p[0] >= b for p, (_, _, b) in zip(present, att.ranges, strict=True))
        return "skip" if beyond and (own or previous_protocol or not self.c.own_number) else "fail"

    def decide_start(self, s: State, att: Attempt, label: str) -> Step:
        """A start that has read all it needs (step D) halts, or chooses its number and its first positions."""
        if att.rest[:1] != "D":
            return label, self.enter(s, att), None
        c, ranges = self.c, []
        previous_protocol = c.tasks[att.driver] == "lanes"
        marked = c.marked and not previous_protocol and not (c.marked_last and "D" in att.rest[1:])
        numbers = [MARK if marked else 0]
        for lane in LANES:
            position, record = att.positions[lane], att.records[lane]
            if position is None and record is not None:
                if record[0] != att.topic:
                    return halt(s, att, f"{label}: halts, the topic was replaced")
                if not (c.resume and record[1] is not None):
                    left = s.budgets[Budget.EXPIRIES] + s.budgets[Budget.MARKER_DELETIONS]
                    lost = left < c.expiries + c.marker_deletions
                    if c.no_false_halt and not lost:
                        return f"{label}: halts", None, "halts, but no position was ever lost"
                    return halt(s, att, f"{label}: halts, a position is lost")
                position = (record[1], record[2], record[0])
            if position is None:
                position = (c.starting_offset[att.driver], 0, att.topic)
            elif not position[1] and c.halts_if_moved and (record is not None or not c.adopted):
                return halt(s, att, f"{label}: halts, another program has moved a position")
            elif position[1] and position[2] != att.topic:
                return halt(s, att, f"{label}: halts, the topic was replaced")
            elif previous_protocol and position[1] > MARK:
                return halt(s, att, f"{label}: halts, the position has the mark of a newer protocol")
            elif position[1] and position[2] != att.actual_topic:
                return label, None, "a driver starts at positions of a replaced topic"
            numbers.append(position[1])
            ranges.append((lane, position[0], position[0]))
        drv, number = s.drivers[att.driver], max(numbers) + 1
        if c.keep_number and drv.query == att.query and drv.number:
            if max(numbers) > drv.number:
                return halt(s, att, f"{label}: ends, driver {max(numbers)} is newer")
            number = drv.number
        if drv.query == att.query:
            s = s._replace(drivers=with_item(s.drivers, att.driver, drv._replace(number=number)))
        att = att._replace(number=number, ranges=tuple(ranges), rest=att.rest[1:], positions=())
        return f"{label}, has number {number}", self.enter(s, att), None

    # ------------------------------------------------------------ drivers
    def driver(self, s: State, d: int) -> Iterator[Step]:
        c, drv, b = self.c, s.drivers[d], s.budgets
        if c.start[d] and b[Budget.STARTS] and drv.mode != "H" and not (d and s.drivers[0].mode == "N"):
            yield from self.begin(s, d)
        if c.rejoin and b[Budget.REJOINS] and drv.mode in "SIB" and drv.member > 0 and drv.member != s.member:
            member = s.joins + 1
            attempts = s.attempts
            if c.rejoin == "attempts":
                attempts = tuple(sorted(a._replace(member=member) if a.query == drv.query else a for a in attempts))
            drivers = with_item(s.drivers, d, drv._replace(member=member))
            budgets = spend(b, Budget.REJOINS)
            t = s._replace(member=member, joins=member, drivers=drivers, attempts=attempts, budgets=budgets)
            yield f"D{d + 1} rejoins as member {member} and continues its query", t, None
        if drv.mode == "I":
            yield from self.plan(s, d)
            if c.stop and b[Budget.STOPS]:
                ranges = tuple((lane, drv.start[lane], drv.start[lane]) for lane in LANES)
                t = s._replace(drivers=with_item(s.drivers, d, drv._replace(mode="T")), budgets=spend(b, Budget.STOPS))
                yield f"D{d + 1} begins an orderly stop", self.spawn(t, d, Kind.STOP, self.settle_id, ranges), None
        if drv.mode == "B":
            for tid, ranges in drv.left:
                for kind, budget in ((Kind.TASK, Budget.ATTEMPTS), (Kind.ABANDON, Budget.ABANDONS)):
                    if b[budget]:
                        verb = "abandons" if kind == Kind.ABANDON else "starts another attempt of"
                        t = s._replace(budgets=spend(b, budget))
                        yield f"D{d + 1} {verb} {list(ranges)}", self.spawn(t, d, kind, tid, ranges), None

    @property
    def settle_id(self) -> int:
        return K.DRIVER_ID if self.c.settle_id == "driver" else K.SLOTS[0]

    def begin(self, s: State, d: int) -> Iterator[Step]:
        """The driver starts: it joins, unless it is of the previous protocol, and its start program begins."""
        c, drv = self.c, s.drivers[d]
        previous_protocol = c.tasks[d] == "lanes"
        if previous_protocol and c.old_checks_group and s.member:
            return
        member, joins = s.member, s.joins
        mine = NO_MEMBER if previous_protocol or "J" in c.start[d] else drv.member
        if mine != NO_MEMBER and (c.join or drv.mode == "N"):
            mine = member = joins = s.joins + 1
        topic = drv.topic if c.topic_snapshot and drv.mode != "N" else s.topic
        query = s.budgets[Budget.STARTS]
        new = Driver("S", query, mine, drv.number, topic, 0, (0, 0), (0, 0), ())
        t = s._replace(
            member=member,
            joins=joins,
            drivers=with_item(s.drivers, d, new),
            budgets=spend(s.budgets, Budget.STARTS),
        )
        label = f"D{d + 1} {'starts' if drv.mode == 'N' else 'restarts its query'}"
        label += "" if mine == NO_MEMBER else f" as member {mine}"
        yield label, self.spawn(t, d, Kind.START, self.settle_id, ()), None

    def spawn(self, s: State, d: int, kind: int, tid: int, ranges: tuple[Range, ...]) -> State:
        c, drv = self.c, s.drivers[d]
        program = (c.start[d], c.program[d], c.stop, c.abandon)[kind]
        att = Attempt(d, drv.query, kind, tid, ranges, program, drv.member, drv.number, drv.topic, drv.epoch)
        return self.enter(s, att._replace(actual_topic=s.topic if kind == Kind.START else 0))

    def plan(self, s: State, d: int) -> Iterator[Step]:
        c, drv = self.c, s.drivers[d]
        ends = [range(a if c.idle_lanes or a >= c.n else a + 1, c.n + 1) for a in drv.start]
        for until in ((u, v) for u in ends[0] for v in ends[1]):
            ranges = tuple((ln, drv.start[ln], until[ln]) for ln in LANES if until[ln] > drv.start[ln])
            for tasks in groupings(ranges, c.tasks[d]):
                if len(tasks) > s.budgets[Budget.ATTEMPTS]:
                    continue
                drivers = with_item(s.drivers, d, drv._replace(mode="B", until=until, left=tasks))
                t = s._replace(drivers=drivers, budgets=spend(s.budgets, Budget.ATTEMPTS, len(tasks)))
                for tid, group in tasks:
                    t = self.spawn(t, d, Kind.TASK, tid, group)
                yield f"D{d + 1} plans {', '.join(f'{NAMES[tid]}: {list(g)}' for tid, g in tasks)}", t, None

    def prune(self, s: State) -> State:
        """The state without requests that every broker will refuse, and without attempts that have only such steps."""
        attempts = tuple(att for att in s.attempts if not self.stuck(s, att))
        net = tuple(m for m in s.net if not K.dead(s, *m[:4]))
        if len(attempts) == len(s.attempts) and len(net) == len(s.net):
            return s
        return s._replace(net=net, attempts=attempts)

    def stuck(self, s: State, att: Attempt) -> bool:
        """Whether no broker will ever accept the next request of the attempt."""
        return all(
            k in REQUESTS and K.dead(s, k, att.tid, att.epoch, self.membership(k, att)) for k, _ in edges(att.rest)
        )


def halt(s: State, att: Attempt, label: str) -> Step:
    """A start halts its driver until a person decides. s: the state without att."""
    drv = s.drivers[att.driver]
    if drv.query == att.query:
        s = s._replace(drivers=with_item(s.drivers, att.driver, drv._replace(mode="H")))
    return label, s, None
