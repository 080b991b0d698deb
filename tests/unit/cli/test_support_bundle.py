"""ackwright support-bundle: everything that helps is in it, and no secret is, wherever it stood."""

from __future__ import annotations

import base64
import io
import itertools
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ackwright.api.spec import API_VERSION, KIND
from ackwright.cli import main, target
from ackwright.cli.redaction import Redaction
from ackwright.cli.target import Target
from ackwright.clients.kubernetes import ApiError
from ackwright.render.names import PIPELINE_LABEL
from ackwright_stream.jobspec import ExitCode
from unit.fake_kubernetes import FakeKubernetes

EXAMPLES = Path(__file__).parents[3] / "examples"
KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"  # of no key

_numbers = itertools.count(1)


def secret() -> str:
    """One that nothing but its place, or the Secret that holds it, tells from other words."""
    return f"Zq7-{next(_numbers):03}-hunter2"


# Every way in which a secret may be written, with the secret in place of {}.
FORMS = {
    "property": "ssl.key.password={} and so on",
    "yaml": "password: {}",
    "quoted": 'password = "{} with blanks"',
    "json": '{"saslPassword": "{}", "user": "ops"}',
    "json in json": json.dumps({"x": json.dumps({"password": "{}"})}),
    "cut off amid a quotation": 'password = "some words {} and',
    "jaas": 'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="{}";',
    "login module": 'PlainLoginModule required username="u" password="{}";',
    "bearer": "GET /api Authorization: Bearer {}",
    "jwt": "saw eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx{}fQ.c2ln",
    "url": "connecting to kafka://user:{}@broker:9092/x",
    "option": "started with --sasl-password {} --verbose",
    "environment": "DB_PASSWORD={}",
    "private key": f"-----BEGIN PRIVATE KEY-----\n{KEY_LINE}\n{{}}\n-----END PRIVATE KEY-----",
    "cut off after its beginning": f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_LINE}{{}}\n{KEY_LINE}",
    "cut off before its end": f"{KEY_LINE}\n{KEY_LINE}\n-----END PRIVATE KEY-----",
}


