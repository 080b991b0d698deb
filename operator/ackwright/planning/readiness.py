"""Whether brokers and topics are ready for pipelines: a list of checks, each with its own verdict and remedy. Pure.

f is how many brokers may be lost: 2f+1 replicas, of which f+1 have a record when it is acknowledged
(docs/protocol.md#guarantees).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ackwright.planning.comparison import ObservedTopic, differences
from ackwright.planning.durability import INTERNAL, Clause, broken, in_one_rack, not_compacted, replicas
from ackwright.planning.guarantees import TERMS, TRANSACTION_TIMEOUT_MS, values
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.replicas import Racks
from ackwright.planning.topic_steps import Brokers
from ackwright.planning.topic_work import topic_work
from ackwright.planning.topics import MIN_INSYNC, UNCLEAN, TopicPlan, command_to_set
from ackwright.reasons import consequences
from ackwright_stream.broker_requirements import (
    LONGEST_TRANSACTION,
    VERIFICATION,
    OtherMembers,
    is_recent,
    of_transactions,
    unmet_by_group,
)

RETENTION = "offsets.retention.minutes"
AUTHORISER = "authorizer.class.name"
_OF_POSITIONS = frozenset({VERIFICATION, LONGEST_TRANSACTION, RETENTION})  # settings for positions in Kafka
# Authorisers that decide by the ACLs that kafka-acls lists.
ACL_AUTHORISERS = frozenset(
    {"org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kafka.security.authorizer.AclAuthorizer"}
)

_WEEK = 7 * 24 * 60  # minutes


class Verdict(StrEnum):
    """The result of one check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """One check and its result."""

    name: str
    verdict: Verdict
    found: str  # the present state
    remedy: str = ""  # what to do, one step in each line; empty if the verdict is OK


_ROUTED = Check(
    "topics of the sink",
    Verdict.WARNING,
    "the transform names them in its column topic, so they are not known here",
    "create them, and grant the job Write, Describe and DescribeConfigs on each",
)


@dataclass(frozen=True)
class Observed:
    """The present state of brokers, topics and group."""

    racks: Racks
    # By broker; empty: not permitted to read them.
    settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, ObservedTopic] = field(default_factory=dict)  # those that exist
    hidden: frozenset[str] = frozenset()  # topics that the principal may not describe
    others: OtherMembers | None = None  # members of the group besides the driver; None: not permitted to list them


def checks(
    observed: Observed, plan: DeliveryPlan | None, needed: Sequence[str], *, routed: bool = False
) -> tuple[Check, ...]:
    """All checks but those of permissions.

    plan None: any pipeline with f = 1. needed: the topics without which the job cannot run. routed: the transform
    names the sink's topics.
    """
    f = plan.broker_failures if plan else 1
    in_kafka = plan is None or plan.sink.in_kafka  # whether transactions and positions are
    copies = max([2 * f + 1, *(t.replication_factor for t in (plan.topics if plan else ()))])
    return (
        _brokers(observed.racks, copies, f),
        _racks(observed.racks, copies, f),
        *_settings(observed, f, in_kafka=in_kafka),
        *(_internal(name, observed, f, plan) for name in INTERNAL if in_kafka),
        *(_of_pipeline(plan, observed, needed) if plan else ()),
        *((_ROUTED,) if routed else ()),
    )


def _of_pipeline(plan: DeliveryPlan, observed: Observed, needed: Sequence[str]) -> Iterator[Check]:
    declared = [t.name for t in plan.topics]
    yield from (_declared(topic, observed, plan) for topic in plan.topics)
    yield from (_undeclared(name, observed, plan) for name in dict.fromkeys(needed) if name not in declared)
    if plan.sink.in_kafka:
        yield _group(plan.group, observed)


def _brokers(racks: Racks, copies: int, f: int) -> Check:
    state = f"{len(racks)} available: {', '.join(map(str, sorted(racks)))}"
    if len(racks) >= copies:
        return Check("brokers", Verdict.OK, state)
    return Check(
        "brokers",
        Verdict.FAILED,
        f"{state}; to tolerate {_failures(f)} the topics need {copies} replicas on as many brokers",
        f"start {copies - len(racks)} more, or lower tolerate.brokerFailures",
    )


