"""Stateful pipelines into tables with versions and into files, and whether their output is that of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackwright.local.kafka import EmbeddedKafka
from integration.support import delta_stores, files_stores, iceberg_stores
from integration.support.pipelines import create_topics, document, job_of
from integration.support.stateful_pipelines import StatefulPipeline, with_state
from integration.support.stateful_windows import OF_WINDOW, count_windows, ended_windows
from waiting import wait_until

Rows = Callable[[], Sequence[Mapping[str, Any]]]


@dataclass
class StatefulLake(StatefulPipeline):
    """One pipeline whose table or files have the counts of windows, over several runs of its driver."""

    rows: Rows  # of the sink, by a reader that shares no code with the sink

    def counts(self) -> list[tuple[int, int]]:
        """When each window begins, and its count."""
        return sorted((int(row["key"]), int(row["value"])) for row in self.rows())

    def expected(self) -> list[tuple[int, int]]:
        """The same of one run."""
        return [(begin, OF_WINDOW) for begin in ended_windows(self.fed)]

    def completed(self) -> None:
        """A run that ends when the table has as many windows as have ended, or more."""
        with self.life() as job:
            self.caught_up(job)
            wait_until(lambda: len(self.rows()) >= len(self.expected()), "the windows that have ended are in the table")
            self.drain(job)


def stateful_lake(kafka: EmbeddedKafka, directory: Path, kind: str, name: str) -> StatefulLake:
    """A pipeline with its topic. The job creates the table. kind: delta, iceberg or files."""
    sink, rows = {"delta": _delta, "iceberg": _iceberg, "files": _files}[kind](directory)
    servers, source = kafka.bootstrap_servers, f"{name}-in"
    create_topics(servers, source, partitions=1)
    stateless = document(servers, name, "exactly-once", source, "not-used")
    stateless["spec"]["source"]["maxOffsetsPerTrigger"] = 700
    stateless["spec"]["sink"] = sink
    job = job_of(stateless, directory, secrets=str(directory))
    state = directory / "state"
    created = StatefulLake(servers, directory, with_state(job, state), 1, state=state, rows=rows)
    count_windows(created)
    created.feed()
    return created


def _delta(directory: Path) -> tuple[dict[str, Any], Rows]:
    table = delta_stores.Table(directory / "table")
    return {"delta": {"path": str(directory / "table"), "createTable": True}}, table.rows


def _iceberg(directory: Path) -> tuple[dict[str, Any], Rows]:
    table = iceberg_stores.Table(directory / "warehouse")
    catalog = {"uri": table.uri, "warehouse": table.warehouse}
    return {"iceberg": {"catalog": catalog, "table": table.name, "createTable": True}}, table.rows


def _files(directory: Path) -> tuple[dict[str, Any], Rows]:
    path = directory / "files"
    return {"files": {"path": str(path)}}, files_stores.Files(path).rows
