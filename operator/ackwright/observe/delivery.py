"""Whether Kafka is as a pipeline's guarantee needs it: topics, replicas in sync, brokers, the group. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ackwright.api.status import TopicStatus
from ackwright.clients.kafka import Kafka
from ackwright.conditions import Finding
from ackwright.errors import AckwrightError
from ackwright.observe import cluster
from ackwright.observe.topics import topics
from ackwright.planning.comparison import ObservedTopic, missing
from ackwright.planning.durability import INTERNAL, broken, drift, remarks
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.replicas import Racks, Reassignment
from ackwright.planning.topic_steps import (
    RATES,
    Brokers,
    CreateTopics,
    Reassign,
    TopicStep,
    TopicWork,
    Unthrottle,
    together,
    wants_moves,
)
from ackwright.planning.topics import TopicPlan
from ackwright_stream.jobspec import Reason


@dataclass(frozen=True)
class Kept:
    """What the status has of topics: their ids, and the brokers that were throttled for them. given_up: ids of topics whose loss a person
    has accepted. declared_before: by topic, the older pipeline that declares it otherwise."""

    ids: Mapping[str, str] = field(default_factory=dict)
    throttled: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    given_up: Mapping[str, str] = field(default_factory=dict)
    declared_before: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Delivery:
    """observed: every topic that matters, None if the brokers cannot be asked; work: what is to be done about the planned ones.

    blocked: why the job may not start, None if it may; paused: why it must not even go on; wanted: topics that matter; replaced: those that
    are not the ones we knew; moving: partitions whose replicas are being moved.
    """

    topics: Finding
    guarantee: Finding
    observed: Mapping[str, ObservedTopic] | None = None
    work: TopicWork = field(default_factory=TopicWork)
    blocked: AckwrightError | None = None
    paused: Finding | None = None
    wanted: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    moving: Mapping[tuple[str, int], Reassignment] = field(default_factory=dict)

    def may_start(self, plan: DeliveryPlan) -> bool:
        """Whether the plan's topics are there, or are made before the job."""
        if self.blocked is not None or self.observed is None:
            return False
        return bool(self.work.steps) or all(t.name in self.observed for t in plan.topics)


def unreachable(error: AckwrightError) -> Delivery:
    """Nothing is known while the brokers do not answer, or refuse us."""
    return Delivery(
        Finding("Unknown", error.reason.value, error.message),
        Finding("Unknown", error.reason.value, error.message),
        blocked=error,
    )


def taken(found: Delivery, group: str, owner: str) -> Delivery:
    """Another pipeline has the positions: this one must not start."""
    error = AckwrightError(
        Reason.GROUP_IN_USE,
        f"consumer group {group} is that of the older pipeline {owner}; make this one anew with another source.groupId",
    )
    return _unfit(found, error)


def refused(found: Delivery, steps: Sequence[TopicStep], error: AckwrightError) -> Delivery:
    """Without these steps, which brokers would not take. No job starts without its topics."""
    left = tuple(s for s in found.work.steps if s not in steps)
    blocked = error if any(isinstance(s, CreateTopics) for s in steps) else found.blocked
    said = Finding("False", error.reason.value, error.message)
    return replace(found, topics=said, work=replace(found.work, steps=left), blocked=blocked)


def _unfit(found: Delivery, error: AckwrightError) -> Delivery:
    """The job must not start, however good its topics are; and those that are missing are not made."""
    said = Finding("False", error.reason.value, error.message)
    missing_topics = any(isinstance(s, CreateTopics) for s in found.work.steps)
    return replace(
        found, topics=said if missing_topics else found.topics, work=TopicWork(), guarantee=said, blocked=error
    )


