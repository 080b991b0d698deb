"""Bad input to `ackwright run`: one line on stderr, the documented exit code, and no effect.

No stack trace is printed, no record is written and no position moves. Unreachable brokers: test_run_cli.py, which also
shows that too few brokers and a missing topic create no topic.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka, Security
from ackwright_stream import source as reading
from ackwright_stream import transform as transforming
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import ExitCode, KafkaSink, Transform
from ackwright_stream.sinks.kafka.columns import to_sink_columns
from integration.support.members import join
from integration.support.pipelines import create_topics, document, feed, positions_of, read
from integration.support.run_cli import run, write_document
from integration.support.spark_local import session
from minimal_job import minimal_job
from waiting import ANSWER

NOBODY = "127.0.0.1:1"
Document = dict[str, Any]


def refused(file: Path, code: ExitCode, *words: str, lines: int = 1, arguments: tuple[str, ...] = ()) -> None:
    """Runs the file and checks what holds for every refusal: exit code, words, lines, no stack trace."""
    done = run(file, *arguments)
    everything = done.stdout + done.stderr
    assert done.returncode == code, everything
    assert len(done.stderr.strip().splitlines()) == lines, done.stderr
    for word in words:
        assert word in done.stderr, everything
    assert "Traceback" not in everything


# ------------------------------------------------ the file: neither brokers nor Spark are asked

GOOD = document(NOBODY, "p", "exactly-once", "in", "out")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [1", "pipeline.yaml:1:6: InvalidSpec: not valid YAML: "),
        (b"\xff\xfe", "UTF-16 text"),
        (b"a: \xe4", "not UTF-8 text"),
        (b"", "the file is empty"),
        (b"just words", "mapping"),
        (b"a: 1\na: 2\n", "more than once"),
        (yaml.safe_dump({**GOOD, "kind": "Deployment"}).encode(), "DeliveryPipeline"),
        (yaml.safe_dump_all([GOOD, GOOD]).encode(), "2 YAML documents"),
    ],
    ids=["syntax", "utf-16", "latin-1", "empty", "text", "twice", "kind", "two"],
)
def test_a_file_that_is_no_pipeline(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_bytes(content)
    refused(file, ExitCode.INVALID, "InvalidSpec: ", words)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere.yaml", ExitCode.INVALID, "FileUnreadable: ", "there is no such file")
    refused(tmp_path, ExitCode.INVALID, "FileUnreadable: ", "this is a directory")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"sink": {"kafka": {"topic": "out", "acks": "1"}}},
            ("spec.sink.kafka.acks", "contradicts guarantee: exactly-once"),
        ),
        ({"sink": {"kafka": {"topic": "in"}}}, ("spec.sink.kafka.topic", "is also a source")),
        ({"transform": {"sql": "SELECT 1", "python": {"module": "m", "function": "f"}}}, ("spec.transform", "sql")),
        ({"trigger": {"interval": "1s", "availableNow": True}}, ("spec.trigger", "availableNow")),
        (
            {"topics": [{"name": "in", "partitions": 1, "config": {"min.insync.replicas": "1"}}]},
            ("min.insync.replicas ≥ f+1",),
        ),
        ({"gurantee": "exactly-once"}, ("gurantee", "guarantee")),
    ],
    ids=["acks", "loop", "transforms", "triggers", "replicas", "typo"],
)
def test_settings_that_contradict(tmp_path: Path, change: Document, words: tuple[str, ...]) -> None:
    described = deepcopy(GOOD)
    described["spec"] |= change
    refused(write_document(tmp_path, described), ExitCode.INVALID, "InvalidSpec: ", *words)


def test_every_error_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    described = deepcopy(GOOD)
    described["spec"] |= {"sink": {"kafka": {"topic": "in", "acks": "0"}}, "guarantee": "at-least-once"}
    refused(write_document(tmp_path, described), ExitCode.INVALID, "spec.sink.kafka.acks", "is also a source", lines=2)


# ------------------------------------------------ the brokers


@pytest.fixture
def asked(kafka: EmbeddedKafka) -> Iterator[Document]:
    """A pipeline on real topics with ten records; at the end no record has been written and no position has moved."""
    name = f"bad-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(kafka.bootstrap_servers, source, sink, partitions=2)
    feed(kafka.bootstrap_servers, source, 2, 0, 5)
    described = document(kafka.bootstrap_servers, name, "exactly-once", source, sink)
    yield described
    assert read(kafka.bootstrap_servers, sink, isolation="read_uncommitted") == []
    assert positions_of(kafka.bootstrap_servers, f"test.{name}", source, 2) == {}


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_no_such_topic(asked: Document, tmp_path: Path, guarantee: str) -> None:
    asked["spec"] |= {"guarantee": guarantee, "source": {"topics": ["no-such-topic"]}}
    refused(write_document(tmp_path, asked), ExitCode.UNAVAILABLE, "TopicMissing: ", "no-such-topic", "spec.topics")


def test_fewer_brokers_than_replicas(asked: Document, tmp_path: Path) -> None:
    topic = f"{asked['metadata']['name']}-new"
    asked["spec"]["source"]["topics"] = [topic]
    asked["spec"] |= {"topics": [{"name": topic, "partitions": 1}], "tolerate": {"brokerFailures": 2}}
    refused(
        write_document(tmp_path, asked),
        ExitCode.UNAVAILABLE,
        "BrokersTooFew: ",
        "needs 5 brokers",
        "lower tolerate.brokerFailures",
    )


def test_a_group_in_use(asked: Document, tmp_path: Path) -> None:
    group = f"test.{asked['metadata']['name']}"
    member = Consumer(
        {
            "bootstrap.servers": asked["spec"]["kafka"]["bootstrapServers"],
            "group.id": group,
            "enable.auto.commit": False,
        }
    )
    try:
        join(member, asked["spec"]["source"]["topics"][0])
        refused(write_document(tmp_path, asked), ExitCode.HALTED, "GroupInUse: ", group, "source.groupId")
    finally:
        member.close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1, security=Security(users={"ann": "right-password"})) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        (
            {"username": "ann", "password": "wrong-password"},
            ExitCode.UNAVAILABLE,
            "check the user name and the password",
        ),
        ({"username": "ann"}, ExitCode.UNAVAILABLE, "the password cannot be read from"),
        (None, ExitCode.INVALID, "there is no directory of secrets"),
    ],
    ids=["wrong", "half", "none"],
)
def test_credentials(
    guarded: EmbeddedKafka, tmp_path: Path, files: dict[str, str] | None, code: ExitCode, words: str
) -> None:
    described = deepcopy(GOOD)
    auth = {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}}
    described["spec"]["kafka"] = {"bootstrapServers": guarded.secure_bootstrap_servers, "auth": auth}
    secret = tmp_path / "secrets" / "kafka-user"
    secret.mkdir(parents=True)
    for name, text in (files or {}).items():
        (secret / name).write_text(text)
    arguments = () if files is None else ("--secrets", str(tmp_path / "secrets"))
    refused(write_document(tmp_path, described), code, words, arguments=arguments)


# ------------------------------------------------ the transform: each of these starts Spark

WRONG: dict[str, tuple[Document, ExitCode, str, str]] = {
    "types": (  # which are not known before Spark has analysed the query
        {"sql": "SELECT CAST(array_size(value) AS STRING) AS value FROM source"},
        ExitCode.INVALID,
        "InvalidTransform: ",
        "array_size",
    ),
    "no module": (
        {"python": {"module": "no_such_module", "function": "f"}},
        ExitCode.INVALID,
        "InvalidTransform: ",
        "no_such_module",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_transform_that_is_refused(asked: Document, tmp_path: Path, case: str) -> None:
    transform, code, reason, words = WRONG[case]
    asked["spec"]["transform"] = transform
    refused(write_document(tmp_path, asked), code, reason, words)


def test_no_topic_is_created_for_a_transform_that_is_refused(
    kafka: EmbeddedKafka, asked: Document, tmp_path: Path
) -> None:
    ends = [f"{asked['metadata']['name']}-new-{end}" for end in ("in", "out")]
    asked["spec"]["source"]["topics"], asked["spec"]["sink"]["kafka"]["topic"] = ends[:1], ends[1]
    asked["spec"]["topics"] = [{"name": topic, "partitions": 1} for topic in ends]
    asked["spec"]["transform"] = WRONG["types"][0]
    refused(write_document(tmp_path, asked), ExitCode.INVALID, "InvalidTransform: ", "array_size")
    there = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=ANSWER).topics
    assert not set(ends) & set(there)


@pytest.fixture(scope="module")
def refusal() -> Callable[[str], JobError]:
    """Returns the job's error for an SQL text, with one session for all. It contacts no broker."""
    spark: SparkSession = session()
    job = minimal_job(bootstrap=NOBODY)

    def refuse(sql: str) -> JobError:
        spec = replace(job, transform=Transform(sql=sql))
        raw = reading.read_stream(spark, spec, "earliest")
        with pytest.raises(JobError) as caught:
            to_sink_columns(transforming.apply_transform(spark, raw, spec), spec.sink_of(KafkaSink))
        return caught.value

    return refuse


