"""Two drivers of one pipeline at once, as processes, with an Iceberg table of a REST catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.support.iceberg_server import RestCatalogServer
from integration.support.iceberg_stores import Table, job
from integration.support.racing_drivers import EACH, PARTITIONS, assert_guaranteed, race
from integration.support.table_rows import judge_rows, offsets_by_name


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_two_drivers_at_once(rest_catalog: RestCatalogServer, tmp_path: Path, guarantee: str) -> None:
    namespace = f"racing{abs(hash(tmp_path)):x}"
    table = Table(rest_catalog.warehouse / namespace, rest_catalog, f"{namespace}.rows")
    spec = job(tmp_path, table)
    race(tmp_path, spec, guarantee, "partition")
    assert_guaranteed(judge_rows(table.rows(), PARTITIONS, EACH), guarantee)
    assert offsets_by_name(table.properties(), spec.group, "in", PARTITIONS) == [EACH] * PARTITIONS
