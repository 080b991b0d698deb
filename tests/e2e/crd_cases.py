"""Pipelines and changes that are wrong, and the message that refuses each."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

MINIMAL: dict[str, Any] = {
    "apiVersion": "ackwright.io/v1alpha1",
    "kind": "DeliveryPipeline",
    "metadata": {"name": "p"},
    "spec": {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "k:9092"},
        "source": {"topics": ["in"]},
        "transform": {"sql": "SELECT key, value FROM source"},
        "sink": {"kafka": {"topic": "out"}},
    },
}


def edited(edits: Mapping[str, Any], base: Mapping[str, Any] = MINIMAL) -> dict[str, Any]:
    """A document with fields set, or taken out by None."""
    document = copy.deepcopy(dict(base))
    for path, value in edits.items():
        *parents, last = path.split(".")
        holder = document
        for name in parents:
            holder = holder.setdefault(name, {})
        if value is None:
            del holder[last]
        else:
            holder[last] = value
    return document


def topics(config: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"spec.topics": [{"name": "in", "partitions": 6, "config": dict(config or {}), **more}]}


POSTGRES: dict[str, Any] = {
    "host": "db",
    "database": "shop",
    "credentialsSecret": {"name": "db-login"},
    "table": "orders",
}


_UPDATES = {"spec.state": {"outputMode": "update"}, "spec.checkpoint": {"volume": {"size": "1Gi"}}}


def postgres(**more: Any) -> dict[str, Any]:
    return {"spec.sink": {"postgres": {**POSTGRES, **more}}}


def delta(**more: Any) -> dict[str, Any]:
    return {"spec.sink": {"delta": {"path": "s3://lake/orders", **more}}}


def iceberg(**more: Any) -> dict[str, Any]:
    catalog = {"uri": "https://catalog.example.com", "warehouse": "lake"}
    return {"spec.sink": {"iceberg": {"catalog": catalog, "table": "shop.orders", **more}}}


def files(**more: Any) -> dict[str, Any]:
    return {"spec.sink": {"files": {"path": "s3://lake/orders", **more}}}


_BAD_TOPICS = {
    "..": "must not be '.' or '..', as Kafka requires; choose another topic name",
    "__x": "is a topic of Kafka's own; choose another topic",
    "ackwright-lanes": "is a topic of Ackwright's own; choose another topic",
    "ackwright.x": "is a topic of Ackwright's own; choose another topic",
}

REGISTRY: dict[str, Any] = {"spec.schemaRegistry": {"url": "https://registry"}}
_OF_SOURCE = {
    "spec.source.format": "json",
    "spec.source.schema": "a INT",
    "spec.source.onMalformed": "deadLetter",
}
_LETTERS = {**_OF_SOURCE, "spec.sink.kafka.deadLetter.topic": "bad"}
_AVRO = {**REGISTRY, "spec.source.format": "avro", "spec.sink.kafka.format": "avro"}


# name: the fields that are wrong, where the API server says so, and the words that it and ackwright have in common
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "avro without a registry": (
        {"spec.source.format": "avro"},
        "spec.schemaRegistry",
        "is required by the format avro, jsonSchema or protobuf, whose schemas are there; add schemaRegistry: {url: https://…}",
    ),
    "avro in the sink without a registry": (
        {"spec.sink.kafka.format": "avro"},
        "spec.schemaRegistry",
        "is required by the format avro, jsonSchema or protobuf, whose schemas are there",
    ),
    "dead letters without a topic": (
        _OF_SOURCE,
        "spec.source.onMalformed",
        "needs the deadLetter of the sink, which says where malformed records go",
    ),
    "dead letters of delta without a topic": (
        {**_OF_SOURCE, **delta()},
        "spec.source.onMalformed",
        "needs the deadLetter of the sink, which says where malformed records go",
    ),
    **{
        f"dead letters of {name} in the source": (
            {**_OF_SOURCE, **sink(deadLetter={"topic": "in"})},
            f"spec.sink.{name}.deadLetter.topic",
            "is also a source: each dead letter would be malformed again, forever; choose another topic",
        )
        for name, sink in (("delta", delta), ("iceberg", iceberg), ("files", files))
    },
    **{
        f"dead letters of {name} in a topic that is not compacted": (
            {
                **_OF_SOURCE,
                **sink(deadLetter={"topic": "bad"}),
                "spec.topics": [{"name": "bad", "partitions": 1, "config": {"cleanup.policy": "delete"}}],
            },
            "spec.topics",
            "a repeated batch replaces its dead letters there by their keys; remove it, or write compact",
        )
        for name, sink in (("delta", delta), ("iceberg", iceberg), ("files", files))
    },
    "a topic for dead letters that there are not": (
        {**_LETTERS, "spec.source.onMalformed": "skip"},
        "spec.source.onMalformed",
        "must be deadLetter for a sink with a deadLetter: no record would go there",
    ),
    "dead letters of text": (
        {"spec.source.onMalformed": "deadLetter", "spec.sink.kafka.deadLetter.topic": "bad"},
        "spec.source.onMalformed",
        "is for the formats json, avro, jsonSchema and protobuf, whose records can be malformed",
    ),
    "dead letters in the source": (
        {**_LETTERS, "spec.sink.kafka.deadLetter.topic": "in"},
        "spec.sink.kafka.deadLetter.topic",
        "is also a source: each dead letter would be malformed again, forever; choose another topic",
    ),
    "dead letters in the output": (
        {**_LETTERS, "spec.sink.kafka.deadLetter.topic": "out"},
        "spec.sink.kafka.deadLetter.topic",
        "is also the topic of the output: its readers would get malformed records; choose another topic",
    ),
    "dead letters in the table of the output": (
        postgres(deadLetter={"table": "orders"}),
        "spec.sink.postgres.deadLetter",
        "is also the table of the output: its readers would get malformed records; choose another table",
    ),
    "subject without avro": (
        {"spec.source.subject": "s"},
        "spec.source.subject",
        "only; write format: avro, jsonSchema or protobuf, or remove them",
    ),
    "schema version without avro": (
        {"spec.source.schemaVersion": 1},
        "spec.source.subject",
        "subject and schemaVersion belong to the format avro, jsonSchema or protobuf only",
    ),
    "several topics without a subject": (
        {**_AVRO, "spec.source.topics": ["in", "in2"]},
        "spec.source.subject",
        "several topics with schemas need a subject: all are read with the same schema",
    ),
    "schema of the sink without avro": (
        {"spec.sink.kafka.schema": "{}"},
        "spec.sink.kafka.subject",
        "only; write format: avro, jsonSchema or protobuf, or remove them",
    ),
    "a schema of the sink that is no JSON": (
        {**_AVRO, "spec.sink.kafka.schema": "message A { int32 x = 1; }"},
        "spec.sink.kafka.schema",
        "the schema must be JSON with the format avro or jsonSchema; begin with {, or correct the format",
    ),
    "avro without topic and subject": (
        {**_AVRO, "spec.sink.kafka.topic": None},
        "spec.sink.kafka.subject",
        "a sink with schemas and without a topic needs a subject",
    ),
    "tls without https": (
        {"spec.schemaRegistry": {"url": "http://registry", "tls": {}}},
        "spec.schemaRegistry.tls",
        "tls is for an address that begins with https://; write https:// in url, or remove tls",
    ),
    "name too long": ({"metadata.name": "n" * 53}, "metadata.name", "have at most 52 characters; choose another name"),
    "name with dots": ({"metadata.name": "a.b"}, "metadata.name", "have at most 52 characters; choose another name"),
    "no port": (
        {"spec.kafka.bootstrapServers": "k"},
        "spec.kafka.bootstrapServers",
        "must be host:port, several separated by commas",
    ),
    "large port": (
        {"spec.kafka.bootstrapServers": "k:1,k:65536"},
        "spec.kafka.bootstrapServers",
        "must be host:port, several",
    ),
    "too many addresses": (
        {"spec.kafka.bootstrapServers": ",".join(["k:9092"] * 17)},
        "spec.kafka.bootstrapServers",
        "must have at most 16 addresses",
    ),
    "second cluster's port": (
        {"spec.sink.kafka.bootstrapServers": "k:0"},
        "spec.sink.kafka.bootstrapServers",
        "must be host:port",
    ),
    "a login of a second cluster that is not named": (
        {"spec.sink.kafka.tls": {}},
        "spec.sink.kafka.bootstrapServers",
        "auth and tls are of a cluster of the sink's own, which bootstrapServers names",
    ),
    "a topic whose name is too long for a second cluster": (
        {"spec.source.topics": ["x" * 217], "spec.sink.kafka.bootstrapServers": "other:9092"},
        "spec.source.topics",
        "must have at most 216 characters if the sink has its own cluster",
    ),
    "json without schema": (
        {"spec.source.format": "json"},
        "spec.source.schema",
        'the format json needs a schema; add for instance schema: "name STRING, age INT"',
    ),
    "schema without json": (
        {"spec.source.schema": "a INT"},
        "spec.source.schema",
        "a schema belongs to the format json only; write format: json, or remove the schema",
    ),
    "no transform": ({"spec.transform": {}}, "spec.transform", "must have exactly one of sql, python"),
    "two transforms": (
        {"spec.transform.python": {"module": "m", "function": "f"}},
        "spec.transform",
        "must have exactly one of sql, python",
    ),
    "no sink": ({"spec.sink": {}}, "spec.sink", "must have exactly one of kafka, postgres, delta, iceberg, files"),
    "two sinks": (
        {"spec.sink.delta": {"path": "/x"}},
        "spec.sink",
        "must have exactly one of kafka, postgres, delta, iceberg, files",
    ),
    **{
        f"postgres: {message}": (postgres(**sink), f"spec.sink.postgres.{field}", message)
        for field, message, sink in (
            ("key", "mode upsert needs a key", {"mode": "upsert"}),
            ("key", "mode append has none", {"key": ["id"]}),
            ("key[0]", "must have at most 63 bytes in UTF-8", {"mode": "upsert", "key": ["ü" * 32]}),
            ("mode", "versionColumn and deletedColumn belong to mode upsert", {"versionColumn": "v"}),
            (
                "deletedColumn",
                "must have at most one of versionColumn, deletedColumn",
                {"mode": "upsert", "key": ["id"], "versionColumn": "v", "deletedColumn": "d"},
            ),
            (
                "key",
                "must name each column once: neither versionColumn nor deletedColumn is part of the key",
                {"mode": "upsert", "key": ["id"], "versionColumn": "id"},
            ),
        )
    },
    "files: a path that is no bucket": (
        files(path="/lake/orders", s3={}),
        "spec.sink.files.s3",
        "s3 belongs to a path that begins with s3://",
    ),
    "files: a topic that readers ignore": (
        {**files(), "spec.source.topics": ["_in"]},
        "spec.source.topics",
        "names the directory of its files, and readers of Parquet ignore names that begin with '_' or '.'",
    ),
    **{
        f"delta: {message}": (delta(**sink), f"spec.sink.delta.{field}", message)
        for field, message, sink in (
            ("s3", "s3 belongs to a path that begins with s3://", {"path": "/lake/orders", "s3": {}}),
            ("partitionColumns", "must name each column once", {"partitionColumns": ["day", "day"]}),
        )
    },
    **{
        f"iceberg: {message}": (iceberg(**sink), f"spec.sink.iceberg.{field}", message)
        for field, message, sink in (
            (
                "catalog.warehouse",
                "a catalog in a file needs a warehouse that is an absolute directory or s3://bucket/prefix",
                {"catalog": {"uri": "sqlite:////data/catalog.db", "warehouse": "lake"}},
            ),
            (
                "catalog.uri",
                "a catalog in a file has no credentialsSecret, tokenSecret, tokenUri, scope, sigv4 and tls",
                {"catalog": {"uri": "sqlite:////data/catalog.db", "warehouse": "/data", "scope": "any"}},
            ),
            (
                "catalog.tokenSecret",
                "tokenSecret has the token, so credentialsSecret, tokenUri, scope and sigv4 mean nothing",
                {"catalog": {"uri": "https://catalog.example.com", "tokenSecret": {"name": "token"}, "scope": "any"}},
            ),
            (
                "catalog.sigv4",
                "requests with sigv4 have no token of OAuth 2, so tokenUri and scope mean nothing",
                {
                    "catalog": {
                        "uri": "https://catalog.example.com",
                        "sigv4": {"service": "glue", "region": "eu-central-1"},
                        "scope": "any",
                    }
                },
            ),
            (
                "catalog.tls",
                "tls is for an address that begins with https://",
                {"catalog": {"uri": "http://catalog.example.com", "tls": {}}},
            ),
            ("partitionColumns", "must name each column once", {"partitionColumns": ["day", "day"]}),
        )
    },
    "postgres: updates of state that are appended": (
        {**_UPDATES, **postgres()},
        "spec.sink.postgres.mode",
        "must be upsert with state.outputMode update",
    ),
    "postgres: updates of state with a version": (
        {**_UPDATES, **postgres(mode="upsert", key=["id"], versionColumn="v")},
        "spec.sink.postgres.versionColumn",
        "cannot be set with state.outputMode update",
    ),
    "postgres: an upsert without a version": (
        {"spec.guarantee": "at-least-once", **postgres(mode="upsert", key=["id"])},
        "spec.sink.postgres.versionColumn",
        "must be set for mode upsert unless the guarantee is exactly-once",
    ),
    "two triggers": (
        {"spec.trigger": {"interval": "1s", "availableNow": True}},
        "spec.trigger",
        "must have at most one of interval, availableNow, and has interval and availableNow; remove all but one",
    ),
    "no checkpoint": ({"spec.checkpoint": {}}, "spec.checkpoint", "must have exactly one of volume, uri"),
    "two checkpoints": (
        {"spec.checkpoint": {"uri": "/x", "volume": {"size": "1Gi"}}},
        "spec.checkpoint",
        "must have exactly one of volume, uri",
    ),
    "remote checkpoint": (
        {"spec.checkpoint": {"uri": "gs://x/y"}},
        "spec.checkpoint.uri",
        "is built for directories, and for buckets of s3a://; write s3a://bucket/prefix for the state of a stateful "
        "pipeline, or file:///path",
    ),
    "a bucket of a stateless pipeline": (
        {"spec.checkpoint": {"uri": "s3a://lake/x"}},
        "spec.checkpoint.uri",
        "is for the state of stateful pipelines; write file:///path, or remove it: a stateless pipeline commits its "
        "offsets to Kafka",
    ),
    "a bucket without a prefix": (
        {**_UPDATES, "spec.checkpoint": {"uri": "s3a://lake"}},
        "spec.checkpoint.uri",
        "must be s3a://bucket/prefix, of letters, digits and . _ = + -",
    ),
    "s3 without a bucket": (
        {"spec.checkpoint": {"uri": "/x", "s3": {"region": "eu-central-1"}}},
        "spec.checkpoint.s3",
        "s3 belongs to a uri that begins with s3a://; write uri: s3a://bucket/prefix, or remove s3",
    ),
    "a standby with state": (
        {**_UPDATES, "spec.checkpoint": {"uri": "s3a://lake/x"}, "spec.standby": True},
        "spec.standby",
        "is not built for stateful pipelines; remove standby",
    ),
    "fewer executors at most than at least": (
        {"spec.spark": {"executor": {"instances": 3, "autoscaling": {"maxInstances": 2}}}},
        "spec.spark.executor.autoscaling",
        "autoscaling.maxInstances is below instances, which is the smallest number; raise autoscaling.maxInstances, "
        "or lower instances",
    ),
    "a lag that is delivered at once": (
        {"spec.spark": {"executor": {"autoscaling": {"maxInstances": 2, "drainTarget": "0s"}}}},
        "spec.spark.executor.autoscaling.drainTarget",
        "must be above zero; write for instance 5m",
    ),
    "standby of a bounded run": (
        {"spec.standby": True, "spec.trigger": {"availableNow": True}},
        "spec.standby",
        "a bounded run has no standby; remove standby, or trigger.availableNow",
    ),
    "standby with a volume": (
        {"spec.standby": True, "spec.checkpoint": {"volume": {"size": "1Gi"}}},
        "spec.standby",
        "the drivers run on two nodes, and only one node at a time can mount the checkpoint's volume; remove standby, "
        "or checkpoint.volume, which a stateless pipeline does not need",
    ),
    "standby with a table": (
        {"spec.standby": True, **postgres()},
        "spec.standby",
        "drivers find each other by a topic of the source's cluster, which only sink.kafka uses; remove standby, or "
        "choose sink.kafka",
    ),
    "relative checkpoint": (
        {"spec.checkpoint": {"uri": "x"}},
        "spec.checkpoint.uri",
        "must be an absolute path; write file:///path",
    ),
    "too few in sync": (topics({"min.insync.replicas": "1"}), "spec.topics", "breaks min.insync.replicas ≥ f+1"),
    "too few in sync for two": (
        {"spec.tolerate.brokerFailures": 2, **topics({"min.insync.replicas": "2"})},
        "spec.topics",
        "breaks min.insync.replicas ≥ f+1",
    ),
    "in sync: no number": (
        topics({"min.insync.replicas": "two"}),
        "spec.topics[0].config",
        "must be a positive whole number; remove it",
    ),
    "in sync: none": (
        topics({"min.insync.replicas": "0"}),
        "spec.topics[0].config",
        "must be a positive whole number; remove it",
    ),
    "too few replicas": (
        topics(replicationFactor=2),
        "spec.topics",
        "breaks replication.factor ≥ min.insync.replicas + f",
    ),
    "too few replicas for three in sync": (
        topics({"min.insync.replicas": "3"}, replicationFactor=3),
        "spec.topics",
        "breaks replication.factor ≥ min.insync.replicas + f",
    ),
    "too many replicas": (
        {"spec.tolerate.brokerFailures": 16_383, **topics({"min.insync.replicas": "20000"})},
        "spec.topics",
        "32767",
    ),
    "unclean leader": (
        topics({"unclean.leader.election.enable": "True"}),
        "spec.topics",
        "an unclean leader lacks acknowledged records; remove it, or declare tolerate: {brokerFailures: 0}",
    ),
    "clean-up": (
        topics({"cleanup.policy": "none"}),
        "spec.topics[0].config",
        "must be delete, compact or both; write delete",
    ),
    "acks of exactly-once": (
        {"spec.sink.kafka.acks": "1"},
        "spec.sink.kafka.acks",
        "contradicts guarantee: exactly-once, which allows all: "
        "a transaction needs the acknowledgement of every replica in sync",
    ),
    "acks of at-least-once": (
        {"spec.sink.kafka.acks": "0", "spec.guarantee": "at-least-once"},
        "spec.sink.kafka.acks",
        "contradicts guarantee: at-least-once, which allows 1 or all: "
        "a record that no broker acknowledges may be lost; remove it",
    ),
    "a loop": (
        {"spec.sink.kafka.topic": "in"},
        "spec.sink.kafka.topic",
        "is also a source: the pipeline would read its own output forever; choose another topic",
    ),
    "fewer partitions": (
        {
            "spec.sink.kafka.preservePartition": True,
            "spec.topics": [{"name": "in", "partitions": 6}, {"name": "out", "partitions": 3}],
        },
        "spec.sink.kafka.preservePartition",
        "needs partitions of ",
    ),
    "spark.conf": (
        {"spec.spark.conf": {"spark.kubernetes.namespace": "x"}},
        "spec.spark.conf",
        "is not among the Spark settings that a pipeline may set; remove it; "
        "the operator sets what the guarantee needs",
    ),
    **{
        f"little memory of the {pod}": (
            {f"spec.spark.{pod}": {"memory": "511m"}},
            f"spec.spark.{pod}.memory",
            "must be at least 512m, or Spark refuses to start; write 512m or more",
        )
        for pod in ("driver", "executor")
    },
    **{
        f"{field} = {name}": ({place: value}, field, expected)
        for name, expected in _BAD_TOPICS.items()
        for place, field, value in (
            ("spec.source.topics", "spec.source.topics[0]", [name]),
            ("spec.sink.kafka.topic", "spec.sink.kafka.topic", name),
            ("spec.sink.kafka.deadLetter.topic", "spec.sink.kafka.deadLetter.topic", name),
            ("spec.topics", "spec.topics[0].name", [{"name": name, "partitions": 1}]),
        )
    },
    "colliding names": (
        {"spec.topics": [{"name": "a.b", "partitions": 1}, {"name": "a_b", "partitions": 1}]},
        "spec.topics",
        "in . and _ alone, which brokers refuse; choose another name",
    ),
}

_EVENTS = "spec.spark.eventLog.directory"
_MOUNT = {"name": "events", "mountPath": "/mnt/events"}
_OUTSIDE_MOUNTS = "must be below a writable volumeMount of the driver"


def _event_log(directory: str, **mount: Any) -> dict[str, Any]:
    template = {"volumes": [{"name": "events", "emptyDir": {}}], "volumeMounts": [{**_MOUNT, **mount}]}
    return {_EVENTS: directory, "spec.spark.driver.podTemplate": template}


WRONG |= {
    "an event log in the container": ({_EVENTS: "file:///mnt/events"}, _EVENTS, _OUTSIDE_MOUNTS),
    "an event log beside the mount": (_event_log("file:///mnt/events2"), _EVENTS, _OUTSIDE_MOUNTS),
    "an event log on a read-only mount": (_event_log("file:///mnt/events", readOnly=True), _EVENTS, _OUTSIDE_MOUNTS),
}
WRONG["a time to live of a stream"] = (
    {"spec.trigger.ttlSecondsAfterFinished": 60},
    "spec.trigger.ttlSecondsAfterFinished",
    "belongs to a bounded run: a stream does not complete; write availableNow: true, or remove it",
)
WRONG |= {
    "a schedule of a stream": (
        {"spec.trigger": {"schedule": "0 3 * * *"}},
        "spec.trigger.schedule",
        "belongs to bounded runs: a stream always runs; write availableNow: true, or remove it",
    ),
    "a time zone without a schedule": (
        {"spec.trigger": {"availableNow": True, "timeZone": "UTC"}},
        "spec.trigger.timeZone",
        "belongs to a schedule; write schedule, or remove it",
    ),
    "a rollback of a schedule": (
        {"spec.trigger": {"availableNow": True, "schedule": "0 3 * * *"}, "spec.rollback": {"after": "5m"}},
        "spec.rollback",
        "cannot be set with trigger.schedule: an edit has effect with the next run only; remove rollback, "
        "or trigger.schedule",
    ),
}
_TEMPLATE = "spec.spark.executor.podTemplate"
# name: the template, the field that is refused, and the message
_WRONG_PODS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a variable of Spark": ({"env": [{"name": "SPARK_CONF_DIR"}]}, "env[0].name", "on which the guarantee rests"),
    "a prefix of variables of Java": (
        {"envFrom": [{"prefix": "JAVA_", "secretRef": {"name": "x"}}]},
        "envFrom[0].prefix",
        "begins variables of the job's own",
    ),
    "a beginning of variables of Kubernetes": (
        {"envFrom": [{"prefix": "KUBERNETES_SERVICE_", "secretRef": {"name": "x"}}]},
        "envFrom[0].prefix",
        "begins variables of the job's own",
    ),
    "a label of the operator": ({"labels": {"ackwright.io/role": "x"}}, "labels", "which select and secure pods"),
    "an annotation of Kubernetes": (
        {"annotations": {"container.apparmor.security.beta.kubernetes.io/driver": "unconfined"}},
        "annotations",
        "which select and secure pods",
    ),
    "the operator's volume": (
        {"volumes": [{"name": "tmp", "emptyDir": {}}]},
        "volumes[0].name",
        "is the name of a volume",
    ),
    "a volume of no kind": ({"volumes": [{"name": "v"}]}, "volumes[0]", "must have exactly one of configMap"),
    "a mount over the job": (
        {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "volumeMounts": [{"name": "v", "mountPath": "/opt/ackwright/lib"}],
        },
        "volumeMounts[0].mountPath",
        "must be below /data, /mnt, /opt, /srv, and not /opt/ackwright",
    ),
    "a mount of no volume": (
        {"volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}]},
        "volumeMounts",
        "must be the name of a volume of this template",
    ),
    "a sidecar's mount of no volume": (
        {"sidecars": [{"name": "s", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
        "sidecars",
        "must be the name of a volume of this template",
    ),
    "a sidecar at the driver's port": (
        {"sidecars": [{"name": "s", "image": "x", "ports": [{"containerPort": 8090}]}]},
        "sidecars[0].ports[0].containerPort",
        "on which the driver reports its progress",
    ),
    "a class of Kubernetes": ({"priorityClassName": "system-node-critical"}, "priorityClassName", "Kubernetes' own"),
    "a toleration of lost nodes": (
        {"tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]},
        "tolerations[0].key",
        "which the operator tolerates for NODE_LOST seconds",
    ),
    "no values": (
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]
                    }
                }
            }
        },
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
        ".values",
        "needs values with In and NotIn",
    ),
    "a limit of memory": ({"resources": {"limits": {"memory": "1Gi"}}}, "resources.limits", "set the memory by"),
}
WRONG |= {
    f"pods: {name}": ({_TEMPLATE: template}, f"{_TEMPLATE}.{field}", message)
    for name, (template, field, message) in _WRONG_PODS.items()
}

# Refused by the schema: the message is the API server's.
MISSHAPEN: dict[str, tuple[dict[str, Any], str]] = {
    "guarantee": (
        {"spec.guarantee": "exactly_once"},
        'spec.guarantee: Unsupported value: "exactly_once": supported values: "at-most-once"',
    ),
    "address of a registry": (
        {"spec.schemaRegistry": {"url": "registry:8081"}},
        "spec.schemaRegistry.url: Invalid value",
    ),
    **{
        f"an event log at {directory}": ({_EVENTS: directory}, f"{_EVENTS} in body should")
        for directory in ("/mnt/events", "file:///mnt/../etc", "s3://logs/spark", "s3a://KEY:SECRET@logs", "hdfs://nn/")
    },
    "missing": ({"spec.kafka": None}, "spec.kafka: Required value"),
    "relative path of a table": (
        {"spec.sink": {"delta": {"path": "lake/orders"}}},
        "spec.sink.delta.path in body should",
    ),
    "table without a namespace": (iceberg(table="orders"), "spec.sink.iceberg.table in body should"),
    "number as text": ({"spec.tolerate.brokerFailures": "1"}, "must be of type integer"),
    "text as number": ({"spec.sink.kafka.acks": 1}, "must be of type string"),
    "negative": ({"spec.tolerate.brokerFailures": -1}, "greater than or equal to 0"),
    "topic name": ({"spec.source.topics": ["x y"]}, "spec.source.topics[0]: Invalid value"),
    "no topics": ({"spec.source.topics": []}, "should have at least 1 items"),
    "topic twice": ({"spec.source.topics": ["a", "a"]}, "spec.source.topics[1]: Duplicate value"),
    "managed topic twice": (
        {"spec.topics": [{"name": "a", "partitions": n} for n in (1, 2)]},
        "spec.topics[1]: Duplicate value",
    ),
    "too many topics": ({"spec.source.topics": [f"t{i}" for i in range(101)]}, "must have at most 100 items"),
    "too long": ({"spec.transform.sql": "x" * 70_000}, "spec.transform.sql: Too long"),
    "blank": ({"spec.transform.sql": "  "}, "spec.transform.sql: Invalid value"),
    "interval": ({"spec.trigger": {"interval": "1 s"}}, "spec.trigger.interval: Invalid value"),
    "memory": ({"spec.spark.executor": {"memory": "1Gi"}}, "spec.spark.executor.memory: Invalid value"),
    "a directory of the node": (
        {_TEMPLATE: {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}},
        f'unknown field "{_TEMPLATE}.volumes[0].hostPath"',
    ),
    "a privileged sidecar": (
        {_TEMPLATE: {"sidecars": [{"name": "s", "image": "x", "securityContext": {"privileged": True}}]}},
        f'unknown field "{_TEMPLATE}.sidecars[0].securityContext.privileged"',
    ),
    "root": ({_TEMPLATE: {"securityContext": {"fsGroup": 0}}}, "greater than or equal to 1"),
    "the host's network": ({_TEMPLATE: {"hostNetwork": True}}, f'unknown field "{_TEMPLATE}.hostNetwork"'),
    "a variable twice": ({_TEMPLATE: {"env": [{"name": "A"}, {"name": "A"}]}}, f"{_TEMPLATE}.env[1]: Duplicate value"),
    "unknown field": ({"spec.source.minPartitions": 8}, 'unknown field "spec.source.minPartitions"'),
}


# name: before, the edit, and the message that refuses it (None: it is accepted)
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "guarantee": ({}, {"spec.guarantee": "at-least-once"}, None),
    "an event log in S3": ({}, {_EVENTS: "s3a://logs/spark"}, None),
    "an event log on a volume": ({}, _event_log("file:///mnt/events/flights"), None),
    "more partitions": (topics(), {"spec.topics": [{"name": "in", "partitions": 7}]}, None),
    "fewer partitions": (
        topics(),
        {"spec.topics": [{"name": "in", "partitions": 5}]},
        "Kafka cannot take partitions away",
    ),
    "fewer partitions of another": (
        {"spec.topics": [{"name": "a", "partitions": 2}, {"name": "b", "partitions": 4}]},
        {"spec.topics": [{"name": "b", "partitions": 4}, {"name": "a", "partitions": 1}]},
        "spec.topics[1].partitions: Invalid value",
    ),
    "another order": (
        {"spec.topics": [{"name": "a", "partitions": 2}, {"name": "b", "partitions": 4}]},
        {"spec.topics": [{"name": "b", "partitions": 4}, {"name": "a", "partitions": 2}]},
        None,
    ),
    "another topic": (topics(), {"spec.topics": [{"name": "out", "partitions": 1}]}, None),
    "a group of another name": ({}, {"spec.source.groupId": "g"}, "spec.source.groupId: Invalid value"),
    "another group": (
        {"spec.source.groupId": "g"},
        {"spec.source.groupId": "h"},
        "the committed offsets belong to the group",
    ),
    "no group": (
        {"spec.source.groupId": "g"},
        {"spec.source.groupId": None},
        "the committed offsets belong to the group",
    ),
    "the same group": ({"spec.source.groupId": "g"}, {"spec.suspend": True}, None),
    "a larger volume": (
        {"spec.checkpoint": {"volume": {"size": "1Gi"}}},
        {"spec.checkpoint.volume.size": "2048Mi"},
        None,
    ),
    "a smaller volume": (
        {"spec.checkpoint": {"volume": {"size": "1Gi"}}},
        {"spec.checkpoint.volume.size": "1023Mi"},
        "cannot shrink",
    ),
    "another class": (
        {"spec.checkpoint": {"volume": {"size": "1Gi"}}},
        {"spec.checkpoint.volume.storageClassName": "fast"},
        "a volume cannot change its class",
    ),
    "to another cluster": (
        {},
        {"spec.sink.kafka.bootstrapServers": "other:9092"},
        "the committed offsets are on the sink's cluster, and another one has none",
    ),
    "from another cluster": (
        {"spec.sink.kafka.bootstrapServers": "other:9092"},
        {"spec.sink.kafka.bootstrapServers": None},
        "the committed offsets are on the sink's cluster, and another one has none",
    ),
    "another address of the sink's cluster": (
        {"spec.sink.kafka.bootstrapServers": "other:9092"},
        {"spec.sink.kafka.bootstrapServers": "third:9092"},
        None,
    ),
    "to postgres": ({}, postgres(), "the positions are in the database, and another sink has none"),
    "from postgres": (
        postgres(),
        {"spec.sink": {"kafka": {"topic": "out"}}},
        "the positions are in the database, and another sink has none",
    ),
    "another table": (
        postgres(),
        postgres(table="other"),
        "the positions say that the rows before them are in the table, and another one lacks these",
    ),
    "another schema": (
        postgres(),
        postgres(schema="other"),
        "the positions say that the rows before them are in the table, and another one lacks these",
    ),
    "another database": (
        postgres(),
        postgres(database="other"),
        "the positions are in the database, and another one has none",
    ),
    "another address of the database": (postgres(), postgres(host="other.example.com", port=5433), None),
    "to delta": ({}, delta(), "the positions are in the table, and another sink has none"),
    "another path": (
        delta(),
        delta(path="s3://lake/other"),
        "the positions are in the table, and another one has none",
    ),
    "to iceberg": ({}, iceberg(), "the positions are in the table, and another sink has none"),
    "another Iceberg table": (
        iceberg(),
        iceberg(table="shop.other"),
        "the positions are in the table, and another one has none",
    ),
    "another warehouse": (
        iceberg(),
        iceberg(catalog={"uri": "https://catalog.example.com"}),
        "the positions are in the table, and that of another warehouse has none",
    ),
    "another address of the catalog": (
        iceberg(),
        iceberg(catalog={"uri": "https://other.example.com", "warehouse": "lake"}),
        None,
    ),
    "to files": ({}, files(), "the files are the positions, and another sink has none"),
    "another place of files": (
        files(),
        files(path="s3://lake/other"),
        "the files are the positions, and another path has none",
    ),
    "another endpoint": (delta(), delta(s3={"endpoint": "https://minio:9000"}), None),
    "no checkpoint any more": ({"spec.checkpoint": {"volume": {"size": "1Gi"}}}, {"spec.checkpoint": None}, None),
}
