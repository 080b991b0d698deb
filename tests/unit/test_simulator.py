"""The delivery simulator: its model, the files that come from it, and the page that is built from them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from simulator import export
from simulator.counts import Counts, counts, inversions
from simulator.scenarios import SCENARIOS, Scenario
from simulator.state import Settings, initial, refusal
from simulator.step import step

ROOT = Path(__file__).parents[2]
FRONT_END = ROOT / "simulator"
PAGE = ROOT / "docs" / "delivery-simulator.html"
STRONGEST = Settings(transactions=True, commit="transaction")


@pytest.mark.parametrize("file", export.FILES, ids=lambda file: file.name)
def test_the_exported_file_is_current(file: Path) -> None:
    assert file.read_text() == export.FILES[file](), "run make simulator"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_a_scenario_ends_as_declared(scenario: Scenario) -> None:
    end = scenario.end()[1]
    declared = (scenario.lost, scenario.reported, scenario.duplicated, scenario.out_of_order)
    assert (end.lost, end.reported, end.duplicated, end.out_of_order) == declared
    assert end.pending == 0


def explored(s: Settings) -> Iterator[Counts]:
    """The counters of all states in random successions."""
    rng = random.Random(1)
    for n in range(300):
        t = initial(s)
        for action in export.random_path(s, rng, calm=n % 2 == 0):
            t = step(s, t, action).state
            yield counts(s, t)


def test_the_strongest_settings_lose_nothing_without_an_error_and_duplicate_nothing() -> None:
    observed = list(explored(STRONGEST))
    assert max(c.delivered for c in observed) > 2
    assert {(c.lost - c.reported, c.duplicated, c.out_of_order) for c in observed} == {(0, 0, 0)}


@pytest.mark.parametrize(
    ("changes", "harm"),
    [
        ({"commit": "before"}, "lost"),
        ({"commit": "after"}, "duplicated"),
        ({"transactions": False}, "duplicated"),
        ({"transactions": False, "idempotence": False}, "out_of_order"),
        ({"transactions": False, "idempotence": False, "acks": "1"}, "lost"),
        ({"transactions": False, "idempotence": False, "acks": "0"}, "lost"),
        ({"unclean": True, "min_insync": 1, "replicas": 2}, "lost"),
    ],
)
def test_control_each_weaker_setting_does_harm(changes: dict[str, object], harm: str) -> None:
    s = replace(STRONGEST, **changes)  # type: ignore[arg-type]
    assert refusal(s) is None
    assert any(getattr(c, harm) - (c.reported if harm == "lost" else 0) > 0 for c in explored(s))


def test_an_impossible_action_is_refused() -> None:
    with pytest.raises(ValueError, match="deliver is not possible"):
        step(STRONGEST, initial(STRONGEST), "deliver")


@pytest.mark.parametrize(
    ("values", "expected"), [((1, 2, 3), 0), ((2, 1), 1), ((1, 2, 1), 0), ((3, 1, 2, 1), 2), ((), 0)]
)
def test_inversions(values: tuple[int, ...], expected: int) -> None:
    assert inversions(values) == expected


def sources_hash(front_end: Path) -> str:
    """The hash of everything that the page is built from, as vite.config.ts computes it."""
    names = ("index.html", "package-lock.json", "tsconfig.json", "vite.config.ts")
    files = [*(front_end / name for name in names), *(f for f in (front_end / "src").rglob("*") if f.is_file())]
    content = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.relative_to(front_end).as_posix()):
        content.update(f"{file.relative_to(front_end).as_posix()}\n".encode() + file.read_bytes())
    return content.hexdigest()[:16]


def test_the_page_is_built_from_the_current_sources() -> None:
    assert f'<meta name="sources" content="{sources_hash(FRONT_END)}"' in PAGE.read_text(), "run make simulator"


def test_control_another_source_changes_the_hash(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in ("index.html", "package-lock.json", "tsconfig.json", "vite.config.ts", "src/main.ts"):
        (tmp_path / name).write_text(name)
    before = sources_hash(tmp_path)
    (tmp_path / "src" / "main.ts").write_text("changed")
    assert sources_hash(tmp_path) != before


def test_the_page_needs_no_other_file() -> None:
    page = PAGE.read_text()
    assert "<script" in page
    assert not [attribute for attribute in ('src="', "@import", "url(") if attribute in page]


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (FRONT_END / "package-lock.json").read_text()
