"""What the documents name exists."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TESTS = {name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}


def test_every_test_that_a_document_names_is_there() -> None:
    named = {name for file in DOCUMENTS for name in re.findall(r"`(test_[\w*]+)`", file.read_text())}
    assert len(named) > 20
    assert {pattern for pattern in named if not fnmatch.filter(TESTS, pattern)} == set()


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: f.name)
def test_every_link_within_the_repository_leads_somewhere(file: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", file.read_text())
    assert [link for link in links if not (file.parent / link).exists()] == []
