"""A lane's task killed at each step of the protocol, and the damage without a rule.

Real brokers, no Spark: see lane_process.py. After each failure a new driver takes over the pipeline and resumes; then
input and output are compared.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from integration.support.lane_pipeline import LanePipeline, assert_exactly_once, lane_pipeline, lost_by_lane, watched
from integration.support.pipelines import assert_nothing_hangs, hanging, judge, read
from waiting import wait_until

KILLED = 128 + signal.SIGKILL
STEPS = ("task-start", "after-init", "after-read", "mid-produce", "after-offsets", "before-commit", "after-commit")
CLAIM_STEPS = (
    "task-start",
    "after-init",
    "after-read",
    "after-offsets",
    "before-commit",
    "after-commit",
    "claimed",
    "mid-produce",
)


def lanes_with_rows(pipeline: LanePipeline) -> set[int]:
    """Lanes that have rows of [100, 200) in the log.

    Rows stay in the log even if the transaction times out, as it may on a slow machine.
    """
    records = read(pipeline.bootstrap, pipeline.sink, isolation="read_uncommitted")
    return {r.partition for r in records if int((r.value or b"").split(b":")[1]) >= 100}


def kill_one_task_at_each(pipeline: LanePipeline, points: tuple[str, ...], in_the_log: Collection[str] = ()) -> None:
    """Kills lane i's task on [100, 200) at points[i], once the lanes of in_the_log have rows in the log."""
    driver = pipeline.run_driver(until=100)
    tasks = [pipeline.task(lane, 100, 200, driver, {point: "hang"}) for lane, point in enumerate(points)]
    for task, point in zip(tasks, points, strict=True):
        task.arrived(point)
    lanes_in_the_log = {points.index(point) for point in in_the_log}
    wait_until(lambda: lanes_in_the_log <= lanes_with_rows(pipeline), f"those at {in_the_log} have rows in the log")
    for task in tasks:
        task.kill()


def test_task_killed_at_every_step_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "exactly-once", partitions=len(STEPS)) as pipeline,
        watched(pipeline) as watcher,
    ):
        kill_one_task_at_each(pipeline, STEPS, in_the_log=("mid-produce", "after-offsets", "before-commit"))
        assert pipeline.positions() == {
            lane: 200 if point == "after-commit" else 100 for lane, point in enumerate(STEPS)
        }
        pipeline.run_driver()
        assert_exactly_once(pipeline, watcher)


def test_task_killed_at_every_step_at_most_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "at-most-once", partitions=len(CLAIM_STEPS)) as pipeline,
        watched(pipeline) as watcher,
    ):
        kill_one_task_at_each(pipeline, CLAIM_STEPS)
        claimed = {"after-commit", "claimed", "mid-produce"}
        assert pipeline.positions() == {
            lane: 200 if point in claimed else 100 for lane, point in enumerate(CLAIM_STEPS)
        }
        pipeline.run_driver()
        final = read(pipeline.bootstrap, pipeline.sink)
        verdict = judge(final, pipeline.partitions, pipeline.count)
        assert (verdict.duplicated, verdict.unexpected, verdict.disordered) == (0, 0, 0)
        lost = lost_by_lane(pipeline, final)
        assert {point: lost[lane] for lane, point in enumerate(CLAIM_STEPS) if point != "mid-produce"} == {
            point: 100 if point in claimed else 0 for point in CLAIM_STEPS if point != "mid-produce"
        }
        assert 0 <= lost[CLAIM_STEPS.index("mid-produce")] <= 100
        assert watcher.backwards == []
        assert_nothing_hangs(pipeline.bootstrap, pipeline.sink)


def test_driver_killed_around_the_advance_at_least_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "at-least-once", partitions=3, count=400) as pipeline,
        watched(pipeline) as watcher,
    ):
        pipeline.run_driver(until=100)
        for point, until in (("mid-produce", 200), ("before-advance", 300), ("after-advance", 400)):
            driver = pipeline.drive(until, {point: "kill"})
            assert driver.result().code == KILLED, point
            expected = until if point == "after-advance" else 100
            assert set(pipeline.positions().values()) == {expected}, point
        pipeline.run_driver()
        verdict = judge(read(pipeline.bootstrap, pipeline.sink), pipeline.partitions, pipeline.count)
        assert (verdict.lost, verdict.unexpected) == (0, 0)
        assert (
            verdict.duplicated >= 3 * 200
        )  # what was written before the advance came twice: that is this guarantee's price
        assert watcher.backwards == []
        assert_nothing_hangs(pipeline.bootstrap, pipeline.sink, pipeline.source)


