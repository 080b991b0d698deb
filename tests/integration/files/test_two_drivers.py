"""Two drivers of one pipeline at once, as processes, with files in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.support.files_stores import Files, job
from integration.support.racing_drivers import EACH, PARTITIONS, assert_guaranteed, race
from integration.support.table_rows import judge_rows


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_two_drivers_at_once(tmp_path: Path, guarantee: str) -> None:
    files = Files(tmp_path / "files")
    race(tmp_path, job(tmp_path, files.path), guarantee, "lane")
    assert_guaranteed(judge_rows(files.rows(), PARTITIONS, EACH), guarantee)
