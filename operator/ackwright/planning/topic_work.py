"""From a topic's actual state to its plan: ordered steps, each of which keeps writers able to write. Pure.

Steps that make a topic safer come first (replicas, then the minimum). Steps that make it weaker come last (the minimum,
then replicas). At every point min.insync.replicas ≤ replicas in sync, so that the operator's own change never blocks a
producer. Only steps that are possible now are chosen: those that wait for replicas to catch up are chosen by a later
reconcile. Nothing is remembered but the throttle, which the status records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ackwright.planning.comparison import ObservedTopic, same
from ackwright.planning.replicas import Partition, Reassignment, placed
from ackwright.planning.topic_steps import (
    AddPartitions,
    Brokers,
    Configure,
    CreateTopics,
    Move,
    Reassign,
    TopicProblem,
    TopicStep,
    TopicWork,
    Unthrottle,
)
from ackwright.planning.topics import MIN_INSYNC, UNCLEAN, TopicPlan
from ackwright.reasons import ConditionReason
from ackwright.wording import counted, named
from ackwright_stream.jobspec import Reason

_Settings = tuple[tuple[str, str], ...]


def combined_work(targets: Iterable[TopicPlan], observed: Mapping[str, ObservedTopic], brokers: Brokers) -> TopicWork:
    """The work on several topics.

    A problem of one topic that blocks does so for the steps of all, so that a spec is never applied in part.
    """
    targets = tuple(at_least(t, observed[t.name]) if t.internal and t.name in observed else t for t in targets)
    own = [t.name for t in targets]
    create = tuple(t for t in targets if t.name not in observed)
    parts = [TopicWork((CreateTopics(create),) if create else ())]
    parts += [topic_work(t, observed[t.name], brokers, own) for t in targets if t.name in observed]
    # One cause, which is reported once for all topics.
    short = [t for t in targets if _lacks_brokers(t, observed.get(t.name), brokers)]
    others = (p for part in parts for p in part.problems if p.reason is not Reason.BROKERS_TOO_FEW)
    problems = (*too_few_brokers(short, len(brokers.racks)), *others)
    if any(p.blocks for p in problems):
        return TopicWork(problems=problems)
    # The operator may have throttled a topic that it no longer manages.
    parts += [_end_of_throttle(name, brokers) for name in brokers.throttled if name not in own]
    steps = [s for part in parts for s in part.steps]
    if any(isinstance(s, Reassign) and s.copies for s in steps):
        # The copies may use the rates that the end of another topic's throttle would remove.
        steps = [s for s in steps if not isinstance(s, Unthrottle)]
    return TopicWork(tuple(steps), tuple(w for part in parts for w in part.waiting), problems)


def topic_work(target: TopicPlan, actual: ObservedTopic, brokers: Brokers, own: Iterable[str] = ()) -> TopicWork:
    """The work on one existing topic. own: topics whose moves the operator may have started itself."""
    if target.internal:
        target = at_least(target, actual)
    problems = _problems(target, actual, brokers)
    if any(p.blocks for p in problems):
        return TopicWork(problems=problems)
    strengthening, weakening = _unequal_settings(target, actual)
    moves = _Moves(target, actual, brokers, frozenset(own))
    steps: list[TopicStep] = []
    waiting = list(moves.waiting)
    minimum, target_minimum = actual.min_insync, _minimum(target)
    if target_minimum > minimum and (moves.under_way or moves.grow or actual.in_sync < target_minimum):
        # Replicas before the minimum: with too few replicas, losing one would block writers.
        strengthening = tuple(s for s in strengthening if s[0] != MIN_INSYNC)
        if not (moves.under_way or moves.grow):
            waiting.append(
                f"topic {actual.name}: {MIN_INSYNC} is raised to {target_minimum} once each partition has "
                f"{counted(target_minimum, 'replica')} in sync (now: {actual.in_sync})"
            )
    if strengthening:
        steps.append(Configure(actual.name, strengthening))
    steps += moves.grow
    settled = not moves.under_way and not moves.grow
    if settled and actual.partitions < target.partitions and not target.feeds_state:
        steps.append(AddPartitions(actual.name, actual.partitions, target.partitions))
    # Writers that are blocked already are released at once. Otherwise strengthening comes before weakening.
    if weakening and (settled or actual.in_sync < minimum):
        steps.append(Configure(actual.name, weakening))
    if settled:
        shrink = _shrinking(target, actual, brokers, minimum=_minimum_after(steps, minimum))
        if shrink.steps and moves.foreign:
            shrink = TopicWork(waiting=(*shrink.waiting, _waits_for_others(actual.name, moves.foreign)))
        end = _end_of_throttle(actual.name, brokers)
        steps += [*shrink.steps, *end.steps]
        waiting += [*shrink.waiting, *end.waiting]
    return TopicWork(tuple(steps), tuple(waiting), problems)


def needs_moves(target: TopicPlan, actual: ObservedTopic) -> bool:
    """Whether some partition has another number of replicas than planned."""
    factor = (at_least(target, actual) if target.internal else target).replication_factor
    return any(len(p.replicas) != factor for p in actual.layout)


def at_least(target: TopicPlan, actual: ObservedTopic) -> TopicPlan:
    """The plan, raised where the topic exceeds it.

    Pipelines share the operator's own topics, so these are only ever made stronger.
    """
    config = tuple(
        replace(s, value=str(max(int(s.value), actual.min_insync))) if s.name == MIN_INSYNC else s
        for s in target.config
    )
    factor = max(target.replication_factor, *(len(p.replicas) for p in actual.layout))
    return replace(
        target,
        partitions=max(target.partitions, actual.partitions),
        replication_factor=factor,
        config=config,
        broker_failures=target.broker_failures if factor == target.replication_factor else None,
    )


class _Moves:
    """The moves of one topic's replicas: those that have to end first (under_way), and those to start now (grow)."""

    def __init__(self, target: TopicPlan, actual: ObservedTopic, brokers: Brokers, own: frozenset[str]) -> None:
        moving = {number: move for (topic, number), move in brokers.moving.items() if topic == actual.name}
        self.under_way, self.grow, self.waiting = bool(moving), list[Reassign](), list[str]()
        self.foreign = sorted({topic for topic, _ in brokers.moving} - own)
        hopeless = {n for n, move in moving.items() if any(b not in brokers.racks for b in move.adding)}
        if actual.name in brokers.throttled and hopeless and not self.foreign:
            # The operator's own move, to a broker that is down: choose another broker if there is one.
            self._restart(actual, moving, hopeless, target.replication_factor, brokers)
        if moving:
            self.waiting.append(
                f"topic {actual.name}: replicas of {len(moving)} of {counted(actual.partitions, 'partition')} "
                "are being moved" + _missing_targets(hopeless, moving, brokers)
            )
            return
        short = tuple(p for p in actual.layout if len(p.replicas) < target.replication_factor)
        if short and self.foreign:
            self.waiting.append(_waits_for_others(actual.name, self.foreign))
            self.under_way = True
        elif short:
            # Placement balances over all partitions, but only those with too few replicas are moved.
            placement = placed(actual.layout, target.replication_factor, brokers.racks)
            self._add(
                actual.name,
                [Move(p.number, p.replicas, placement[p.number]) for p in short if p.number in placement],
                brokers,
            )

    def _restart(
        self,
        actual: ObservedTopic,
        moving: Mapping[int, Reassignment],
        hopeless: set[int],
        factor: int,
        brokers: Brokers,
    ) -> None:
        """Replaces hopeless moves. A partition that has enough replicas without its move is put back.

        Moves that continue are part of the new step too: the throttle covers all moves of the topic.
        """
        layout = [_before(p, moving[p.number]) if p.number in hopeless else p for p in actual.layout]
        placement = placed(layout, factor, brokers.racks)
        candidates = {
            p.number: p.replicas if len(p.replicas) >= factor else placement.get(p.number, ())
            for p in layout
            if p.number in hopeless
        }
        restarted = {number: replicas for number, replicas in candidates.items() if len(replicas) >= factor}
        if restarted:
            pairs = [(p, moving[p.number]) for p in actual.layout if p.number in moving]
            moves = [
                Move(p.number, _before(p, move).replicas, restarted.get(p.number) or _after(p, move))
                for p, move in pairs
            ]
            self._add(actual.name, moves, brokers)

    def _add(self, topic: str, moves: list[Move], brokers: Brokers) -> None:
        if moves:
            involved = {b for m in moves for b in (*m.before, *m.after)}
            # A rate that the operator did not set is left alone: an administrator chose it.
            own = {b for throttled in brokers.throttled.values() for b in throttled}
            throttled = involved - (brokers.rated - own) | set(brokers.throttled.get(topic, ()))
            self.grow.append(Reassign(topic, tuple(moves), tuple(sorted(throttled & set(brokers.racks)))))


