"""The demo's pipelines as a user writes them: one document per guarantee, which differ in guarantee and names only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ackwright_stream.jobspec import Guarantee

SOURCE = "flights"
PARTITIONS = 6
BATCHES = 12  # approximate number of micro-batches of a run
_SCHEMA = "tailnum STRING, carrier STRING, flight INT, origin STRING, dest STRING, time_hour STRING, dep_delay INT"


def sink(guarantee: Guarantee) -> str:
    """The name of the sink topic."""
    return f"disrupted-{guarantee}"


def document(bootstrap: str, guarantee: Guarantee, records: int, checkpoint: Path) -> dict[str, Any]:
    """The DeliveryPipeline of one guarantee. checkpoint: the directory of Spark's checkpoint."""
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": f"disrupted-{guarantee}", "namespace": "demo"},
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
            "sink": {"kafka": {"topic": sink(guarantee), "format": "json"}},
            "topics": [{"name": SOURCE, "partitions": PARTITIONS}, {"name": sink(guarantee), "partitions": PARTITIONS}],
            "trigger": {"interval": "0ms"},
            "checkpoint": {"uri": f"file://{checkpoint}"},
            "spark": {"executor": {"instances": 2, "cores": 1, "memory": "1g"}},
        },
    }
