"""A directory of files that a driver will create."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.support.files_stores import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "files")
