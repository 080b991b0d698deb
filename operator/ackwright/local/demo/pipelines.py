"""The demo's pipelines as a user writes them: one document per guarantee, which differ in guarantee and names only."""

from __future__ import annotations

from collections.abc import Mapping
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


def output(guarantee: Guarantee) -> str:
    """The name of the sink's topic or table."""
    return f"disrupted-{guarantee}"


def document(
    bootstrap: str, guarantee: Guarantee, records: int, checkpoint: Path, database: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The DeliveryPipeline of one guarantee.

    checkpoint: the directory of Spark's checkpoint.
    database: spec.sink.postgres without its table; None: the sink is a topic.
    """
    name = output(guarantee)
    sink: dict[str, Any]
    if database is None:
        sink, topics = {"kafka": {"topic": name, "format": "json"}}, [SOURCE, name]
    else:
        sink, topics = {"postgres": {**database, "table": name, "createTable": True}}, [SOURCE]
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
            "sink": sink,
            "topics": [{"name": topic, "partitions": PARTITIONS} for topic in topics],
            "trigger": {"interval": "0ms"},
            "checkpoint": {"uri": f"file://{checkpoint}"},
            "spark": {"executor": {"instances": 2, "cores": 1, "memory": "1g"}},
        },
    }
