"""`ackwright check` without brokers: its options, its two outputs, its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ackwright.cli import check, main
from ackwright.errors import AckwrightError
from ackwright.planning.acls import Answers
from ackwright_stream.broker_requirements import OtherMembers
from ackwright_stream.jobspec import Cluster, ExitCode, Reason
from ackwright_stream.reasons import REASONS
from unit.planning.good_brokers import GOOD, RACKS

EXAMPLES = Path(__file__).parents[3] / "examples"
EXACTLY_ONCE = str(EXAMPLES / "delayed-flights-exactly-once.yaml")


class FitKafka:
    """Fit brokers without a topic. settings: of each of them; refusal: what connecting raises."""

    settings = GOOD
    refusal: AckwrightError | None = None

    def __init__(self, cluster: Cluster, timeout: float) -> None:
        type(self).cluster = cluster

    def racks(self) -> dict[int, str]:
        if self.refusal:
            raise self.refusal
        return RACKS

    def broker_config(self, node: int) -> dict[str, str]:
        return self.settings

    def features(self) -> dict[str, int]:
        raise AckwrightError(Reason.BROKERS_UNREACHABLE, "no")

    def topics(self, names: Sequence[str]) -> dict[str, Any]:
        if "flights" in names:
            raise AckwrightError(Reason.AUTHORIZATION_FAILED, "no")
        return {}

    def topics_with_configs(self, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
        return self.topics(names), {}

    def other_members(self, group: str, instance_id: str) -> OtherMembers:
        return OtherMembers((), False)

    def permissions(self, topics: Sequence[str], groups: Sequence[str], *, acls: bool) -> Answers:
        return Answers("User:ann")

    cluster: Cluster


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Callable[..., type[FitKafka]]:
    def make(**attributes: Any) -> type[FitKafka]:
        variant = type("Variant", (FitKafka,), attributes)
        monkeypatch.setattr(check, "Kafka", variant)
        return variant

    return make


def test_the_sinks_brokers_need_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["check", "--bootstrap-servers", "k:9092", "--sink-bootstrap-servers", "there:9"]
    assert main.invoke(argv) == ExitCode.INVALID
    assert "add -f FILE" in capsys.readouterr().err


def test_fit_brokers(kafka: Callable[..., type[FitKafka]], capsys: pytest.CaptureFixture[str]) -> None:
    brokers = kafka(settings={**GOOD, "authorizer.class.name": ""})
    assert main.invoke(["check", "--bootstrap-servers", "k:9092"]) == ExitCode.OK
    output = capsys.readouterr().out
    assert brokers.cluster.bootstrap_servers == "k:9092"
    assert "✓ brokers" in output
    assert "! authorizer.class.name" in output
    assert "    → set authorizer.class.name=" in output
    assert "✗" not in output
    assert output.splitlines()[-1] == "13 ok, 1 to check, 0 to fix"


def test_a_pipeline_as_json(kafka: Callable[..., type[FitKafka]], capsys: pytest.CaptureFixture[str]) -> None:
    brokers = kafka(settings={**GOOD, "transaction.max.timeout.ms": "59999"})
    assert (
        main.invoke(["check", "-f", EXACTLY_ONCE, "--bootstrap-servers", "other:1", "-o", "json"])
        == ExitCode.UNAVAILABLE
    )
    assert brokers.cluster.bootstrap_servers == "other:1"
    checks = {c["name"]: c for c in json.loads(capsys.readouterr().out)}
    assert set(checks["racks"]) == {"name", "verdict", "found", "remedy"}
    assert checks["transaction.max.timeout.ms"]["verdict"] == "failed"
    assert checks["topic flights"]["found"] == "the principal may not describe it"
    assert checks["topic ackwright-lanes"]["verdict"] == "ok"
    assert checks["permissions of the job"]["verdict"] == "warning"
    assert "--topic flights" in checks["permissions of the job"]["remedy"]


def test_what_cannot_be_reached_is_one_point(
    kafka: Callable[..., type[FitKafka]], capsys: pytest.CaptureFixture[str]
) -> None:
    kafka(
        refusal=AckwrightError(
            Reason.BROKERS_UNREACHABLE, "connecting to k:1 failed: no route; thrice", "check the network"
        )
    )
    assert main.invoke(["check", "--bootstrap-servers", "k:1", "-o", "json"]) == ExitCode.UNAVAILABLE
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "brokers",
            "verdict": "failed",
            "found": "BrokersUnreachable: connecting to k:1 failed: no route; thrice",
            "remedy": "check the network",
        }
    ]
    assert main.invoke(["check", "--bootstrap-servers", "k:1"]) == ExitCode.UNAVAILABLE
    assert capsys.readouterr().out.splitlines() == [
        "✗ brokers  BrokersUnreachable: connecting to k:1 failed: no route; thrice",
        "    → check the network",
        "0 ok, 0 to check, 1 to fix",
    ]


def test_a_failure_without_a_remedy_of_its_own_has_that_of_its_reason(
    kafka: Callable[..., type[FitKafka]], capsys: pytest.CaptureFixture[str]
) -> None:
    kafka(refusal=AckwrightError(Reason.AUTHENTICATION_FAILED, "refused"))
    assert main.invoke(["check", "--bootstrap-servers", "k:1", "-o", "json"]) == ExitCode.UNAVAILABLE
    (result,) = json.loads(capsys.readouterr().out)
    assert result["remedy"] == REASONS[Reason.AUTHENTICATION_FAILED].remedy


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "use -f FILE, --bootstrap-servers"),
        (["--bootstrap-servers", "no port"], "--bootstrap-servers"),
        (["-f", "nowhere.yaml"], "there is no such file"),
        (["-f", str(EXAMPLES / "secured.yaml")], "there is no directory of secrets; use --secrets"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["check", *arguments]) == ExitCode.INVALID
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""
