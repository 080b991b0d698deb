"""ackwright diff: against the resource in the cluster and the topics at the brokers, with exit codes as kubectl diff
has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ackwright.api.spec import API_VERSION, KIND
from ackwright.cli import diff, main, target
from ackwright.cli.failures import ERROR
from ackwright.cli.target import Target
from ackwright.clients.kubernetes import NoCluster
from ackwright.errors import AckwrightError
from ackwright.planning.topics import LANES_TOPIC
from ackwright_stream.jobspec import ExitCode, Reason
from unit.fake_kafka import FakeKafka
from unit.fake_kubernetes import FakeKubernetes

EXAMPLE = Path(__file__).parents[3] / "examples" / "delayed-flights-exactly-once.yaml"
SINK = "delayed-flights-exactly-once"
STRONG = {"min.insync.replicas": "2"}

Invoke = Callable[..., int]


@pytest.fixture
def kubernetes() -> FakeKubernetes:
    """With what the file declares, as kubectl and the API server leave it."""
    server = FakeKubernetes()
    stored = server.declare(SINK, yaml.safe_load(EXAMPLE.read_text())["spec"])
    stored["metadata"] |= {
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{…}"},
        "labels": {"team": "ops"},
    }
    server._store(stored)
    return server


@pytest.fixture
def kafka() -> FakeKafka:
    """With the topics that the file plans."""
    brokers = FakeKafka()
    for name, partitions, config in (
        ("flights", 6, STRONG),
        (SINK, 6, STRONG),
        (LANES_TOPIC, 1, {**STRONG, "cleanup.policy": "compact"}),
    ):
        brokers.create_topic(name, partitions, 3, config)
    return brokers


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, kubernetes: FakeKubernetes, kafka: FakeKafka) -> Invoke:
    """compare(*arguments) runs the command; the exit code."""

    def invoke(*arguments: str, file: Path = EXAMPLE) -> int:
        monkeypatch.setattr(target, "_connect", lambda *_: Target(kubernetes, "ops"))
        monkeypatch.setattr(diff, "Kafka", lambda *_, **__: kafka)
        return main.invoke(["diff", "-f", str(file), *arguments])

    return invoke


def edited(directory: Path, **changes: Any) -> Path:
    document = yaml.safe_load(EXAMPLE.read_text())
    document["spec"] |= changes
    file = directory / "edited.yaml"
    file.write_text(json.dumps(document))
    return file


def test_none(compare: Invoke, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels and annotations that the file does not name stay when it is applied."""
    assert compare() == ExitCode.OK
    assert capsys.readouterr().out == f"ops/{SINK} equals the file\ntopics are as planned\n"


