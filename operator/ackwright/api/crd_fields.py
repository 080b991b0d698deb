"""What the CRD says of each field beyond its type: a description, how its list is merged, and rules in CEL.

The rules are those of the spec and of planning that the API server can check, in the same words: rule; remedy. They are a first answer
at `kubectl apply`. The operator checks everything again, and what costs the API server too much, or lacks a word in CEL, is left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rule:
    """holds: CEL, true of a right value; said: the rule and the remedy; at: the field below that is wrong; told: CEL, says more.

    A rule that names oldSelf is asked only of a change.
    """

    holds: str
    said: str
    at: str = ""
    told: str = ""

    def schema(self) -> dict[str, str]:
        """As an entry of x-kubernetes-validations."""
        found = {"rule": self.holds, "message": self.said}
        if self.told:
            found["messageExpression"] = self.told
        return {**found, "fieldPath": self.at} if self.at else found


@dataclass(frozen=True)
class About:
    text: str
    rules: tuple[Rule, ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict)


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _given(names: Iterable[str]) -> str:
    return f"[{', '.join(f'has(self.{n})' for n in names)}].filter(given, given).size()"


def _exactly_one(*names: str) -> Rule:
    return Rule(
        f"{_given(names)} == 1", f"must have exactly one of {', '.join(names)}; remove all but one, or add one of them"
    )


def about_spark_conf(allowed: Iterable[str]) -> About:
    """Of spec.spark.conf, which takes these settings."""
    names = sorted(allowed)
    keys = f"[{', '.join(_literal(name) for name in names)}]"
    said = (
        "is not among the Spark settings that a pipeline may set; remove it; the operator sets what the guarantee needs"
    )
    rule = Rule(
        f"self.all(key, key in {keys})", said, told=f"self.map(key, !(key in {keys}), key + {_literal(': ' + said)})[0]"
    )
    return About(f"Further settings of Spark, of these: {', '.join(names)}.", (rule,))


_TOPIC_NAME = (
    Rule("!(self in ['.', '..'])", "must not be '.' or '..', as Kafka demands; choose another topic name"),
    Rule("!self.startsWith('__')", "is a topic of Kafka's own; choose another topic"),
    Rule("self != 'ackwright-lanes'", "is a topic of Ackwright's own; choose another topic"),
)
_PORT = "0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SERVER = rf"\\s*([A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\]):{_PORT}\\s*"
_SERVERS = (
    Rule(
        f"self.matches('^{_SERVER}(,{_SERVER})*$')",
        "must be host:port, several separated by commas; write for instance kafka-0:9092,kafka-1:9092",
    ),
)
_MEMORY = (
    Rule(
        "!self.matches('^[1-9][0-9]{0,6}m$') || int(self.substring(0, size(self) - 1)) >= 512",
        "must be at least 512m, or Spark refuses to start; write 512m or more",
    ),
)

_NUMBER = "'^0*[1-9][0-9]*$'"
_MIN_INSYNC = "t.config['min.insync.replicas']"
# A text that is no number is the business of the topic's own rule.
_HAS_MIN_INSYNC = f"has(t.config) && 'min.insync.replicas' in t.config && {_MIN_INSYNC}.matches({_NUMBER})"
_LEAST = f"({_HAS_MIN_INSYNC} ? int({_MIN_INSYNC}) : f + 1)"
_F = "(has(self.tolerate) && has(self.tolerate.brokerFailures) ? self.tolerate.brokerFailures : self.guarantee == 'at-most-once' ? 0 : 1)"
_F_IS = "(f is tolerate.brokerFailures: 1 unless given, 0 for at-most-once)"
_UNCLEAN = "unclean.leader.election.enable"


def _each_topic(holds: str, said: str) -> Rule:
    """Of every t in spec.topics, with f. CEL binds a name by a list of one."""
    return Rule(
        f"!has(self.topics) || [{_F}].all(f, self.topics.all(t, {holds}))",
        said,
        at=".topics",
        # The text is put together inside: outside the API server no longer knows how long a name can be, and expects the worst.
        told=f"[{_F}].map(f, self.topics.map(t, !({holds}), t.name + {_literal(': ' + said)})[0])[0]",
    )


_SPEC = (
    _each_topic(
        f"!({_HAS_MIN_INSYNC}) || int({_MIN_INSYNC}) >= f + 1",
        f"breaks min.insync.replicas ≥ f+1 {_F_IS}; with f lost an acknowledged record may be gone; remove it, or tolerate fewer failures",
    ),
    _each_topic(
        f"!has(t.replicationFactor) || t.replicationFactor >= {_LEAST} + f",
        f"breaks replication.factor ≥ min.insync.replicas + f {_F_IS}; with f lost, writes stop; remove it, or raise it",
    ),
    _each_topic(
        f"has(t.replicationFactor) || {_LEAST} + f <= 32767",
        "needs more replicas than the 32767 that Kafka has at most; lower it",
    ),
    _each_topic(
        f"!has(t.config) || !('{_UNCLEAN}' in t.config) || f == 0 || t.config['{_UNCLEAN}'].trim().lowerAscii() == 'false'",
        f"{_UNCLEAN} contradicts tolerate.brokerFailures > 0: an unclean leader lacks acknowledged records; "
        "remove it, or declare tolerate: {brokerFailures: 0}",
    ),
    Rule(
        "self.guarantee != 'exactly-once' || !has(self.sink.kafka) || !has(self.sink.kafka.acks) || self.sink.kafka.acks == 'all'",
        "contradicts guarantee: exactly-once, which allows all: a transaction needs the acknowledgement of every replica in sync; "
        "remove it, or declare a weaker guarantee",
        at=".sink.kafka.acks",
    ),
    Rule(
        "self.guarantee != 'at-least-once' || !has(self.sink.kafka) || !has(self.sink.kafka.acks) || self.sink.kafka.acks != '0'",
        "contradicts guarantee: at-least-once, which allows 1 or all: a record that nobody acknowledges may be lost; "
        "remove it, or declare a weaker guarantee",
        at=".sink.kafka.acks",
    ),
    Rule(
        "self.guarantee != 'at-most-once' || !has(self.sink.kafka) || !has(self.sink.kafka.acks) || self.sink.kafka.acks != 'all'",
        "contradicts guarantee: at-most-once, which allows 0 or 1: a request that a leader gives up while it waits for its replicas is "
        'sent again, and may be written twice; remove it, or set it to "1"',
        at=".sink.kafka.acks",
    ),
    Rule(
        "!has(self.sink.kafka) || !has(self.sink.kafka.topic) || !(self.sink.kafka.topic in self.source.topics)",
        "is also a source: the pipeline would read its own output for ever; choose another topic",
        at=".sink.kafka.topic",
    ),
    Rule(
        "!has(self.sink.kafka) || !self.sink.kafka.preservePartition || !has(self.sink.kafka.topic) || !has(self.topics) || "
        "self.topics.all(t, !(t.name in self.source.topics) || "
        "self.topics.all(there, there.name != self.sink.kafka.topic || there.partitions >= t.partitions))",
        "needs partitions of the sink's topic ≥ partitions of each source topic; give the sink's topic more",
        at=".sink.kafka.preservePartition",
    ),
)
_NOT_BUILT = tuple(
    Rule(f"!has(self.{name})", f"the sink {name} is not built yet; use sink.kafka", at=f".{name}")
    for name in ("postgres", "delta", "iceberg", "files")
)
_VOLUME = (
    Rule(
        "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
        "a volume cannot shrink; write the old size or more, or make the pipeline anew",
        at=".size",
    ),
    Rule(
        "has(self.storageClassName) == has(oldSelf.storageClassName) && "
        "(!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
        "a volume cannot change its class; write the old one, or make the pipeline anew",
        at=".storageClassName",
    ),
)

FIELDS: Mapping[str, About] = {
    "": About(
        "A pipeline from Kafka through Spark to Kafka, and the delivery guarantee that it keeps.",
        (
            # With dots <namespace>.<name>, the group id, would be ambiguous; a StatefulSet's labels have room for 52 characters.
            Rule(
                "self.metadata.name.size() <= 52 && !self.metadata.name.contains('.')",
                "must be lower-case letters, digits and '-', begin and end with a letter or digit, and have at most 52 characters; "
                "choose another name",
                at=".metadata.name",
            ),
        ),
    ),
    "spec": About("What is wanted.", _SPEC),
    "spec.guarantee": About("How often a record of the source reaches the sink. It may be changed."),
    "spec.tolerate": About("Which failures the guarantee is to survive."),
    "spec.tolerate.brokerFailures": About(
        "How many brokers (f) may be lost before an acknowledged record, or the ability to write, is. 1 unless given; 0 for at-most-once."
    ),
    "spec.kafka": About("The brokers, of source and sink."),
    "spec.kafka.bootstrapServers": About("host:port, several separated by commas.", _SERVERS),
    "spec.kafka.auth": About("How to log in (SASL). Without it: not at all."),
    "spec.kafka.auth.mechanism": About("The SASL mechanism."),
    "spec.kafka.auth.credentialsSecret": About("A Secret of the same namespace with the keys username and password."),
    "spec.kafka.auth.credentialsSecret.name": About("The Secret's name."),
    "spec.kafka.tls": About(
        "Encrypted connections. Without caSecret the authorities that the image trusts are trusted."
    ),
    "spec.kafka.tls.caSecret": About(
        "A Secret of the same namespace with the certificate of the authority that signed the brokers', in PEM."
    ),
    "spec.kafka.tls.caSecret.name": About("The Secret's name."),
    "spec.kafka.tls.caSecret.key": About("The Secret's key."),
    "spec.source": About(
        "What is read.",
        (
            Rule(
                "self.format != 'json' || has(self.schema)",
                'the format json needs a schema; add for instance schema: "name STRING, age INT"',
                at=".schema",
            ),
            Rule(
                "self.format == 'json' || !has(self.schema)",
                "a schema belongs to the format json only; write format: json, or remove the schema",
                at=".schema",
            ),
            Rule(
                "has(self.groupId) == has(oldSelf.groupId) && (!has(self.groupId) || self.groupId == oldSelf.groupId)",
                "cannot be changed: the positions are kept under it, and would stay behind; write the old one, or make the pipeline anew",
                at=".groupId",
            ),
        ),
    ),
    "spec.source.topics": About("The topics.", schema={"x-kubernetes-list-type": "set"}),
    "spec.source.topics[]": About("", _TOPIC_NAME),
    "spec.source.startingOffsets": About("Where to begin in a partition that never had a position."),
    "spec.source.maxOffsetsPerTrigger": About(
        "At most so many records a batch, over all topics. Unless given, 250,000 for each partition under exactly-once, whose transactions "
        "may last a minute, and unlimited under the others."
    ),
    "spec.source.format": About("How the values are read."),
    "spec.source.schema": About("The columns of a json value, as Spark's DDL."),
    "spec.source.onMalformed": About(
        "A record that does not fit the schema stops the pipeline, or is left out and counted."
    ),
    "spec.source.groupId": About(
        "The consumer group whose offsets are the positions. <namespace>.<name> unless given. Cannot be changed."
    ),
    "spec.transform": About("What is done to the records.", (_exactly_one("sql", "python"),)),
    "spec.transform.sql": About(
        "A query over the view source. Columns key, topic and headers are special; see docs/pipelines.md."
    ),
    "spec.transform.python": About("A function DataFrame -> DataFrame of the image."),
    "spec.transform.python.module": About("The module, with dots."),
    "spec.transform.python.function": About("The function's name."),
    "spec.sink": About(
        "Where the result goes.", (_exactly_one("kafka", "postgres", "delta", "iceberg", "files"), *_NOT_BUILT)
    ),
    "spec.sink.kafka": About("Topics of the brokers that are read from."),
    "spec.sink.kafka.topic": About("The topic of records whose column topic is null or absent.", _TOPIC_NAME),
    "spec.sink.kafka.format": About("How the values are written."),
    "spec.sink.kafka.acks": About("Which acknowledgement to wait for, where the guarantee leaves a choice."),
    "spec.sink.kafka.preservePartition": About(
        "Each record goes to the partition with the number of the one it came from."
    ),
    "spec.sink.kafka.bootstrapServers": About("A second cluster: not built yet.", _SERVERS),
    "spec.sink.postgres": About("Not built yet."),
    "spec.sink.delta": About("Not built yet."),
    "spec.sink.iceberg": About("Not built yet."),
    "spec.sink.files": About("Not built yet."),
    "spec.topics": About(
        "The topics that the operator may create and set.",
        (
            Rule(
                # Each name is replaced in once for itself and once for each other: twice would be too dear for a hundred long names.
                "self.all(t, [t.name.replace('.', '_')].all(plain, "
                "self.filter(other, other.name.replace('.', '_') == plain).all(other, other.name == t.name)))",
                "two names differ in . and _ alone, which brokers refuse; choose another name",
            ),
        ),
        {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
    "spec.topics[]": About(
        "",
        (
            Rule(
                "!has(self.config) || !('min.insync.replicas' in self.config) || "
                f"(self.config['min.insync.replicas'].size() < 6 && self.config['min.insync.replicas'].matches({_NUMBER}))",
                'min.insync.replicas must be a whole number from 1 on; remove it, or write "2"',
                at=".config",
            ),
            Rule(
                "!has(self.config) || !('cleanup.policy' in self.config) || "
                r"self.config['cleanup.policy'].matches('^\\s*(delete|compact)\\s*(,\\s*(delete|compact)\\s*)*$')",
                "cleanup.policy must be delete, compact or both; write delete",
                at=".config",
            ),
        ),
    ),
    "spec.topics[].name": About("The topic's name.", _TOPIC_NAME),
    "spec.topics[].partitions": About(
        "How many partitions. They may become more, never fewer.",
        (
            Rule(
                "self >= oldSelf",
                "Kafka cannot take partitions away; write the old number or more, or make the topic anew",
            ),
        ),
    ),
    "spec.topics[].replicationFactor": About("How many replicas. min.insync.replicas + brokerFailures unless given."),
    "spec.topics[].config": About(
        "Settings of the topic, as Kafka names them. min.insync.replicas is brokerFailures + 1 unless given."
    ),
    "spec.topics[].deletionPolicy": About("What becomes of the topic when the pipeline is deleted."),
    "spec.topics[].driftPolicy": About(
        "What is done when the topic is not as declared: repair it, tell of it, or pause the pipeline."
    ),
    "spec.trigger": About(
        "When a batch starts.",
        (
            Rule(
                "!has(self.interval) || !self.availableNow",
                "must have at most one of interval, availableNow, and has interval and availableNow; remove all but one",
            ),
        ),
    ),
    "spec.trigger.interval": About(
        "From the start of one batch to the start of the next: 500ms, 1s, 5m. 1s unless given."
    ),
    "spec.trigger.availableNow": About("A bounded run: delivers what is there, and ends."),
    "spec.checkpoint": About(
        "Where Spark keeps its own notes. A stateless pipeline needs none: its positions are in Kafka.",
        (_exactly_one("volume", "uri"),),
    ),
    "spec.checkpoint.volume": About("A volume of the driver's own.", _VOLUME),
    "spec.checkpoint.volume.size": About("Its size. It may grow, if the class allows it."),
    "spec.checkpoint.volume.storageClassName": About(
        "Its storage class; the cluster's own unless given. Cannot be changed."
    ),
    "spec.checkpoint.uri": About(
        "A directory of the driver: file:///path.",
        (
            Rule(
                "self.startsWith('/') || self.startsWith('file:///') || self.contains(':')",
                "must be an absolute path; write file:///path, or remove it: a stateless pipeline keeps its positions in Kafka",
            ),
            Rule(
                "self.startsWith('/') || self.startsWith('file:///') || !self.contains(':')",
                "checkpoints in remote storage are not built yet; "
                "write file:///path, or remove it: a stateless pipeline keeps its positions in Kafka",
            ),
        ),
    ),
    "spec.spark": About("The job's size and settings."),
    "spec.spark.image": About(
        "The job's image; the one that the operator is set to (the chart's image.spark) unless given."
    ),
    "spec.spark.driver": About("The pod that plans batches."),
    "spec.spark.driver.cores": About("Its cores."),
    "spec.spark.driver.cpuRequest": About("What Kubernetes reserves of them: 500m, 1. All of them unless given."),
    "spec.spark.driver.memory": About("Its heap: 512m, 1g.", _MEMORY),
    "spec.spark.executor": About("The pods that do the work."),
    "spec.spark.executor.instances": About("How many."),
    "spec.spark.executor.cores": About("The cores of each."),
    "spec.spark.executor.cpuRequest": About("What Kubernetes reserves of them: 500m, 1. All of them unless given."),
    "spec.spark.executor.memory": About("The heap of each: 512m, 1g.", _MEMORY),
    "spec.suspend": About("Stops delivering after the running batch; false goes on where it stopped."),
}
