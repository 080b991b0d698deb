"""Whether brokers, topics and permissions are fit for pipelines, each point judged on its own with a remedy. Pure.

f is how many brokers may be lost (design, section 1): 2f+1 replicas, of which f+1 hold a record when it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ackwright.planning.comparison import ObservedTopic, differences
from ackwright.planning.durability import INTERNAL, broken, in_one_rack
from ackwright.planning.guarantees import TRANSACTION_TIMEOUT_MS, values
from ackwright.planning.permissions import Answers, Need, Operation, Resource, Role, grants, lacking
from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.replicas import Racks
from ackwright.planning.topic_steps import Brokers
from ackwright.planning.topic_work import topic_work
from ackwright.planning.topics import MIN_INSYNC, UNCLEAN, TopicPlan
from ackwright_stream.jobspec import Guarantee

SINCE_3_7 = "group.coordinator.rebalance.protocols", "telemetry.max.bytes"  # settings that older brokers do not have
VERIFICATION = "transaction.partition.verification.enable"
LONGEST_TRANSACTION = "transaction.max.timeout.ms"
RETENTION = "offsets.retention.minutes"
AUTHORISER = "authorizer.class.name"
# Authorisers that go by the ACLs that kafka-acls lists.
ACL_AUTHORISERS = frozenset(
    {"org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kafka.security.authorizer.AclAuthorizer"}
)

_WEEK = 7 * 24 * 60  # minutes
_TWO_HEARTBEATS = 120  # minutes: the job commits an idle lane's position again every hour
_OUT_OF_USE = frozenset({"NoLeader", "NotEnoughReplicas"})  # reasons of durability's clauses


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """One point. remedy: what to do, one thing a line; empty if all is well."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


_ROUTED = Check(
    "topics of the sink",
    Verdict.WARNING,
    "the transform names them (column topic), so they are not known here",
    "see that they are there, and that the job may Write and Describe each",
)


@dataclass(frozen=True)
class Observed:
    """What brokers tell of themselves. settings: of each broker, empty if they may not be read; topics: those that exist; hidden: topics
    that may not be looked at; in_use: why the group cannot be the pipeline's, empty if it can."""

    racks: Racks
    settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, ObservedTopic] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    in_use: str = ""


def recent(settings: Mapping[str, str]) -> bool:
    """Whether a broker with these settings is of Kafka 3.7 or newer."""
    return any(name in settings for name in SINCE_3_7)


def checks(
    observed: Observed, plan: DeliveryPlan | None, needed: Sequence[str], *, routed: bool = False
) -> tuple[Check, ...]:
    """Everything but permissions. plan None: any pipeline with f = 1; needed: the topics without which the job cannot run; routed: the
    transform alone names the topics of the sink."""
    f = plan.broker_failures if plan else 1
    copies = max([2 * f + 1, *(t.replication_factor for t in (plan.topics if plan else ()))])
    return (
        _brokers(observed.racks, copies, f),
        _racks(observed.racks, copies, f),
        *_settings(observed, f),
        *(_internal(name, observed, f, plan) for name in INTERNAL),
        *(_of_pipeline(plan, observed, needed) if plan else ()),
        *((_ROUTED,) if routed else ()),
    )


def _of_pipeline(plan: DeliveryPlan, observed: Observed, needed: Sequence[str]) -> Iterator[Check]:
    declared = [t.name for t in plan.topics]
    yield from (_declared(topic, observed, plan) for topic in plan.topics)
    yield from (
        _undeclared(name, observed, plan.broker_failures) for name in dict.fromkeys(needed) if name not in declared
    )
    yield _group(plan.group, observed)


def _brokers(racks: Racks, copies: int, f: int) -> Check:
    found = f"{len(racks)} answer: {', '.join(map(str, sorted(racks)))}"
    if len(racks) >= copies:
        return Check("brokers", Verdict.OK, found)
    return Check(
        "brokers",
        Verdict.FAILED,
        f"{found}; {copies} replicas, which tolerating the loss of {f} takes, need {copies}",
        f"start {copies - len(racks)} more, or lower tolerate.brokerFailures",
    )


