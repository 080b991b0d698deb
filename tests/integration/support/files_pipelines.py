"""Pipelines from real brokers through Spark to real Parquet files."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackwright.local.kafka import EmbeddedKafka
from integration.support.driver_lives import DriverLives
from integration.support.files_stores import Files
from integration.support.pipelines import Verdict, create_topics, document, job_of
from integration.support.table_rows import judge_rows

PARTITIONS, EACH = 2, 100


@dataclass
class Pipeline(DriverLives):
    """One pipeline into files, over several lives of its driver."""

    files: Files

    def feed(self, count: int = EACH) -> None:
        super().feed(count)

    def chains(self) -> list[list[tuple[int, int]]]:
        """The ranges of the files of each partition, in their order."""
        ranges: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        for name in self.files.names():
            if footer := self.files.footer(name):
                ranges[int(footer["partition"])].append((int(footer["from"]), int(footer["until"])))
        return ranges

    def verdict(self) -> Verdict:
        """What the files have, compared with what was fed."""
        return judge_rows(self.files.rows(), PARTITIONS, self.fed)

    def assert_exactly_once(self) -> None:
        assert self.verdict() == Verdict(0, 0, 0, 0)
        for chain in self.chains():
            assert [start for start, _ in chain] == [0, *(until for _, until in chain[:-1])], "a chain has a gap"
            assert chain[-1][1] == self.fed


def pipeline(kafka: EmbeddedKafka, directory: Path, guarantee: str, **more: Any) -> Pipeline:
    """A pipeline into files of a directory."""
    servers, source = kafka.bootstrap_servers, f"files-{uuid.uuid4().hex[:8]}"
    create_topics(servers, source, partitions=PARTITIONS)
    path = directory / "files"
    sink = more.pop("sink", {"files": {"path": str(path)}})
    spec = document(servers, source, guarantee, source, "not-used", **more)
    spec["spec"]["sink"] = sink
    return Pipeline(servers, directory, job_of(spec, directory, secrets=str(directory)), PARTITIONS, Files(path))
