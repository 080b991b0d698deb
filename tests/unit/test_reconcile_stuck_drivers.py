"""A driver that makes no progress is restarted; one that has nothing to do is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import Ending, Failure, ProgressReport, State
from unit.world import RUNNING, SPEC, World


@pytest.fixture
def running() -> World:
    return World().settle()


def seconds_until_another_pod(world: World, most: float) -> float | None:
    """Seconds until the driver's pod is another one; None if it still is the same after so many."""
    before, start = world.kubernetes.stored["Pod", "p-0"]["metadata"]["uid"], world.seconds
    world.seconds_between = 30
    while world.seconds - start < most:
        world.reconcile()
        pod = world.kubernetes.stored.get(("Pod", "p-0"))
        if pod is None or pod["metadata"]["uid"] != before:
            return world.seconds - start
    return None


def test_a_driver_with_lag_and_without_progress_is_restarted(running: World) -> None:
    running.progress = replace(RUNNING, lag=5)
    seconds = seconds_until_another_pod(running, 400)
    assert seconds is not None
    assert OperatorSettings().stuck <= seconds <= OperatorSettings().stuck + 60
    assert (
        "NoProgress",
        "Stalled is True: p-0 runs with a lag of 5, but its positions do not move; it is restarted: read its "
        "log, and check that its executors run",
    ) in running.kubernetes.recorded
    again = seconds_until_another_pod(running, 800)
    assert again is not None
    assert again >= 2 * OperatorSettings().stuck, "it may have a batch that takes longer than we waited"


@pytest.mark.parametrize("progress", [RUNNING, replace(RUNNING, state=State.RESTARTING, lag=5), None])
def test_a_driver_that_has_nothing_to_do_or_is_on_its_way_is_not_stuck(
    running: World, progress: ProgressReport | None
) -> None:
    running.progress = progress
    assert seconds_until_another_pod(running, 400) is None


def test_a_driver_is_not_stuck_between_its_batches() -> None:
    world = World(SPEC | {"trigger": {"interval": "10m"}}).settle()
    world.progress = replace(RUNNING, lag=5)
    assert seconds_until_another_pod(world, 600) is None


def test_a_driver_that_waits_too_long_for_its_next_try_is_recreated(running: World) -> None:
    ending = Ending(1, Failure(Reason.BATCH_FAILED, "boom")).to_json()
    ended = {"exitCode": 1, "message": ending, "finishedAt": "2026-11-21T12:00:00Z"}
    pod = running.kubernetes.stored["Pod", "p-0"]
    waits = {
        "name": "driver",
        "restartCount": 5,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    pod["status"] |= {"containerStatuses": [waits], "conditions": []}
    running.progress, running.kubernetes.ready = None, False
    running.reconcile()
    assert running.conditions("JobRunning", "Stalled") == ["False/BatchFailed", "False/NotStalled"]
    assert running.resource["status"]["driver"]["lastError"] == "BatchFailed: boom"
    seconds = seconds_until_another_pod(running, 300)
    assert seconds is not None
    assert running.seconds >= OperatorSettings().crash_delay_max
