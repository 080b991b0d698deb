"""Copies of positions for lag tools: what is committed, and that a driver never waits for brokers that are silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.kafka import lag_mirror
from ackwright_stream.sinks.kafka.lag_mirror import LagMirror
from minimal_job import minimal_job, with_positions

LANE = Lane("in", 0)
JOB = with_positions(minimal_job(), lag_consumer={"group.id": "ops.flights.lag", "enable.auto.commit": "false"})


class StubConsumer:
    """Takes commits, and answers them if `answers`."""

    answers = True
    commits: list[tuple[str, int]]

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings, self._pending = settings, False

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        assert asynchronous, "a synchronous commit has no limit"
        type(self).commits += [(self._settings["group.id"], x.offset) for x in offsets]
        self._pending = True

    def poll(self, timeout: float) -> None:
        if self._pending and self.answers:
            self._settings["on_commit"](None, [])
            self._pending = False


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., type[StubConsumer]]:
    def make(*, answers: bool) -> type[StubConsumer]:
        kind = type("Consumer", (StubConsumer,), {"answers": answers, "commits": []})
        monkeypatch.setattr(lag_mirror, "Consumer", kind)
        monkeypatch.setattr(lag_mirror, "_ANSWER_S", 0.2)
        return kind

    return make


def mirror() -> LagMirror:
    return LagMirror(JOB, lambda lanes: {}, [LANE])


def test_the_last_positions_are_copied_once(consumer: Callable[..., type[StubConsumer]]) -> None:
    kind, subject = consumer(answers=True), mirror()
    subject.stop({LANE: 7})
    subject.stop({LANE: 7})
    assert kind.commits == [("ops.flights.lag", 7)]


def test_the_copy_of_a_lane_that_does_not_move_does_not_expire(
    consumer: Callable[..., type[StubConsumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, subject = consumer(answers=True), mirror()
    subject.stop({LANE: 7})
    monkeypatch.setattr(lag_mirror, "_ALL_EVERY_S", -1.0)  # it is time again
    subject.stop({LANE: 7})
    assert kind.commits == [("ops.flights.lag", 7)] * 2


def test_a_copy_without_an_answer_ends_and_is_repeated(consumer: Callable[..., type[StubConsumer]]) -> None:
    kind, subject = consumer(answers=False), mirror()
    started = time.monotonic()
    subject.stop({LANE: 7})
    subject.stop({LANE: 7})
    assert time.monotonic() - started < 20
    assert kind.commits == [("ops.flights.lag", 7)] * 2


def test_the_end_does_not_wait_for_a_copy_under_way(consumer: Callable[..., type[StubConsumer]]) -> None:
    kind, subject = consumer(answers=True), mirror()
    with subject._lock:  # as the thread holds it
        subject.stop({LANE: 7})
    assert kind.commits == []


def test_positions_that_were_read_before_the_end_are_not_copied_behind_the_last_ones(
    consumer: Callable[..., type[StubConsumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drained pipeline would show a lag."""
    kind = consumer(answers=True)
    monkeypatch.setattr(lag_mirror, "_EVERY_S", 0.0)
    reads, continues, ended = threading.Event(), threading.Event(), threading.Event()

    def read(lanes: Iterable[Lane]) -> dict[Lane, Position | None]:
        reads.set()
        assert continues.wait(30)
        return {LANE: Position(5, driver=1)}

    class Watched(LagMirror):
        def _run(self) -> None:
            super()._run()
            ended.set()

    subject = Watched(JOB, read, [LANE])
    assert reads.wait(30)
    subject.stop({LANE: 7})
    continues.set()
    assert ended.wait(30)
    assert kind.commits == [("ops.flights.lag", 7)]


def test_a_copy_that_is_refused_for_one_partition_is_repeated(
    consumer: Callable[..., type[StubConsumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, subject = consumer(answers=True), mirror()

    class Refused:
        error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)

    def poll(self: StubConsumer, timeout: float) -> None:
        self._settings["on_commit"](None, [Refused])

    monkeypatch.setattr(kind, "poll", poll)
    subject.stop({LANE: 7})
    subject.stop({LANE: 7})
    assert kind.commits == [("ops.flights.lag", 7)] * 2
