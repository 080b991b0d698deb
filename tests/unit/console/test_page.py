"""The console's page is built from the current sources, and needs no other file; the files that come from elsewhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import remedies
from ackwright.console import server
from unit.console import example, recorded

ROOT = Path(__file__).parents[3]
FRONT_END = ROOT / "console"
PAGE = Path(server.__file__).with_name("page.html")
_SINGLE = ("index.html", "package-lock.json", "tsconfig.json", "vite.config.ts")


def sources_hash(front_end: Path) -> str:
    """The hash of everything that the page is built from, as vite.config.ts computes it."""
    files = [*(front_end / name for name in _SINGLE), *(f for f in (front_end / "src").rglob("*") if f.is_file())]
    content = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.relative_to(front_end).as_posix()):
        content.update(f"{file.relative_to(front_end).as_posix()}\n".encode() + file.read_bytes())
    return content.hexdigest()[:16]


def test_the_page_is_built_from_the_current_sources() -> None:
    assert f'<meta name="sources" content="{sources_hash(FRONT_END)}"' in PAGE.read_text(), "run make console"


def test_control_another_source_changes_the_hash(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in (*_SINGLE, "src/main.tsx"):
        (tmp_path / name).write_text(name)
    before = sources_hash(tmp_path)
    (tmp_path / "src" / "main.tsx").write_text("changed")
    assert sources_hash(tmp_path) != before


def test_the_page_needs_no_other_file() -> None:
    page = PAGE.read_text()
    assert "<script" in page
    assert not [attribute for attribute in ('src="', "@import", "url(") if attribute in page]


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (FRONT_END / "package-lock.json").read_text()


def test_the_remedies_are_those_of_the_page() -> None:
    assert remedies.PLACE.read_text() == remedies.text(), "run make reference"


def test_a_row_of_several_reasons_counts_for_each_and_links_are_left_out() -> None:
    row = "| `A`, `B` | a cause with `x \\| y` | do [this](page.md#place) | `run NAME` |"
    expected = {"cause": "a cause with x | y", "remedy": "do this", "command": "run NAME"}
    assert remedies.by_reason(f"| reason | cause | what to do | command |\n{row}\n") == {"A": expected, "B": expected}
    assert json.loads(remedies.text())["Delivering"]["command"] == ""


def test_the_page_of_the_documentation_has_every_answer_and_nothing_ends_its_element() -> None:
    page = example.text()
    start = page.index('<script id="recorded" type="application/json">') + len(
        '<script id="recorded" type="application/json">'
    )
    content = page[start : page.index("</script>", start)]
    assert json.loads(content) == json.loads(json.dumps(example.answers()))
    assert len(json.loads(content)) == len(recorded.PIPELINES) + 1
    assert "<" not in content
