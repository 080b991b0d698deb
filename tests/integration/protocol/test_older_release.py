"""An upgrade from a release that fenced each lane by a separate transactional.id and had no membership.

docs/protocol.md#drivers-of-earlier-releases. The drivers and tasks of that release are simulated, see older_release.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from ackwright_stream.delivery.at_most_once import claim_and_process
from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Range
from ackwright_stream.sinks.kafka import lane_ids
from ackwright_stream.sinks.kafka.lane_records import record_key
from integration.support.older_release import OldDriver, OldTask
from integration.support.pipelines import LANES, assert_nothing_hangs
from integration.support.produce import produce_pairs
from integration.support.rules import NewPipe, Pipe, reason_of, rows
from waiting import ANSWER, wait_until


def old_driver(p: Pipe) -> OldDriver:
    return OldDriver(p.job, [p.lane(0), p.lane(1)], p.ids()[p.source])


def steps_of(task: OldTask) -> list[Callable[[], None]]:
    """The steps of an old task that delivers the first five offsets of its lane."""
    return task.steps(5, b"old")


def run(steps: list[Callable[[], None]]) -> None:
    for step in steps:
        step()


def deliver(p: Pipe, owned: Ownership) -> None:
    """The first five offsets of lane 0, by a task of the new driver."""
    work = p.work(owned, Range(p.lane(), 0, 5))
    process = claim_and_process if p.job.guarantee == "at-most-once" else process_and_advance
    assert process(work, work.task, rows(b"new")) == (Outcome.DONE, 1)
    wait_until(lambda: b"new" in p.written(), "the row is in the log, which at-most-once does not wait for")


# What ends an old task, by the number of its steps before the takeover: until then its last step is not done.
OLD_ENDS = {
    0: Reason.TOPIC_REPLACED,  # it reads the slots as a part of the topic's id
    1: Reason.TOPIC_REPLACED,
    2: Reason.POSITION_CONFLICT,  # its transactional.id is fenced
    3: Reason.POSITION_CONFLICT,
    4: Reason.POSITION_CONFLICT,
}
UNFINISHED = [*(("exactly-once", steps) for steps in OLD_ENDS), *(("at-most-once", steps) for steps in range(4))]


@pytest.mark.parametrize(("guarantee", "before"), UNFINISHED)
def test_a_task_of_an_earlier_release_cannot_commit_after_the_takeover(
    pipe: NewPipe, guarantee: str, before: int
) -> None:
    p = pipe(guarantee)
    steps = steps_of(old_driver(p).task(p.lane()))
    run(steps[:before])
    owned = p.take()
    assert owned.positions == {p.lane(0): 0, p.lane(1): 0}
    assert reason_of(lambda: run(steps[before:])) is OLD_ENDS[before]
    deliver(p, owned)
    assert p.positions() == {0: 5, 1: 0}
    assert p.written() == [b"new"]
    assert_nothing_hangs(p.servers, p.sink)


# As OLD_ENDS, of an advance under at-least-once, with the driver's own transactional.id.
ADVANCE_ENDS = {0: Reason.TOPIC_REPLACED, 1: Reason.POSITION_CONFLICT, 2: Reason.POSITION_CONFLICT}


@pytest.mark.parametrize("before", ADVANCE_ENDS)
def test_an_advance_of_an_earlier_release_cannot_commit_after_the_takeover(pipe: NewPipe, before: int) -> None:
    p = pipe("at-least-once")
    steps = old_driver(p).advance(p.lane(), 5)
    run(steps[:before])
    owned = p.take()
    assert owned.positions == {p.lane(0): 0, p.lane(1): 0}
    owned.lanes.advance_all([Range(p.lane(), 0, 3)])
    assert reason_of(lambda: run(steps[before:])) is ADVANCE_ENDS[before]
    owned.lanes.advance_all([Range(p.lane(), 0, 4)])
    assert p.positions() == {0: 4, 1: 0}


def test_control_with_another_transactional_id_an_advance_of_an_earlier_release_commits_later(pipe: NewPipe) -> None:
    """It has read the position before the takeover, and moves the lane over what its successor has not delivered."""
    p = pipe("at-least-once")
    old = old_driver(p)
    old._producer = Producer({"bootstrap.servers": p.servers, "transactional.id": f"{p.source}-unfenced"})
    old._producer.init_transactions(ANSWER)
    steps = old.advance(p.lane(), 5)
    run(steps[:1])
    p.take().lanes.advance_all([Range(p.lane(), 0, 3)])
    run(steps[1:])
    assert p.positions() == {0: 5, 1: 0}


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_what_an_earlier_release_has_committed_is_not_delivered_again(pipe: NewPipe, guarantee: str) -> None:
    """Under at-most-once it has claimed the range, and writes the row after the takeover."""
    p = pipe(guarantee)
    old = old_driver(p)
    *before, last = steps_of(old.task(p.lane()))
    run(before)
    if guarantee == "exactly-once":
        last()
    owned = p.take()
    if guarantee == "at-most-once":
        last()
    assert owned.driver > old.number
    assert owned.positions == {p.lane(0): 5, p.lane(1): 0}
    assert p.written() == [b"old"]


@pytest.mark.parametrize(
    ("guarantee", "starts"), [("exactly-once", False), ("exactly-once", True), ("at-most-once", True)]
)
def test_a_task_of_an_earlier_release_that_begins_during_the_takeover_ends(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch, *, guarantee: str, starts: bool
) -> None:
    """After the new driver has taken the lane by its transactional.id, and before it settles.

    starts: its driver starts then as well; the group was empty when it checked that. Variants
    member-upgrade-settled and, as the control, member-upgrade-marked-last of the model.
    """
    p = pipe(guarantee)
    old = old_driver(p)
    reasons: list[Reason] = []
    settle = Lanes.settle

    def after_the_task(self: Lanes, *arguments: Any) -> None:
        reasons.append(reason_of(lambda: run(steps_of((old_driver(p) if starts else old).task(p.lane())))))
        settle(self, *arguments)

    monkeypatch.setattr(Lanes, "settle", after_the_task)
    owned = p.take()
    assert reasons == [Reason.TOPIC_REPLACED]
    deliver(p, owned)
    assert p.written() == [b"new"]


def test_a_lane_of_an_earlier_release_whose_record_is_lost_gets_it_again(pipe: NewPipe) -> None:
    """As with the lanes topic. A record that is there stays: it tells the audit where to begin."""
    p = pipe()
    old_driver(p)
    key, record = record_key(p.job.group, p.lane(1)), {"start": 7, "topicId": p.ids()[p.source]}
    produce_pairs(p.servers, LANES, [(key, json.dumps(record).encode())])
    p.take()
    assert p.records() == {key: record, record_key(p.job.group, p.lane(0)): {**record, "start": 0}}
    p.forget_positions()
    assert reason_of(p.take) is Reason.POSITION_LOST


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_control_without_its_transactional_ids_an_earlier_release_delivers_again(
    pipe: NewPipe, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    p = pipe(guarantee)
    steps = steps_of(old_driver(p).task(p.lane()))
    run(steps[:2])
    monkeypatch.setattr(lane_ids, "take_from_older_release", lambda *_: None)
    deliver(p, p.take())
    run(steps[2:])
    wait_until(lambda: p.written() == [b"new", b"old"], "the range is delivered twice")


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_a_driver_of_an_earlier_release_that_starts_later_finds_another_topic(pipe: NewPipe, guarantee: str) -> None:
    """Its start fences the driver's own transactional.id, with which at-least-once advances: the driver restarts."""
    p = pipe(guarantee)
    owned = p.take()
    at_least_once = guarantee == "at-least-once"
    if at_least_once:
        owned.lanes.advance_all([Range(p.lane(), 0, 1)])
    assert reason_of(lambda: old_driver(p)) is Reason.TOPIC_REPLACED
    if at_least_once:
        assert reason_of(lambda: owned.lanes.advance_all([Range(p.lane(), 0, 2)])) is Reason.POSITION_CONFLICT
        p.take(owned.driver).lanes.advance_all([Range(p.lane(), 0, 2)])
        assert p.positions() == {0: 2, 1: 0}
    else:
        deliver(p, owned)
        assert p.written() == [b"new"]
