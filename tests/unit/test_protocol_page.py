"""Code, tests and documents link to the protocol's page by anchors that exist, and name no rule by its number alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.membership.variants import VARIANTS as OF_MEMBERSHIP
from model.variants import VARIANTS
from unit.documents import DOCUMENTS, ROOT, anchors

HERE = Path(__file__)
PROTOCOL = ROOT / "docs" / "protocol.md"
PLACES = ("operator", "spark_app", "tests", "bench", "tools", "docs", "charts", "deploy", "examples", ".github")
SOURCES = [
    file
    for place in PLACES
    for file in sorted((ROOT / place).rglob("*"))
    if file.suffix in (".py", ".md", ".yaml", ".yml", ".sh", ".tpl", ".toml")
] + [file for file in DOCUMENTS if file.parent == ROOT]
# A rule or a section by its number alone. As the text of a link to the protocol's page it is allowed.
BARE = re.compile(
    r"\brules? \d+|\bdesign,? \(?section|\bsections? \d+ of the design|\brules? of the design", re.IGNORECASE
)
LINK = re.compile(r"\[[^]]*\]\([^)]*protocol\.md#[^)]*\)")


def broken_references(text: str) -> list[str]:
    """The anchors of references to docs/protocol.md that are not headings of it."""
    return [a for a in re.findall(r"docs/protocol\.md#([\w-]*)", text) if a not in anchors(PROTOCOL)]


def bare_rules(text: str) -> list[str]:
    """Rules and sections that a text names without a link."""
    return BARE.findall(LINK.sub("", text))


def test_the_page_has_fourteen_rules_each_with_a_failure_and_a_control() -> None:
    rules = re.split(r"^### ", PROTOCOL.read_text().split("\n## Evidence")[0], flags=re.MULTILINE)[1:]
    assert [rule.partition("\n")[0] for rule in rules] == [f"Rule {n}" for n in range(1, 15)]
    assert [rule[:8] for rule in rules if "\n- Failure: " not in rule or "\n- Control: " not in rule] == []
    assert {"guarantees", "transaction"} <= anchors(PROTOCOL)


def test_every_reference_to_the_protocol_resolves() -> None:
    broken = {str(f.relative_to(ROOT)): broken_references(f.read_text()) for f in SOURCES if f != HERE}
    assert {file: names for file, names in broken.items() if names} == {}


def test_no_rule_is_named_by_its_number_alone() -> None:
    bare = {str(f.relative_to(ROOT)) for f in SOURCES if f not in (HERE, PROTOCOL) and bare_rules(f.read_text())}
    assert bare == set()


@pytest.mark.parametrize(
    ("text", "broken", "bare"),
    [
        ("see docs/protocol.md#rule-9", 0, 0),
        ("see docs/protocol.md#rule-15", 1, 0),
        ("see docs/protocol.md#", 1, 0),
        ("[rule 9](protocol.md#rule-9)", 0, 0),
        ("[rule 9](guarantees.md)", 0, 1),
        ("it waits. (rule 9)", 0, 1),
        ("Rules 5 and 10", 0, 1),
        ("design section 2; (design, section 3)", 0, 2),
        ("test_rule_09_a_read_waits_for_a_pending_position", 0, 0),
    ],
)
def test_a_broken_or_bare_reference_is_reported(text: str, broken: int, bare: int) -> None:
    """The negative control of the two tests above."""
    assert (len(broken_references(text)), len(bare_rules(text))) == (broken, bare)


def test_every_variant_that_the_page_names_is_one_of_the_model() -> None:
    prefixes = "eo|amo|alo|init|adopt|change|filtered|heartbeat|member"
    named = set(re.findall(rf"`((?:{prefixes})-[a-z0-9-]+)`", PROTOCOL.read_text()))
    assert len(named) > 20
    assert named <= VARIANTS.keys() | OF_MEMBERSHIP.keys()


def test_rule_14_what_is_not_covered_is_documented() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    assert "What is not covered" in text
    assert "deposed group coordinator" in text.split("What is not covered", 1)[1]
