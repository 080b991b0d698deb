"""Reads Parquet files with DuckDB, which shares no code with the sinks: these write them with pyarrow."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.fs as pafs


def rows_of(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of all files together. A column that a file lacks is null in its rows."""
    files = [str(path) for path in paths]
    if not files:
        return []
    query = "FROM read_parquet($1, union_by_name = true, hive_partitioning = false)"
    result = _connection().cursor().execute(query, [files])
    names = [name for name, *_ in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def metadata_of(path: Path) -> dict[str, str]:
    """The metadata in a file's footer."""
    pairs = _connection().cursor().execute("SELECT key, value FROM parquet_kv_metadata($1)", [str(path)]).fetchall()
    return {key.decode(): value.decode() for key, value in pairs}


def rows_in(files: pafs.FileSystem, paths: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of files in a bucket or a directory. files: the client that fetches their bytes."""
    with tempfile.TemporaryDirectory() as directory:
        return rows_of([_fetched(files, path, Path(directory, f"{n}.parquet")) for n, path in enumerate(paths)])


def metadata_in(files: pafs.FileSystem, path: str) -> dict[str, str]:
    """The metadata in the footer of such a file."""
    with tempfile.TemporaryDirectory() as directory:
        return metadata_of(_fetched(files, path, Path(directory, "0.parquet")))


def _fetched(files: pafs.FileSystem, path: str, to: Path) -> Path:
    """Where the file is on this machine."""
    if isinstance(files, pafs.LocalFileSystem):
        return Path(path)
    with files.open_input_stream(path) as stream:
        to.write_bytes(stream.read())
    return to


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()
