"""`ackwright run` as a process: the file of a pipeline, the command, its events, and the sink's records."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import yaml

from integration.support.pipelines import read
from waiting import WAIT

COMMAND = [sys.executable, "-c", "from ackwright.cli.main import main; main()", "run"]


def pipeline(servers: str, **spec: Any) -> dict[str, Any]:
    name = f"run-{uuid.uuid4().hex[:8]}"
    topics = [{"name": f"{name}-in", "partitions": 2}, {"name": f"{name}-out", "partitions": 2}]
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": name},
        "spec": {
            "guarantee": "exactly-once",
            "kafka": {"bootstrapServers": servers},
            "source": {"topics": [f"{name}-in"], "format": "string"},
            "transform": {"sql": "SELECT key, upper(value) AS value FROM source"},
            "sink": {"kafka": {"topic": f"{name}-out", "format": "string"}},
            "topics": topics,
            **spec,
        },
    }


def write_document(directory: Path, document: dict[str, Any]) -> Path:
    """Writes pipeline.yaml; returns its path."""
    file = directory / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def run(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "-f", str(file), *arguments], capture_output=True, text=True, timeout=WAIT, check=False
    )


def events(output: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in map(json.loads, output.splitlines()) if event["event"] == kind]


def committed(servers: str, topic: str) -> list[str]:
    """The values of the topic's committed records, sorted."""
    return sorted((r.value or b"").decode() for r in read(servers, topic))