def _shrinking(target: TopicPlan, actual: ObservedTopic, brokers: Brokers, minimum: int) -> TopicWork:
    """The removal of surplus replicas. minimum: min.insync.replicas when the moves start.

    Nothing is copied, so nothing is throttled.
    """
    large = tuple(p for p in actual.layout if len(p.replicas) > target.replication_factor)
    if not large:
        return TopicWork()
    placement = placed(actual.layout, target.replication_factor, brokers.racks)
    required = max(minimum, _minimum(target))
    unsafe = [p.number for p in large if len(p.in_sync & set(placement[p.number])) < required]
    moves = tuple(Move(p.number, p.replicas, placement[p.number]) for p in large if p.number not in unsafe)
    waiting = (
        f"topic {actual.name}: surplus replicas of {counted(len(unsafe), 'partition')} are removed once "
        f"{required} of those that remain are in sync",
    )
    return TopicWork((Reassign(actual.name, moves),) if moves else (), waiting if unsafe else ())


def _end_of_throttle(topic: str, brokers: Brokers) -> TopicWork:
    """The removal of a topic's throttle, after the moves of all topics: rates belong to brokers, and topics share them.

    A broker that is down keeps its rate until it is back, and nothing waits for that.
    """
    throttled = brokers.throttled.get(topic)
    if throttled is None:
        return TopicWork()
    if brokers.moving:
        return TopicWork(
            waiting=(f"topic {topic}: its replication throttle is removed when no replicas are being moved",)
        )
    up = tuple(b for b in throttled if b in brokers.racks)
    return TopicWork((Unthrottle(topic, up),) if up or not throttled else ())


