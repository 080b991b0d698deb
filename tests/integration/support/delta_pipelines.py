"""Pipelines from real brokers through Spark to a real Delta table."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackwright.local.kafka import EmbeddedKafka
from integration.support.delta_stores import Table
from integration.support.driver_lives import DriverLives
from integration.support.pipelines import Verdict, create_topics, document, job_of
from integration.support.table_rows import judge_rows, offsets_by_name

PARTITIONS, EACH = 2, 100


@dataclass
class Pipeline(DriverLives):
    """One pipeline into a table, over several lives of its driver."""

    table: Table

    def feed(self, count: int = EACH) -> None:
        super().feed(count)

    def positions(self) -> list[int]:
        """The positions of the partitions, as the log has them."""
        return offsets_by_name(self.table.transactions(), self.spec.group, self.source, PARTITIONS)

    def verdict(self) -> Verdict:
        """What the table has, compared with what was fed."""
        return judge_rows(self.table.rows(), PARTITIONS, self.fed)

    def assert_exactly_once(self) -> None:
        assert self.verdict() == Verdict(0, 0, 0, 0)
        assert self.positions() == [self.fed] * PARTITIONS


def pipeline(kafka: EmbeddedKafka, directory: Path, guarantee: str, **more: Any) -> Pipeline:
    """A pipeline into a table in a directory, which the job creates."""
    servers, source = kafka.bootstrap_servers, f"delta-{uuid.uuid4().hex[:8]}"
    create_topics(servers, source, partitions=PARTITIONS)
    table = directory / "table"
    sink = more.pop("sink", {"delta": {"path": str(table), "createTable": True}})
    spec = document(servers, source, guarantee, source, "not-used", **more)
    spec["spec"]["sink"] = sink
    return Pipeline(servers, directory, job_of(spec, directory, secrets=str(directory)), PARTITIONS, Table(table))
