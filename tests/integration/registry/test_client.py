"""The registry's clients, the job's and the audit's, against a real registry: lookups, compatibility, TLS and login."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pyspark.sql.types import ArrayType, DoubleType, LongType, StringType, StructField, StructType

from ackwright_stream import audit_protobuf, audit_schemas, schemas
from ackwright_stream.errors import JobError
from ackwright_stream.formats import registered_format
from ackwright_stream.jobspec import Format, JobSpec, Reason, SchemaRegistry
from ackwright_stream.schema_registry import RegistryClient
from integration.support.registry import SchemaRegistry as Server
from integration.support.registry_proxy import PASSWORD, USER, secured
from minimal_job import minimal_job


def schema(kind: str, *more: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}, *more]}


NEWER = schema("int", {"name": "b", "type": ["null", "string"], "default": None})


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:8]}-value"


@pytest.fixture
def client(registry: Server) -> RegistryClient:
    return RegistryClient(SchemaRegistry(registry.url, None, None, 30_000))


def reason(error: pytest.ExceptionInfo[JobError]) -> Reason:
    return error.value.reason


def test_what_is_registered_is_returned_by_id_subject_and_version(client: RegistryClient, subject: str) -> None:
    assert client.versions(subject) == []
    assert client.registered_id(subject, json.dumps(schema("int"))) is None
    first = client.register(subject, json.dumps(schema("int")))
    assert client.register(subject, json.dumps(schema("int"))) == first
    second = client.register(subject, json.dumps(NEWER))
    assert client.registered_id(subject, json.dumps(NEWER)) == second
    assert client.versions(subject) == [1, 2]
    assert [client.version(subject, n).id for n in (1, 2, None)] == [first, second, second]
    answer = client.by_id(first)
    assert answer is not None
    assert json.loads(answer.text) == schema("int")
    assert client.by_id(999_999) is None
    for name, version in ((subject, 9), ("no-such-subject", None)):
        with pytest.raises(JobError) as e:
            client.version(name, version)
        assert reason(e) is Reason.SCHEMA_NOT_FOUND


def test_an_incompatible_schema_is_refused_and_not_registered(
    client: RegistryClient, registry: Server, subject: str
) -> None:
    client.register(subject, json.dumps(schema("int")))
    registry.request("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    client.require_compatible(subject, json.dumps(NEWER))
    for refuse in (client.require_compatible, client.register):
        with pytest.raises(JobError) as e:
            refuse(subject, json.dumps(schema("string")))
        assert reason(e) is Reason.SCHEMA_INCOMPATIBLE
    assert client.versions(subject) == [1]


@pytest.mark.parametrize("transitive", [True, False])
def test_a_schema_is_compared_with_the_versions_that_the_compatibility_names(
    client: RegistryClient, registry: Server, subject: str, *, transitive: bool
) -> None:
    registry.request("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    for kind in ("string", "int"):
        client.register(subject, json.dumps(schema(kind)))
    level = "BACKWARD_TRANSITIVE" if transitive else "BACKWARD"
    registry.request("PUT", f"/config/{subject}", {"compatibility": level})
    longer = json.dumps(schema("long"))  # reads an int, and no string
    if not transitive:
        client.require_compatible(subject, longer)
        client.register(subject, longer)
        return
    for refuse in (client.require_compatible, client.register):
        with pytest.raises(JobError) as e:
            refuse(subject, longer)
        assert reason(e) is Reason.SCHEMA_INCOMPATIBLE


def test_login_and_certificate(registry: Server, subject: str, tmp_path: Path) -> None:
    registry.register(subject, schema("int"))
    login = tmp_path / "login"
    login.mkdir()
    (login / "username").write_text(USER)
    (login / "password").write_text(PASSWORD)
    with secured(registry.url, tmp_path / "proxy") as (url, directory):
        right = SchemaRegistry(url, str(login), str(directory / "ca.crt"), 10_000)
        assert RegistryClient(right).versions(subject) == [1]
        assert audit_schemas.with_reader_schema(reading(right, subject)).source.schema
        for wrong in (replace(right, credentials=None), replace(right, ca=None)):
            with pytest.raises(JobError) as e:
                RegistryClient(wrong).versions(subject)
            assert reason(e) is Reason.REGISTRY_LOGIN_REFUSED
        (login / "password").write_text("other")
        with pytest.raises(JobError) as e:
            RegistryClient(right).versions(subject)
        assert reason(e) is Reason.REGISTRY_LOGIN_REFUSED
        with pytest.raises(JobError) as e:
            audit_schemas.with_reader_schema(reading(right, subject))
        assert reason(e) is Reason.REGISTRY_LOGIN_REFUSED


def reading(server: SchemaRegistry, subject: str, version: int | None = None) -> JobSpec:
    return minimal_job(schema_registry=server, format=Format.AVRO, subject=subject, schema_version=version)


def test_the_readers_schema_is_the_latest_or_the_pinned_one(
    client: RegistryClient, registry: Server, subject: str
) -> None:
    server = SchemaRegistry(registry.url, None, None, 30_000)
    ids = [registry.register(subject, schema("int")), registry.register(subject, NEWER)]
    latest = schemas.with_reader_schema(client, reading(server, subject)).source
    assert latest.schema_version == 2
    assert json.loads(latest.schema or "") == NEWER
    assert sorted(latest.writer_schemas) == sorted(map(str, ids))
    pinned = schemas.with_reader_schema(client, reading(server, subject, 1)).source
    assert json.loads(pinned.schema or "") == schema("int")
    assert audit_schemas.with_reader_schema(reading(server, subject, 1)).source.schema == pinned.schema
    with pytest.raises(JobError, match="does not say which one") as e:
        audit_schemas.with_reader_schema(reading(server, subject))
    assert reason(e) is Reason.INVALID_SPEC


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"name": "kafka", "type": "int"}, "field 'kafka'"),
        ({"name": "u", "type": ["int", "string"]}, "union of 2 types"),
    ],
)
def test_a_readers_schema_that_is_not_supported(
    client: RegistryClient, registry: Server, subject: str, field: dict[str, object], words: str
) -> None:
    registry.register(subject, schema("int", field))
    with pytest.raises(JobError, match=words) as e:
        schemas.with_reader_schema(client, reading(SchemaRegistry(registry.url, None, None, 30_000), subject))
    assert reason(e) is Reason.SCHEMA_INCOMPATIBLE


def json_schema(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def test_a_json_schema_is_registered_compared_and_read(client: RegistryClient, registry: Server, subject: str) -> None:
    server = SchemaRegistry(registry.url, None, None, 30_000)
    first, second = json_schema(a={"type": "integer"}), json_schema(a={"type": "integer"}, b={"type": "string"})
    assert client.registered_id(subject, json.dumps(first), "JSON") is None
    ids = [client.register(subject, json.dumps(first), "JSON")]
    registry.request("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    client.require_compatible(subject, json.dumps(second), "JSON")
    ids.append(client.register(subject, json.dumps(second), "JSON"))
    assert client.registered_id(subject, json.dumps(first), "JSON") == ids[0]
    for refuse in (client.require_compatible, client.register):
        with pytest.raises(JobError) as e:
            refuse(subject, json.dumps(json_schema(a={"type": "string"})), "JSON")
        assert reason(e) is Reason.SCHEMA_INCOMPATIBLE
    job = minimal_job(schema_registry=server, format=Format.JSON_SCHEMA, subject=subject, schema_version=2)
    source = schemas.with_reader_schema(client, job).source
    assert sorted(source.writer_schemas) == sorted(map(str, ids))
    assert json.loads(source.schema or "") == second
    assert audit_schemas.with_reader_schema(job).source.schema == source.schema
    avro = reading(server, subject, 2)
    with pytest.raises(JobError, match=r"is of type JSON, and source\.format is avro") as e:
        schemas.with_reader_schema(client, avro)
    assert reason(e) is Reason.SCHEMA_INCOMPATIBLE


def test_a_derived_json_schema_can_get_columns(client: RegistryClient, registry: Server, subject: str) -> None:
    """Under the compatibility level BACKWARD, the default."""
    fields = [StructField("a", LongType()), StructField("b", ArrayType(StringType()))]
    registry.request("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    client.register(
        subject, registered_format(Format.JSON_SCHEMA).derived_schema(subject, fields, lambda: None), "JSON"
    )
    more = [*fields, StructField("c", StructType([StructField("d", DoubleType())]))]
    client.register(subject, registered_format(Format.JSON_SCHEMA).derived_schema(subject, more, lambda: None), "JSON")
    assert client.versions(subject) == [1, 2]


PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message A {
  int64 a = 1;
  google.protobuf.Timestamp at = 2;
}
"""


