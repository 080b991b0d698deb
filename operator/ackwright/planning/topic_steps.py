"""From a topic as it is to the topic as planned: ordered steps, each of which leaves writers able to write. Pure.

What makes a topic safer comes first (replicas, then the minimum), what makes it weaker comes last (the minimum, then replicas), and at
every point min.insync.replicas ≤ replicas in sync, so that no producer is cut off by our own change. Only what may be done now is among
the steps: what has to wait for replicas to catch up is found again at the next look. Nothing is remembered but the throttle, and that in
the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ackwright.planning.comparison import ObservedTopic, same
from ackwright.planning.replicas import Partition, Racks, Reassignment, placed
from ackwright.planning.topics import MIN_INSYNC, UNCLEAN, TopicPlan

LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"  # of a topic
RATES = frozenset(
    {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
)  # of a broker, in bytes a second

_MORE_BROKERS = "add brokers, bring the missing ones back, or lower tolerate.brokerFailures"


@dataclass(frozen=True)
class CreateTopics:
    topics: tuple[TopicPlan, ...]

    def __str__(self) -> str:
        return f"create topics {', '.join(t.name for t in self.topics)}"


@dataclass(frozen=True)
class Configure:
    """Settings to be set; others are left alone."""

    topic: str
    settings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"set {', '.join(f'{name}={value}' for name, value in self.settings)} of topic {self.topic}"


@dataclass(frozen=True)
class AddPartitions:
    """total: how many there shall be."""

    topic: str
    before: int
    total: int

    def __str__(self) -> str:
        return f"add partitions to topic {self.topic}: {self.before} become {self.total}, and keys move to other partitions"


@dataclass(frozen=True)
class Move:
    """The replicas that a partition has, and those that it shall have."""

    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Reassign:
    """Moves replicas. throttled: brokers that get a rate of replication for this; those that have one already keep it."""

    topic: str
    moves: tuple[Move, ...]
    throttled: tuple[int, ...] = ()

    @property
    def copies(self) -> bool:
        """Whether replicas are copied, and not only given up."""
        return any(set(m.after) - set(m.before) for m in self.moves)

    def __str__(self) -> str:
        sizes = sorted({len(m.after) for m in self.moves})
        return f"give {len(self.moves)} partitions of topic {self.topic} {' or '.join(map(str, sizes))} replicas"


@dataclass(frozen=True)
class Unthrottle:
    """Ends the throttle of moves that have ended."""

    topic: str
    brokers: tuple[int, ...]

    def __str__(self) -> str:
        return f"end the throttle of topic {self.topic}"


TopicStep = CreateTopics | Configure | AddPartitions | Reassign | Unthrottle


@dataclass(frozen=True)
class Brokers:
    """racks: of the brokers that are up. moving: moves under way, of every topic, by topic and partition. rated: brokers that have a rate
    of replication. throttled: by topic, the brokers that we gave one, as the status has it."""

    racks: Racks
    moving: Mapping[tuple[str, int], Reassignment] = field(default_factory=dict)
    rated: frozenset[int] = frozenset()
    throttled: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicWork:
    """steps: what may be done now, in this order; waiting: what has to happen first; problems: what a person has to decide, and reason:
    the name for that."""

    steps: tuple[TopicStep, ...] = ()
    waiting: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    reason: str = "TopicsUnfit"

    @property
    def idle(self) -> bool:
        return not (self.steps or self.waiting or self.problems)


def work(planned: TopicPlan, found: ObservedTopic, brokers: Brokers, ours: Iterable[str] = ()) -> TopicWork:
    """ours: topics whose moves are not somebody else's. A topic of the operator's own is only ever made stronger: pipelines share it."""
    if planned.internal:
        planned = at_least(planned, found)
    problems = _problems(planned, found, brokers)
    if problems:
        return TopicWork(problems=problems)
    stronger, weaker = _settings(planned, found)
    moves = _Moves(planned, found, brokers, frozenset(ours))
    steps: list[TopicStep] = []
    waiting = list(moves.waiting)
    least, aim = found.min_insync, _minimum(planned)
    if aim > least and (
        moves.under_way or moves.grow or found.in_sync < aim
    ):  # replicas first: one of too few may be lost
        stronger = tuple(s for s in stronger if s[0] != MIN_INSYNC)
        if not (moves.under_way or moves.grow):
            waiting.append(
                f"topic {found.name}: {MIN_INSYNC} becomes {aim} when {aim} replicas of each partition are in sync, now {found.in_sync}"
            )
    if stronger:
        steps.append(Configure(found.name, stronger))
    steps += moves.grow
    settled = not moves.under_way and not moves.grow
    if settled and found.partitions < planned.partitions:
        steps.append(AddPartitions(found.name, found.partitions, planned.partitions))
    # Producers that are cut off already may go on at once; else what weakens comes when nothing is left that strengthens.
    if weaker and (settled or found.in_sync < least):
        steps.append(Configure(found.name, weaker))
    if settled:
        shrink, why_not = _shrinking(planned, found, brokers, minimum=_in_force(least, steps))
        if shrink and moves.foreign:
            shrink, why_not = [], [*why_not, _after(found.name, moves.foreign)]
        end, not_yet = _end_of_throttle(found.name, brokers)
        steps += [*shrink, *end]
        waiting += [*why_not, *not_yet]
    return TopicWork(tuple(steps), tuple(waiting))


def wants_moves(planned: TopicPlan, found: ObservedTopic) -> bool:
    """Whether some partition has another number of replicas than planned."""
    factor = (at_least(planned, found) if planned.internal else planned).replication_factor
    return any(len(p.replicas) != factor for p in found.layout)


def together(planned: Iterable[TopicPlan], observed: Mapping[str, ObservedTopic], brokers: Brokers) -> TopicWork:
    """The work on several topics. A problem of one holds up all: nothing is applied by halves."""
    planned = tuple(planned)
    ours = [t.name for t in planned]
    create = tuple(t for t in planned if t.name not in observed)
    too_many = tuple(
        _too_few(t.name, t.replication_factor, brokers) for t in create if t.replication_factor > len(brokers.racks)
    )
    found = [TopicWork((CreateTopics(create),) if create else (), problems=too_many)]
    found += [work(t, observed[t.name], brokers, ours) for t in planned if t.name in observed]
    problems = tuple(p for w in found for p in w.problems)
    if problems:
        only_brokers = all(p.endswith(_MORE_BROKERS) for p in problems)
        return TopicWork(problems=problems, reason="BrokersTooFew" if only_brokers else "TopicsUnfit")
    # A topic that is not ours to change any more may have been throttled by us.
    found += [
        TopicWork(tuple(end), tuple(wait))
        for n in brokers.throttled
        if n not in ours
        for end, wait in [_end_of_throttle(n, brokers)]
    ]
    steps = [s for w in found for s in w.steps]
    if any(
        isinstance(s, Reassign) and s.copies for s in steps
    ):  # it may count on the rates that another topic's end would take away
        steps = [s for s in steps if not isinstance(s, Unthrottle)]
    return TopicWork(tuple(steps), tuple(s for w in found for s in w.waiting))


class _Moves:
    """What becomes of a topic's replicas. under_way: moves that have to end first; grow: moves to begin now."""

    def __init__(self, planned: TopicPlan, found: ObservedTopic, brokers: Brokers, ours: frozenset[str]) -> None:
        moving = {number: r for (topic, number), r in brokers.moving.items() if topic == found.name}
        self.under_way, self.grow, self.waiting = bool(moving), list[Reassign](), list[str]()
        self.foreign = sorted({topic for topic, _ in brokers.moving} - ours)
        in_vain = {n for n, r in moving.items() if any(b not in brokers.racks for b in r.adding)}
        if (
            found.name in brokers.throttled and in_vain and not self.foreign
        ):  # ours, to a broker that has gone: elsewhere, if there is room
            self._begin_anew(found, moving, in_vain, planned.replication_factor, brokers)
        if moving:
            left = f"{len(moving)} of {found.partitions} partitions"
            self.waiting.append(
                f"topic {found.name}: replicas of {left} are being moved{_gone(in_vain, moving, brokers)}"
            )
            return
        short = tuple(p for p in found.layout if len(p.replicas) < planned.replication_factor)
        if short and self.foreign:
            self.waiting.append(_after(found.name, self.foreign))
            self.under_way = True
        elif short:
            # All partitions are looked at for the balance, and only those that are short are moved.
            target = placed(found.layout, planned.replication_factor, brokers.racks)
            self._add(
                found.name, [Move(p.number, p.replicas, target[p.number]) for p in short if p.number in target], brokers
            )

    def _begin_anew(
        self, found: ObservedTopic, moving: Mapping[int, Reassignment], in_vain: set[int], factor: int, brokers: Brokers
    ) -> None:
        """A partition that is not short without its move gives that up. Moves that go on are named again: the throttle is of them all."""
        layout = [_without(p, moving[p.number]) if p.number in in_vain else p for p in found.layout]
        target = placed(layout, factor, brokers.racks)
        replicas = {
            p.number: p.replicas if len(p.replicas) >= factor else target.get(p.number, ())
            for p in layout
            if p.number in in_vain
        }
        anew = {n: after for n, after in replicas.items() if len(after) >= factor}
        if anew:
            moved = [(p, moving[p.number]) for p in found.layout if p.number in moving]
            moves = [Move(p.number, _without(p, r).replicas, anew.get(p.number) or _once_moved(p, r)) for p, r in moved]
            self._add(found.name, moves, brokers)

    def _add(self, topic: str, moves: list[Move], brokers: Brokers) -> None:
        if moves:
            involved = {b for m in moves for b in (*m.before, *m.after)}
            # Whoever has a rate that is not ours keeps it: somebody has thought about it.
            ours = {b for given in brokers.throttled.values() for b in given}
            fresh = involved - (brokers.rated - ours) | set(brokers.throttled.get(topic, ()))
            self.grow.append(Reassign(topic, tuple(moves), tuple(sorted(fresh & set(brokers.racks)))))