class Cluster(FakeKubernetes):
    """said: each pod's log, by container. forbidden: kinds that may not be read."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, str] = {}
        self.forbidden: set[str] = set()

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Any:
        self._may(kind)
        return super().get(api_version, kind, namespace, name)

    def objects(self, api_version: str, kind: str, namespace: str | None, labels: Any = None) -> list[dict[str, Any]]:
        self._may(kind)
        found = [o for (k, _), o in self.stored.items() if k == kind]
        return [o for o in found if (labels or {}).items() <= o["metadata"].get("labels", {}).items()]

    def logs(self, namespace: str, pod: str, *, container: str, follow: bool, tail: int | None, previous: bool) -> Any:
        self._may("log")
        return io.BytesIO((("before: " if previous else "") + self.said[container]).encode())

    def version(self) -> str:
        return "v1.34.2"

    def _may(self, kind: str) -> None:
        if kind in self.forbidden:
            raise ApiError(403, f"{kind} is forbidden")

    def put(self, kind: str, name: str, **content: Any) -> dict[str, Any]:
        labels = {PIPELINE_LABEL: "secured"} if kind != "Event" else {}
        found = {"kind": kind, "metadata": {"name": name, "namespace": "ops", "labels": labels}, **content}
        self.stored[kind, name] = found
        return found


@pytest.fixture
def cluster() -> Cluster:
    """A pipeline with credentials, and all that belongs to it."""
    found = Cluster()
    document = yaml.safe_load((EXAMPLES / "secured.yaml").read_text())
    found.declare("secured", document["spec"])
    found.stored[KIND, "secured"]["apiVersion"] = API_VERSION
    container = {"containers": [{"name": "driver"}]}
    statuses = {"containerStatuses": [{"name": "driver", "restartCount": 1, "image": "spark:1", "imageID": "sha256:5"}]}
    found.put("Pod", "secured-0", spec=container, status=statuses)
    operator = found.put("Pod", "operator-0", spec={"containers": [{"name": "operator"}]}, status={})
    operator["metadata"]["labels"] = {"app.kubernetes.io/name": "ackwright"}
    found.put("ConfigMap", "secured-clients", data={"producer.properties": "acks=all"})
    found.put("Event", "e1", involvedObject={"name": "secured"}, reason="Delivering", message="Ready is True")
    found.put("Event", "e2", involvedObject={"name": "stranger"}, reason="Stranger", message="of something else")
    found.said = {"driver": "owns 3 lanes", "operator": "ops/secured: fine"}
    return found


Collect = Callable[..., dict[str, str]]


@pytest.fixture
def collect(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Collect:
    """collect() runs the command; the archive's files by name. The archive's bytes hold none of the given secrets."""

    def invoke(*secrets: str) -> dict[str, str]:
        monkeypatch.setattr(target, "_connect", lambda *_: Target(cluster, "ops"))
        path = tmp_path / f"{next(_numbers)}.tar.gz"
        assert main.invoke(["support-bundle", "secured", "-o", str(path)]) == ExitCode.OK
        assert path.stat().st_mode & 0o077 == 0
        with tarfile.open(path) as archive:
            found = {m.name.partition("/")[2]: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]
        for value in secrets:
            for form in (value.encode(), base64.b64encode(value.encode())):
                assert [name for name, data in found.items() if form in data] == [], value
        return {name: data.decode() for name, data in found.items()}

    return invoke


def test_everything_that_helps_is_in_it(collect: Collect) -> None:
    found = collect()
    logs = {"logs/secured-0-driver.log", "logs/secured-0-driver.previous.log", "logs/operator/operator-0-operator.log"}
    children = {
        "children/Pod-secured-0.yaml",
        "children/ConfigMap-secured-clients.yaml",
        "operator/Pod-operator-0.yaml",
    }
    rest = {"README.txt", "pipeline.yaml", "status.txt", "plan.yaml", "explain.yaml", "events.yaml", "versions.yaml"}
    assert set(found) == logs | children | rest
    assert found["logs/secured-0-driver.log"] == "owns 3 lanes"
    assert yaml.safe_load(found["pipeline.yaml"])["spec"]["kafka"]["auth"]["credentialsSecret"] == {
        "name": "kafka-user"
    }
    assert [e["reason"] for e in yaml.safe_load(found["events.yaml"])] == ["Delivering"]
    assert "ops/secured" in found["status.txt"]
    assert yaml.safe_load(found["plan.yaml"])["guarantee"] in found["explain.yaml"]
    versions = yaml.safe_load(found["versions.yaml"])
    assert (versions["kubernetes"], versions["images"]) == ("v1.34.2", ["spark:1 sha256:5"])
    assert versions["commandLine"]["packages"]["ackwright"]


def places(cluster: Cluster, text: str) -> None:
    """The text, everywhere."""
    resource = cluster.stored[KIND, "secured"]
    resource["metadata"]["annotations"] = {
        "note": text,
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"note": text}),
    }
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Crashed",
        "message": text,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    resource["status"] = {"conditions": [condition], "driver": {"pod": "secured-0", "restarts": 1, "lastError": text}}
    pod = cluster.stored["Pod", "secured-0"]
    pod["spec"]["containers"][0] |= {"args": ["driver", text], "env": [{"name": "NOTE", "value": text}]}
    pod["status"]["message"] = text
    cluster.stored["ConfigMap", "secured-clients"]["data"] = {"producer.properties": text}
    cluster.stored["Event", "e1"]["message"] = text
    cluster.said = {"driver": f"first\n{text}\nlast", "operator": text}
    cluster.stored["Pod", "operator-0"]["metadata"]["annotations"] = {"note": text}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_looks_like_a_secret_is_taken_out_of_every_place(cluster: Cluster, collect: Collect, form: str) -> None:
    value = secret()
    places(cluster, form.replace("{}", value))
    collect(value, KEY_LINE)


def test_what_a_secret_holds_is_taken_out_however_it_is_written(cluster: Cluster, collect: Collect) -> None:
    """Nothing but the Secret tells that these words are secret."""
    password = 'Zq7 "quoted" \\back/slash-ü'
    lines = "first-line-of-it\nsecond-line-of-it"
    data = {"username": "ops-user", "password": password, "more": lines}
    encoded = {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}
    cluster.put("Secret", "kafka-user", data=encoded)
    nested = json.dumps({"inner": json.dumps({"x": password})})
    places(
        cluster,
        f"the words {password} | {json.dumps(password)} | {nested} | {encoded['password']} | second-line-of-it ops-user",
    )
    found = collect(
        password, lines, "first-line-of-it", "second-line-of-it", json.dumps(password)[1:-1], encoded["password"]
    )
    assert "ops-user" in found["logs/secured-0-driver.log"]
    assert not [name for name in found if "Secret" in name]


def test_control_without_the_known_values_they_would_be_in_it(cluster: Cluster, collect: Collect) -> None:
    value = secret()
    places(cluster, f"the words {value}")
    assert value in collect()["logs/secured-0-driver.log"]


@pytest.mark.parametrize(
    "document",
    [
        {"env": [{"name": "KAFKA_PASSWORD", "value": "{}"}]},
        {"args": ["--password", "{}"]},
        {"conf": {"spark.ssl.keyPassword": "{}"}},
        {"headers": [{"name": "Authorization", "value": "{}"}]},
        {"stringData": {"apiKey": "{}"}},
    ],
    ids=["environment", "arguments", "configuration", "header", "field"],
)
def test_the_name_of_a_field_tells_that_its_value_is_secret(document: dict[str, Any]) -> None:
    value = secret()
    filled = json.loads(json.dumps(document).replace("{}", value))
    assert value not in json.dumps(Redaction().document(filled))
    assert value in json.dumps(
        Redaction().document(json.loads(json.dumps(document).replace("{}", f"x {value}").lower())) | {"v": value}
    )


@pytest.mark.parametrize(
    "text",
    [
        "there is no Secret kafka-user in namespace ops; create it, the pipeline goes on by itself",
        "topic flights: min.insync.replicas is 1, planned is 2 (brokers that hold a record)",
        "reached https://kafka:9094/x as 1.2.3.4:5",
        "SELECT tailnum AS key FROM source WHERE dep_delay > 60",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_long_words_in_a_log_take_no_longer_than_short_ones() -> None:
    """With a form that is tried at each of their characters this would take many minutes."""
    for word in ("QUJD" * 50_000, "ab." * 60_000, "-" * 200_000, "abcdefgh " * 20_000, "eyJ" * 60_000, "=" * 200_000):
        assert Redaction().text(word) == word


def test_what_cannot_be_had_is_told(cluster: Cluster, collect: Collect, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.forbidden = {"Secret", "log", "ConfigMap"}
    found = collect()
    assert "the log of driver in pod secured-0: KubernetesRefused: log is forbidden" in found["missing.txt"]
    assert "children of kind ConfigMap" in found["missing.txt"]
    assert "could not be read" in found["README.txt"]
    assert "not collected: " in capsys.readouterr().err


def test_an_invalid_spec_has_a_bundle_too(cluster: Cluster, collect: Collect) -> None:
    cluster.stored[KIND, "secured"]["spec"]["guarantee"] = "twice"
    found = collect()
    assert "plan.yaml" not in found
    assert "the spec is invalid" in found["missing.txt"]


def test_an_archive_that_is_there_is_not_written_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(target, "_connect", lambda *_: Target(cluster, "ops"))
    path = tmp_path / "there.tar.gz"
    path.write_text("mine")
    assert main.invoke(["support-bundle", "secured", "-o", str(path)]) == ExitCode.FAILED
    assert path.read_text() == "mine"
