"""docs/protocol.md#rule-5 to #rule-8 on real brokers: the membership, claims, drivers of a pipeline, and topic ids.

The part of docs/protocol.md#rule-7 that needs Spark is in test_rules_ranges.py; that positions do expire is in
test_position_expiry.py. More of the membership is in test_membership.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from ackwright.api.spec import parse
from ackwright.errors import InvalidSpec
from ackwright_stream import lanes as protocol
from ackwright_stream import positions
from ackwright_stream.delivery.at_most_once import claim_and_process
from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import INSTANCE_ID, ExitCode, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Position, Range
from ackwright_stream.sinks.kafka import transactions
from integration.support.members import describe
from integration.support.pipelines import document, feed, job_of
from integration.support.rules import (
    GUARANTEES,
    BatchWork,
    NewPipe,
    Pipe,
    reason_of,
    rows,
)
from waiting import wait_until


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_05_the_driver_is_a_member_with_every_partition(pipe: NewPipe, guarantee: str) -> None:
    """Brokers keep the positions of the topics that a live member subscribes to."""
    p = pipe(guarantee)
    owned = p.take()
    (member,) = describe(p.admin, p.job.group).members
    assert member.group_instance_id == INSTANCE_ID
    assigned = member.assignment.topic_partitions
    assert {(x.topic, x.partition) for x in assigned} == {(p.source, 0), (p.source, 1)}
    assert p.sinks[-1].is_member()
    assert p.positions() == {lane.partition: at for lane, at in owned.positions.items()}


def amo(pipe: NewPipe) -> tuple[Pipe, BatchWork]:
    """An at-most-once pipeline and the work of one range of lane 0."""
    p = pipe("at-most-once")
    return p, p.work(p.take(), Range(p.lane(), 0, 5))


def test_rule_06_a_second_attempt_processes_nothing(pipe: NewPipe) -> None:
    p, work = amo(pipe)
    assert claim_and_process(work, work.task, rows(b"a")) == (Outcome.DONE, 1)
    assert claim_and_process(work, work.task, rows(b"a")) == (Outcome.SKIPPED, 0)
    assert p.written() == [b"a"]


def test_rule_06_the_position_has_moved_before_the_first_row_is_read(pipe: NewPipe) -> None:
    p, work = amo(pipe)
    positions_read: list[int] = []

    def watched() -> Iterator[pa.RecordBatch]:
        positions_read.append(p.positions()[0])
        yield from rows(b"a")

    claim_and_process(work, work.task, watched())
    assert positions_read == [5]


def test_rule_06_the_lanes_of_a_task_are_claimed_together(pipe: NewPipe) -> None:
    p = pipe("at-most-once")
    work = p.work(p.take(), Range(p.lane(0), 0, 5), Range(p.lane(1), 0, 4))
    positions_read: list[dict[int, int]] = []

    def failing() -> Iterator[pa.RecordBatch]:
        positions_read.append(p.positions())
        raise JobError(Reason.BATCH_FAILED, "the rows end here")
        yield

    assert reason_of(lambda: claim_and_process(work, work.task, failing())) is Reason.BATCH_FAILED
    assert positions_read == [{0: 5, 1: 4}]
    assert claim_and_process(work, work.task, rows(b"a")) == (Outcome.SKIPPED, 0)
    assert p.written("read_uncommitted") == []


@pytest.mark.parametrize("committed", [True, False])
def test_rule_06_an_unknown_claim_means_not_processed(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    p, work = amo(pipe)

    def lost(point: str, *_: object) -> None:
        if point == ("after-commit" if committed else "before-commit"):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with monkeypatch.context() as patched:
        patched.setattr(transactions, "fault_point", lost)
        assert reason_of(lambda: claim_and_process(work, work.task, rows(b"a"))) is Reason.BROKERS_UNREACHABLE
    assert p.written("read_uncommitted") == []
    again = claim_and_process(work, work.task, rows(b"a"))
    assert again == ((Outcome.SKIPPED, 0) if committed else (Outcome.DONE, 1))
    assert p.written() == ([] if committed else [b"a"])


def test_rule_06_control_without_the_claim_two_attempts_duplicate(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, work = amo(pipe)
    monkeypatch.setattr(protocol, "decide", lambda *_: None)
    for _ in range(2):
        claim_and_process(work, work.task, rows(b"a"))
    wait_until(lambda: len(p.written()) == 2, "both copies (acks=0)")


# ------------------------------------------------ docs/protocol.md#rule-7 and #rule-8


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ("source", {"minPartitions": 8}),
        ("spark", {"conf": {"spark.sql.streaming.kafka.minPartitions": "8"}}),
        ("spark", {"conf": {"spark.sql.adaptive.enabled": "true"}}),
        ("spark", {"conf": {"spark.speculation": "true"}}),
    ],
)
def test_rule_07_what_splits_or_doubles_ranges_is_refused_in_the_spec(part: str, field: dict[str, Any]) -> None:
    pipeline = document("127.0.0.1:1", "p", "exactly-once", "in", "out")
    parse(pipeline)
    pipeline["spec"][part] = {**pipeline["spec"].get(part, {}), **field}
    with pytest.raises(InvalidSpec):
        job_of(pipeline, Path("/nowhere"))


def test_rule_07_of_two_pipelines_with_one_group_the_older_ends(pipe: NewPipe) -> None:
    p = pipe()
    first = p.take()
    second = p.take()
    assert second.driver > first.driver
    work = p.work(first, Range(p.lane(), 0, 5))
    error = reason_of(lambda: process_and_advance(work, work.task, rows(b"older")))
    assert error is Reason.SUPERSEDED
    assert p.written("read_uncommitted") == []
    assert p.positions() == {0: 0, 1: 0}


def commit_after_replacement(p: Pipe, owned: Ownership, offset: int, *partitions: int) -> None:
    """A task that began before the topic was replaced commits into the new one: brokers know topics by name.

    Its driver hangs, so its member does not notice the new topic and is still a member.
    """
    lanes = [p.lane(n) for n in partitions]
    transaction = owned.lanes.sink.open(0, lanes, owned.lanes.membership)
    old = p.ids()[p.source]
    p.end_drivers()
    p.recreate_source()
    transaction.commit({lane: Position(offset, old, owned.driver) for lane in lanes})
    assert p.positions() == dict.fromkeys(partitions, offset)


def test_rule_08_a_position_of_a_foreign_topic_halts(pipe: NewPipe) -> None:
    p = pipe()
    old = p.take()
    commit_after_replacement(p, old, 4, 0)
    assert reason_of(p.take) is Reason.TOPIC_REPLACED
    assert reason_of(lambda: p.lanes(old).advance(0, [Range(p.lane(), 4, 5)], rows(b"a"))) is Reason.TOPIC_REPLACED
    assert p.positions() == {0: 4}
    assert p.written("read_uncommitted") == []
    p.set_positions(0)  # the remedy in the message
    assert p.take().positions == {p.lane(0): 0, p.lane(1): 0}


def test_rule_08_a_running_driver_refuses_positions_of_a_topic_that_it_does_not_know(pipe: NewPipe) -> None:
    """It compares with the ids that it read when it took the pipeline, not with those that the brokers have now."""
    p = pipe()
    old = p.take()
    ids = dict(old.topic_ids)
    p.recreate_source()
    p.set_positions(0)
    new = p.take()
    assert new.topic_ids != ids
    for task in (p.lanes(new, ids), p.lanes(old, ids), old.lanes):
        assert reason_of(lambda: task.advance(0, [Range(p.lane(), 0, 5)], rows(b"a"))) is Reason.TOPIC_REPLACED  # noqa: B023
        assert reason_of(lambda: task.advance_all([Range(p.lane(), 0, 5)])) is Reason.TOPIC_REPLACED  # noqa: B023
    assert p.positions() == {0: 0, 1: 0}
    assert p.written("read_uncommitted") == []


def test_rule_08_control_without_the_topic_id_the_new_topics_records_are_passed_over(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = pipe()
    commit_after_replacement(p, p.take(), 4, 0, 1)
    feed(p.servers, p.source, 2, 0, 5)
    monkeypatch.setattr(positions, "check_topic", lambda *_: None)
    assert p.take().positions == {p.lane(0): 4, p.lane(1): 4}  # four new records of each would never be read


def test_rule_08_a_replaced_topic_halts_though_its_positions_went_with_it(pipe: NewPipe) -> None:
    p = pipe()
    p.take()
    p.recreate_source()
    assert reason_of(p.take) in (Reason.POSITION_LOST, Reason.TOPIC_REPLACED)
    assert p.positions() == {}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rule_08_a_driver_that_sees_a_younger_one_ends(pipe: NewPipe, guarantee: str) -> None:
    p = pipe(guarantee)
    older = p.take()
    younger = p.take()
    work = p.work(older, Range(p.lane(), 0, 5))
    calls: dict[str, Callable[[], object]] = {
        "at-most-once": lambda: claim_and_process(work, work.task, rows(b"a")),
        "at-least-once": lambda: older.lanes.advance_all([Range(p.lane(), 0, 5)]),
        "exactly-once": lambda: process_and_advance(work, work.task, rows(b"a")),
    }
    with pytest.raises(JobError) as caught:
        calls[guarantee]()
    assert (caught.value.reason, caught.value.exit_code) == (Reason.SUPERSEDED, ExitCode.SUPERSEDED)
    assert p.written("read_uncommitted") == []
    assert p.driver_at() == younger.driver


def test_rule_08_a_driver_that_comes_back_leaves_the_pipeline_to_its_successor(pipe: NewPipe) -> None:
    p = pipe()
    older, younger = p.take(), p.take()
    assert reason_of(lambda: p.take(older.driver)) is Reason.SUPERSEDED
    assert younger.lanes.advance(0, [Range(p.lane(), 0, 3)])[0] is Outcome.DONE


@pytest.mark.parametrize("accepted", ["positions", "topic"])
def test_rule_08_the_number_survives_what_a_person_accepts(pipe: NewPipe, accepted: str) -> None:
    """Though no position has it any more: the lanes topic does."""
    p = pipe()
    p.take()
    older = p.take()
    if accepted == "positions":
        p.set_positions(0)
        p = p.accepting(0)
    else:
        p = replace(p, job=replace(p.job, accepted_losses=p.ids()))
        p.recreate_source()
    p.take()
    assert p.driver_at() > older.driver  # waits until the settlement is visible
    assert reason_of(lambda: p.take(older.driver)) is Reason.SUPERSEDED


def test_rule_08_control_without_the_number_a_driver_that_comes_back_takes_part(pipe: NewPipe) -> None:
    """Membership and positions still protect the records, but the two drivers would fence each other forever."""
    p = pipe()
    _, younger = p.take(), p.take()
    back = p.take()  # the older one, which does not tell its number
    assert reason_of(lambda: younger.lanes.advance(0, [Range(p.lane(), 0, 3)])) is Reason.SUPERSEDED
    assert back.lanes.advance(0, [Range(p.lane(), 0, 3)])[0] is Outcome.DONE