def test_a_field_has_the_class_that_plan_gives_it(
    compare: Invoke, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = edited(tmp_path, trigger={"interval": "7s"}, suspend=True)
    assert compare("-o", "json", file=file) == 1
    difference = json.loads(capsys.readouterr().out)
    assert (difference["resource"], difference["takes"]) == ("changed", "restart")
    assert [(c["field"], c["change"]) for c in difference["changes"]] == [
        ("spec.trigger.interval", "restart"),
        ("spec.suspend", "live"),
    ]
    assert compare(file=file) == 1
    assert "all changes: restart" in capsys.readouterr().out


def test_what_is_not_there_would_be_created(
    compare: Invoke, kubernetes: FakeKubernetes, kafka: FakeKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes.vanish(KIND, SINK)
    kafka.delete_topic(SINK)
    assert compare() == 1
    assert (
        capsys.readouterr().out == f"ops/{SINK} does not exist, and would be created\ntopic {SINK} would be created\n"
    )


def test_topics_against_the_brokers(compare: Invoke, kafka: FakeKafka, capsys: pytest.CaptureFixture[str]) -> None:
    kafka.configure("TOPIC", "flights", {"min.insync.replicas": "1"})
    kafka.lagging = {2}  # a broker that lags is not what applying a file changes
    assert compare("-o", "json") == 1
    difference = json.loads(capsys.readouterr().out)
    assert difference["resource"] == "unchanged"
    assert [(d["topic"], d["setting"], d["found"], d["planned"]) for d in difference["topics"]] == [
        ("flights", "min.insync.replicas", "1", "2")
    ]
    assert compare("--no-topics") == ExitCode.OK


def test_a_topic_that_all_pipelines_share_is_only_ever_made_stronger(compare: Invoke, kafka: FakeKafka) -> None:
    kafka.configure("TOPIC", LANES_TOPIC, {"min.insync.replicas": "3"})
    assert compare() == ExitCode.OK
    kafka.configure("TOPIC", LANES_TOPIC, {"min.insync.replicas": "1"})
    assert compare() == 1


def test_a_drift_policy_is_reported_with_the_difference(
    compare: Invoke, kafka: FakeKafka, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    topics = [{"name": "flights", "partitions": 6, "driftPolicy": "pause"}, {"name": SINK, "partitions": 6}]
    kafka.configure("TOPIC", "flights", {"min.insync.replicas": "1"})
    assert compare("-o", "json", file=edited(tmp_path, topics=topics)) == 1
    assert (
        "driftPolicy pause: reported, and the driver drains"
        in json.loads(capsys.readouterr().out)["topics"][0]["reason"]
    )


def test_a_topic_that_nobody_makes_is_a_difference(
    compare: Invoke, kafka: FakeKafka, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kafka.delete_topic("flights")
    assert compare(file=edited(tmp_path, topics=[{"name": SINK, "partitions": 6}])) == 1
    assert "topic flights does not exist and is not declared" in capsys.readouterr().out


def test_without_a_cluster_topics_alone_are_compared(
    compare: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kafka: FakeKafka
) -> None:
    def none(*_: object) -> Target:
        raise NoCluster(Reason.KUBERNETES_UNREACHABLE, "no way to a Kubernetes cluster")

    compare()
    capsys.readouterr()
    monkeypatch.setattr(target, "_connect", none)
    assert main.invoke(["diff", "-f", str(EXAMPLE)]) == ExitCode.OK
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "topics are as planned\n",
        "not compared with a cluster: no way to a Kubernetes cluster\n",
    )


def test_what_is_not_read_is_neither_equal_nor_missing(compare: Invoke, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--no-topics", "-o", "json") == ExitCode.OK
    printed = json.loads(capsys.readouterr().out)
    assert (printed["create"], printed["topics"], printed["missing"]) == (None, None, None)
    assert compare("--no-topics") == ExitCode.OK
    assert capsys.readouterr().out == f"ops/{SINK} equals the file\ntopics are not compared\n"


def test_without_cluster_and_topics_nothing_is_compared(
    compare: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> Target:
        raise NoCluster(Reason.KUBERNETES_UNREACHABLE, "no way to a Kubernetes cluster")

    monkeypatch.setattr(target, "_connect", none)
    assert main.invoke(["diff", "-f", str(EXAMPLE), "--no-topics"]) == ExitCode.UNAVAILABLE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no way to a Kubernetes cluster" in printed.err


@pytest.mark.parametrize(
    "option", ["--bootstrap-servers=b:9092", "--sink-bootstrap-servers=b:9092", "--secrets=directory"]
)
def test_brokers_that_are_not_read_are_wrong_usage(
    compare: Invoke, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--no-topics", option) == ExitCode.INVALID
    assert "--no-topics" in capsys.readouterr().err


def test_a_file_without_a_namespace_goes_where_kubectl_would_put_it(
    compare: Invoke, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    del document["metadata"]["namespace"]
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(document))
    assert compare(file=file) == ExitCode.OK
    assert capsys.readouterr().out.startswith(f"ops/{SINK} ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AckwrightError(Reason.BROKERS_UNREACHABLE, "no broker answers"), ExitCode.UNAVAILABLE),
        (AckwrightError(Reason.UNEXPECTED, "no cause"), ERROR),
        (RuntimeError("boom"), ERROR),
    ],
)
def test_a_failed_comparison_has_an_exit_code_above_one(
    compare: Invoke, kafka: FakeKafka, error: Exception, code: int
) -> None:
    kafka.down = error  # type: ignore[assignment]
    assert compare() == code
    assert code > 1


def test_only_of_diff_one_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Target:
        raise RuntimeError("boom")

    monkeypatch.setattr(target, "_connect", fails)
    assert main.invoke(["diff", "-f", str(EXAMPLE)]) == ERROR
    assert main.invoke(["status"]) == ExitCode.FAILED


def test_a_wrong_file_is_no_difference(compare: Invoke, tmp_path: Path) -> None:
    assert compare(file=edited(tmp_path, guarantee="twice")) == ExitCode.INVALID


def test_the_resource_may_hold_what_the_api_server_adds(kubernetes: FakeKubernetes) -> None:
    resource = kubernetes.get(API_VERSION, KIND, "ops", SINK)
    assert resource is not None
    assert resource["metadata"]["resourceVersion"]
