"""What the documents name exists."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

from ackwright_stream.jobspec import EXIT_CODES, Reason

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "charts" / "ackwright" / "README.md", *(ROOT / "docs").glob("*.md")])
TESTS = {name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}


def test_every_test_that_a_document_names_is_there() -> None:
    named = {name for file in DOCUMENTS for name in re.findall(r"`(test_[\w*]+)`", file.read_text())}
    assert len(named) > 20
    assert {pattern for pattern in named if not fnmatch.filter(TESTS, pattern)} == set()


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(file: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", file.read_text())
    assert [link for link in links if not (file.parent / link).exists()] == []


def test_every_reason_is_in_the_table_of_exit_codes_and_has_a_remedy() -> None:
    codes, remedies = (ROOT / "docs" / "exit-codes.md").read_text().split("## What to do")
    rows = re.findall(r"^\| (\d) \|.*\|([^|]*)\|$", codes, re.MULTILINE)
    documented = {reason.strip(): int(code) for code, reasons in rows for reason in reasons.split(",") if reason.strip()}
    assert documented == {str(reason): int(code) for reason, code in EXIT_CODES.items()}
    told = {name.strip() for names in re.findall(r"^\| ([A-Z][\w, ]+) \|", remedies, re.MULTILINE) for name in names.split(",")}
    # What is wrong with a file is told by its message, every time another way.
    assert set(Reason) - told == {Reason.INVALID_SPEC, Reason.INVALID_TRANSFORM, Reason.NOT_STATELESS, Reason.UNEXPECTED}