def _shrinking(
    planned: TopicPlan, found: ObservedTopic, brokers: Brokers, minimum: int
) -> tuple[list[Reassign], list[str]]:
    """minimum: min.insync.replicas when the moves begin. Nothing is copied, so there is nothing to throttle."""
    large = tuple(p for p in found.layout if len(p.replicas) > planned.replication_factor)
    if not large:
        return [], []
    target = placed(found.layout, planned.replication_factor, brokers.racks)
    least = max(minimum, _minimum(planned))
    unsafe = [p.number for p in large if len(p.in_sync & set(target[p.number])) < least]
    moves = tuple(Move(p.number, p.replicas, target[p.number]) for p in large if p.number not in unsafe)
    waiting = []
    if unsafe:
        waiting.append(
            f"topic {found.name}: {len(unsafe)} partitions give up replicas when {least} of those that stay are in sync"
        )
    return ([Reassign(found.name, moves)] if moves else []), waiting


def _end_of_throttle(topic: str, brokers: Brokers) -> tuple[list[Unthrottle], list[str]]:
    """Rates are of brokers, so that the end waits for the moves of all topics; and a broker's settings are its own to change: that of one
    that is down ends when it is back, which nothing else waits for."""
    throttled = brokers.throttled.get(topic)
    if throttled is None:
        return [], []
    if brokers.moving:
        return [], [f"topic {topic}: its throttle ends when no replicas are being moved any more"]
    up = tuple(b for b in throttled if b in brokers.racks)
    return ([Unthrottle(topic, up)] if up or not throttled else []), []