@pytest.mark.parametrize(
    ("sql", "reason", "words"),
    [
        ("SELEC key FROM source", "InvalidTransform", "SELEC"),
        ("SELECT nothing AS value FROM source", "InvalidTransform", "nothing"),
        ("SELECT value FROM sauce", "InvalidTransform", "sauce"),
        ("DROP TABLE source", "InvalidTransform", "not a query but a command"),
        ("SELECT key FROM source", "InvalidTransform", "lacks the column value"),
        ("SELECT value, value AS VALUE FROM source", "InvalidTransform", "twice"),
        ("SELECT value, key AS extra FROM source", "InvalidTransform", "extra"),
        ("SELECT CAST(1 AS INT) AS value FROM source", "InvalidTransform", "CAST(value AS STRING)"),
        ("SELECT 'x' AS value", "InvalidTransform", "does not read the view"),
        ("SELECT max(value) AS value FROM source GROUP BY key", "NotStateless", "GROUP BY"),
        ("SELECT DISTINCT value FROM source", "NotStateless", "DISTINCT"),
        ("SELECT value FROM source ORDER BY value", "NotStateless", "ORDER BY"),
        ("SELECT value FROM source LIMIT 3", "NotStateless", "LIMIT"),
        ("SELECT a.value FROM source a JOIN source b ON a.key = b.key", "NotStateless", "JOIN"),
        ("SELECT value FROM source UNION ALL SELECT value FROM source", "NotStateless", "UNION"),
        ("SELECT value FROM source WHERE key IN (SELECT key FROM source)", "NotStateless", "subquery"),
        ("SELECT /*+ REPARTITION(2) */ value FROM source", "NotStateless", "repartition"),
    ],
)
def test_a_transform_that_is_wrong_or_not_stateless(
    refusal: Callable[[str], JobError], sql: str, reason: str, words: str
) -> None:
    error = refusal(sql)
    assert (error.reason.value, error.exit_code) == (reason, ExitCode.INVALID)
    assert words in error.message
    assert "\n" not in error.message