def delivery(kafka: Kafka, plan: DeliveryPlan, needed: tuple[str, ...], kept: Kept, *, check_brokers: bool) -> Delivery:
    """What the brokers say. needed: topics that must exist, planned or not. check_brokers: also their own settings and the group, which
    takes as many calls as there are brokers."""
    unfit, forbidden = None, None
    try:
        racks = kafka.racks()
        planned = [t.name for t in plan.topics]
        names = [*planned, *needed, *INTERNAL]
        observed, brokers = topics(kafka, names), Brokers(racks, throttled=kept.throttled)
        if kept.throttled or any(wants_moves(t, observed[t.name]) for t in plan.topics if t.name in observed):
            # Moves before topics: one that ended in between would look like replicas too many.
            try:
                brokers = replace(brokers, moving=kafka.moving(), rated=_rated(kafka, racks))
            except AckwrightError as e:
                if e.reason is not Reason.AUTHORIZATION_FAILED:
                    raise
                forbidden = e
            observed = topics(kafka, names)
        if check_brokers:
            unfit = _refusal(kafka, plan)
    except AckwrightError as e:
        return unreachable(e)
    deleted = [n for n in dict.fromkeys(names) if _was_deleted(n, observed, kept)]
    never_made = [n for n in missing(needed, plan.topics, observed) if n not in deleted]
    if deleted or never_made:
        error = AckwrightError(Reason.TOPIC_MISSING, _lacking(never_made, deleted))
        said = error.reason.value, error.message
        return Delivery(
            Finding("False", *said),
            Finding("Unknown", *said),
            observed,
            blocked=error,
            wanted=frozenset((*planned, *needed)),
        )
    replaced = frozenset(n for n in observed if _is_replaced(n, observed, kept))
    work = together(_to_be_changed(plan, observed, kept), observed, brokers)
    if forbidden:  # who may not see moves of replicas makes none; the job, and all else, has no need of them
        others = tuple(s for s in work.steps if not isinstance(s, Reassign | Unthrottle))
        work = TopicWork(others, problems=(*work.problems, forbidden.message), reason=forbidden.reason.value)
    found = Delivery(
        _topics(plan, observed, work, racks, kept),
        _guarantee(plan, observed, work, racks),
        observed,
        work,
        paused=_paused(plan, observed, replaced, kept),
        wanted=frozenset((*planned, *needed)),
        replaced=replaced,
        moving=brokers.moving,
    )
    return _unfit(found, unfit) if unfit else found


def _rated(kafka: Kafka, racks: Racks) -> frozenset[int]:
    return frozenset(b for b in racks if kafka.broker_config(b).keys() & RATES)


def _to_be_changed(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], kept: Kept) -> list[TopicPlan]:
    """Missing topics are made under every policy; of existing ones those whose drift is to be repaired, that are the ones we know, and
    that nobody older declares otherwise."""
    return [
        t
        for t in plan.topics
        if t.name not in observed
        or (
            t.drift_policy == "repair"
            and t.name not in kept.declared_before
            and not _is_replaced(t.name, observed, kept)
        )
    ]


def _is_replaced(name: str, observed: Mapping[str, ObservedTopic], kept: Kept) -> bool:
    known = kept.ids.get(name)
    return known is not None and known != kept.given_up.get(name) and name in observed and observed[name].id != known


def _was_deleted(name: str, observed: Mapping[str, ObservedTopic], kept: Kept) -> bool:
    """Making it anew would hide that records are lost. A broker that has just started may not know it yet, so the job is left alone."""
    return name not in observed and name in kept.ids and kept.ids[name] != kept.given_up.get(name)


def _lacking(never_made: Sequence[str], deleted: Sequence[str]) -> str:
    said = []
    if never_made:
        said.append(
            f"no such topic: {', '.join(never_made)}; create it, or list it under spec.topics to have it created"
        )
    if deleted:
        said.append(
            f"deleted by somebody: topic {', '.join(deleted)}; restore it, or accept the loss by ackwright accept-topic"
        )
    return "; ".join(said)


def _refusal(kafka: Kafka, plan: DeliveryPlan) -> AckwrightError | None:
    """Why the job may not run with these brokers or this group, None if it may. Raises AckwrightError if they do not say."""
    try:
        cluster.check(kafka, plan)
    except AckwrightError as e:
        if e.reason not in (Reason.GROUP_IN_USE, Reason.BROKERS_UNSUPPORTED):
            raise
        return e
    return None


