"""The Delta sink in this process, without Kafka and Spark, and a reader that shares no code with it.

The reader follows the log from its first entry by the text of Delta's protocol, and reads the files with DuckDB.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ackwright.sinks.delta import DeltaSink as Declared
from ackwright_stream.jobspec import DeltaSink, JobSpec
from ackwright_stream.positions import Lane
from integration.support.parquet_rows import rows_of
from integration.support.pipelines import document, job_of
from integration.support.staged_drivers import IDS, A


class Table:
    """A Delta table in a directory, as its log describes it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def version(self) -> int:
        return len(self._entries()) - 1

    def transactions(self) -> dict[str, int]:
        """The last number of each application transaction."""
        return {a["txn"]["appId"]: a["txn"]["version"] for a in self._actions() if "txn" in a}

    def files(self) -> dict[str, dict[str, str | None]]:
        """The partition values of the files of the latest version, by their paths."""
        files = {}
        for action in self._actions():
            if add := action.get("add"):
                files[unquote(add["path"])] = add["partitionValues"]
            if remove := action.get("remove"):
                del files[unquote(remove["path"])]
        return files

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the latest version; partition columns as the log has them."""
        rows = []
        for path, values in self.files().items():
            rows += [{**row, **values} for row in rows_of([self.path / path])]
        return rows

    def orphans(self) -> list[str]:
        """The data files that no version has."""
        committed = {unquote(a["add"]["path"]) for a in self._actions() if "add" in a}
        return sorted(p.name for p in self.path.glob("*.parquet") if p.name not in committed)

    def offsets(self, lane: Lane = A) -> list[int]:
        """The source offsets of the rows of a lane, sorted."""
        return sorted(row["n"] for row in self.rows() if row["lane"] == lane.partition)

    def position(self, group: str, lane: Lane = A) -> int | None:
        """The position of a lane."""
        names = self.transactions()
        return names.get(f"ackwright/{group}/{lane.topic}/{lane.partition}/{IDS[lane.topic]}")

    def _entries(self) -> list[Path]:
        return sorted((self.path / "_delta_log").glob("*.json"))

    def _actions(self) -> Iterator[dict[str, Any]]:
        for version, entry in enumerate(self._entries()):
            assert entry.name == f"{version:020}.json", "a version is missing"
            yield from map(json.loads, entry.read_text().splitlines())


def job(directory: Path, path: Path | str, name: str = "p", **fields: Any) -> JobSpec:
    """A jobspec that only the sink and the lanes read."""
    spec = job_of(document("127.0.0.1:1", name, "exactly-once", "in", "out"), directory)
    return replace(spec, sink=sink(path, **fields), operation_timeout_ms=10_000)


def sink(path: Path | str, **fields: Any) -> DeltaSink:
    """The sink's part of a jobspec."""
    declared = Declared.model_validate({"path": str(path), "createTable": True})
    return replace(declared.to_job("a group"), **fields)
