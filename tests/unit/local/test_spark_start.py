"""Class archives that no program uses any more are removed."""

from __future__ import annotations

import os
from pathlib import Path

from ackwright.local import spark_start

NOW = 1_000_000_000.0
DAY = 24 * 3600.0


def test_archives_that_were_not_used_for_a_month_are_removed(tmp_path: Path) -> None:
    ages = {"spark-new.jsa": 1, "spark-used.jsa": 29, "spark-old.jsa": 31, "other.jsa": 31}
    for name, days in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (NOW - days * DAY, NOW - days * DAY))
    spark_start.remove_unused(tmp_path, NOW)
    assert {p.name for p in tmp_path.iterdir()} == ages.keys() - {"spark-old.jsa"}
