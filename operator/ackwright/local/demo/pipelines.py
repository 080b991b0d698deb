"""The demo's pipelines as a user writes them.

Those of disrupted flights differ in guarantee and names only. The counts are stateful, and exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ackwright_stream.jobspec import Guarantee

SOURCE = "flights"
PARTITIONS = 6
BATCHES = 12  # approximate number of micro-batches of a run
_COUNTS = "counts-by-day"  # the pipeline, and its topic
_SCHEMA = "tailnum STRING, carrier STRING, flight INT, origin STRING, dest STRING, time_hour STRING, dep_delay INT"


class Pipeline(StrEnum):
    """What --pipeline accepts."""

    DISRUPTED = "disrupted"
    COUNTS = "counts"


class Sink(StrEnum):
    """What --sink accepts."""

    KAFKA = "kafka"
    POSTGRES = "postgres"
    DELTA = "delta"
    ICEBERG = "iceberg"
    FILES = "files"


def output_name(guarantee: Guarantee) -> str:
    """The name of the sink's topic, table or directory."""
    return f"disrupted-{guarantee}"


@dataclass(frozen=True)
class Output:
    """Where the pipelines of a demo deliver: each to its own topic, table or directory."""

    sink: Callable[[str], dict[str, Any]]  # spec.sink, by the name of the topic, table or directory
    in_kafka: bool = False  # whether that is a topic
    secrets: Path | None = None  # has each Secret of the sink as a directory of files


KAFKA = Output(lambda name: {"kafka": {"topic": name, "format": "json"}}, in_kafka=True)
COUNTED = Output(lambda _: {"kafka": {"topic": _COUNTS}}, in_kafka=True)  # of counts()


def postgres(database: Mapping[str, Any], secrets: Path | None = None) -> Output:
    """Tables of a database, which the jobs create. database: spec.sink.postgres without the table."""
    return Output(lambda name: {"postgres": {**database, "table": name, "createTable": True}}, secrets=secrets)


def delta(directory: Path) -> Output:
    """Delta tables below a directory, which the jobs create."""
    return Output(lambda name: {"delta": {"path": str(directory / name), "createTable": True}})


def iceberg(directory: Path) -> Output:
    """Iceberg tables below a directory, each with its own catalog, which the jobs create."""

    def sink(name: str) -> dict[str, Any]:
        catalog = {"uri": f"sqlite:///{directory / name / 'catalog.db'}", "warehouse": str(directory / name)}
        return {"iceberg": {"catalog": catalog, "table": f"demo.{name}", "createTable": True}}

    return Output(sink)


def files(directory: Path) -> Output:
    """Directories of Parquet files below a directory."""
    return Output(lambda name: {"files": {"path": str(directory / name)}})


def document(bootstrap: str, guarantee: Guarantee, records: int, checkpoint: Path, output: Output) -> dict[str, Any]:
    """The DeliveryPipeline of one guarantee.

    checkpoint: the directory of Spark's checkpoint.
    """
    name = output_name(guarantee)
    topics = [SOURCE, name] if output.in_kafka else [SOURCE]
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
            "topics": [{"name": topic, "partitions": PARTITIONS} for topic in topics],
            "trigger": {"interval": "0ms"},
            "checkpoint": {"uri": f"file://{checkpoint}"},
            "spark": {"executor": {"instances": 2, "cores": 1, "memory": "1g"}},
        },
    }


# One row for each airport, airline and day. Kept forever: the flights of a year are not in the order of their dates.
_COUNTS_SQL = """
    SELECT concat_ws(' ', date_format(window.start, 'yyyy-MM-dd'), origin, carrier) AS key,
           CAST(count(*) AS STRING) AS value
    FROM source GROUP BY origin, carrier, window(time_hour, '1 day')
"""


def counts(bootstrap: str, records: int) -> dict[str, Any]:
    """The DeliveryPipeline that counts the flights of each airport, airline and day. Its state is on a volume."""
    pipeline = document(bootstrap, Guarantee.EXACTLY_ONCE, records, Path(), KAFKA)
    spec = pipeline["spec"]
    spec["source"]["schema"] = "origin STRING, carrier STRING, time_hour TIMESTAMP"
    changed = {
        "transform": {"sql": _COUNTS_SQL},
        "state": {"partitions": 4, "outputMode": "update"},
        "sink": COUNTED.sink(_COUNTS),
        "topics": [{"name": topic, "partitions": PARTITIONS} for topic in (SOURCE, _COUNTS)],
        "checkpoint": {"volume": {"size": "1Gi"}},
    }
    return {**pipeline, "metadata": {**pipeline["metadata"], "name": _COUNTS}, "spec": {**spec, **changed}}
