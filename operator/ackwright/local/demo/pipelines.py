"""The demo's pipelines as a user writes them: one document per guarantee, which differ in guarantee and names only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ackwright_stream.jobspec import Guarantee

SOURCE = "flights"
PARTITIONS = 6
BATCHES = 12  # approximate number of micro-batches of a run
_SCHEMA = "tailnum STRING, carrier STRING, flight INT, origin STRING, dest STRING, time_hour STRING, dep_delay INT"


class Sink(StrEnum):
    """What --sink accepts."""

    KAFKA = "kafka"
    POSTGRES = "postgres"
    DELTA = "delta"


def output_name(guarantee: Guarantee) -> str:
    """The name of the sink's topic or table."""
    return f"disrupted-{guarantee}"


@dataclass(frozen=True)
class KafkaOutput:
    """Each pipeline delivers to its own topic."""

    secrets: Path | None = None  # has each Secret of the sink as a directory of files

    def sink(self, name: str) -> dict[str, Any]:
        """spec.sink of the pipeline with this output."""
        return {"kafka": {"topic": name, "format": "json"}}

    def topics(self, name: str) -> Sequence[str]:
        """The topics that the sink needs."""
        return [name]


@dataclass(frozen=True)
class PostgresOutput:
    """Each pipeline delivers to its own table of a database."""

    database: Mapping[str, Any]  # spec.sink.postgres without the table
    secrets: Path | None = None

    def sink(self, name: str) -> dict[str, Any]:
        return {"postgres": {**self.database, "table": name, "createTable": True}}

    def topics(self, name: str) -> Sequence[str]:
        return []


@dataclass(frozen=True)
class DeltaOutput:
    """Each pipeline delivers to its own Delta table."""

    directory: Path  # of the tables
    secrets: Path | None = None

    def sink(self, name: str) -> dict[str, Any]:
        return {"delta": {"path": str(self.directory / name), "createTable": True}}

    def topics(self, name: str) -> Sequence[str]:
        return []


Output = KafkaOutput | PostgresOutput | DeltaOutput


def document(bootstrap: str, guarantee: Guarantee, records: int, checkpoint: Path, output: Output) -> dict[str, Any]:
    """The DeliveryPipeline of one guarantee.

    checkpoint: the directory of Spark's checkpoint.
    """
    name = output_name(guarantee)
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": {
            "guarantee": str(guarantee),
            "tolerate": {"brokerFailures": 1},
            "kafka": {"bootstrapServers": bootstrap},
            "source": {
                "topics": [SOURCE],
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": -(-records // BATCHES),
                "format": "json",
                "schema": _SCHEMA,
                "onMalformed": "fail",
            },
            "transform": {"python": {"module": "flights_app", "function": "disrupted"}},
            "sink": output.sink(name),
            "topics": [{"name": topic, "partitions": PARTITIONS} for topic in (SOURCE, *output.topics(name))],
            "trigger": {"interval": "0ms"},
            "checkpoint": {"uri": f"file://{checkpoint}"},
            "spark": {"executor": {"instances": 2, "cores": 1, "memory": "1g"}},
        },
    }
