"""Topics of steady pipelines that are due next are read together, and none of them is outdated."""

from __future__ import annotations

from typing import cast

import pytest

from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe.steady_topics import FRESH_S, SteadyTopics
from ackwright_stream.jobspec import Reason
from unit.fake_kafka import FakeKafka

PERIOD_S = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Brokers(FakeKafka):
    """Topics a, b and c, of which some may not be read."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: set[str] = set()
        self.requests: list[tuple[str, ...]] = []
        for name in "abc":
            self.create_topic(name, 1, 1, {})

    def topics(self, names):  # type: ignore[no-untyped-def]
        self.requests.append(tuple(names))
        if self.unreadable & set(names):
            raise AckwrightError(Reason.AUTHORIZATION_FAILED, "no")
        return super().topics(names)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def steady(clock: Clock, brokers: Brokers) -> SteadyTopics:
    """After two rounds, of which each reads the topics a, b and c one second apart."""
    subject = SteadyTopics(clock)
    for _ in range(2):
        for name in "abc":
            assert read(subject, brokers, name) == {name}
            clock.now += 1
        clock.now += PERIOD_S - 3
    brokers.requests.clear()
    return subject


def read(subject: SteadyTopics, brokers: Brokers, name: str) -> set[str]:
    return set(subject.read("key", cast(Kafka, brokers), (name,)))


def test_those_that_are_due_next_are_read_in_one_call(clock: Clock, brokers: Brokers) -> None:
    subject = steady(clock, brokers)
    for name in "abc":
        assert read(subject, brokers, name) == {name}
        clock.now += 1
    assert [sorted(names) for names in brokers.requests] == [["a", "b", "c"]]


def test_a_topic_that_was_read_ahead_serves_once_and_not_for_long(clock: Clock, brokers: Brokers) -> None:
    subject = steady(clock, brokers)
    read(subject, brokers, "a")
    brokers.existing.clear()
    assert read(subject, brokers, "b") == {"b"}, "as it was a moment ago"
    assert read(subject, brokers, "b") == set()
    clock.now += FRESH_S
    assert read(subject, brokers, "c") == set()


def test_a_pipeline_whose_topics_may_not_be_read_disturbs_no_other(clock: Clock, brokers: Brokers) -> None:
    subject = steady(clock, brokers)
    brokers.unreadable.add("b")
    assert read(subject, brokers, "a") == {"a"}
    assert brokers.requests[-1] == ("a",)
    with pytest.raises(AckwrightError):
        read(subject, brokers, "b")


def test_connections_share_nothing(clock: Clock, brokers: Brokers) -> None:
    subject = steady(clock, brokers)
    read(subject, brokers, "a")
    brokers.existing.clear()
    assert subject.read("another", cast(Kafka, brokers), ("b",)) == {}


def test_what_nobody_requests_is_forgotten(clock: Clock, brokers: Brokers) -> None:
    subject = steady(clock, brokers)
    clock.now += 3600
    subject.forget_old()
    assert subject._connections == {}