def _unequal_settings(target: TopicPlan, actual: ObservedTopic) -> tuple[_Settings, _Settings]:
    """The settings that differ from the plan: those that do not weaken the topic, and those that do."""
    unequal = tuple((s.name, s.value) for s in target.config if not same(actual.config.get(s.name, ""), s.value))
    weakening = tuple(s for s in unequal if _weakens(*s, actual))
    return tuple(s for s in unequal if s not in weakening), weakening


def _weakens(name: str, value: str, actual: ObservedTopic) -> bool:
    if name == MIN_INSYNC:
        return int(value) < actual.min_insync
    return name == UNCLEAN and value.strip().lower() == "true"


def _minimum(target: TopicPlan) -> int:
    return next(int(s.value) for s in target.config if s.name == MIN_INSYNC)


def _minimum_after(steps: Iterable[TopicStep], minimum: int) -> int:
    """min.insync.replicas after the steps."""
    values = [int(v) for s in steps if isinstance(s, Configure) for n, v in s.settings if n == MIN_INSYNC]
    return values[-1] if values else minimum


def _problems(target: TopicPlan, actual: ObservedTopic, brokers: Brokers) -> tuple[TopicProblem, ...]:
    problems = []
    if actual.partitions > target.partitions:
        problems.append(
            TopicProblem(
                ConditionReason.TOPICS_UNFIT,
                f"topic {actual.name} has {counted(actual.partitions, 'partition')}, the spec declares "
                f"{target.partitions}, and Kafka cannot remove partitions",
                f"declare partitions: {actual.partitions}, or recreate the topic",
            )
        )
    if target.feeds_state and actual.partitions < target.partitions:
        problems.append(
            TopicProblem(
                ConditionReason.TOPICS_UNFIT,
                f"topic {actual.name} has {counted(actual.partitions, 'partition')}, the spec declares "
                f"{target.partitions}, and the topic feeds the state of this pipeline: keys map to other partitions "
                "when some are added, so the state may get a key's records in another order",
                "the number cannot be lowered, so remove the topic from spec.topics, and then declare it with "
                f"partitions: {actual.partitions}; or, if the order does not matter to the transform, add the "
                f"partitions: kafka-topics --alter --topic {actual.name} --partitions {target.partitions}",
                blocks=False,
            )
        )
    if _lacks_brokers(target, actual, brokers):
        problems.extend(too_few_brokers([target], len(brokers.racks)))
    unknown = [s.name for s in target.config if s.name not in actual.config]
    if unknown:
        problems.append(
            TopicProblem(
                ConditionReason.TOPICS_UNFIT,
                f"topic {actual.name}: the brokers do not know the {named('setting', unknown)}",
                f"correct or remove {'it' if len(unknown) == 1 else 'them'} under spec.topics[].config",
            )
        )
    return tuple(problems)


