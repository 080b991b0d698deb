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
    "jaas": "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="u" password="{}";',
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
    """A cluster whose logs and permissions tests set."""

    def __init__(self) -> None:
        super().__init__()
        self.texts_of_logs: dict[str, str] = {}  # by container
        self.forbidden: set[str] = set()  # kinds that may not be read

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Any:
        self._may(kind)
        return super().get(api_version, kind, namespace, name)

    def objects(self, api_version: str, kind: str, namespace: str | None, labels: Any = None) -> list[dict[str, Any]]:
        self._may(kind)
        items = [o for (k, _), o in self.stored.items() if k == kind]
        return [o for o in items if (labels or {}).items() <= o["metadata"].get("labels", {}).items()]

    def logs(self, namespace: str, pod: str, *, container: str, follow: bool, tail: int | None, previous: bool) -> Any:
        self._may("log")
        return io.BytesIO((("before: " if previous else "") + self.texts_of_logs[container]).encode())

    def version(self) -> str:
        return "v1.34.2"

    def _may(self, kind: str) -> None:
        if kind in self.forbidden:
            raise ApiError(403, f"{kind} is forbidden")

    def put(self, kind: str, name: str, **content: Any) -> dict[str, Any]:
        labels = {PIPELINE_LABEL: "secured"} if kind != "Event" else {}
        item = {"kind": kind, "metadata": {"name": name, "namespace": "ops", "labels": labels}, **content}
        self.stored[kind, name] = item
        return item


@pytest.fixture
def cluster() -> Cluster:
    """A pipeline with credentials, and all that belongs to it."""
    server = Cluster()
    document = yaml.safe_load((EXAMPLES / "secured.yaml").read_text())
    server.declare("secured", document["spec"])
    server.stored[KIND, "secured"]["apiVersion"] = API_VERSION
    container = {"containers": [{"name": "driver"}]}
    statuses = {"containerStatuses": [{"name": "driver", "restartCount": 1, "image": "spark:1", "imageID": "sha256:5"}]}
    server.put("Pod", "secured-0", spec=container, status=statuses)
    operator = server.put("Pod", "operator-0", spec={"containers": [{"name": "operator"}]}, status={})
    operator["metadata"]["labels"] = {"app.kubernetes.io/name": "ackwright"}
    server.put("ConfigMap", "secured-clients", data={"producer.properties": "acks=all"})
    server.put("Event", "e1", involvedObject={"name": "secured"}, reason="Delivering", message="Ready is True")
    server.put("Event", "e2", involvedObject={"name": "stranger"}, reason="Stranger", message="of something else")
    server.texts_of_logs = {"driver": "owns 3 lanes", "operator": "ops/secured: fine"}
    return server


Collect = Callable[..., dict[str, str]]


@pytest.fixture
def collect(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Collect:
    """collect() runs the command; the archive's files by name. The archive's bytes hold none of the secrets."""

    def invoke(*secrets: str) -> dict[str, str]:
        monkeypatch.setattr(target, "_connect", lambda *_: Target(cluster, "ops"))
        path = tmp_path / f"{next(_numbers)}.tar.gz"
        assert main.invoke(["support-bundle", "secured", "-o", str(path)]) == ExitCode.OK
        assert path.stat().st_mode & 0o077 == 0
        with tarfile.open(path) as archive:
            contents = {m.name.partition("/")[2]: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]
        for value in secrets:
            for form in (value.encode(), base64.b64encode(value.encode())):
                assert [name for name, data in contents.items() if form in data] == [], value
        return {name: data.decode() for name, data in contents.items()}

    return invoke


def test_everything_that_helps_is_in_it(collect: Collect) -> None:
    files = collect()
    logs = {"logs/secured-0-driver.log", "logs/secured-0-driver.previous.log", "logs/operator/operator-0-operator.log"}
    children = {
        "children/Pod-secured-0.yaml",
        "children/ConfigMap-secured-clients.yaml",
        "operator/Pod-operator-0.yaml",
    }
    rest = {"README.txt", "pipeline.yaml", "status.txt", "plan.yaml", "explain.yaml", "events.yaml", "versions.yaml"}
    assert set(files) == logs | children | rest
    assert files["logs/secured-0-driver.log"] == "owns 3 lanes"
    assert yaml.safe_load(files["pipeline.yaml"])["spec"]["kafka"]["auth"]["credentialsSecret"] == {
        "name": "kafka-user"
    }
    assert [e["reason"] for e in yaml.safe_load(files["events.yaml"])] == ["Delivering"]
    assert "ops/secured" in files["status.txt"]
    assert yaml.safe_load(files["plan.yaml"])["guarantee"] in files["explain.yaml"]
    versions = yaml.safe_load(files["versions.yaml"])
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
    cluster.texts_of_logs = {"driver": f"first\n{text}\nlast", "operator": text}
    cluster.stored["Pod", "operator-0"]["metadata"]["annotations"] = {"note": text}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_text_in_the_form_of_a_secret_is_redacted_everywhere(cluster: Cluster, collect: Collect, form: str) -> None:
    value = secret()
    places(cluster, form.replace("{}", value))
    collect(value, KEY_LINE)


def test_the_content_of_a_secret_is_redacted_in_every_notation(cluster: Cluster, collect: Collect) -> None:
    """Nothing but the Secret tells that these words are secret."""
    password = 'Zq7 "quoted" \\back/slash-ü'
    lines = "first-line-of-it\nsecond-line-of-it"
    data = {"username": "ops-user", "password": password, "more": lines}
    encoded = {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}
    cluster.put("Secret", "kafka-user", data=encoded)
    nested = json.dumps({"inner": json.dumps({"x": password})})
    places(
        cluster,
        f"the words {password} | {json.dumps(password)} | {nested} | {encoded['password']} | "
        "second-line-of-it ops-user",
    )
    files = collect(
        password, lines, "first-line-of-it", "second-line-of-it", json.dumps(password)[1:-1], encoded["password"]
    )
    assert "ops-user" in files["logs/secured-0-driver.log"]
    assert not [name for name in files if "Secret" in name]


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
        "there is no Secret kafka-user in namespace ops; create it, the pipeline resumes by itself",
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


def test_what_cannot_be_collected_is_listed(
    cluster: Cluster, collect: Collect, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.forbidden = {"Secret", "log", "ConfigMap"}
    files = collect()
    assert "the log of driver in pod secured-0: KubernetesRefused: log is forbidden" in files["missing.txt"]
    assert "children of kind ConfigMap" in files["missing.txt"]
    assert "could not be read" in files["README.txt"]
    assert "not collected: " in capsys.readouterr().err


def test_an_invalid_spec_has_a_bundle_too(cluster: Cluster, collect: Collect) -> None:
    cluster.stored[KIND, "secured"]["spec"]["guarantee"] = "twice"
    files = collect()
    assert "plan.yaml" not in files
    assert "the spec is invalid" in files["missing.txt"]


def test_an_archive_that_is_there_is_not_written_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(target, "_connect", lambda *_: Target(cluster, "ops"))
    path = tmp_path / "there.tar.gz"
    path.write_text("mine")
    assert main.invoke(["support-bundle", "secured", "-o", str(path)]) == ExitCode.FAILED
    assert path.read_text() == "mine"
