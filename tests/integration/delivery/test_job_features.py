"""Features of a job with real records: formats, routing, added partitions, restarts.

Each start of a job covers as many features as possible, because a start takes ten seconds.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from prometheus_client.parser import text_string_to_metric_families

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import JobSpec
from integration.support.pipelines import (
    Running,
    assert_nothing_hangs,
    create_topics,
    document,
    feed,
    job_of,
    judge,
    positions_of,
    read,
    running,
)
from integration.support.produce import produce
from waiting import ANSWER, WAIT, wait_until

GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")
BOUNDED = {"availableNow": True}


@pytest.fixture
def name() -> str:
    return f"job-{uuid.uuid4().hex[:8]}"


def module(directory: Path, text: str) -> dict[str, str]:
    """Writes a user's module `features`; returns the environment in which Python imports it."""
    (directory / "features.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])}


def ends(job: Running) -> int:
    """Waits for the end of the job; returns its exit code."""
    return job.job.wait(WAIT)


# ------------------------------------------------ one job, most features

TRANSFORM = """
from pyspark.sql import functions as F

def transform(df):
    value = F.when(F.col("kafka.value").isNotNull(), F.struct("n", (F.col("n") * 2).alias("twice")))
    rows = df.where("n IS NULL OR n >= 0")
    return rows.select(F.col("kafka.key").alias("key"), value.alias("value"), F.col("route").alias("topic"),
                       F.col("kafka.headers").alias("headers"))
"""
HEADERS: list[tuple[str, str | bytes | None]] = [("h", b"\xff"), ("h", None), ("e", b"")]


def write_all_kinds(servers: str, topic: str, side: str, partition: int) -> None:
    """Six records, written by a transaction after one that was aborted."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-{partition}"})
    producer.init_transactions(ANSWER)
    producer.begin_transaction()
    producer.produce(topic, b'{"n": 99}', b"aborted", partition=partition)
    producer.flush(ANSWER)
    producer.abort_transaction(ANSWER)
    producer.begin_transaction()
    producer.produce(topic, b'{"n": 1}', None, partition=partition, headers=HEADERS)
    producer.produce(topic, None, b"tombstone", partition=partition)
    producer.produce(topic, b'{"n": oops', b"malformed", partition=partition)
    producer.produce(topic, b'{"n": -1}', b"filtered", partition=partition)
    producer.produce(topic, json.dumps({"n": 2, "route": side}).encode(), b"routed", partition=partition)
    producer.produce(topic, b'{"n": 3}', b"passed", partition=partition)
    producer.commit_transaction(ANSWER)


def expected(sink: str, side: str, partitions: Sequence[int]) -> Counter[Any]:
    """The output of those records of each partition, as (topic, partition, key, value, headers)."""
    each: list[tuple[str, bytes | None, Any, tuple[Any, ...]]] = [
        (sink, None, '{"n":1,"twice":2}', tuple(HEADERS)),
        (sink, b"tombstone", None, ()),
        (side, b"routed", '{"n":2,"twice":4}', ()),
        (sink, b"passed", '{"n":3,"twice":6}', ()),
    ]
    return Counter((t, p, k, v and v.encode(), h) for p in partitions for t, k, v, h in each)


@pytest.mark.parametrize(("guarantee", "preserve"), [*((g, True) for g in GUARANTEES), ("at-least-once", False)])
def test_records_of_all_kinds(
    kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path, name: str, *, guarantee: str, preserve: bool
) -> None:
    """Python transform, JSON in and out, keys, headers, nulls, routing, malformed records, new partitions, a drain."""
    servers, source, sink, side = kafka.bootstrap_servers, f"{name}-in", f"{name}-out", f"{name}-side"
    create_topics(servers, source, partitions=2)
    create_topics(servers, sink, side, partitions=3)
    for partition in (0, 1):
        write_all_kinds(servers, source, side, partition)
    described = document(servers, name, guarantee, source, sink)
    described["spec"] |= {
        "source": {"topics": [source], "format": "json", "schema": "n BIGINT, route STRING", "onMalformed": "skip"},
        "transform": {"python": {"module": "features", "function": "transform"}},
        "sink": {"kafka": {"topic": sink, "format": "json", "preservePartition": preserve}},
    }
    spec = job_of(described, tmp_path)

    def delivered() -> Counter[Any]:
        return Counter(
            (r.topic, r.partition if preserve else 0, r.key, r.value, r.headers) for r in read(servers, sink, side)
        )

    with running(spec, tmp_path, module(tmp_path, TRANSFORM)) as job:
        now = job.until(
            lambda p: p["malformedRecords"] == 2 and p["records"] == 8 and p["lag"] == 0,
            "two lanes delivered and counted",
        )
        assert now["positions"] == {source: {"0": 9, "1": 9}}  # seven records and two markers
        assert (now["state"], now["abandonedRecords"], now["restarts"], now["lastError"]) == ("running", 0, 0, None)
        wait_until(lambda: delivered() == expected(sink, side, [0, 1] if preserve else [0, 0]), "what two lanes give")

        admin.create_partitions([NewPartitions(source, 3)])[source].result(ANSWER)
        wait_until(
            lambda: len(admin.list_topics(source, timeout=ANSWER).topics[source].partitions) == 3,
            "three partitions",
        )
        write_all_kinds(servers, source, side, 2)
        job.until(
            lambda p: p["positions"][source].get("2") == 9 and p["records"] == 12, "the new partition, read whole"
        )
        assert job.job.address
        same_as_prometheus(job.job.address, job.progress())
        job.job.drain()
        assert ends(job) == 0
    assert delivered() == expected(sink, side, [0, 1, 2] if preserve else [0, 0, 0])
    assert positions_of(servers, spec.group, source, 3) == {0: 9, 1: 9, 2: 9}
    assert_nothing_hangs(servers, sink, side)


def same_as_prometheus(address: str, progress: Any) -> None:
    with urllib.request.urlopen(address.replace("/progress", "/metrics"), timeout=ANSWER) as answer:  # noqa: S310 (the job's own http address)
        families = {f.name: f for f in text_string_to_metric_families(answer.read().decode())}
    for metric, field in (
        ("records", "records"),
        ("malformed_records", "malformedRecords"),
        ("restarts", "restarts"),
        ("lag", "lag"),
    ):
        assert [s.value for s in families[f"ackwright_{metric}"].samples] == [progress[field]], metric
    [heap], [most] = (families[f"ackwright_jvm_heap{name}_bytes"].samples for name in ("", "_max"))
    assert 0 < heap.value <= most.value
    positions = {s.labels["partition"]: s.value for s in families["ackwright_position"].samples}
    assert positions == {
        p: float(offset) for offsets in progress["positions"].values() for p, offset in offsets.items()
    }


# ------------------------------------------------ malformed records


@pytest.mark.parametrize(("guarantee", "form"), [("at-least-once", "json"), ("exactly-once", "string")])
def test_a_malformed_record_halts(kafka: EmbeddedKafka, tmp_path: Path, name: str, guarantee: str, form: str) -> None:
    servers, source, sink = kafka.bootstrap_servers, f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=1)
    produce(servers, source, b"\xff", b'{"n": 1}', partition=0)
    described = document(servers, name, guarantee, source, sink, trigger=BOUNDED)
    described["spec"] |= {
        "source": {"topics": [source], "format": form, **({"schema": "n BIGINT"} if form == "json" else {})},
        "transform": {"sql": f"SELECT {'CAST(n AS STRING) AS value' if form == 'json' else 'value'} FROM source"},  # noqa: S608
        "sink": {"kafka": {"topic": sink, "format": "string"}},
    }
    spec = job_of(described, tmp_path)
    with running(spec, tmp_path) as job:
        assert ends(job) == 3
        failure = str(job.job.failure())
    assert failure.startswith(f"MalformedRecord: {source}-0@0 is not ")
    assert "source.onMalformed: deadLetter and sink.kafka.deadLetter.topic" in failure
    assert positions_of(servers, spec.group, source, 1) == {0: 0}
    assert read(servers, sink, isolation="read_uncommitted") == []


def test_at_most_once_abandons_the_batch_of_a_malformed_record_and_continues(
    kafka: EmbeddedKafka, tmp_path: Path, name: str
) -> None:
    servers, source, sink = kafka.bootstrap_servers, f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=1)
    produce(servers, source, b"\xff", partition=0)
    described = document(servers, name, "at-most-once", source, sink)
    described["spec"]["source"]["format"] = "string"
    spec = job_of(described, tmp_path)
    with running(spec, tmp_path) as job:
        now = job.until(
            lambda p: p["restarts"] == 1 and p["positions"].get(source) == {"0": 1}, "the batch is abandoned"
        )
        assert now["abandonedRecords"] == 1
        assert now["lastError"]["reason"] == "MalformedRecord"
        produce(servers, source, b"good", partition=0)
        wait_until(lambda: [r.value for r in read(servers, sink)] == [b"good"], "the next record")


# ------------------------------------------------ restarts in the process

WITHOUT_LUCK = """
import os, pathlib, signal

FLAG = pathlib.Path(os.environ["BAD_LUCK"])

def transform(df):
    def check(batches):
        for batch in batches:
            if FLAG.exists():
                if FLAG.read_text() == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("the service that the transform asks is away")
            yield batch
    return df.select("key", "value").mapInArrow(check, "key binary, value binary")
"""


@pytest.mark.parametrize(
    ("guarantee", "luck"), [("at-most-once", "raise"), ("at-least-once", "raise"), ("exactly-once", "kill")]
)
def test_a_transient_failure_restarts_from_the_positions(
    kafka: EmbeddedKafka, tmp_path: Path, name: str, guarantee: str, luck: str
) -> None:
    servers, source, sink = kafka.bootstrap_servers, f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=2)
    feed(servers, source, 2, 0, 100)
    flag = tmp_path / "luck"
    flag.write_text(luck)
    python = {"python": {"module": "features", "function": "transform"}}
    spec = job_of(document(servers, name, guarantee, source, sink, transform=python), tmp_path)
    with running(spec, tmp_path, {**module(tmp_path, WITHOUT_LUCK), "BAD_LUCK": str(flag)}) as job:
        failed = job.until(lambda p: p["restarts"] >= 1, "a restart")
        assert failed["records"] == 0
        assert failed["lastError"]["reason"] == "BatchFailed"
        assert failed["failing"]
        if luck == "raise":
            assert "the service that the transform asks is away" in failed["lastError"]["message"]
        flag.unlink()
        feed(servers, source, 2, 100, 100)
        job.until_position(2, 200)
        now = job.progress()
        assert not now["failing"]
        abandoned = now["abandonedRecords"]
        job.job.drain()
        assert ends(job) == 0
    verdict = judge(read(servers, sink), 2, 200)
    assert (verdict.unexpected, verdict.disordered if guarantee == "exactly-once" else 0) == (0, 0)
    assert verdict.lost == (abandoned if guarantee == "at-most-once" else 0)
    assert (abandoned > 0) is (guarantee == "at-most-once")
    if guarantee != "at-least-once":
        assert verdict.duplicated == 0


# ------------------------------------------------ a change of guarantee

# Each change once, and where the driver of the old guarantee dies: right where that guarantee is decided.
CHANGES = ("exactly-once", "at-least-once", "at-most-once", "exactly-once", "at-most-once", "at-least-once")
DIES_AT = {"exactly-once": "before-commit", "at-least-once": "before-advance", "at-most-once": "claimed"}


def test_the_guarantee_can_be_changed_at_the_worst_moment(kafka: EmbeddedKafka, tmp_path: Path, name: str) -> None:
    """Each driver's guarantee holds for its records, whichever driver follows. A bounded run then ends with 0."""
    servers, source, sink = kafka.bootstrap_servers, f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=2)

    def job(guarantee: str, stage: int, **more: Any) -> JobSpec:
        return job_of(document(servers, name, guarantee, source, sink, **more), tmp_path / str(stage))

    highest = {0: 0, 1: 0}

    def forwards(spec: JobSpec) -> None:
        now = positions_of(servers, spec.group, source, 2)
        assert all(now[p] >= highest[p] for p in highest)
        highest.update(now)

    for stage, guarantee in enumerate(CHANGES):
        spec = job(guarantee, stage)
        with running(spec, tmp_path / str(stage)) as run:
            run.until_position(2, 100 * stage)  # what the driver before has left is dealt with
            hit = run.arm(DIES_AT[guarantee])
            feed(servers, source, 2, 100 * stage, 100)
            run.arrived(hit)
        forwards(spec)
    last = job("exactly-once", 9, trigger=BOUNDED)
    with running(last, tmp_path / "9") as run:
        assert ends(run) == 0
    forwards(last)
    assert highest == {0: 600, 1: 600}

    came = Counter(r.value for r in read(servers, sink))
    assert_nothing_hangs(servers, sink)
    lost: set[str] = set()
    doubled: set[str] = set()
    for stage, guarantee in enumerate(CHANGES):
        for value in (f"{p}:{n}".encode() for p in (0, 1) for n in range(100 * stage, 100 * stage + 100)):
            if came[value] == 0:
                lost.add(guarantee)
            if came[value] > 1:
                doubled.add(guarantee)
    assert lost == {"at-most-once"}
    assert doubled == {"at-least-once"}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_bounded_run_resumes_where_the_last_one_ended(
    kafka: EmbeddedKafka, tmp_path: Path, name: str, guarantee: str
) -> None:
    """The last run has no new records, and Spark runs a batch all the same."""
    servers, source, sink = kafka.bootstrap_servers, f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=2)
    until = 0
    for more in (100, 100, 0):
        feed(servers, source, 2, until, more)
        until += more
        spec = job_of(document(servers, name, guarantee, source, sink, trigger=BOUNDED), tmp_path)
        with running(spec, tmp_path) as job:
            assert ends(job) == 0
            final = job.job.final()
            assert final is not None
            assert final.restarts == 0, final
        assert positions_of(servers, spec.group, source, 2) == {0: until, 1: until}
        assert judge(read(servers, sink), 2, until).exactly_once


# ------------------------------------------------ suspended


def test_a_driver_delivers_after_it_was_suspended_for_longer_than_its_executors_time_out(
    kafka: EmbeddedKafka, tmp_path: Path, name: str
) -> None:
    """A laptop that sleeps. The driver of a local master is its own executor."""
    servers, source, sink = kafka.bootstrap_servers, f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=1)
    described = document(servers, name, "exactly-once", source, sink)
    described["spec"]["trigger"] = {"interval": "1s"}
    spec = job_of(described, tmp_path)
    short = {
        "spark.network.timeout": "3s",
        "spark.network.timeoutInterval": "1s",
        "spark.executor.heartbeatInterval": "1s",
        "spark.executor.heartbeat.maxFailures": "3",
    }
    with running(replace(spec, spark={**spec.spark, **short}), tmp_path) as job:
        for number in range(15):
            feed(servers, source, 1, number, 1)
            job.until_position(1, number + 1)
            if number < 5:  # it expires only if Spark checks before the executor's next heartbeat
                job.suspend()
                time.sleep(4)  # longer than spark.network.timeout
                job.resume()
    assert [r.value for r in read(servers, sink)] == [b"0:%d" % number for number in range(15)]
