"""The Iceberg sink in this process, without Kafka and Spark, and a reader that shares no code with it.

The reader follows metadata, manifest lists and manifests by the text of Iceberg's specification, and reads the files
with DuckDB.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyarrow.fs import FileSystem
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import SetSnapshotRefUpdate

from ackwright.sinks.iceberg import IcebergSink as Declared
from ackwright_stream.jobspec import IcebergSink, JobSpec
from ackwright_stream.positions import Lane
from integration.support.iceberg_server import RestCatalogServer
from integration.support.parquet_rows import rows_in, rows_of
from integration.support.pipelines import document, job_of
from integration.support.staged_drivers import IDS, A

NAME = "shop.rows"


def place(location: str) -> Path:
    """The path of a file in a directory."""
    return Path(location.removeprefix("file://").removeprefix("file:"))


class Table:
    """An Iceberg table in a directory, as its metadata describe it."""

    def __init__(self, directory: Path, server: RestCatalogServer | None = None, name: str = NAME) -> None:
        """directory: of its files. server: its catalog; None: a file of SQLite in the directory."""
        self.directory, self.name, self._server = directory, name, server
        self.uri = server.uri if server else f"sqlite:///{directory / 'catalog.db'}"

    @property
    def warehouse(self) -> str | None:
        """As in the spec."""
        return None if self._server else str(self.directory)

    @property
    def metadata(self) -> Any:
        """The latest metadata."""
        if self._server:
            return self._server.metadata(*self.name.split("."))
        with closing(sqlite3.connect(self.directory / "catalog.db")) as catalog:
            ((location,),) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
        return json.loads(place(location).read_text())

    @property
    def snapshots(self) -> int:
        return len(self.metadata["snapshots"])

    def properties(self) -> dict[str, str]:
        return dict(self.metadata["properties"])

    def files(self) -> dict[str, Any]:
        """The data files of the latest snapshot by their paths, as manifests have them."""
        metadata = self.metadata
        current = metadata.get("current-snapshot-id")
        if current in (None, -1):
            return {}
        (snapshot,) = [s for s in metadata["snapshots"] if s["snapshot-id"] == current]
        files: dict[str, Any] = {}
        for manifest in _avro(snapshot["manifest-list"]):
            assert manifest["content"] == 0, "there are delete files"
            for entry in _avro(manifest["manifest_path"]):
                if entry["status"] != 2:
                    path = entry["data_file"]["file_path"]
                    assert path not in files, f"{path} is in the snapshot twice"
                    files[path] = entry["data_file"]
        return files

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the latest snapshot."""
        rows: list[dict[str, Any]] = []
        for path, file in self.files().items():
            of_file = rows_of([place(path)])
            assert len(of_file) == file["record_count"]
            rows += of_file
        return rows

    def orphans(self) -> list[str]:
        """The data files that the latest snapshot does not have."""
        committed = {place(path) for path in self.files()}
        return sorted(str(p) for p in self.directory.rglob("*.parquet") if p not in committed)

    def offsets(self, lane: Lane = A) -> list[int]:
        """The source offsets of the rows of a lane, sorted."""
        return sorted(row["n"] for row in self.rows() if row["lane"] == lane.partition)

    def position(self, group: str, lane: Lane = A) -> int | None:
        """The position of a lane."""
        value = self.properties().get(f"ackwright/{group}/{lane.topic}/{lane.partition}/{IDS[lane.topic]}")
        return None if value is None else int(value)

    def catalog(self) -> Catalog:
        """The catalog for pyiceberg, which plays the other programs."""
        if self._server:
            return RestCatalog("default", uri=self.uri)
        self.directory.mkdir(exist_ok=True)
        return SqlCatalog("default", uri=self.uri, warehouse=str(self.directory))

    def handle(self) -> IcebergTable:
        """The table for pyiceberg."""
        return self.catalog().load_table(self.name)

    def roll_back(self, snapshot: int) -> None:
        """Another program makes an older snapshot the current one."""
        ref = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot}
        self.handle()._do_commit(updates=(SetSnapshotRefUpdate.model_validate(ref),), requirements=())

    def create(self, schema: Schema, **more: Any) -> None:
        """Another program creates the table."""
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists(self.name.split(".")[0])
        catalog.create_table(self.name, schema, **more)


def _avro(location: str) -> list[Any]:
    with place(location).open("rb") as file:
        return list(fastavro.reader(file))


def rows_in_bucket(files: FileSystem, location: str) -> list[tuple[int, int]]:
    """Lane and offset of the rows of the latest snapshot, sorted. location: s3://, of the table's metadata."""

    def content(location: str) -> Any:
        return files.open_input_file(location.removeprefix("s3://"))

    metadata = json.loads(content(location).read())
    (snapshot,) = [s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"]]
    manifests = [m["manifest_path"] for m in fastavro.reader(content(snapshot["manifest-list"]))]
    entries = [entry for manifest in manifests for entry in fastavro.reader(content(manifest))]
    paths = [entry["data_file"]["file_path"].removeprefix("s3://") for entry in entries]
    return sorted((row["lane"], row["n"]) for row in rows_in(files, paths))


def job(directory: Path, table: Table, name: str = "p", **fields: Any) -> JobSpec:
    """A jobspec that only the sink and the lanes read."""
    spec = job_of(document("127.0.0.1:1", name, "exactly-once", "in", "out"), directory)
    return replace(spec, sink=sink(table, **fields), operation_timeout_ms=10_000)


def sink(table: Table, **fields: Any) -> IcebergSink:
    """The sink's part of a jobspec."""
    catalog = {"uri": table.uri, **({"warehouse": table.warehouse} if table.warehouse else {})}
    declared = Declared.model_validate({"catalog": catalog, "table": table.name, "createTable": True})
    return replace(declared.to_job("a group"), **fields)


def login(directory: Path, name: str, secret: str) -> str:
    """As a mounted Secret."""
    directory.mkdir()
    (directory / "username").write_text(f"{name}\n")
    (directory / "password").write_text(f"{secret}\n")
    return str(directory)


def add_elsewhere(handle: IcebergTable) -> None:
    """Another program appends a row."""
    handle.append(pa.table({"lane": pa.array([99], pa.int32()), "n": pa.array([-1], pa.int64())}))
