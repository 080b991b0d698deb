"""The CRD in a real API server: it is accepted, and refuses wrong pipelines with the messages of Ackwright."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from ackwright.api.spec import examine, parse
from ackwright.planning import validation
from e2e import sink_specs
from e2e.api_server import ApiServer
from e2e.crd_cases import CHANGES, MISSHAPEN, WRONG, edited, topics
from lab import binaries
from unit.api.drawn import documents

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "deliverypipelines.ackwright.io.yaml"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
PIPELINES = "/apis/ackwright.io/v1alpha1/namespaces/default/deliverypipelines"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.directory(lambda line: print(line, file=sys.stderr))) as server:
        server.install(CRD)
        yield server


def refusals(document: object) -> str:
    """The messages with which `ackwright plan` refuses a document; empty if it accepts it."""
    pipeline, violations = examine(document)
    return "\n".join(str(v) for v in (*violations, *(validation.check(pipeline, violations) if pipeline else ())))


def test_the_crd_is_accepted_unchanged(api: ApiServer) -> None:
    stored = json.loads(api.kubectl("get", "-f", CRD, "-o", "json").stdout)
    conditions = {c["type"]: c["status"] for c in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}, (
        "a schema that is not structural adds NonStructuralSchema"
    )
    committed = yaml.safe_load(CRD.read_text())["spec"]
    assert stored["spec"]["versions"] == committed["versions"]
    assert stored["status"]["acceptedNames"] == committed["names"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_apply(api: ApiServer, example: Path) -> None:
    namespace = yaml.safe_load(example.read_text())["metadata"]["namespace"]
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    done = api.kubectl("apply", "-f", example)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    stored = json.loads(api.kubectl("get", "-f", example, "-o", "json").stdout)
    assert refusals(stored) == "", "an object that the API server returns is a spec"


@pytest.mark.parametrize("sink", sink_specs.each(""))
def test_the_pipelines_of_the_tests_of_sinks_apply(api: ApiServer, sink: str) -> None:
    name = f"sink-{sink}"
    parts = {f"spec.{part}": value for part, value in sink_specs.each(name)[sink].items()}
    document = edited({"metadata.name": name, **parts})
    code, answer = api.request("POST", f"{PIPELINES}?fieldValidation=Strict&dryRun=All", document)
    assert code == 201, answer["message"]
    assert refusals(document) == ""


def test_every_field_is_stored(api: ApiServer) -> None:
    document = edited(
        {
            "metadata.name": "whole",
            "spec.tolerate": {"brokerFailures": 2},
            "spec.kafka.auth": {"mechanism": "PLAIN", "credentialsSecret": {"name": "user"}},
            "spec.source": {
                "topics": ["in"],
                "maxOffsetsPerTrigger": 2**63 - 1,
                "groupId": "g",
                "format": "json",
                "schema": "a INT",
            },
            "spec.checkpoint": {"volume": {"size": "1Gi", "storageClassName": "fast"}},
            "spec.spark": {"conf": {"spark.sql.ansi.enabled": "true"}, "executor": {"cores": 2, "cpuRequest": "500m"}},
            **topics({"min.insync.replicas": "3", "retention.ms": "1"}, replicationFactor=5, deletionPolicy="Delete"),
        }
    )
    assert refusals(document) == ""
    code, answer = api.request("POST", f"{PIPELINES}?fieldValidation=Strict", document)
    assert code == 201, answer
    stored = answer["spec"]
    assert parse(answer).spec == parse(document).spec
    assert stored["source"]["maxOffsetsPerTrigger"] == 2**63 - 1
    assert stored["trigger"] == {"availableNow": False}
    assert stored["spark"]["executor"] == {"instances": 1, "cores": 2, "cpuRequest": "500m", "memory": "1g"}


def test_the_largest_pipeline_is_not_too_expensive(api: ApiServer) -> None:
    """The API server limits the cost of CEL, in steps; only a pipeline with many long names comes near the limit."""
    names = [f"{i:03}" + "x" * 246 for i in range(100)]
    config = {
        "min.insync.replicas": "2",
        "cleanup.policy": "delete, " * 500 + "delete",
        "unclean.leader.election.enable": " " * 4000 + "false",
    }
    document = edited(
        {
            "spec.source.topics": [*names[:99], "y" * 249],
            "spec.topics": [
                {"name": name, "partitions": 6, "replicationFactor": 3, "config": config} for name in names
            ],
            "spec.sink.kafka": {"topic": names[99], "preservePartition": True},
            "spec.kafka.bootstrapServers": ",".join(["k" * 240 + ":9092"] * 16),
            "spec.transform.sql": "x" * 65_536,
        }
    )
    assert refusals(document) == ""
    code, answer = api.request("POST", f"{PIPELINES}?dryRun=All", document)
    assert code == 201, answer["message"]


@pytest.mark.parametrize("case", WRONG)
def test_a_contradiction_is_refused_with_the_message_of_ackwright(api: ApiServer, case: str) -> None:
    edits, field, message = WRONG[case]
    document = edited(edits)
    assert message in refusals(document)
    done = api.kubectl("apply", "--dry-run=server", "-f", "-", stdin=document)
    assert done.returncode == 1, "it was accepted"
    assert f"{field}: Invalid value" in done.stderr
    assert message in done.stderr
    assert "evaluat" not in done.stderr, "a check that fails instead of refusing"


@pytest.mark.parametrize("case", MISSHAPEN)
def test_a_wrong_shape_is_refused(api: ApiServer, case: str) -> None:
    edits, message = MISSHAPEN[case]
    document = edited(edits)
    assert refusals(document)
    done = api.kubectl("apply", "--dry-run=server", "-f", "-", stdin=document)
    assert done.returncode == 1, "it was accepted"
    assert message in done.stderr


def test_a_check_of_topics_names_the_topic(api: ApiServer) -> None:
    listed = [{"name": "fine", "partitions": 1}, {"name": "thin", "partitions": 1, "replicationFactor": 1}]
    code, answer = api.request("POST", f"{PIPELINES}?dryRun=All", edited({"spec.topics": listed}))
    assert code == 422
    assert "thin: breaks replication.factor" in answer["message"]
    code, answer = api.request("POST", f"{PIPELINES}?dryRun=All", edited({"spec.spark.conf": {"spark.jars": "secret"}}))
    assert "spark.jars: is not among" in answer["message"]
    assert "secret" not in answer["message"]


@pytest.mark.parametrize(
    ("edits", "guarantee"),
    [
        (topics({"min.insync.replicas": "1"}, replicationFactor=1), "at-most-once"),
        (
            {"spec.tolerate.brokerFailures": 0, **topics({"min.insync.replicas": "1"}, replicationFactor=1)},
            "exactly-once",
        ),
        ({"spec.tolerate.brokerFailures": 0, **topics({"unclean.leader.election.enable": "true"})}, "exactly-once"),
        ({"spec.sink.kafka.acks": "1"}, "at-least-once"),
        ({"spec.sink.kafka.acks": "0"}, "at-most-once"),
        ({"spec.sink.kafka.topic": None}, "exactly-once"),
        ({"spec.trigger": {"interval": "1s", "availableNow": False}}, "exactly-once"),
    ],
)
def test_borderline_cases_are_accepted(api: ApiServer, edits: dict[str, Any], guarantee: str) -> None:
    document = edited(edits | {"spec.guarantee": guarantee})
    assert refusals(document) == ""
    code, answer = api.request("POST", f"{PIPELINES}?dryRun=All&fieldValidation=Strict", document)
    assert code == 201, answer


@pytest.mark.parametrize("case", CHANGES)
def test_changes(api: ApiServer, case: str) -> None:
    before, edit, message = CHANGES[case]
    name = "change-" + re.sub("[^a-z0-9]+", "-", case.lower())
    document = edited(before | {"metadata.name": name})
    code, stored = api.request("POST", PIPELINES, document)
    assert code == 201, stored
    changed = edited({**edit, "metadata.resourceVersion": stored["metadata"]["resourceVersion"]}, document)
    code, answer = api.request("PUT", f"{PIPELINES}/{name}", changed)
    if message is None:
        assert code == 200, answer
    else:
        assert code == 422, "it was accepted"
        assert message in answer["message"]


def test_the_status_is_separate_and_printed(api: ApiServer) -> None:
    code, stored = api.request("POST", PIPELINES, edited({"metadata.name": "shown"}))
    assert code == 201, stored
    conditions = [
        {
            "type": kind,
            "status": truth,
            "reason": "Because",
            "message": "why",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        for kind, truth in (("Ready", "True"), ("GuaranteeMet", "False"))
    ]
    runs = ["2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"]
    status = {
        "conditions": conditions,
        "observedAt": "2026-01-02T03:04:05Z",
        "guarantee": "at-least-once",  # an edit to exactly-once is not in force yet
        "topicsReady": "2/2",
        "delivery": {"lag": 41, "batch": 17, "recordsPerSecond": 5.5},
        "driver": {"pod": "shown-driver-0"},
        "schedule": {
            "schedule": "0 3 * * *",
            "timeZone": "UTC",
            "lastScheduleTime": runs[0],
            "nextScheduleTime": runs[1],
        },
    }
    code, answer = api.request("PATCH", f"{PIPELINES}/shown/status", {"status": status, "spec": {"suspend": True}})
    assert code == 200, answer
    assert answer["spec"]["suspend"] is False
    assert answer["metadata"]["generation"] == stored["metadata"]["generation"]
    header, line = api.kubectl("get", "dpl", "shown", "-o", "wide").stdout.splitlines()
    columns = ["NAME", "GUARANTEE", "READY", "STATUS", "MET", "LAG", "AGE"]
    wide = ["OBSERVED", "TOPICS", "BATCH", "RECORDS/S", "DRIVER", "LAST", "RUN", "NEXT", "RUN", "WHY"]
    assert header.split() == [*columns, *wide]
    cells = line.split()
    assert cells[:6] == ["shown", "at-least-once", "True", "Because", "False", "41"]
    assert all(cell.endswith("d") for cell in (cells[7], cells[12]))  # the ages of observedAt and of the last run
    assert [*cells[8:12], *cells[13:]] == ["2/2", "17", "5.5", "shown-driver-0", runs[1], "why"]
    assert "shown" in api.kubectl("get", "delivery").stdout
    twice = {"status": {"conditions": [conditions[0], conditions[0]]}}
    assert api.request("PATCH", f"{PIPELINES}/shown/status", twice)[0] == 422


def test_fields_are_explained(api: ApiServer) -> None:
    explained = api.kubectl("explain", "dpl.spec.tolerate.brokerFailures").stdout
    assert "How many brokers (f) may be lost" in explained


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.sink.kafka.bootstrapServers": "k:9092"},
        {"spec.transform.sql": "\u00a0"},
        {"spec.topics": [{"name": "in", "partitions": 1, "config": {"retention.ms": "7d"}}]},
        {"spec.topics": [{"name": "in", "partitions": 1, "config": {"retentionms": "1"}}]},
    ],
)
def test_the_operator_refuses_what_the_api_server_cannot_check(api: ApiServer, edits: dict[str, Any]) -> None:
    document = edited(edits)
    assert refusals(document)
    assert api.request("POST", f"{PIPELINES}?dryRun=All", document)[0] == 201


_LEFT_TO_THE_OPERATOR = ("the sink is on the source's cluster",)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(document=documents())
def test_the_api_server_and_ackwright_agree(api: ApiServer, document: dict[str, Any]) -> None:
    code, answer = api.request("POST", f"{PIPELINES}?dryRun=All&fieldValidation=Strict", document)
    assert code in (201, 422), answer
    messages = [
        line for line in refusals(document).splitlines() if not any(words in line for words in _LEFT_TO_THE_OPERATOR)
    ]
    assert (code == 422) == bool(messages), (answer.get("message"), messages)
