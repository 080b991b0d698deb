"""Measures record formats: a guarantee copies the same records as JSON and in another format, in turn.

Values are read into columns and written from columns. The schemas are in a registry on this machine.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import fastavro
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from bench import workload
from bench.context import Context
from bench.figures import Figure, Throughput
from bench.processes import UsageMeter
from bench.runs import Copy, our_job, run_job
from bench.throughput import Case, after_warm_up, cases, durations, figures, take_turns
from integration.support.registry import SchemaRegistry

JSON, AVRO, JSON_SCHEMA, PROTOBUF = "JSON", "Avro", "JSON Schema", "Protobuf"
TARGET = 0.8  # the rate of Avro relative to JSON's; Spark decodes both in the JVM
PARTITIONS = 4
_SCHEMA: Mapping[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "station", "type": "string"},
        {"name": "celsius", "type": "double"},
        {"name": "valid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
_JSON_SCHEMA: Mapping[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "station": {"type": "string"},
        "celsius": {"type": "number"},
        "valid": {"type": "boolean"},
        "note": {"type": ["null", "string"]},
    },
    "required": ["id", "station"],
    "additionalProperties": False,
}
_PROTO = """syntax = "proto3";
message Reading {
  int64 id = 1;
  string station = 2;
  double celsius = 3;
  bool valid = 4;
  optional string note = 5;
}
"""
DDL = "id BIGINT, station STRING, celsius DOUBLE, valid BOOLEAN, note STRING"
SQL = "SELECT kafka.key AS key, id, station, celsius, valid, note FROM source"


def measure_avro(context: Context) -> list[Figure]:
    """The rate of Avro relative to JSON's."""
    return _measure(context, _Format(AVRO, "avro", "AVRO", _SCHEMA, avro_encoder))


def measure_json_schema(context: Context) -> list[Figure]:
    """The rate of JSON with a schema relative to that of JSON without one."""
    return _measure(context, _Format(JSON_SCHEMA, "jsonSchema", "JSON", _JSON_SCHEMA, json_schema_encoder))


def measure_protobuf(context: Context) -> list[Figure]:
    """The rate of Protobuf relative to JSON's."""
    return _measure(context, _Format(PROTOBUF, "protobuf", "PROTOBUF", _PROTO, protobuf_encoder))


Encode = Callable[[Mapping[str, Any]], bytes]


@dataclass(frozen=True)
class _Format:
    """A format with a registry."""

    name: str
    of_spec: str
    type: str  # of its schemas in the registry
    schema: object
    encoder: Callable[[int], Encode]  # by the id of the schema


def _measure(context: Context, other: _Format) -> list[Figure]:
    """One case: how long a record is changes little."""
    case = cases(replace(context, partitions=context.partitions or (PARTITIONS,)))[0]
    with SchemaRegistry(context.directory / "registry") as registry:
        sources = {
            name: workload.create(context.bootstrap, name.lower().replace(" ", "-"), case.partitions)
            for name in (JSON, other.name)
        }
        try:
            copies = _Copies(context, registry, case, sources, other)
            copies.fill()
            return copies.measure()
        finally:
            workload.delete(context.bootstrap, *sources.values())


def reading(partition: int, n: int) -> Mapping[str, Any]:
    """The columns of a record."""
    note = None if n % 3 else f"checked by hand, reading {n}"
    return {"id": n, "station": f"station-{partition}", "celsius": n % 400 / 10, "valid": n % 7 > 0, "note": note}


def json_schema_encoder(schema_id: int) -> Encode:
    """Writes values as Confluent's serializers do."""
    return lambda columns: struct.pack(">bI", 0, schema_id) + json.dumps(columns).encode()


def protobuf_encoder(schema_id: int) -> Encode:
    """Writes values as Confluent's serializers do."""
    file = FileDescriptorProto(name="reading.proto", syntax="proto3")
    message = file.message_type.add(name="Reading", oneof_decl=[{"name": "_note"}])
    types = (Field.TYPE_INT64, Field.TYPE_STRING, Field.TYPE_DOUBLE, Field.TYPE_BOOL, Field.TYPE_STRING)
    for number, (name, kind) in enumerate(zip(("id", "station", "celsius", "valid", "note"), types, strict=True), 1):
        message.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    message.field[-1].oneof_index, message.field[-1].proto3_optional = 0, True
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    reading_class = GetMessageClass(pool.FindMessageTypeByName("Reading"))
    prefix = struct.pack(">bI", 0, schema_id) + b"\0"
    return lambda columns: prefix + bytes(reading_class(**columns).SerializeToString())


def avro_encoder(schema_id: int) -> Encode:
    """Writes values as Confluent's serializers do."""
    schema = fastavro.parse_schema(dict(_SCHEMA))

    def encode(columns: Mapping[str, Any]) -> bytes:
        value = io.BytesIO()
        value.write(struct.pack(">bI", 0, schema_id))
        fastavro.schemaless_writer(value, schema, dict(columns))
        return value.getvalue()

    return encode


@dataclass(frozen=True)
class _Copies:
    """Copies of the same records in each format."""

    context: Context
    registry: SchemaRegistry
    case: Case
    sources: Mapping[str, str]  # topic by format
    other: _Format

    def fill(self) -> None:
        other = self.other
        schema_id = self.registry.register(f"{self.sources[other.name]}-value", other.schema, other.type)
        encoders: dict[str, Encode] = {
            JSON: lambda columns: json.dumps(columns).encode(),
            other.name: other.encoder(schema_id),
        }
        for format_, encode in encoders.items():
            workload.fill_with(
                self.context.bootstrap,
                self.sources[format_],
                self.case.partitions,
                self.case.batch * self.case.batches,
                lambda partition, n, encode=encode: encode(reading(partition, n)),  # type: ignore[misc]
            )

    def measure(self) -> list[Figure]:
        runs, seconds = take_turns(
            self.context, (JSON, self.other.name), self._run, f"{self.case.partitions} partitions"
        )
        title = f"{self.case.partitions} partitions, {self.context.guarantee}, local[{self.context.slots}]"
        targets = {AVRO: TARGET} if self.other.name == AVRO else {}
        return figures(title, self.other.name, runs, seconds[self.other.name], targets)

    def _run(self, format_: str, number: int) -> tuple[Throughput, list[float]]:
        context, case = self.context, self.case
        records = case.batch * case.batches
        directory = context.directory / f"formats-{format_.replace(' ', '-')}-{number}"
        with workload.sink(context.bootstrap, case.partitions) as sink, UsageMeter() as meter:
            copy = Copy(context.bootstrap, self.sources[format_], sink, case.batch, context.slots, directory)
            seconds = run_job(
                our_job(copy, context.guarantee, {"availableNow": True}, spec=self._spec(copy, format_)), directory
            )
            times = workload.append_times(context.bootstrap, sink, records)
        return after_warm_up(case, times, meter), durations(seconds, case.warm_up)

    def _spec(self, copy: Copy, format_: str) -> Mapping[str, Any]:
        columns = {"schema": DDL} if format_ == JSON else {"schemaVersion": 1}
        of_spec = "json" if format_ == JSON else self.other.of_spec
        read = {"topics": [copy.source], "format": of_spec, "maxOffsetsPerTrigger": copy.batch, **columns}
        spec: dict[str, Any] = {
            "source": read,
            "transform": {"sql": SQL},
            "sink": {"kafka": {"topic": copy.sink, "format": of_spec}},
        }
        return spec if format_ == JSON else {**spec, "schemaRegistry": {"url": self.registry.url}}
