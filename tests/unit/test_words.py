"""The word list finds a word in prose and in names, and allows it where it is the exact word."""

from __future__ import annotations

import pytest

import check_words


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("a.md", "What it found, it mended.", ["found", "mended"]),
        ("a.md", "It looked again at the pipeline and goes on.", ["looked again at", "looked", "goes on"]),
        ("a.md", "A driver, who is fenced.", ["who"]),
        ("a.py", "topics_found = foundTopics\n", ["found", "found"]),
        ("a.py", "BatchesFound = 1\n", ["Found"]),
        ("a.py", "kept_offsets = 1  # kept\n", ["kept_offsets"]),
        ("a.py", "_LOOK_EVERY_S = look_at = looking\n", ["_LOOK_EVERY_S", "look_at"]),
        ("a.md", "The job's file: it was not heard of.", ["heard of", "The job's file"]),
        ("a.md", "Foundations, clean, the definition of a lane, unwholesome, bisaid.", []),
        ("a.md", "HTTP 404 (not found), NotFound, any given offset", []),
        ("a.md", "the users who read it", []),
        ("tests/unit/test_a.py", "from hypothesis import given\n@given(x)\ndef f(): pass\n", []),
        ("operator/a.py", "from hypothesis import given\n", ["given"]),
    ],
)
def test_words_are_reported_unless_they_are_the_exact_word(file: str, text: str, expected: list[str]) -> None:
    assert [hit for _, _, _, hit in check_words.hits(file, text)] == expected


def test_a_hit_names_its_line_and_its_pattern_has_advice() -> None:
    (hit,) = check_words.hits("a.md", "one\ntwo told\n")
    assert hit == ("a.md", 2, "told", "told")
    assert check_words.LIST["anywhere"]["told"]


def test_generated_files_and_the_list_itself_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def record(file: str, text: str) -> list[check_words.Hit]:
        checked.append(file)
        return []

    monkeypatch.setattr(check_words, "hits", record)
    check_words.tree()
    assert {"docs/protocol.md", "Makefile", "tools/check_words.py", ".github/workflows/ci.yaml"} <= set(checked)
    assert [f for f in checked if f.startswith(("crds/", "docs/reference/")) or f == "tools/words.toml"] == []


def test_without_an_argument_a_hit_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_words, "tree", lambda *_: [("a.md", 2, "told", "told")])
    assert check_words.main([]) == 1
    assert "a.md:2: 'told'; write: reported" in capsys.readouterr().out
    assert check_words.main(["--report"]) == 0
    assert check_words.main(["--count", "HEAD"]) == 0
    monkeypatch.setattr(check_words, "tree", lambda *_: [])
    assert check_words.main([]) == 0