def test_speculative_twins_run_every_range_at_once_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "exactly-once", partitions=1, count=600) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.run_driver(until=0)
        twins = [pipeline.task(0, 0, 600, driver, step=25, again=True) for _ in range(2)]
        results = [t.result() for t in twins]
        assert [t.code for t in results] == [0, 0], results
        assert sum(t.outcomes.get("done", 0) for t in results) == 24
        assert sum(t.failed.get("PositionConflict", 0) + t.outcomes.get("skipped", 0) for t in results) >= 24, (
            "they never met"
        )
        assert_exactly_once(pipeline, watcher)


def test_two_drivers_at_once_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Each restarts whenever the other has overtaken it."""
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "exactly-once", partitions=3, count=600) as pipeline,
        watched(pipeline) as watcher,
    ):
        drivers = [pipeline.drive(points={"taken": "hang"}, step=20, again=True) for _ in range(2)]
        for driver in drivers:
            driver.arrived(
                "taken"
            )  # both have taken the pipeline: else one might be through before the other has begun
        for driver in drivers:
            driver.release("taken")
        results = [d.result() for d in drivers]
        assert [t.code for t in results] == [0, 0], results
        assert sum(t.failed.get("Superseded", 0) + t.failed.get("PositionConflict", 0) for t in results) > 0, (
            "they never met"
        )
        assert_exactly_once(pipeline, watcher)


def test_transaction_times_out_while_the_task_is_in_it_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "exactly-once", partitions=1) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.run_driver(until=100)
        # Unsent records expire after the same time, and on a slow machine sending them takes more than 5 s.
        task = pipeline.task(0, 100, 200, driver, {"before-commit": "hang"}, transaction_timeout_ms=15_000)
        task.arrived("before-commit")
        wait_until(lambda: lanes_with_rows(pipeline), "the transaction's rows are in the log")
        wait_until(lambda: not hanging(pipeline.bootstrap, pipeline.sink), "the coordinator ends it")
        task.release("before-commit")
        result = task.result()
        assert result.code != 0, result
        assert dict(result.failed) == {"TransactionTimedOut": 1}
        assert pipeline.positions() == {0: 100}
        pipeline.run_driver()
        assert_exactly_once(pipeline, watcher)


# ------------------------------------------------ negative controls: without the rule the output is damaged


@pytest.mark.parametrize("unsafe", [None, "position-check"])
def test_a_committed_range_run_again_duplicates_only_without_the_position_check(
    kafka: EmbeddedKafka, tmp_path: Path, unsafe: str | None
) -> None:
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "exactly-once", partitions=1) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.run_driver(until=100)
        assert pipeline.task(0, 100, 200, driver, {"after-commit": "kill"}).result().code == KILLED
        # Spark retries a task whose worker died.
        again = pipeline.task(0, 100, 200, driver, unsafe=unsafe).result()
        assert again.outcomes == ({"skipped": 1} if unsafe is None else {"done": 1})
        pipeline.run_driver()
        if unsafe is None:
            assert_exactly_once(pipeline, watcher)
        else:
            assert judge(read(pipeline.bootstrap, pipeline.sink), 1, 300).duplicated == 100


def test_a_killed_task_loses_its_range_only_with_commit_before_produce(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """With the rule in place the same kill loses nothing: test_task_killed_at_every_step_exactly_once."""
    with lane_pipeline(kafka.bootstrap_servers, tmp_path, "exactly-once", partitions=1) as pipeline:
        driver = pipeline.run_driver(until=100)
        assert (
            pipeline.task(0, 100, 200, driver, {"mid-produce": "kill"}, unsafe="commit-first").result().code == KILLED
        )
        pipeline.run_driver()
        assert judge(read(pipeline.bootstrap, pipeline.sink), 1, 300).lost == 100


def test_an_overtaken_task_corrupts_only_without_fencing(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """With the rule in place it cannot: test_zombie_task_at_every_step_is_fenced_exactly_once."""
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "exactly-once", partitions=1) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.run_driver(until=100)
        task = pipeline.task(0, 100, 200, driver, {"after-read": "hang"}, unsafe="fencing")
        task.arrived("after-read")
        pipeline.run_driver(unsafe="fencing")
        task.release("after-read")
        result = task.result()
        assert result.outcomes == {"done": 1}
        assert judge(read(pipeline.bootstrap, pipeline.sink), 1, 300).duplicated == 100
        wait_until(lambda: watcher.backwards, "the position moves backwards")
