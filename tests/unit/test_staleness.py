"""A status that is too old is reported as Unknown, and the operator renews it before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ackwright.api.status import format_time
from ackwright.conditions.staleness import RENEWED_EVERY_S, STALE_S, as_known
from unit.world import SPEC, World

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


def observed(seconds: float) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "reason": "Delivering", "message": ""}]
    observed_at = format_time(NOW - timedelta(seconds=seconds))
    return {"metadata": {"name": "p"}, "status": {"observedAt": observed_at, "conditions": conditions}}


def test_conditions_of_an_old_observation_are_unknown() -> None:
    [condition] = as_known(observed(STALE_S + 1), NOW)["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "Unknown", "NotObserved")
    assert "2026-11-25T11:44:59Z" in condition["message"]


@pytest.mark.parametrize("seconds", [0, STALE_S, -60])
def test_conditions_of_a_recent_observation_stay(seconds: float) -> None:
    resource = observed(seconds)
    assert as_known(resource, NOW) is resource


@pytest.mark.parametrize("status", [{}, None, {"conditions": []}, {"observedAt": 7}, {"observedAt": "yesterday"}])
def test_a_status_of_another_release_stays(status: object) -> None:
    resource = {"metadata": {"name": "p"}, "status": status}
    assert as_known(resource, NOW) is resource


def test_one_renewal_may_fail() -> None:
    assert 2 * RENEWED_EVERY_S < STALE_S


@pytest.mark.parametrize(("suspend", "resync"), [(False, 30.0), (True, 30.0), (False, 7200.0)])
def test_an_operator_that_finds_nothing_new_renews_the_status_every_five_minutes(suspend: bool, resync: float) -> None:
    world = World({**SPEC, "suspend": suspend}).settle()
    world.settings = replace(world.settings, resync=resync)
    world.start_operator()
    world.reconcile()
    writes = len(world.kubernetes.writes)
    world.seconds_between = 30.0
    for _ in range(120):  # an hour
        world.reconcile()
        assert as_known(world.resource, world.now()) is world.resource
    assert 3600 / RENEWED_EVERY_S - 2 <= len(world.kubernetes.writes) - writes <= 3600 / RENEWED_EVERY_S
    world.seconds += STALE_S
    assert as_known(world.resource, world.now()) is not world.resource, "the control: without an operator"