def _racks(racks: Racks, copies: int, f: int) -> Check:
    names = sorted({r for r in racks.values() if r})
    nameless = [b for b in sorted(racks) if not racks[b]]
    if f == 0:
        return Check("racks", Verdict.OK, "no broker may be lost, so neither may a rack")
    remedy = "set broker.rack on each broker, to the zone or the rack in which it stands"
    if not names:
        return Check(
            "racks",
            Verdict.WARNING,
            "no broker names its rack: replicas may all stand in one, and are lost with it",
            remedy,
        )
    if nameless:
        return Check("racks", Verdict.WARNING, f"brokers {', '.join(map(str, nameless))} name no rack", remedy)
    lost = -(-copies // len(names))  # replicas in the rack that has most of them, rounded up
    found = f"{len(names)}: {', '.join(names)}"
    if lost <= f:
        return Check("racks", Verdict.OK, found)
    return Check(
        "racks",
        Verdict.WARNING,
        f"{found}; with one of them {lost} of {copies} replicas are lost, and {f} is tolerated",
        f"spread the brokers over {-(-copies // f)} racks",
    )


@dataclass(frozen=True)
class _Rule:
    """Of a broker's setting. Of several for one setting the first that is broken counts; a broker that lacks the setting breaks none."""

    name: str
    holds: Callable[[str], bool]
    verdict: Verdict
    because: str
    remedy: str


def _rules(f: int) -> tuple[_Rule, ...]:
    needed = TRANSACTION_TIMEOUT_MS
    return (
        _Rule(
            VERIFICATION,
            lambda v: v == "true",
            Verdict.FAILED,
            "a late commit could stay pending for ever",
            f"set {VERIFICATION}=true",
        ),
        _Rule(
            LONGEST_TRANSACTION,
            lambda v: int(v) >= needed,
            Verdict.FAILED,
            f"the lanes' transactions need {needed}",
            f"set {LONGEST_TRANSACTION}={needed} or more",
        ),
        _Rule(
            RETENTION,
            lambda v: int(v) >= _TWO_HEARTBEATS,
            Verdict.FAILED,
            "an idle lane's position is committed again every hour, and would expire between",
            f"set {RETENTION}={_WEEK}",
        ),
        _Rule(
            RETENTION,
            lambda v: int(v) >= _WEEK,
            Verdict.WARNING,
            "a pipeline that is suspended for longer loses its positions, and halts",
            f"set {RETENTION}={_WEEK} or more",
        ),
        _Rule(
            "default.replication.factor",
            lambda v: int(v) >= 2 * f + 1,
            Verdict.WARNING,
            f"topics that nobody declares do not survive the loss of {f}",
            f"set default.replication.factor={2 * f + 1}",
        ),
        _Rule(
            MIN_INSYNC,
            lambda v: int(v) >= f + 1,
            Verdict.WARNING,
            f"topics that nobody declares do not survive the loss of {f}",
            f"set {MIN_INSYNC}={f + 1}",
        ),
        _Rule(
            UNCLEAN,
            lambda v: v == "false" or f == 0,
            Verdict.WARNING,
            "a replica that lacks acknowledged records may become leader of a topic that nobody declares",
            f"set {UNCLEAN}=false",
        ),
        _Rule(
            "auto.create.topics.enable",
            lambda v: v == "false",
            Verdict.WARNING,
            "a mistyped or deleted topic comes back by itself, empty and with the brokers' defaults",
            "set auto.create.topics.enable=false",
        ),
        _Rule(
            AUTHORISER,
            lambda v: v != "",
            Verdict.WARNING,
            "anybody may write to the topics and move the positions",
            f"set {AUTHORISER}=org.apache.kafka.metadata.authorizer.StandardAuthorizer, and grant what ackwright check -f FILE then lists",
        ),
    )


def _settings(observed: Observed, f: int) -> Iterator[Check]:
    if not observed.settings:
        yield Check(
            "broker settings",
            Verdict.WARNING,
            "may not be read, so neither the version nor any setting is known",
            "grant DescribeConfigs on the cluster",
        )
        return
    yield _version(observed)
    rules = _rules(f)
    for name in dict.fromkeys(rule.name for rule in rules):
        told = {broker: s[name] for broker, s in observed.settings.items() if name in s}
        yield next(
            (c for rule in rules if rule.name == name and (c := _judged(rule, told))),
            Check(name, Verdict.OK, _told(told)),
        )


def _judged(rule: _Rule, told: Mapping[int, str]) -> Check | None:
    if all(rule.holds(v) for v in told.values()):
        return None
    return Check(rule.name, rule.verdict, f"{_told(told)}: {rule.because}", rule.remedy)


def _told(told: Mapping[int, str]) -> str:
    """The value, or, where they differ, that of each broker."""
    shown = {broker: value or "not set" for broker, value in told.items()}
    if len(set(shown.values())) > 1:
        return ", ".join(f"{value} (broker {broker})" for broker, value in sorted(shown.items()))
    return next(iter(shown.values()), "not a setting of these brokers")


def _version(observed: Observed) -> Check:
    features = ", ".join(f"{name} {level}" for name, level in sorted(observed.features.items()))
    old = [b for b, settings in sorted(observed.settings.items()) if not recent(settings)]
    if old:
        return Check(
            "version", Verdict.FAILED, f"brokers {', '.join(map(str, old))} are older than Kafka 3.7", "upgrade them"
        )
    return Check("version", Verdict.OK, "Kafka 3.7 or newer" + (f" ({features})" if features else ""))


def _internal(name: str, observed: Observed, f: int, plan: DeliveryPlan | None) -> Check:
    """The brokers' own topics, which hold positions and transactions. Only exactly-once promises that they survive what the topics do."""
    bad = Verdict.FAILED if plan is None or plan.guarantee is Guarantee.EXACTLY_ONCE else Verdict.WARNING
    topic = observed.topics.get(name)
    if topic is None:
        return _internal_to_be(name, observed, f, bad)
    found = f"{topic.replication_factor} replicas, {topic.in_sync} in sync, {MIN_INSYNC} = {topic.min_insync}"
    remedies = []
    if topic.replication_factor < 2 * f + 1:
        remedies.append(f"give it {2 * f + 1} replicas: kafka-reassign-partitions")
    if topic.min_insync < f + 1:
        remedies.append(
            f"kafka-configs --alter --entity-type topics --entity-name {name} --add-config {MIN_INSYNC}={f + 1}"
        )
    if remedies:
        return Check(
            name, bad, f"{found}; to survive the loss of {f} it needs {2 * f + 1} and {f + 1}", "\n".join(remedies)
        )
    if topic.in_sync < topic.min_insync:
        return Check(name, Verdict.FAILED, f"{found}; it takes no commits", "bring the missing brokers back")
    return Check(name, Verdict.OK, found)


def _internal_to_be(name: str, observed: Observed, f: int, bad: Verdict) -> Check:
    if name in observed.hidden:
        return _hidden(name)
    replicas, least = (
        ("offsets.topic.replication.factor", MIN_INSYNC)
        if name == INTERNAL[0]
        else ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
    )
    told = {
        setting: {b: s[setting] for b, s in observed.settings.items() if setting in s} for setting in (replicas, least)
    }
    found = f"not there yet; {', '.join(f'{setting} = {_told(value)}' for setting, value in told.items())}"
    wrong = [
        f"set {setting}={enough} before the first use"
        for setting, enough in ((replicas, 2 * f + 1), (least, f + 1))
        if any(int(v) < enough for v in told[setting].values())
    ]
    return Check(name, bad, found, "\n".join(wrong)) if wrong else Check(name, Verdict.OK, found)


def _declared(planned: TopicPlan, observed: Observed, plan: DeliveryPlan) -> Check:
    name, topic = f"topic {planned.name}", observed.topics.get(planned.name)
    if planned.name in observed.hidden:
        return _hidden(name)
    if topic is None:
        least = values(planned.config)[MIN_INSYNC]
        partitions = f"{planned.partitions} partition{'s' if planned.partitions > 1 else ''}"
        return Check(
            name,
            Verdict.OK,
            f"is to be created: {partitions}, {planned.replication_factor} replicas, {MIN_INSYNC} = {least}",
        )
    for clause in broken(plan, {topic.name: topic}, observed.racks):
        if clause.reason in _OUT_OF_USE:
            return _sentence(name, clause.sentence)
    todo = topic_work(planned, topic, Brokers(observed.racks), [t.name for t in plan.topics])
    if todo.problems:
        return Check(name, Verdict.FAILED, todo.problems[0].cause, todo.problems[0].remedy)
    unequal = differences(planned, topic)
    if todo.idle:  # a topic of the operator's own may be stronger than planned: pipelines share it
        unequal = tuple(d for d in unequal if d.setting == "replicas in sync")
        remedy = "bring the missing brokers back"
    elif planned.drift_policy == "repair":
        remedy = "\n".join((*(f"the operator will {step}" for step in todo.steps), *todo.waiting))
    else:
        remedy = f"set it back, or declare it so: driftPolicy is {planned.drift_policy}, and the operator leaves it"
    if not unequal:
        shared = in_one_rack(topic, observed.racks)
        return _sentence(name, shared.sentence, Verdict.WARNING) if shared else Check(name, Verdict.OK, "is as planned")
    return Check(
        name, Verdict.WARNING, ", ".join(f"{d.setting} is {d.found}, planned is {d.planned}" for d in unequal), remedy
    )


def _undeclared(name: str, observed: Observed, f: int) -> Check:
    check, topic = f"topic {name}", observed.topics.get(name)
    if name in observed.hidden:
        return _hidden(check)
    if topic is None:
        return Check(
            check, Verdict.FAILED, "is not there", "create it, or list it under spec.topics to have it created"
        )
    found = f"{topic.replication_factor} replicas, {MIN_INSYNC} = {topic.min_insync}, not declared"
    clause = in_one_rack(topic, observed.racks)
    if topic.survives(f):
        return _sentence(check, clause.sentence, Verdict.WARNING) if clause else Check(check, Verdict.OK, found)
    return Check(
        check,
        Verdict.WARNING,
        f"{found}; to survive the loss of {f} it needs {2 * f + 1} and {f + 1}",
        "list it under spec.topics to have it made so",
    )


def _hidden(name: str) -> Check:
    return Check(name, Verdict.WARNING, "may not be looked at", "grant what is missing below")


def _sentence(name: str, sentence: str, verdict: Verdict = Verdict.FAILED) -> Check:
    """From a sentence that ends with its remedy."""
    found, _, remedy = sentence.partition("; ")
    return Check(name, verdict, found, remedy)


def _group(group: str, observed: Observed) -> Check:
    name = f"consumer group {group}"
    return _sentence(name, observed.in_use) if observed.in_use else Check(name, Verdict.OK, "nobody subscribes in it")


def permissions(needs: Mapping[Role, Iterable[Need]], answers: Answers | None) -> tuple[Check, ...]:
    """One check a role. answers None: the brokers have no authoriser."""
    return tuple(_permitted(role, tuple(wanted), answers) for role, wanted in needs.items())


def _permitted(role: Role, wanted: tuple[Need, ...], answers: Answers | None) -> Check:
    name = f"permissions of the {role}"
    if answers is None:
        return Check(name, Verdict.OK, "not needed: the brokers have no authoriser")
    found = lacking(wanted, answers)
    who = answers.principal
    if not found.missing and not found.unknown:
        return Check(name, Verdict.OK, f"{who} has all {_count(wanted)}")
    said = [f"{who} lacks {_short(found.missing)}"] if found.missing else []
    if found.unknown:
        said.append(f"whether {who} has {_short(found.unknown)} cannot be seen")
    verdict = Verdict.FAILED if found.missing and role is not Role.AUDIT else Verdict.WARNING
    return Check(name, verdict, "; ".join(said), "\n".join((*grants(who, found.missing), *grants(who, found.unknown))))


def _count(wanted: Iterable[Need]) -> int:
    return sum(len(need.operations) for need in wanted)


def _short(of: Mapping[Resource, tuple[Operation, ...]]) -> str:
    return ", ".join(f"{' and '.join(operations)} on {_named(resource)}" for resource, operations in of.items())


def _named(resource: Resource) -> str:
    return (
        "the cluster"
        if resource.kind == "cluster"
        else f"{resource.kind} {resource.name}{'*' if resource.prefixed else ''}"
    )
