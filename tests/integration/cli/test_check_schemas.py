"""`ackwright check -f` with a real schema registry: which schemas it refuses, and that it registers none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ackwright.cli import main
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.ports import free_ports
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reasons import REASONS
from integration.support.avro_pipelines import AvroPipeline
from integration.support.json_schema_pipelines import JsonSchemaPipeline
from integration.support.protobuf_pipelines import ProtobufPipeline
from integration.support.registry import SchemaRegistry
from integration.support.registry_proxy import PASSWORD, USER, secured
from integration.support.run_cli import write_document

WRONG = "wrong-horse"
Check = dict[str, str]


class Checked:
    """`ackwright check` of pipelines with one registry."""

    def __init__(self, registry: SchemaRegistry, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._registry, self._directory, self._capsys = registry, directory, capsys
        self.secrets = directory / "secrets"
        self.secrets.mkdir()

    def __call__(self, pipeline: AvroPipeline, *, secrets: bool = True) -> tuple[int, Check]:
        """The exit code, and the check of the schemas. Asserts that the registry has the same schemas as before."""
        file = write_document(self._directory, pipeline.document())
        options = ["--secrets", str(self.secrets)] if secrets else []
        before = self._versions()
        self._capsys.readouterr()
        code = main.invoke(["check", "-f", str(file), *options, "-o", "json"])
        out = self._capsys.readouterr().out
        assert WRONG not in out
        assert self._versions() == before
        (check,) = [c for c in json.loads(out) if c["name"] == "schemas"]
        return code, check

    def fits(self, pipeline: AvroPipeline) -> None:
        """Asserts that the registry takes the schema of the output, whose subject it does not have."""
        code, check = self(pipeline)
        assert (code, check["verdict"], check["remedy"]) == (ExitCode.OK, "ok", ""), check
        assert f"{pipeline.sink}-value" not in self._registry.subjects()

    def failed(self, pipeline: AvroPipeline, reason: Reason, *words: str) -> None:
        """Asserts that the check has failed for the reason, with the words and the reason's remedy."""
        code, check = self(pipeline)
        assert (code, check["verdict"]) == (ExitCode.UNAVAILABLE, "failed"), check
        assert check["found"].startswith(f"{reason}: http"), check
        for word in (*words, REASONS[reason].remedy):
            assert word in check["remedy"], check

    def _versions(self) -> dict[str, Any]:
        """The versions of every subject."""
        request = self._registry.request
        return {subject: request("GET", f"/subjects/{subject}/versions") for subject in self._registry.subjects()}


@pytest.fixture
def check(registry: SchemaRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    return Checked(registry, tmp_path, capsys)


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path) -> AvroPipeline:
    return AvroPipeline(kafka.bootstrap_servers, registry, tmp_path)


def with_other_output(pipeline: AvroPipeline) -> str:
    """The subject of the output, in which another application has registered a schema that the output does not fit."""
    subject = f"{pipeline.sink}-value"
    other = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    pipeline.registry.register(subject, other)
    pipeline.registry.request("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    return subject


def with_login(pipeline: AvroPipeline, check: Checked, url: str, ca: Path, password: str) -> None:
    """Lets the pipeline reach the registry at the address with a login and a CA."""
    for file, text in {
        "registry-login/username": USER,
        "registry-login/password": password,
        "registry-ca/ca.crt": ca.read_text(),
    }.items():
        (check.secrets / file).parent.mkdir(exist_ok=True)
        (check.secrets / file).write_text(text)
    login = {"credentialsSecret": {"name": "registry-login"}, "tls": {"caSecret": {"name": "registry-ca"}}}
    pipeline.spec["schemaRegistry"] = {"url": url, **login}


def test_the_output_is_compared_and_not_registered(check: Checked, pipeline: AvroPipeline) -> None:
    check.fits(pipeline)
    subject = with_other_output(pipeline)
    check.failed(pipeline, Reason.SCHEMA_INCOMPATIBLE, f"the output does not fit the versions of subject {subject}")


@pytest.mark.parametrize("of_format", [JsonSchemaPipeline, ProtobufPipeline], ids=["jsonSchema", "protobuf"])
def test_an_output_of_another_format_fits(
    check: Checked, kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path, of_format: type[AvroPipeline]
) -> None:
    check.fits(of_format(kafka.bootstrap_servers, registry, tmp_path))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schemaVersion": 7}, "has no version 7 of subject "),
        ({"subject": "absent", "schemaVersion": None}, "has no subject absent"),
    ],
    ids=["version", "subject"],
)
def test_a_schema_of_the_source_that_is_missing_is_named(
    check: Checked, pipeline: AvroPipeline, fields: dict[str, Any], words: str
) -> None:
    pipeline.source_fields |= fields
    check.failed(pipeline, Reason.SCHEMA_NOT_FOUND, words)


def test_a_schema_that_the_registry_takes_for_invalid_is_refused(check: Checked, pipeline: AvroPipeline) -> None:
    """The job accepts the declared schema, because the default of a field does not matter to a writer."""
    fields = [{"name": "id", "type": ["null", "long"], "default": "none"}]
    pipeline.registry.register(f"{pipeline.sink}-value", {"type": "record", "name": "r", "fields": []})
    pipeline.sink_fields["schema"] = json.dumps({"type": "record", "name": "r", "fields": fields})
    pipeline.spec["transform"] = {"sql": "SELECT id FROM source"}
    check.failed(pipeline, Reason.SCHEMA_INCOMPATIBLE, "Invalid schema")


def test_a_wrong_login_is_reported_without_it(check: Checked, pipeline: AvroPipeline, tmp_path: Path) -> None:
    with secured(pipeline.registry.url, tmp_path / "proxy") as (url, directory):
        with_login(pipeline, check, url, directory / "ca.crt", WRONG)
        check.failed(pipeline, Reason.REGISTRY_LOGIN_REFUSED, f"{url} refuses the user of its credentials")
        with_login(pipeline, check, url, directory / "ca.crt", PASSWORD)
        check.fits(pipeline)


def test_a_registry_that_does_not_answer_is_named(check: Checked, pipeline: AvroPipeline) -> None:
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}/api"
    pipeline.spec["schemaRegistry"] = {"url": nobody}
    check.failed(pipeline, Reason.REGISTRY_UNREACHABLE, f"{nobody} does not answer")


def test_without_secrets_the_schemas_are_not_checked_and_the_remedy_names_the_option(
    check: Checked, pipeline: AvroPipeline
) -> None:
    login = {"credentialsSecret": {"name": "registry-login"}}
    pipeline.spec["schemaRegistry"] = {"url": pipeline.registry.url, **login}
    code, schemas = check(pipeline, secrets=False)
    assert (code, schemas["verdict"]) == (ExitCode.OK, "warning"), schemas
    assert "not checked" in schemas["found"]
    assert "--secrets" in schemas["remedy"]
