"""The plan of a stateful campaign, and its account: each kind of damage to the counts is counted."""

from __future__ import annotations

from collections import Counter

import pytest

from chaos.account import Counts
from chaos.stateful_account import count_span, judge
from chaos.stateful_plan import KILLS_A_ROUND, LOSSES, Action, plan

EXPECTED = Counter({"id0 0": 3, "id1 0": 2})
RISING = [("id0 0", 1), ("id1 0", 2), ("id0 0", 3)]


@pytest.mark.parametrize("kills", [1, 10, 11, 35])
def test_it_makes_as_many_kills_as_requested_and_loses_the_state_in_each_round(kills: int) -> None:
    rounds = plan(kills, 3)
    assert sum(r.kills for r in rounds) == kills
    assert all(r.kills <= KILLS_A_ROUND for r in rounds)
    assert all(sorted(a for a in r.actions if a in LOSSES) == sorted(LOSSES) for r in rounds)


def test_a_seed_repeats_its_plan_and_has_every_action() -> None:
    assert plan(200, 7) == plan(200, 7) != plan(200, 8)
    assert {action for r in plan(200, 7) for action in r.actions} == set(Action)


def test_a_span_has_the_records_behind_its_begin() -> None:
    all_records = count_span({}, {0: 20, 1: 20})
    assert all_records.total() == 40
    assert count_span({}, {0: 5, 1: 7}) + count_span({0: 5, 1: 7}, {0: 20, 1: 20}) == all_records


def test_rising_counts_of_every_record_have_no_damage() -> None:
    assert judge(EXPECTED, RISING) == Counts(expected=5)


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        (RISING[:2], Counts(5, lost=2)),
        (RISING[1:2], Counts(5, lost=3)),
        ([*RISING, ("id1 0", 3)], Counts(5, duplicated=1)),
        ([*RISING, ("id2 0", 1)], Counts(5, unexpected=1)),
        ([*RISING, ("id0 0", 3)], Counts(5, disordered=1)),
        ([RISING[0], ("id0 0", 4), *RISING[1:]], Counts(5, disordered=1)),
    ],
    ids=["a batch is lost", "a group is lost", "counted twice", "of no record", "written twice", "falls"],
)
def test_damage(output: list[tuple[str, int]], counts: Counts) -> None:
    assert judge(EXPECTED, output) == counts
