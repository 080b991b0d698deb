"""A stateful pipeline, and the sinks that it may have."""

from __future__ import annotations

import copy
from typing import Any

from ackwright.api.spec import DeliveryPipeline, parse

SQL = """
    SELECT CAST(window.start AS STRING) AS key, CAST(count(*) AS STRING) AS value
    FROM source GROUP BY window(at, '1 minute')
"""
DOCUMENT: dict[str, Any] = {
    "apiVersion": "ackwright.io/v1alpha1",
    "kind": "DeliveryPipeline",
    "metadata": {"name": "p", "namespace": "ops"},
    "spec": {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "k:9092"},
        "source": {
            "topics": ["in"],
            "format": "json",
            "schema": "at TIMESTAMP",
            "eventTime": {"column": "at", "watermark": "10s"},
        },
        "transform": {"sql": SQL},
        "state": {"partitions": 3},
        "sink": {"kafka": {"topic": "out"}},
        "checkpoint": {"volume": {"size": "1Gi"}},
    },
}


def pipeline(**spec: Any) -> DeliveryPipeline:
    """A stateful pipeline with other fields of the spec; None removes a field."""
    document = copy.deepcopy(DOCUMENT)
    merged = {**document["spec"], **spec}
    document["spec"] = {name: value for name, value in merged.items() if value is not None}
    return parse(document)


DELTA = {"delta": {"path": "/table"}}
ICEBERG = {"iceberg": {"table": "ns.t", "catalog": {"uri": "http://catalog:8181"}}}
FILES = {"files": {"path": "/rows"}}


def table(**fields: Any) -> dict[str, Any]:
    """spec.sink of a pipeline into PostgreSQL."""
    return {"postgres": {"host": "db", "database": "d", "table": "t", "credentialsSecret": {"name": "s"}, **fields}}


SINKS = {
    "kafka": {"kafka": {"topic": "out"}},
    "postgres": table(mode="upsert", key=["k"]),
    "delta": DELTA,
    "files": FILES,
    "iceberg": {"iceberg": {"catalog": {"uri": "https://catalog"}, "table": "sales.counts"}},
}