def _racks(racks: Racks, copies: int, f: int) -> Check:
    names = sorted({r for r in racks.values() if r})
    nameless = [b for b in sorted(racks) if not racks[b]]
    if f == 0:
        return Check("racks", Verdict.OK, "not needed: no broker failure is tolerated")
    remedy = "set broker.rack on each broker to its zone or rack"
    if not names:
        return Check(
            "racks",
            Verdict.WARNING,
            "no broker declares its rack: all replicas may be in one rack, and are lost with it",
            remedy,
        )
    if nameless:
        return Check(
            "racks",
            Verdict.WARNING,
            f"{_brokers_named(nameless)} declare{'s' if len(nameless) == 1 else ''} no rack",
            remedy,
        )
    lost = -(-copies // len(names))  # replicas in the rack that has most of them, rounded up
    state = f"{len(names)}: {', '.join(names)}"
    if lost <= f:
        return Check("racks", Verdict.OK, state)
    return Check(
        "racks",
        Verdict.WARNING,
        f"{state}; the loss of one rack may lose {lost} of {copies} replicas, and only {f} may be lost",
        f"spread the brokers over {-(-copies // f)} racks",
    )


@dataclass(frozen=True)
class _Rule:
    """What one setting of a broker must satisfy. Of several rules for a setting the first that is broken counts; a
    broker without the setting breaks none."""

    name: str
    holds: Callable[[str], bool]
    verdict: Verdict
    because: str
    remedy: str


def _rules(f: int) -> tuple[_Rule, ...]:
    return (
        *(
            _Rule(r.setting, r.holds, Verdict.FAILED, r.because, r.remedy)
            for r in of_transactions(TRANSACTION_TIMEOUT_MS)
        ),
        _Rule(
            RETENTION,
            lambda v: int(v) >= _WEEK,
            Verdict.WARNING,
            "a pipeline that is suspended for longer loses its positions and halts",
            f"set {RETENTION}={_WEEK} or more",
        ),
        _Rule(
            "default.replication.factor",
            lambda v: int(v) >= 2 * f + 1,
            Verdict.WARNING,
            f"undeclared topics do not survive {_failures(f)}",
            f"set default.replication.factor={2 * f + 1}",
        ),
        _Rule(
            MIN_INSYNC,
            lambda v: int(v) >= f + 1,
            Verdict.WARNING,
            f"undeclared topics do not survive {_failures(f)}",
            f"set {MIN_INSYNC}={f + 1}",
        ),
        _Rule(
            UNCLEAN,
            lambda v: v == "false" or f == 0,
            Verdict.WARNING,
            "a replica without the latest acknowledged records may become leader of an undeclared topic",
            f"set {UNCLEAN}=false",
        ),
        _Rule(
            "auto.create.topics.enable",
            lambda v: v == "false",
            Verdict.WARNING,
            "a mistyped or deleted topic is created again, empty and with the brokers' defaults",
            "set auto.create.topics.enable=false",
        ),
        _Rule(
            AUTHORISER,
            lambda v: v != "",
            Verdict.WARNING,
            "every client may write to the topics and move the positions",
            f"set {AUTHORISER}=org.apache.kafka.metadata.authorizer.StandardAuthorizer, "
            "then grant what ackwright check -f FILE lists",
        ),
    )


def _settings(observed: Observed, f: int, *, in_kafka: bool) -> Iterator[Check]:
    if not observed.settings:
        yield Check(
            "broker settings",
            Verdict.WARNING,
            "the principal may not read them, so neither the version nor any setting is known",
            "grant DescribeConfigs on the cluster",
        )
        return
    yield _version(observed)
    rules = [rule for rule in _rules(f) if in_kafka or rule.name not in _OF_POSITIONS]
    for name in dict.fromkeys(rule.name for rule in rules):
        present = {broker: s[name] for broker, s in observed.settings.items() if name in s}
        yield next(
            (c for rule in rules if rule.name == name and (c := _broken(rule, present))),
            Check(name, Verdict.OK, _shown(present)),
        )


def _broken(rule: _Rule, present: Mapping[int, str]) -> Check | None:
    if all(rule.holds(v) for v in present.values()):
        return None
    return Check(rule.name, rule.verdict, f"{_shown(present)}: {rule.because}", rule.remedy)


def _shown(present: Mapping[int, str]) -> str:
    """The brokers' value of a setting; where they differ, that of each broker."""
    texts = {broker: value or "not set" for broker, value in present.items()}
    if len(set(texts.values())) > 1:
        return ", ".join(f"{value} (broker {broker})" for broker, value in sorted(texts.items()))
    return next(iter(texts.values()), "these brokers do not have this setting")


def _failures(f: int) -> str:
    return "1 broker failure" if f == 1 else f"{f} broker failures"


def _brokers_named(brokers: Sequence[int]) -> str:
    return f"broker {brokers[0]}" if len(brokers) == 1 else f"brokers {', '.join(map(str, brokers))}"


def _version(observed: Observed) -> Check:
    features = ", ".join(f"{name} {level}" for name, level in sorted(observed.features.items()))
    old = [b for b, settings in sorted(observed.settings.items()) if not is_recent(settings)]
    if old:
        verb, object_ = ("runs", "it") if len(old) == 1 else ("run", "them")
        state = f"{_brokers_named(old)} {verb} a version older than Kafka 3.7"
        return Check("version", Verdict.FAILED, state, f"upgrade {object_}")
    return Check("version", Verdict.OK, "Kafka 3.7 or newer" + (f" ({features})" if features else ""))


def _internal(name: str, observed: Observed, f: int, plan: DeliveryPlan | None) -> Check:
    """The check of an internal topic, which contains positions or transactions."""
    required = plan is None or TERMS[plan.guarantee].promise.needs_internal_topics
    bad = Verdict.FAILED if required else Verdict.WARNING
    topic = observed.topics.get(name)
    if topic is None:
        return _missing_internal(name, observed, f, bad)
    state = f"{replicas(topic.replication_factor)}, {topic.in_sync} in sync, {MIN_INSYNC} = {topic.min_insync}"
    remedies = []
    if topic.replication_factor < 2 * f + 1:
        remedies.append(f"give it {2 * f + 1} replicas: kafka-reassign-partitions")
    if topic.min_insync < f + 1:
        remedies.append(command_to_set(name, MIN_INSYNC, f + 1))
    if remedies:
        return Check(
            name, bad, f"{state}; to survive {_failures(f)} it needs {2 * f + 1} and {f + 1}", "\n".join(remedies)
        )
    if topic.in_sync < topic.min_insync:
        return Check(name, Verdict.FAILED, f"{state}; it accepts no commits", "restart the missing brokers")
    return Check(name, Verdict.OK, state)


def _missing_internal(name: str, observed: Observed, f: int, bad: Verdict) -> Check:
    if name in observed.hidden:
        return _hidden(name)
    factor, least = (
        ("offsets.topic.replication.factor", MIN_INSYNC)
        if name == INTERNAL[0]
        else ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
    )
    present = {
        setting: {b: s[setting] for b, s in observed.settings.items() if setting in s} for setting in (factor, least)
    }
    state = f"does not exist yet; {', '.join(f'{setting} = {_shown(value)}' for setting, value in present.items())}"
    wrong = [
        f"set {setting}={enough} before the first use"
        for setting, enough in ((factor, 2 * f + 1), (least, f + 1))
        if any(int(v) < enough for v in present[setting].values())
    ]
    return Check(name, bad, state, "\n".join(wrong)) if wrong else Check(name, Verdict.OK, state)


def _declared(declared: TopicPlan, observed: Observed, plan: DeliveryPlan) -> Check:
    name, topic = f"topic {declared.name}", observed.topics.get(declared.name)
    if declared.name in observed.hidden:
        return _hidden(name)
    if topic is None:
        least = values(declared.config)[MIN_INSYNC]
        partitions = f"{declared.partitions} partition{'s' if declared.partitions > 1 else ''}"
        return Check(
            name,
            Verdict.OK,
            f"will be created: {partitions}, {replicas(declared.replication_factor)}, {MIN_INSYNC} = {least}",
        )
    for clause in broken(plan, {topic.name: topic}, observed.racks):
        if consequences(clause.reason).unavailable:
            return Check(name, Verdict.FAILED, clause.cause, clause.remedy)
    todo = topic_work(declared, topic, Brokers(observed.racks), [t.name for t in plan.topics])
    if todo.problems:
        return Check(name, Verdict.FAILED, todo.problems[0].cause, todo.problems[0].remedy)
    unequal = differences(declared, topic)
    if todo.idle:  # a topic of the operator's own may be stronger than planned: pipelines share it
        unequal = tuple(d for d in unequal if d.setting == "replicas in sync")
        remedy = "restart the missing brokers"
    elif declared.drift_policy == "repair":
        remedy = "\n".join((*(f"the operator will {step}" for step in todo.steps), *todo.waiting))
    else:
        leaves = f"driftPolicy is {declared.drift_policy}, so the operator does not change it"
        remedy = f"change it back, or declare it so: {leaves}"
    if not unequal:
        rack = in_one_rack(topic, observed.racks)
        return _one_rack(name, rack) if rack else Check(name, Verdict.OK, "is as planned")
    return Check(
        name, Verdict.WARNING, ", ".join(f"{d.setting} is {d.found}, planned is {d.planned}" for d in unequal), remedy
    )


def _undeclared(name: str, observed: Observed, plan: DeliveryPlan) -> Check:
    check, topic, f = f"topic {name}", observed.topics.get(name), plan.broker_failures
    if name in observed.hidden:
        return _hidden(check)
    if topic is None:
        return Check(
            check, Verdict.FAILED, "does not exist", "create it, or list it under spec.topics to have it created"
        )
    state = f"{replicas(topic.replication_factor)}, {MIN_INSYNC} = {topic.min_insync}, not declared"
    if unfit := not_compacted(topic, plan):
        return Check(check, Verdict.WARNING, unfit.cause, unfit.remedy)
    clause = in_one_rack(topic, observed.racks)
    if topic.survives(f):
        return _one_rack(check, clause) if clause else Check(check, Verdict.OK, state)
    return Check(
        check,
        Verdict.WARNING,
        f"{state}; to survive {_failures(f)} it needs {2 * f + 1} and {f + 1}",
        "list it under spec.topics to have it changed",
    )


def _hidden(name: str) -> Check:
    return Check(name, Verdict.WARNING, "the principal may not describe it", "grant what the permission checks list")


def _one_rack(name: str, clause: Clause) -> Check:
    return Check(name, Verdict.WARNING, clause.cause, clause.remedy)


def _group(group: str, observed: Observed) -> Check:
    name = f"consumer group {group}"
    if observed.others and (in_use := unmet_by_group(group, observed.others)):
        return Check(name, Verdict.FAILED, in_use.cause, in_use.remedy)
    return Check(name, Verdict.OK, "no consumer subscribes in it")
