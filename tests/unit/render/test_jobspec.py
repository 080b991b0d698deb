"""The jobspec is complete, equal after a round trip, and contains no credential."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright.api.spec import ACCEPTED_LOSSES_ANNOTATION, parse
from ackwright.errors import AckwrightError
from ackwright.planning.plan import load, plan
from ackwright.render.jobspec import jobspec, threads, with_retries
from ackwright_stream.jobspec import JobSpec, from_json, to_json

EXAMPLES = Path(__file__).parents[3] / "examples"


def rendered(name: str, **more: Any) -> JobSpec:
    _, delivery_plan = load(EXAMPLES / f"{name}.yaml")
    return jobspec(delivery_plan, **({"master": "local[2]", "secrets": None} | more))


def test_a_job_without_security_uses_plaintext() -> None:
    job = rendered("delayed-flights-exactly-once", progress_port=8080, spark_extra={"spark.driver.host": "127.0.0.1"})
    assert job.group == "ops.delayed-flights-exactly-once"
    assert job.source.topics == ("flights",)
    assert job.source.max_offsets_per_trigger == 500_000
    assert job.trigger_interval_ms == 1_000
    assert job.progress_port == 8080
    assert job.cluster.credentials is None
    assert job.cluster.librdkafka == {"security.protocol": "PLAINTEXT"}
    assert job.spark["spark.driver.host"] == "127.0.0.1"
    assert job.consumer["failOnDataLoss"] == "true"
    assert job.consumer["isolation.level"] == "read_committed"


def test_each_guarantee_has_its_own_clients() -> None:
    most, least = rendered("delayed-flights-at-most-once"), rendered("delayed-flights-at-least-once")
    assert (most.producer["acks"], most.sink_options, most.consumer["failOnDataLoss"]) == ("0", {}, "false")
    assert (least.producer, least.sink_options["acks"]) == ({}, "all")


def test_only_the_annotation_of_accepted_losses_of_source_topics_changes_the_job() -> None:
    def job(annotations: dict[str, str]) -> str:
        pipeline, _ = load(EXAMPLES / "delayed-flights-exactly-once.yaml")
        annotated = pipeline.model_copy(
            update={"metadata": pipeline.metadata.model_copy(update={"annotations": annotations})}
        )
        return to_json(jobspec(plan(annotated), master="local[2]", secrets=None))

    losses = '{"flights": "old", "delayed-flights-exactly-once": "of the sink"}'
    assert from_json(job({ACCEPTED_LOSSES_ANNOTATION: losses})).accepted_losses == {"flights": "old"}
    assert job({ACCEPTED_LOSSES_ANNOTATION: losses, "somebody": "else's"}) == job(
        {ACCEPTED_LOSSES_ANNOTATION: '{"flights":"old"}'}
    )
    assert job({ACCEPTED_LOSSES_ANNOTATION: "nonsense"}) == job({"somebody": "else's"}) == job({})


def test_security_settings_refer_to_mounted_files() -> None:
    job = rendered("secured", secrets="/run/secrets")
    assert job.cluster.credentials == "/run/secrets/kafka-user"
    assert job.cluster.librdkafka == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": "/run/secrets/kafka-ca/ca.crt",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert job.cluster.java["ssl.endpoint.identification.algorithm"] == "https"
    assert job.cluster.java["ssl.truststore.type"] == "PEM"
    assert job.cluster.java["config.providers.directory.param.allowed.paths"] == "/run/secrets/kafka-user"
    assert '"${directory:/run/secrets/kafka-user:password}";' in job.cluster.java["sasl.jaas.config"]
    assert "ScramLoginModule" in job.cluster.java["sasl.jaas.config"]


def test_the_jobspec_contains_no_credential(tmp_path: Path) -> None:
    (tmp_path / "kafka-user").mkdir()
    (tmp_path / "kafka-user" / "password").write_text("hunter2")
    (tmp_path / "kafka-user" / "username").write_text("robert")
    text = to_json(rendered("secured", secrets=tmp_path))
    assert str(tmp_path) in text
    assert "hunter2" not in text
    assert "robert" not in text


def test_a_directory_for_the_secrets_is_required_and_checked() -> None:
    with pytest.raises(AckwrightError, match="names the Secret kafka-ca"):
        rendered("secured")
    with pytest.raises(AckwrightError, match="choose one without"):
        rendered("secured", secrets="/a:b")


@pytest.mark.parametrize(
    ("master", "attempts", "expected"),
    [
        ("local[2]", "4", "local[2,4]"),
        ("local[*]", "1", "local[*,1]"),
        ("local", "4", "local[1,4]"),
        ("local[2,7]", "4", "local[2,7]"),
        ("k8s://https://x", "4", "k8s://https://x"),
    ],
)
def test_a_local_master_retries_tasks_too(master: str, attempts: str, expected: str) -> None:
    assert with_retries(master, attempts) == expected


@pytest.mark.parametrize(("master", "local"), [("local[2]", True), ("local", True), ("k8s://https://x", False)])
def test_a_local_master_never_expires_its_only_executor(master: str, *, local: bool) -> None:
    spec = rendered("delayed-flights-exactly-once", master=master)
    assert ("spark.storage.blockManagerHeartbeatTimeoutMs" in spec.spark) == local


_MEMORY = st.integers(512, 4096).map("{}m".format)


@settings(max_examples=100)
@given(
    guarantee=st.sampled_from(["at-most-once", "at-least-once", "exactly-once"]),
    sql=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
        lambda s: bool(s.strip("\x1c\x1d\x1e\x1f \t\r\n"))
    ),
    topics=st.lists(st.from_regex(r"\A[a-z][a-z0-9]{0,9}\Z"), min_size=1, max_size=4, unique=True),
    trigger=st.sampled_from([{}, {"interval": "0s"}, {"interval": "250ms"}, {"availableNow": True}]),
    format_=st.sampled_from(["binary", "string", "json"]),
    memory=_MEMORY,
)
def test_every_accepted_spec_survives_the_round_trip(
    *, guarantee: str, sql: str, topics: list[str], trigger: dict[str, Any], format_: str, memory: str
) -> None:
    source = {"topics": topics, "format": format_} | ({"schema": "a INT"} if format_ == "json" else {})
    spec = {
        "guarantee": guarantee,
        "kafka": {"bootstrapServers": "k:1"},
        "source": source,
        "transform": {"sql": f"x{sql}"},
        "sink": {"kafka": {"topic": "Out", "format": format_}},
        "trigger": trigger,
        "spark": {"driver": {"memory": memory}},
    }
    pipeline = parse(
        {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": {"name": "p"}, "spec": spec}
    )
    job = jobspec(plan(pipeline), master="local[2]", secrets=None)
    assert from_json(to_json(job)) == job
    assert job.transform.sql == f"x{sql}"
    assert job.spark["spark.driver.memory"] == memory


@pytest.mark.parametrize(
    ("master", "number"),
    [
        ("local", 1),
        ("local[2]", 2),
        ("local[16,4]", 16),
        ("local[*]", None),
        ("local[*,4]", None),
        ("k8s://here", None),
    ],
)
def test_a_local_master_has_a_slot_for_each_thread(master: str, number: int | None) -> None:
    assert threads(master) == number
