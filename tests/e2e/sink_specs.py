"""Pipelines of the cluster's tests into each sink, as parts of spec, with what is sent and what has to arrive. Pure.

Record n of the source has the key `k<n % 60>` and is in partition n % 3.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

PARTITIONS = 3
AT_ONCE = 300  # offsets of a micro-batch
Spec = dict[str, Any]
Rows = Counter[tuple[int, str]]  # n and item
# The partition and offset of malformed records, their keys and values.
Letters = Counter[tuple[int, int, bytes | None, bytes | None]]
AVRO: Spec = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "n", "type": "long"}, {"name": "item", "type": "string"}],
}
# The memory is the default, which must be enough for the client of every sink.
_SPARK = {"driver": {"cpuRequest": "200m"}, "executor": {"instances": 1, "cores": 2, "cpuRequest": "200m"}}
_SQL = "SELECT n, upper(item) AS item FROM source WHERE n % 5 <> 0"
_KEYED_SQL = _SQL.replace("SELECT", "SELECT kafka.key AS key,")


@dataclass(frozen=True)
class Bucket:
    """A bucket of S3 and a Secret with a login."""

    endpoint: str
    name: str
    secret: str

    @property
    def s3(self) -> Spec:
        """The field s3 of a sink."""
        return {"endpoint": self.endpoint, "region": "us-east-1", "credentialsSecret": {"name": self.secret}}


def key(n: int) -> bytes:
    return b"k%d" % (n % 60)


def record(n: int) -> dict[str, Any]:
    return {"n": n, "item": f"item {n}"}


def json_value(n: int) -> bytes:
    return json.dumps(record(n)).encode()


def is_malformed(n: int) -> bool:
    """Whether record n is malformed in a pipeline with dead letters."""
    return n % 10 == 3


def malformed_value(n: int) -> bytes:
    return b"oops %d \xfe" % n


def expected_rows(sent: int, *, malformed: bool = False) -> Rows:
    """The output of so many records. malformed: whether some are."""
    return Counter((n, f"ITEM {n}") for n in range(sent) if n % 5 and not (malformed and is_malformed(n)))


def expected_letters(sent: int) -> Letters:
    """The dead letters of so many records."""
    return Counter(
        (n % PARTITIONS, n // PARTITIONS, key(n), malformed_value(n)) for n in range(sent) if is_malformed(n)
    )


def to_delta(name: str, bucket: Bucket) -> Spec:
    sink = {"path": f"s3://{bucket.name}/delta-{name}", "createTable": True, "s3": bucket.s3}
    return _spec(name, {"delta": sink})


def to_iceberg(name: str, bucket: Bucket, uri: str, table: str) -> Spec:
    """uri: of a REST catalog without a login."""
    sink = {"catalog": {"uri": uri}, "table": table, "createTable": True, "s3": bucket.s3}
    return _spec(name, {"iceberg": sink})


def to_files(name: str, bucket: Bucket) -> Spec:
    return _spec(name, {"files": {"path": f"s3://{bucket.name}/files-{name}", "s3": bucket.s3}})


def to_postgres(name: str, sink: Spec) -> Spec:
    """With dead letters in the table `letters`. sink: the fields of sink.postgres that say where it is."""
    letters = {"table": "letters", "maxFraction": 0.5}
    return _spec(
        name,
        {"postgres": {**sink, "createTable": True, "deadLetter": letters}},
        source={**_source(name), "onMalformed": "deadLetter"},
    )


def from_avro_to_avro(name: str, registry: str) -> Spec:
    """With dead letters in the topic `<name>-letters`. registry: its address."""
    letters = {"topic": f"{name}-letters", "maxFraction": 0.5}
    sink = {"topic": f"{name}-out", "format": "avro", "preservePartition": True, "deadLetter": letters}
    source = {
        "topics": [f"{name}-in"],
        "format": "avro",
        "schemaVersion": 1,
        "onMalformed": "deadLetter",
        "maxOffsetsPerTrigger": AT_ONCE,
    }
    return _spec(
        name,
        {"kafka": sink},
        f"{name}-out",
        f"{name}-letters",
        source=source,
        transform={"sql": _KEYED_SQL},
        schemaRegistry={"url": registry},
    )


def to_another_cluster(name: str, servers: str, login: str, ca: str) -> Spec:
    """To one broker with TLS and SCRAM. login, ca: names of Secrets."""
    sink = {
        "bootstrapServers": servers,
        "auth": {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": login}},
        "tls": {"caSecret": {"name": ca}},
        "topic": f"{name}-out",
        "format": "json",
        "preservePartition": True,
    }
    return _spec(name, {"kafka": sink}, f"{name}-out", transform={"sql": _KEYED_SQL}, tolerate={"brokerFailures": 0})


def _source(name: str) -> Spec:
    return {
        "topics": [f"{name}-in"],
        "format": "json",
        "schema": "n BIGINT, item STRING",
        "maxOffsetsPerTrigger": AT_ONCE,
    }


def _spec(name: str, sink: Spec, *topics: str, **parts: Spec) -> Spec:
    """topics: besides that of the source. parts: of spec, which are added or replaced."""
    return {
        "source": _source(name),
        "transform": {"sql": _SQL},
        "sink": sink,
        "topics": [{"name": topic, "partitions": PARTITIONS} for topic in (f"{name}-in", *topics)],
        "trigger": {"interval": "2s"},
        "spark": _SPARK,
        **parts,
    }


def each(name: str) -> dict[str, Spec]:
    """A spec for each sink, with addresses at which nothing is."""
    bucket = Bucket("http://198.18.0.1:1", "lake", "lake-login")
    database = {
        "host": "198.18.0.1",
        "database": "d",
        "table": "rows",
        "credentialsSecret": {"name": "db-login"},
        "tls": {"caSecret": {"name": "db-ca"}},
    }
    return {
        "delta": to_delta(name, bucket),
        "iceberg": to_iceberg(name, bucket, "http://198.18.0.1:1", "shop.rows"),
        "files": to_files(name, bucket),
        "postgres": to_postgres(name, database),
        "avro": from_avro_to_avro(name, "http://198.18.0.1:1/apis/ccompat/v7"),
        "another-cluster": to_another_cluster(name, "198.18.0.1:1", "second-login", "second-ca"),
    }
