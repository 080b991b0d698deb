"""The plan of a campaign depends on its seed alone, and has what the campaign promises."""

from __future__ import annotations

import pytest

from ackwright_stream.jobspec import Guarantee
from chaos.plan import Fault, Kill, Storm, plan

FAULTS = list(Fault)


@pytest.mark.parametrize("guarantee", list(Guarantee))
@pytest.mark.parametrize("kills", [1, 2, 3, 20, 50, 51, 333])
def test_it_makes_as_many_kills_as_requested(guarantee: Guarantee, kills: int) -> None:
    for seed in range(20):
        assert sum(r.kills for r in plan(guarantee, kills, seed, FAULTS)) == kills


def test_a_seed_repeats_its_plan() -> None:
    def of(seed: int) -> object:
        return plan(Guarantee.EXACTLY_ONCE, 100, seed, FAULTS)

    assert of(7) == of(7) != of(8)


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_of_four_rounds_two_run_spark_and_one_of_them_has_more_than_a_hundred_lanes(guarantee: Guarantee) -> None:
    rounds = plan(guarantee, 1000, 1, FAULTS)
    assert len(rounds) == 20
    for first in range(0, 20, 4):
        (wide,) = [r for r in rounds[first : first + 4] if r.topics * r.partitions > 100]
        assert wide.runs_spark
        assert sum(r.runs_spark for r in rounds[first : first + 4]) == 2


def test_every_fault_and_every_kill_happens_within_a_thousand_kills() -> None:
    actions = [a for r in plan(Guarantee.EXACTLY_ONCE, 1000, 1, FAULTS) for a in r.actions]
    kills = {kill for a in actions for kill in (a.kills if isinstance(a, Storm) else [a])}
    assert kills >= {*Fault, *Kill}


def test_without_spark_and_faults_only_processes_and_brokers_are_killed() -> None:
    actions = [a for r in plan(Guarantee.EXACTLY_ONCE, 100, 1, (), spark=False) for a in r.actions]
    assert not any(isinstance(a, Fault) or (isinstance(a, Kill) and "Spark" in a) for a in actions)


def test_at_least_once_has_no_python_workers_to_kill() -> None:
    assert Kill.SPARK_WORKER not in [a for r in plan(Guarantee.AT_LEAST_ONCE, 1000, 1) for a in r.actions]