def _settings(
    planned: TopicPlan, found: ObservedTopic
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """What differs: what strengthens, or does neither; and what weakens."""
    unequal = tuple((s.name, s.value) for s in planned.config if not same(found.config.get(s.name, ""), s.value))
    weaker = tuple(s for s in unequal if _weakens(*s, found))
    return tuple(s for s in unequal if s not in weaker), weaker


def _weakens(name: str, value: str, found: ObservedTopic) -> bool:
    if name == MIN_INSYNC:
        return int(value) < found.min_insync
    return name == UNCLEAN and value.strip().lower() == "true"


def _minimum(planned: TopicPlan) -> int:
    return next(int(s.value) for s in planned.config if s.name == MIN_INSYNC)


def _in_force(least: int, steps: Iterable[TopicStep]) -> int:
    """min.insync.replicas once the steps are done."""
    values = [int(v) for s in steps if isinstance(s, Configure) for n, v in s.settings if n == MIN_INSYNC]
    return values[-1] if values else least


def _problems(planned: TopicPlan, found: ObservedTopic, brokers: Brokers) -> tuple[str, ...]:
    said = []
    if found.partitions > planned.partitions:
        said.append(
            f"topic {found.name} has {found.partitions} partitions, declared are {planned.partitions}: Kafka cannot take partitions away; "
            f"write partitions: {found.partitions}, or make the topic anew"
        )
    if found.replication_factor < planned.replication_factor and planned.replication_factor > len(brokers.racks):
        said.append(_too_few(found.name, planned.replication_factor, brokers))
    unknown = [s.name for s in planned.config if s.name not in found.config]
    if unknown:
        said.append(
            f"topic {found.name}: these brokers know no setting {', '.join(unknown)}; correct its name under spec.topics[].config, or "
            "remove it"
        )
    return tuple(said)


def _too_few(topic: str, factor: int, brokers: Brokers) -> str:
    return f"topic {topic} needs {factor} brokers for its {factor} replicas, and {len(brokers.racks)} are up; {_MORE_BROKERS}"


def at_least(planned: TopicPlan, found: ObservedTopic) -> TopicPlan:
    """The plan, raised to what is there."""
    config = tuple(
        replace(s, value=str(max(int(s.value), found.min_insync))) if s.name == MIN_INSYNC else s
        for s in planned.config
    )
    factor = max(planned.replication_factor, *(len(p.replicas) for p in found.layout))
    return replace(
        planned, partitions=max(planned.partitions, found.partitions), replication_factor=factor, config=config
    )


def _without(partition: Partition, moving: Reassignment) -> Partition:
    """The partition as it was before the move."""
    return replace(partition, replicas=tuple(b for b in partition.replicas if b not in moving.adding))


def _once_moved(partition: Partition, moving: Reassignment) -> tuple[int, ...]:
    return tuple(b for b in partition.replicas if b not in moving.removing)


def _after(topic: str, foreign: list[str]) -> str:
    return f"topic {topic}: replicas of {', '.join(foreign[:5])} are being moved by somebody else; ours come after"


def _gone(in_vain: set[int], moving: Mapping[int, Reassignment], brokers: Brokers) -> str:
    gone = sorted({b for n in in_vain for b in moving[n].adding if b not in brokers.racks})
    return f", and to broker {', '.join(map(str, gone))}, which is down: bring it back" if gone else ""