def _lacks_brokers(target: TopicPlan, actual: ObservedTopic | None, brokers: Brokers) -> bool:
    """Whether the topic, which may not exist yet, is to get more replicas than there are brokers."""
    present = 0 if actual is None else actual.replication_factor
    return target.replication_factor > max(present, len(brokers.racks))


def too_few_brokers(topics: Sequence[TopicPlan], up: int) -> tuple[TopicProblem, ...]:
    """The problems of topics with more replicas than brokers are up: one for those with the same number of replicas."""
    groups: dict[tuple[int, int | None], list[str]] = {}
    for t in topics:
        groups.setdefault((t.replication_factor, t.broker_failures), []).append(t.name)
    return tuple(
        TopicProblem(
            Reason.BROKERS_TOO_FEW,
            f"{named('topic', names)} {'needs' if len(names) == 1 else 'need'} {counted(factor, 'broker')} for "
            f"{counted(factor, 'replica')}{'' if len(names) == 1 else ' each'}, but only {up} "
            f"{'is' if up == 1 else 'are'} up",
            f"add brokers, bring the missing ones back, or lower {_fewer_replicas(failures, up)}",
        )
        for (factor, failures), names in groups.items()
    )


def _fewer_replicas(failures: int | None, up: int) -> str:
    """What to lower. failures: as TopicPlan.broker_failures."""
    if failures is None:
        return "tolerate.brokerFailures, replicationFactor or min.insync.replicas"
    return f"tolerate.brokerFailures from {failures} to {max(0, up - 1) // 2}"


def _before(partition: Partition, move: Reassignment) -> Partition:
    """The partition as it was before the move."""
    return replace(partition, replicas=tuple(b for b in partition.replicas if b not in move.adding))


def _after(partition: Partition, move: Reassignment) -> tuple[int, ...]:
    """The replicas of the partition when the move has ended."""
    return tuple(b for b in partition.replicas if b not in move.removing)


def _waits_for_others(topic: str, foreign: list[str]) -> str:
    others = named("topic", foreign[:5])
    return f"topic {topic}: waits until the reassignment of {others}, which the operator did not start, has ended"


def _missing_targets(hopeless: set[int], moving: Mapping[int, Reassignment], brokers: Brokers) -> str:
    missing = sorted({b for n in hopeless for b in moving[n].adding if b not in brokers.racks})
    if not missing:
        return ""
    one = len(missing) == 1
    return f"; target {named('broker', missing)} {'is' if one else 'are'} down: bring {'it' if one else 'them'} back"