def test_a_protobuf_schema_is_registered_compared_and_read(
    client: RegistryClient, registry: Server, subject: str
) -> None:
    server = SchemaRegistry(registry.url, None, None, 30_000)
    second = PROTO.replace("at = 2;", "at = 2;\n  optional string b = 3;")
    ids = [client.register(subject, PROTO, "PROTOBUF")]
    registry.request("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    client.require_compatible(subject, second, "PROTOBUF")
    ids.append(client.register(subject, second, "PROTOBUF"))
    assert client.registered_id(subject, PROTO, "PROTOBUF") == ids[0]
    for refuse in (client.require_compatible, client.register):
        with pytest.raises(JobError) as e:
            refuse(subject, PROTO.replace("int64 a", "string a"), "PROTOBUF")
        assert reason(e) is Reason.SCHEMA_INCOMPATIBLE
    job = minimal_job(schema_registry=server, format=Format.PROTOBUF, subject=subject, schema_version=2)
    source = schemas.with_reader_schema(client, job).source
    assert registered_format(Format.PROTOBUF).column_names(source.schema or "") == ["a", "at", "b"]
    assert sorted(source.writer_schemas) == sorted(map(str, ids))
    assert audit_protobuf.column_type(audit_schemas.with_reader_schema(job).source.schema or "").names == [
        "a",
        "at",
        "b",
    ]


def test_a_schema_that_a_client_registered_as_a_descriptor(client: RegistryClient, subject: str) -> None:
    """As confluent-kafka's serializer registers it, in base64."""
    file = FileDescriptorProto(name="a.proto", package="shop", syntax="proto3")
    file.message_type.add(name="A").field.add(name="x", number=1, type=3, label=1)
    schema_id = client.register(subject, base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    answer = client.by_id(schema_id)
    assert answer is not None
    assert registered_format(Format.PROTOBUF).column_names(answer.text) == ["x"]
    assert audit_protobuf.column_type(answer.text).names == ["x"]


def test_a_derived_protobuf_schema_can_get_columns(client: RegistryClient, registry: Server, subject: str) -> None:
    """Under the compatibility level BACKWARD, with the numbers of the version before."""
    of = registered_format(Format.PROTOBUF)
    fields = [StructField("a", LongType()), StructField("b", ArrayType(StringType()))]
    registry.request("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    client.register(subject, of.derived_schema(subject, fields, lambda: None), "PROTOBUF")
    more = [StructField("c", StructType([StructField("d", DoubleType())])), *fields]
    text = of.derived_schema(subject, more, lambda: client.version(subject, None).text)
    assert "optional int64 a = 1;" in text
    client.register(subject, text, "PROTOBUF")
    assert client.versions(subject) == [1, 2]
