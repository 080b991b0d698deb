"""Orders are joined with their payments while drivers are killed: the output is that of a batch join.

See docs/stateful.md#join.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.reports import Verdict
from integration.support.joined_pipelines import Event, JoinedPipeline, joined_pipeline
from integration.support.pipelines import read
from integration.support.stateful_pipelines import believe_logs
from sql_texts import JOIN, JOIN_WITH_MARKS, joined_sides
from waiting import ANSWER, WAIT, wait_until


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> JoinedPipeline:
    return joined_pipeline(kafka.bootstrap_servers, f"joins-{uuid.uuid4().hex[:8]}", tmp_path, JOIN)


def orders(first: int, count: int, at: int) -> list[Event]:
    return [Event(n, at + n) for n in range(first, first + count)]


def payments(first: int, count: int, at: int) -> list[Event]:
    return [Event(n, at + n, pays=True) for n in range(first, first + count)]


@pytest.mark.parametrize(
    "points",
    [
        ("evaluated",),  # state is stored and nothing is decided: the next driver has the state before
        ("before-commit", "after-commit"),
        ("evaluated", "batch-end"),
    ],
    ids=["evaluated", "commit", "batch"],
)
def test_a_join_over_kills_before_and_after_the_commit(
    pipeline: JoinedPipeline, spark: SparkSession, points: tuple[str, ...]
) -> None:
    """Control: the audit finds one record too many."""
    pipeline.feed(*orders(0, 20, at=1_000), *payments(0, 5, at=1_100))
    later = [*payments(5, 10, at=1_200), *orders(20, 10, at=1_300)]
    for point in points[:-1]:
        pipeline.killed_at(point, *later)
        later = []
    pipeline.feed(*later)
    pipeline.killed_at(  # a second payment of the first orders, and payments that are too late
        points[-1], *payments(0, 30, at=1_500), *orders(30, 5, at=1_600), *payments(30, 3, at=9_000)
    )
    in_time = pipeline.pairs()
    assert len(in_time) == 45
    with pipeline.life() as driver:
        pipeline.caught_up(driver)
        for event in (Event(99, 9_100, pays=True), Event(34, 1_700, pays=True)):  # the second one is late
            pipeline.feed(event)
            pipeline.caught_up(driver)
        driver.job.drain()
        assert driver.job.wait(WAIT) == 0, driver.job.failure()
    assert pipeline.output() == in_time
    report = audit(spark, pipeline.job)
    assert report.verdict is Verdict.HELD, report
    assert report.expected == report.delivered == len(in_time)
    assert any("late: the watermark had passed the event time" in note for note in report.notes), report.notes
    first = read(pipeline.servers, pipeline.sink)[0]
    producer = Producer({"bootstrap.servers": pipeline.servers})
    producer.produce(pipeline.sink, first.value, first.key, partition=first.partition)
    assert producer.flush(ANSWER) == 0
    again = audit(spark, pipeline.job)
    assert (again.verdict, again.lost, again.duplicated, again.unexpected) == (Verdict.BROKEN, 0, 1, 0), again


NOT_NULL = "o.id = p.order_id AND o.id IS NOT NULL AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR"


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        ("LEFT", ("after-commit",)),
        ("RIGHT", ("before-commit", "batch-end")),
        ("FULL", ("evaluated", "before-commit", "after-commit", "batch-end")),
        ("LEFT SEMI", ("evaluated", "after-commit")),
    ],
    ids=["left", "right", "full", "semi"],
)
def test_an_outer_or_semi_join_over_kills(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, kind: str, points: tuple[str, ...]
) -> None:
    """A late record that would have matched leaves its order without a match; one without a time is in no row."""
    name = f"joins-{uuid.uuid4().hex[:8]}"
    pipeline = joined_pipeline(kafka.bootstrap_servers, name, tmp_path, joined_sides(kind, NOT_NULL))
    untimed = Event(300, 0, timed=False)
    pipeline.feed(untimed, *orders(0, 10, at=1_000), *payments(5, 10, at=1_100))
    for number, point in enumerate(points):
        at = 5_000 * (number + 1)
        pipeline.killed_at(point, *orders(20 * number, 10, at=at), *payments(20 * number + 5, 10, at=at + 100))
    moved = (Event(200, 40_000), Event(201, 41_600), Event(202, 41_700))
    late = Event(200, 40_500, pays=True)
    with pipeline.life() as driver:
        for event in (*moved, late, Event(203, 50_000)):
            pipeline.feed(event)
            pipeline.caught_up(driver)
        written = pipeline.rows(kind, 49_400, [late, untimed])
        wait_until(lambda: len(pipeline.output()) >= len(written), "the rows without a match are written")
        driver.job.drain()
        assert driver.job.wait(WAIT) == 0, driver.job.failure()
    assert pipeline.output() == written
    assert any(row.startswith("order-200-") for row in written) is (kind in ("LEFT", "FULL"))
    report = audit(spark, pipeline.job)
    assert report.verdict is Verdict.HELD, report
    assert report.expected == report.delivered == len(written)
    assert any("1 record was late" in note for note in report.notes), report.notes


@pytest.mark.parametrize("believes", [False, True], ids=["rebuilt", "control"])
def test_the_state_of_another_evaluation_is_not_joined_with(
    kafka: EmbeddedKafka, tmp_path: Path, believes: bool
) -> None:
    """Control: with Spark's log believed and the base not compared, an order has the marks of two evaluations."""
    name = f"joins-{uuid.uuid4().hex[:8]}"
    pipeline = joined_pipeline(kafka.bootstrap_servers, name, tmp_path, JOIN_WITH_MARKS)
    if believes:
        believe_logs(pipeline.environment, tmp_path)
    pipeline.feed(*orders(9, 1, at=1_000))
    pipeline.drained()
    pipeline.feed(*orders(0, 4, at=1_000), *payments(0, 4, at=1_100))  # one batch of the limit of offsets
    pipeline.killed_in_first_batch("evaluated")
    undecided = pipeline.stored_last()
    pipeline.killed_in_first_batch("batch-end")
    last = pipeline.last_decision()
    assert {i for ids in last.state[0] for i in ids}.isdisjoint(i for ids in undecided for i in ids)
    commit = pipeline.state / last.directory / "commits" / str(last.batch)
    commit.write_text(replace(last, state={0: undecided}).commit)
    pipeline.feed(*payments(0, 4, at=1_200))
    pipeline.drained()
    rows = [row.split(" ") for row in pipeline.output()]
    assert sorted(f"{order} {payment}" for order, payment, _ in rows) == pipeline.pairs()
    marks = {(order, mark) for order, _, mark in rows}
    assert (len(marks) == len({order for order, _ in marks}) == 4) is not believes
