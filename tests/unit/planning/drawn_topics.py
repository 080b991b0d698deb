"""Brokers in memory with topics as in Kafka, an operator that may be killed before any write, and checks of each write.

The real `apply.topic_changes` applies the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import strategies as st

from ackwright.apply.topic_changes import change_topics
from ackwright.clients.kafka import Kafka
from ackwright.clients.outcome import Outcome
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.guarantees import Setting
from ackwright.planning.replicas import Partition, Reassignment
from ackwright.planning.topic_steps import FOLLOWERS, LEADERS, RATES, Brokers, Reassign, TopicWork, Unthrottle
from ackwright.planning.topic_work import combined_work
from ackwright.planning.topics import MIN_INSYNC, UNCLEAN, TopicPlan
from unit.fake_kubernetes import Killed

Planner = Callable[[Sequence[TopicPlan], Mapping[str, ObservedTopic], Brokers], TopicWork]
Event = tuple[Any, ...]  # a name of a method of World, and its arguments

THEIRS = "theirs"  # a replication rate that the operator did not set
_OTHER = ("somebody's", 0)


def topic_plan(
    name: str = "t", partitions: int = 1, factor: int = 3, least: int = 2, unclean: str = "false", **more: Any
) -> TopicPlan:
    config = (Setting(MIN_INSYNC, str(least), "why"), Setting(UNCLEAN, unclean, "why"))
    return TopicPlan(name, partitions, factor, "because", config + more.pop("config", ()), **more)


@dataclass
class Part:
    """A partition."""

    replicas: tuple[int, ...]
    in_sync: set[int]
    leader: int | None
    adding: tuple[int, ...] = ()  # in the reassignment in progress, as is removing
    removing: tuple[int, ...] = ()

    @property
    def before(self) -> tuple[int, ...]:
        return tuple(b for b in self.replicas if b not in self.adding)


@dataclass
class World:
    """Brokers with topics, and an operator."""

    racks: dict[int, str | None]  # of all brokers, also those that are down
    parts: dict[str, list[Part]] = field(default_factory=dict)
    config: dict[str, dict[str, str]] = field(default_factory=dict)
    rates: dict[int, str] = field(default_factory=dict)  # replication throttle by broker
    record: dict[str, tuple[int, ...]] = field(default_factory=dict)  # throttled brokers by topic, as in the status
    down: set[int] = field(default_factory=set)
    foreign: bool = False  # a reassignment that the operator did not start is in progress
    budget: int | None = None  # writes until the operator is killed

    def has(self, name: str, layout: Iterable[tuple[int, ...]], least: int = 1, unclean: str = "false") -> World:
        self.parts[name] = [Part(r, set(r), r[0]) for r in layout]
        self.config[name] = {MIN_INSYNC: str(least), UNCLEAN: unclean}
        return self

    # -- the observed state ------------------------------------------------------------------------------------

    def observed(self) -> dict[str, ObservedTopic]:
        return {
            name: ObservedTopic(
                name,
                "id",
                tuple(Partition(n, p.replicas, frozenset(p.in_sync), p.leader) for n, p in enumerate(parts)),
                self.config[name],
            )
            for name, parts in self.parts.items()
        }

    def brokers(self) -> Brokers:
        moving = {(t, n): Reassignment(p.adding, p.removing) for t, n, p in self._all() if p.adding or p.removing}
        up = {b: rack for b, rack in self.racks.items() if b not in self.down}
        theirs = {_OTHER: Reassignment((1,), (2,))} if self.foreign else {}
        return Brokers(up, moving | theirs, frozenset(self.rates) & up.keys(), dict(self.record))

    def _all(self) -> Iterator[tuple[str, int, Part]]:
        return ((t, n, p) for t, parts in self.parts.items() for n, p in enumerate(parts))

    def _writable(self) -> set[tuple[str, int]]:
        return {
            (t, n)
            for t, n, p in self._all()
            if p.leader is not None and len(p.in_sync) >= int(self.config[t][MIN_INSYNC])
        }

    # -- events ------------------------------------------------------------------------------------------------

    def die(self, broker: int) -> None:
        """Takes the broker down. The last in-sync replica stays in sync, and leads again when its broker is back."""
        self.down.add(broker)
        for _, _, p in self._all():
            if len(p.in_sync) > 1:
                p.in_sync.discard(broker)
            self._elect(p)

    def come_back(self, broker: int) -> None:
        self.down.discard(broker)
        for _, _, p in self._all():
            self._elect(p)

    def move_of_somebody_else(self, under_way: bool) -> None:
        self.foreign = under_way

    def catch_up(self, topic: str, number: int) -> None:
        """Brings all replicas on brokers that are up in sync, which completes the reassignment of the partition."""
        if number < len(self.parts[topic]) and (p := self.parts[topic][number]).leader is not None:
            with self._checked(f"the end of the move of {topic}-{number}"):
                p.in_sync |= set(p.replicas) - self.down
                self._end(p)

    def _end(self, p: Part) -> None:
        if p.in_sync.issuperset(p.adding) and p.in_sync - set(p.removing):
            p.replicas = tuple(b for b in p.replicas if b not in p.removing)
            p.in_sync &= set(p.replicas)
            p.adding = p.removing = ()
            self._elect(p)

    def _elect(self, p: Part) -> None:
        able = [b for b in p.replicas if b in p.in_sync and b not in self.down]
        p.leader = p.leader if p.leader in able else next(iter(able), None)

    def reconcile(
        self, plans: Sequence[TopicPlan], planner: Planner = combined_work, budget: int | None = None
    ) -> TopicWork:
        """Reconciles once, until the operator is killed; returns the planned work.

        A throttle is recorded for every throttled broker before it is set, and until it is removed.
        """
        todo = planner(plans, self.observed(), self.brokers())
        for step in todo.steps:
            if isinstance(step, Reassign) and step.copies:
                self.record[step.topic] = tuple(sorted({*self.record.get(step.topic, ()), *step.throttled}))
        self.budget = budget
        try:
            for step in todo.steps:
                change_topics(cast(Kafka, self), step, read_topics=lambda _: self.observed(), rate=1)
        except Killed:
            return todo
        finally:
            self.budget = None
        for step in todo.steps:
            if isinstance(step, Unthrottle):
                left = tuple(b for b in self.record.pop(step.topic) if b not in step.brokers)
                self.record |= {step.topic: left} if left else {}
        return todo

    # -- calls, as of clients.kafka, and checks ----------------------------------------------------------------

    @contextmanager
    def _checked(self, what: str) -> Iterator[None]:
        before = self._writable()
        yield
        cut = before - self._writable()
        assert not cut, f"cut off by {what}: writers of {sorted(cut)}"

    @contextmanager
    def _write(self, what: str) -> Iterator[None]:
        if self.budget is not None:
            if self.budget == 0:
                raise Killed
            self.budget -= 1
        with self._checked(what):
            yield

    def configure(self, kind: str, name: str, settings: Mapping[str, str | None]) -> Outcome:
        with self._write(f"setting {settings} of {kind} {name}"):
            values = {n: v for n, v in settings.items() if v is not None}
            ends = settings.keys() & {*RATES, LEADERS, FOLLOWERS} - values.keys()
            assert not (ends and any(p.adding for _, _, p in self._all())), (
                f"throttle of {name} ended while replicas are copied"
            )
            if kind == "BROKER":
                self._rate(int(name), values)
            else:
                self.config[name] = {n: v for n, v in self.config[name].items() if n not in settings} | values
        return Outcome.DONE

    def _rate(self, broker: int, values: Mapping[str, str]) -> None:
        assert broker not in self.down, f"asked broker {broker}, which is down"
        assert self.rates.get(broker) != THEIRS, f"removed a rate that somebody else gave broker {broker}"
        assert any(broker in r for r in self.record.values()), f"broker {broker} throttled without a record"
        self.rates.pop(broker, None)
        self.rates |= dict.fromkeys([broker], *set(values.values())) if values else {}

    def add_partitions(self, name: str, total: int) -> Outcome:
        with self._write(f"adding partitions to {name}"):
            parts = self.parts[name]
            while len(parts) < total:
                replicas = tuple(sorted(self.racks, key=lambda b: (b in self.down, b)))[: len(parts[0].replicas)]
                parts.append(Part(replicas, set(replicas) - self.down, None))
                self._elect(parts[-1])
        return Outcome.DONE

    def reassign(self, name: str, moves: Mapping[int, tuple[int, ...]]) -> Outcome:
        assert not self.foreign, "started a move during somebody else's"
        with self._write(f"moving replicas of {name}"):
            for number, target in moves.items():
                p = self.parts[name][number]
                before = p.before
                p.adding, p.removing = (
                    tuple(b for b in target if b not in before),
                    tuple(b for b in before if b not in target),
                )
                p.replicas = (*target, *p.removing)
                p.in_sync &= set(p.replicas)
                self._end(p)
                self._elect(p)
        for n, p in enumerate(self.parts[name]):
            for b in p.adding:
                throttled = b in self.rates and f"{n}:{b}" in self.config[name].get(FOLLOWERS, "").split(",")
                assert throttled, f"copies {name}-{n} to broker {b} without a throttle"
        return Outcome.DONE


def simulate(
    world: World, plans: Sequence[TopicPlan], events: Iterable[Event], planner: Planner = combined_work
) -> None:
    """Runs the events, brings all brokers back, reconciles until idle, and checks that topics match their plans.

    The event `reconcile` takes the budget as its argument.
    """
    for name, *arguments in events:
        if name == "reconcile":
            world.reconcile(plans, planner, *arguments)
        else:
            getattr(world, name)(*arguments)
    theirs = {b: rate for b, rate in world.rates.items() if rate == THEIRS}
    world.move_of_somebody_else(False)
    for broker in tuple(world.down):
        world.come_back(broker)
    for _ in range(12):
        for t, n, _part in tuple(world._all()):
            world.catch_up(t, n)
        todo = world.reconcile(plans, planner)
        if todo.idle:
            break
    assert todo.idle, f"never done: {todo}"
    assert (world.rates, world.record) == (theirs, {}), f"throttles are left: {world.rates}, {world.record}"
    for plan in plans:
        parts, config = world.parts[plan.name], world.config[plan.name]
        assert len(parts) == plan.partitions
        assert {len(p.replicas) for p in parts} == {plan.replication_factor}, "not as many replicas as planned"
        assert not config.keys() & {LEADERS, FOLLOWERS}, f"throttles are left: {config}"
        assert all(config[s.name] == s.value for s in plan.config)


_RACKS: st.SearchStrategy[tuple[str | None, ...]] = st.sampled_from([(None,) * 5, tuple("aabbc"), tuple("abab")])
_LAYOUT = st.lists(
    st.permutations([1, 2, 3, 4]).flatmap(lambda p: st.integers(1, 4).map(lambda n: tuple(p[:n]))),
    min_size=1,
    max_size=3,
)
_NAMES = ("t", "u")


@st.composite
def plans_for(draw: st.DrawFn, world: World) -> list[TopicPlan]:
    plans = []
    for name, parts in world.parts.items():
        least, f = draw(st.integers(1, 3)), draw(st.integers(0, 1))
        factor = min(4, least + f + draw(st.integers(0, 1)))
        more = draw(st.sampled_from([0, 0, 1]))
        plans.append(
            topic_plan(
                name, len(parts) + more, factor, least, draw(st.sampled_from(["false", "true"])) if f == 0 else "false"
            )
        )
    return plans


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World(dict(enumerate(draw(_RACKS), 1)))
    for name in draw(st.sampled_from([_NAMES[:1], _NAMES, _NAMES])):
        world.has(name, draw(_LAYOUT), draw(st.integers(1, 3)), draw(st.sampled_from(["false", "true"])))
    if draw(st.booleans()):
        world.rates[draw(st.sampled_from(sorted(world.racks)))] = THEIRS
    return world


_BROKER = st.integers(1, 4)
EVENTS: st.SearchStrategy[list[Event]] = st.lists(
    st.tuples(st.just("reconcile"), st.none() | st.integers(0, 7))
    | st.tuples(st.just("reconcile"), st.none())
    | st.tuples(st.just("catch_up"), st.just("t"), st.integers(0, 3))
    | st.tuples(st.just("die"), _BROKER)
    | st.tuples(st.just("come_back"), _BROKER)
    | st.tuples(st.just("move_of_somebody_else"), st.booleans()),
    max_size=14,
)
