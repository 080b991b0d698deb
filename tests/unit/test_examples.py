"""The examples with a README: the page lists them, and their commands, files and topics fit one another."""

from __future__ import annotations

import re

import pytest

from ackwright.planning.plan import load
from integration.support.gallery import Example
from unit.documents import ROOT

PAGE = (ROOT / "docs" / "examples.md").read_text()
NAMES = sorted(file.parent.name for file in (ROOT / "examples").glob("*/README.md"))


def test_the_page_lists_every_example() -> None:
    assert len(NAMES) == 9
    assert sorted(re.findall(r"^\| `examples/([\w-]+)` \|", PAGE, re.MULTILINE)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_page_and_the_readme_name_the_guarantees_of_the_pipelines(name: str) -> None:
    guarantees = {load(ROOT / file)[0].spec.guarantee for file in Example(name).files}
    [row] = re.findall(rf"^\| `examples/{name}` \|.*$", PAGE, re.MULTILINE)
    if len(guarantees) == 1:
        assert f"| {next(iter(guarantees))} |" in row
    readme = Example(name).readme.read_text()
    assert all(f"**{str(guarantee).capitalize()}**" in readme for guarantee in guarantees)


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_feeds_the_source_and_reads_the_sink(name: str) -> None:
    example = Example(name)
    specs = [load(ROOT / file)[0].spec for file in example.files]
    sources = {topic for spec in specs for topic in spec.source.topics}
    fed = [words[3:] for words in example.commands("python", "examples/records.py", "feed")]
    assert [topic for topic, _ in fed] == sorted(sources)
    assert all((ROOT / file).read_text() for _, file in fed)
    declared = {topic.name for spec in specs for topic in spec.topics}
    read = [words[3:] for words in example.commands("python", "examples/records.py", "read")]
    assert {topic for topic, _ in read} <= declared - sources
    assert sum(int(count) for _, count in read) in (0, len(example.output))
    assert [words[words.index("-f") + 1] for words in example.commands("ackwright", "audit")] == example.files
