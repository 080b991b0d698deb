"""Measures record formats: a guarantee copies the same records as JSON and as Avro, in turn.

Values are read into columns and written from columns. The schemas of Avro are in a registry on this machine.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import fastavro

from bench import workload
from bench.context import Context
from bench.figures import Figure, Throughput
from bench.processes import CpuMeter
from bench.runs import Copy, our_job, run_job
from bench.throughput import Case, after_warm_up, cases, durations, figures, take_turns
from integration.support.registry import SchemaRegistry

JSON, AVRO = "JSON", "Avro"
TARGET = 0.8  # the rate of Avro relative to JSON's
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
DDL = "id BIGINT, station STRING, celsius DOUBLE, valid BOOLEAN, note STRING"
SQL = "SELECT kafka.key AS key, id, station, celsius, valid, note FROM source"


def measure(context: Context) -> list[Figure]:
    """One case: how long a record is changes little."""
    case = cases(replace(context, partitions=context.partitions or (PARTITIONS,)))[0]
    with SchemaRegistry(context.directory / "registry") as registry:
        sources = {
            format_: workload.create(context.bootstrap, format_.lower(), case.partitions) for format_ in (JSON, AVRO)
        }
        try:
            copies = _Copies(context, registry, case, sources)
            copies.fill()
            return copies.measure()
        finally:
            workload.delete(context.bootstrap, *sources.values())


def reading(partition: int, n: int) -> Mapping[str, Any]:
    """The columns of a record."""
    note = None if n % 3 else f"checked by hand, reading {n}"
    return {"id": n, "station": f"station-{partition}", "celsius": n % 400 / 10, "valid": n % 7 > 0, "note": note}


def avro_encoder(schema_id: int) -> Callable[[Mapping[str, Any]], bytes]:
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

    def fill(self) -> None:
        encoders: dict[str, Callable[[Mapping[str, Any]], bytes]] = {
            JSON: lambda columns: json.dumps(columns).encode(),
            AVRO: avro_encoder(self.registry.register(f"{self.sources[AVRO]}-value", _SCHEMA)),
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
        runs, seconds = take_turns(self.context, (JSON, AVRO), self._run, f"{self.case.partitions} partitions")
        title = f"{self.case.partitions} partitions, {self.context.guarantee}, local[{self.context.slots}]"
        return figures(title, AVRO, runs, seconds[AVRO], {AVRO: TARGET})

    def _run(self, format_: str, number: int) -> tuple[Throughput, list[float]]:
        context, case = self.context, self.case
        records = case.batch * case.batches
        directory = context.directory / f"formats-{format_}-{number}"
        with workload.sink(context.bootstrap, case.partitions) as sink, CpuMeter() as meter:
            copy = Copy(context.bootstrap, self.sources[format_], sink, case.batch, context.slots, directory)
            seconds = run_job(
                our_job(copy, context.guarantee, {"availableNow": True}, spec=self._spec(copy, format_)), directory
            )
            times = workload.append_times(context.bootstrap, sink, records)
        return after_warm_up(case, times, meter), durations(seconds)

    def _spec(self, copy: Copy, format_: str) -> Mapping[str, Any]:
        columns = {"schema": DDL} if format_ == JSON else {"schemaVersion": 1}
        read = {"topics": [copy.source], "format": format_.lower(), "maxOffsetsPerTrigger": copy.batch, **columns}
        spec: dict[str, Any] = {
            "source": read,
            "transform": {"sql": SQL},
            "sink": {"kafka": {"topic": copy.sink, "format": format_.lower()}},
        }
        return spec if format_ == JSON else {**spec, "schemaRegistry": {"url": self.registry.url}}
