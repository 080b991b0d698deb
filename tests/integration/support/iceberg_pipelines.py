"""Pipelines from real brokers through Spark to a real Iceberg table."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackwright.local.kafka import EmbeddedKafka
from integration.support.driver_lives import DriverLives
from integration.support.iceberg_stores import Table
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
        """The positions of the partitions, as the table's properties have them."""
        return offsets_by_name(self.table.properties(), self.spec.group, self.source, PARTITIONS)

    def verdict(self) -> Verdict:
        """What the table has, compared with what was fed."""
        return judge_rows(self.table.rows(), PARTITIONS, self.fed)

    def assert_exactly_once(self) -> None:
        assert self.verdict() == Verdict(0, 0, 0, 0)
        assert self.positions() == [self.fed] * PARTITIONS


def pipeline(kafka: EmbeddedKafka, directory: Path, guarantee: str, **more: Any) -> Pipeline:
    """A pipeline into a table in a directory, whose catalog is a file there. The job creates both."""
    servers, source = kafka.bootstrap_servers, f"iceberg-{uuid.uuid4().hex[:8]}"
    create_topics(servers, source, partitions=PARTITIONS)
    table = Table(directory / "warehouse")
    of_sink = {
        "catalog": {"uri": table.uri, "warehouse": table.warehouse},
        "table": table.name,
        "createTable": True,
        **more.pop("sink", {}),
    }
    spec = document(servers, source, guarantee, source, "not-used", **more)
    spec["spec"]["sink"] = {"iceberg": of_sink}
    return Pipeline(servers, directory, job_of(spec, directory, secrets=str(directory)), PARTITIONS, table)
