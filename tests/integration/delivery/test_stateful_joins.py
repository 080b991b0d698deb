"""Orders are joined with their payments while drivers are killed: the output is that of a batch join.

See docs/stateful.md#join.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.reports import Verdict
from integration.support.joined_pipelines import Event, JoinedPipeline, joined_pipeline
from integration.support.pipelines import read
from sql_texts import JOIN
from waiting import ANSWER, WAIT


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
        ("evaluated", "after-commit"),  # first, state is stored and nothing is decided
        ("before-commit", "batch-end"),
    ],
    ids=["decided", "batch"],
)
def test_a_join_over_kills_before_and_after_the_commit(
    pipeline: JoinedPipeline, spark: SparkSession, points: tuple[str, str]
) -> None:
    """Control: the audit finds one record too many."""
    pipeline.feed(*orders(0, 20, at=1_000), *payments(0, 5, at=1_100))
    pipeline.killed_at(points[0], *payments(5, 10, at=1_200), *orders(20, 10, at=1_300))
    pipeline.killed_at(  # a second payment of the first orders, and payments that are too late
        points[1], *payments(0, 30, at=1_500), *orders(30, 5, at=1_600), *payments(30, 3, at=9_000)
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
