"""Zombies of the weaker guarantees, on one cluster or between two: they return after they were replaced."""

from __future__ import annotations

import signal

from integration.support.lane_pipeline import LanePipeline
from integration.support.pipelines import Verdict, judge, read
from waiting import wait_until

# Where a task is stopped under at-most-once; a lane for each.
AT_MOST_ONCE_POINTS = ("task-start", "after-init", "after-read", "before-commit", "claimed")


def assert_zombie_tasks_claim_nothing(pipeline: LanePipeline) -> None:
    """Stops a task of an at-most-once pipeline at each point, and continues it after another driver has taken over.

    A task may still write, once, what it had claimed before it was overtaken; nothing else.
    """
    driver = pipeline.run_driver(until=100)
    zombies = [pipeline.task(lane, 100, 200, driver, {point: "hang"}) for lane, point in enumerate(AT_MOST_ONCE_POINTS)]
    for zombie, point in zip(zombies, AT_MOST_ONCE_POINTS, strict=True):
        zombie.arrived(point)
        zombie.signal(signal.SIGSTOP)
        zombie.release(point)
    pipeline.run_driver()
    for zombie in zombies:
        zombie.signal(signal.SIGCONT)
    results = [zombie.result() for zombie in zombies]
    assert [result.error is None for result in results] == [False, False, False, False, True], results
    wait_until(lambda: _verdict(pipeline).lost == 0, "what was sent without waiting has arrived")
    verdict = _verdict(pipeline)
    assert (verdict.duplicated, verdict.unexpected) == (0, 0)


def assert_zombie_driver_does_not_advance(pipeline: LanePipeline) -> None:
    """Stops the driver of an at-least-once pipeline in front of its advance, and continues it after its successor."""
    pipeline.run_driver(until=100)
    zombie = pipeline.drive(200, {"before-advance": "hang"})
    zombie.arrived("before-advance")
    zombie.signal(signal.SIGSTOP)
    zombie.release("before-advance")
    pipeline.run_driver()
    zombie.signal(signal.SIGCONT)
    assert zombie.result().error == "Superseded"
    verdict = _verdict(pipeline)
    assert (verdict.lost, verdict.duplicated, verdict.unexpected) == (0, 200, 0)
    assert set(pipeline.positions().values()) == {300}


def _verdict(pipeline: LanePipeline) -> Verdict:
    return judge(read(pipeline.bootstrap, pipeline.sink), pipeline.partitions, pipeline.count)