def told(found: Delivery, before: Sequence[TopicStatus], *, done: bool) -> tuple[TopicStatus, ...]:
    """The topics for the status, before the work on them, or when it is done.

    The id of a topic that was replaced stays what it was until a person accepts that; a throttle is on record before it is set, and until
    it was ended.
    """
    if found.observed is None:
        return tuple(before)
    known = {t.name: t for t in before}
    throttled = {t.name: t.throttled_brokers for t in before}
    for step in found.work.steps:
        if isinstance(step, Reassign) and step.copies:
            throttled[step.topic] = tuple(sorted({*(throttled.get(step.topic) or ()), *step.throttled}))
        elif isinstance(step, Unthrottle) and done:
            left = tuple(b for b in throttled.get(step.topic) or () if b not in step.brokers)
            throttled[step.topic] = left or None
    others = [
        t.model_copy(update={"throttled_brokers": throttled.get(t.name)})
        for t in before
        if t.name not in found.observed
    ]
    kept = [t for t in others if t.name in found.wanted or t.throttled_brokers is not None]
    names = [n for n in found.observed if n not in INTERNAL]
    return (
        *(
            _told(found, n, known[n].id if n in found.replaced else found.observed[n].id, throttled.get(n))
            for n in names
        ),
        *kept,
    )


def _told(found: Delivery, name: str, identity: str, throttled: tuple[int, ...] | None) -> TopicStatus:
    topic = (found.observed or {})[name]
    return TopicStatus(
        name=name,
        id=identity,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        min_insync_replicas=topic.min_insync,
        in_sync_replicas=topic.in_sync,
        moving=sum(t == name for t, _ in found.moving),
        throttled_brokers=throttled,
    )


def summary(found: Delivery, plan: DeliveryPlan) -> str | None:
    """How many of the planned topics are there, None if that is not known."""
    if found.observed is None:
        return None
    return f"{sum(t.name in found.observed for t in plan.topics)}/{len(plan.topics)}"


def _paused(
    plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], replaced: frozenset[str], kept: Kept
) -> Finding | None:
    if replaced:
        told = "; ".join(
            f"topic {n} was deleted and made anew (id {observed[n].id}, before {kept.ids[n]})" for n in sorted(replaced)
        )
        return Finding(
            "True",
            Reason.TOPIC_REPLACED.value,
            f"{told}; what was in it is gone: accept that by ackwright accept-topic",
        )
    drifted = drift(plan, observed, "pause")
    if drifted:
        told = "; ".join(map(str, drifted))
        return Finding("True", "Drifted", f"{told}; driftPolicy is pause: set it back, declare it, or choose repair")
    return None


def _topics(
    plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], work: TopicWork, racks: Racks, kept: Kept
) -> Finding:
    if work.problems:
        return Finding("False", work.reason, "; ".join(work.problems))
    conflicts = [
        f"{n} is declared otherwise by {who}, which is older"
        for n, who in sorted(kept.declared_before.items())
        if n in observed
    ]
    if conflicts:
        return Finding(
            "False", "TopicConflict", f"topic {'; topic '.join(conflicts)}; declare it alike, or in one of them only"
        )
    if created := [t.name for s in work.steps if isinstance(s, CreateTopics) for t in s.topics]:
        return Finding("False", "Creating", f"to be created: {', '.join(created)}")
    if work.steps or work.waiting:
        return Finding("False", "Repairing", "; ".join((*map(str, work.steps), *work.waiting)))
    drifted = (*drift(plan, observed, "alert"), *drift(plan, observed, "pause"))
    if drifted:
        return Finding("True", "Drifted", "; ".join(map(str, drifted)))
    if found := remarks(plan, observed, racks):
        return Finding("True", found[0].reason, "; ".join(c.sentence for c in found))
    return Finding("True", "AsPlanned")


def _guarantee(plan: DeliveryPlan, observed: Mapping[str, ObservedTopic], work: TopicWork, racks: Racks) -> Finding:
    """Every clause that is broken, in one sentence each; the worst gives its name."""
    if any(isinstance(s, CreateTopics) for s in work.steps) or any(t.name not in observed for t in plan.topics):
        return Finding("Unknown", "Creating", "topics are still to be created")
    found = broken(plan, observed, racks)
    return (
        Finding("False", found[0].reason, "; ".join(c.sentence for c in found)) if found else Finding("True", "Met", "")
    )
