"""What a YAML file may have: its aliases and its depth are bounded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ackwright.api.document import MAX_DEPTH, of_text
from ackwright.errors import InvalidSpec

FILE = Path("pipeline.yaml")


def _bomb(levels: int, width: int = 9) -> str:
    """A text whose aliases stand for width ** levels values."""
    lines = ["a0: &a0 x"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels + 1)]
    return "\n".join(lines)


def _chain(levels: int) -> str:
    """A text that is nested in its aliases only."""
    return "\n".join(["a0: &a0 x", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, levels + 1))])


def _refusal(text: str) -> str:
    with pytest.raises(InvalidSpec) as error:
        of_text(FILE, text)
    return error.value.message


@pytest.mark.parametrize("text", [_bomb(12), _bomb(100, 2), f"text: &t {'x' * 1_000}\nlist: [{'*t, ' * 2_000}]"])
def test_aliases_that_stand_for_more_than_a_file_may_have_are_refused(text: str) -> None:
    assert "larger than 1 MiB with its aliases in full" in _refusal(text)


def test_the_refusal_of_aliases_has_a_place() -> None:
    with pytest.raises(InvalidSpec) as error:
        of_text(FILE, _bomb(12))
    [violation] = error.value.violations
    assert violation.place is not None
    assert (violation.place.line, violation.place.column) > (5, 1)


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: {c: *a}}", "a: &a x\n---\na: &a [*a]"])
def test_an_alias_within_its_own_anchor_is_refused(text: str) -> None:
    assert "the value of the anchor contains itself" in _refusal(text)


@pytest.mark.parametrize(
    ("opened", "closed", "levels"),
    [("[", "]", MAX_DEPTH), ("[", "]", 300), ("{a: ", "}", 300), ("{a: ", "}", 100_000), ("[", "", 100_000)],
)
def test_deep_nesting_is_refused(opened: str, closed: str, levels: int) -> None:
    message = _refusal(f"a: {opened * levels}{closed * levels}")
    assert f"nested more than {MAX_DEPTH} levels deep" in message


def test_nesting_by_aliases_counts() -> None:
    assert f"nested more than {MAX_DEPTH} levels deep" in _refusal(_chain(MAX_DEPTH))


def test_aliases_and_nesting_within_the_bounds_are_read() -> None:
    nested = MAX_DEPTH - 2
    value = of_text(FILE, f"a: &a {'[' * nested}{']' * nested}\nb: [*a]\nc: {{<<: &m {{x: 1}}, y: *a}}").value
    assert isinstance(value, dict)
    assert value["b"] == [value["a"]]
    assert value["c"] == {"x": 1, "y": value["a"]}


def test_many_keys_are_read_in_time() -> None:
    begin = time.monotonic()
    of_text(FILE, "{" + ", ".join(f"{i}: 1" for i in range(5_000)) + "}")
    few = time.monotonic() - begin
    begin = time.monotonic()
    of_text(FILE, "{" + ", ".join(f"{i}: 1" for i in range(20_000)) + "}")
    assert time.monotonic() - begin < 10 * few  # comparing each key with each takes 16 times as long
