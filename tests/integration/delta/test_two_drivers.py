"""Two drivers of one pipeline at once, as processes, with a Delta table."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.support.delta_stores import Table, job
from integration.support.racing_drivers import EACH, PARTITIONS, assert_guaranteed, race
from integration.support.table_rows import judge_rows, offsets_by_name


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_two_drivers_at_once(tmp_path: Path, guarantee: str) -> None:
    table = Table(tmp_path / "table")
    spec = job(tmp_path, table.path)
    race(tmp_path, spec, guarantee, "partition")
    assert_guaranteed(judge_rows(table.rows(), PARTITIONS, EACH), guarantee)
    assert offsets_by_name(table.transactions(), spec.group, "in", PARTITIONS) == [EACH] * PARTITIONS
