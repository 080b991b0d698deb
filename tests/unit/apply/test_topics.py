"""The creation of topics when answers get lost: the outcome is read, never assumed. A stub replaces the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from ackwright.apply.topics import ensure
from ackwright.clients.kafka import Kafka
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.guarantees import Setting
from ackwright.planning.topics import TopicPlan
from ackwright_stream.jobspec import Reason
from unit.observed import topic

PLAN = TopicPlan("t", 2, 3, "because", ())


class Brokers:
    """Topics in memory.

    `answers` are the outcomes of creation requests; `arrives` is whether a request creates the topic.
    """

    address = "stub:9092"

    def __init__(
        self, answers: Iterable[Outcome] = (Outcome.DONE,), brokers: int = 3, arrives: bool = True, lag: int = 0
    ) -> None:
        self.answers, self.count, self.arrives, self.lag = list(answers), brokers, arrives, lag
        self.trial = Outcome.DONE
        self.existing: dict[str, ObservedTopic] = {}
        self.requests = 0
        self.refused = ""  # the name of a topic
        self.now = 0.0

    def brokers(self) -> tuple[int, ...]:
        return tuple(range(self.count))

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Outcome:
        if name == self.refused:
            raise AckwrightError(Reason.INVALID_SPEC, f"creating topic {name} failed: no such setting")
        if validate_only:
            return self.trial
        self.requests += 1
        self.now += 10
        if name in self.existing:
            return Outcome.EXISTS
        if self.arrives:
            self.existing[name] = topic(
                name, partitions=partitions, factor=replication_factor, lag=self.lag, config=config
            )
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def read_topics(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        self.now += 1
        return {n: self.existing[n] for n in names if n in self.existing}

    def ensure(self, **more: Any) -> Any:
        return ensure(cast(Kafka, self), [PLAN], read_topics=self.read_topics, clock=lambda: self.now, **more)


def test_a_missing_topic_is_created_once() -> None:
    brokers = Brokers()
    assert brokers.ensure().created == ("t",)
    again = brokers.ensure()
    assert (again.created, again.differences, brokers.requests) == ((), (), 1)


BOTH = [PLAN, replace(PLAN, name="u")]


def test_of_several_topics_none_is_created_if_one_is_refused() -> None:
    brokers = Brokers()
    brokers.refused = "u"
    with pytest.raises(AckwrightError, match="creating topic u failed"):
        ensure(cast(Kafka, brokers), BOTH, read_topics=brokers.read_topics, clock=lambda: brokers.now)
    assert brokers.existing == {}


OWN = replace(PLAN, config=(Setting("cleanup.policy", "compact", "the last record is kept forever"),), internal=True)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_of_ackwrights_own_that_removes_records_is_refused(policy: str) -> None:
    brokers = Brokers()
    brokers.existing = {"t": topic("t", partitions=2, config={"cleanup.policy": policy})}
    plans = [OWN, replace(PLAN, name="u")]
    with pytest.raises(AckwrightError, match="kept forever") as e:
        ensure(cast(Kafka, brokers), plans, read_topics=brokers.read_topics, clock=lambda: brokers.now)
    assert e.value.reason is Reason.BROKERS_UNSUPPORTED
    assert e.value.remedy.endswith("--entity-name t --add-config cleanup.policy=compact")
    assert "u" not in brokers.existing


def test_it_is_refused_also_if_the_first_broker_does_not_know_it_yet() -> None:
    brokers = Brokers([Outcome.EXISTS])
    brokers.existing = {"t": topic("t", partitions=2, config={"cleanup.policy": "delete"})}
    with pytest.raises(AckwrightError, match="kept forever") as e:
        ensure(cast(Kafka, brokers), [OWN], read_topics=_blind_at_first(brokers), clock=lambda: brokers.now)
    assert e.value.reason is Reason.BROKERS_UNSUPPORTED


def test_a_declared_topic_with_the_same_difference_is_reported() -> None:
    brokers = Brokers()
    brokers.existing = {"t": topic("t", partitions=2, config={"cleanup.policy": "delete"})}
    plans = [replace(OWN, internal=False)]
    ensured = ensure(cast(Kafka, brokers), plans, read_topics=brokers.read_topics, clock=lambda: brokers.now)
    assert ensured.created == ()
    assert [(d.topic, d.setting) for d in ensured.differences] == [("t", "cleanup.policy")]


@pytest.mark.parametrize("trial", [Outcome.DONE, Outcome.UNKNOWN, Outcome.EXISTS])
def test_topics_that_pass_validation_are_created(trial: Outcome) -> None:
    brokers = Brokers()
    brokers.trial = trial
    assert ensure(cast(Kafka, brokers), BOTH, read_topics=brokers.read_topics, clock=lambda: brokers.now).created == (
        "t",
        "u",
    )


def test_a_creation_with_a_lost_answer_is_repeated() -> None:
    brokers = Brokers([Outcome.UNKNOWN])
    assert brokers.ensure().created == ("t",)
    assert brokers.requests == 2


def test_an_outcome_that_stays_unknown_is_an_error() -> None:
    with pytest.raises(AckwrightError, match="it is unknown whether topic t was created") as e:
        Brokers([Outcome.UNKNOWN], arrives=False).ensure()
    assert e.value.reason is Reason.BROKERS_UNREACHABLE


def test_a_topic_that_was_created_concurrently_is_compared() -> None:
    brokers = Brokers([Outcome.EXISTS])
    brokers.existing["t"] = topic("t", partitions=9)
    result = ensure(cast(Kafka, brokers), [PLAN], read_topics=_blind_at_first(brokers), clock=lambda: brokers.now)
    assert result.created == ()
    assert [(d.setting, d.found) for d in result.differences] == [("partitions", "9")]


def _blind_at_first(brokers: Brokers) -> Any:
    reads: list[int] = []

    def read_topics(names: Iterable[str]) -> dict[str, ObservedTopic]:
        reads.append(1)
        return {} if len(reads) == 1 else brokers.read_topics(names)

    return read_topics


def test_too_few_brokers_is_an_error_with_both_numbers_and_nothing_is_created() -> None:
    brokers = Brokers(brokers=2)
    with pytest.raises(
        AckwrightError, match="at stub:9092: topic t needs 3 brokers for 3 replicas, but only 2 are up; add"
    ) as e:
        brokers.ensure()
    assert (e.value.reason, brokers.requests) == (Reason.BROKERS_TOO_FEW, 0)


def test_a_missing_needed_topic_is_an_error_before_anything_is_created() -> None:
    brokers = Brokers()
    with pytest.raises(AckwrightError, match="no such topic at stub:9092: elsewhere") as e:
        brokers.ensure(needed=["t", "elsewhere"])
    assert (e.value.reason, brokers.requests) == (Reason.TOPIC_MISSING, 0)


def test_new_replicas_out_of_sync_after_the_deadline_are_an_error() -> None:
    with pytest.raises(AckwrightError, match="not all replicas of topic t are in sync"):
        Brokers(lag=1).ensure(timeout=15)


def test_a_lagging_replica_of_an_existing_topic_is_a_difference_and_no_error() -> None:
    brokers = Brokers()
    brokers.existing["t"] = topic("t", partitions=2, lag=1)
    assert [d.setting for d in brokers.ensure().differences] == ["replicas in sync"]
