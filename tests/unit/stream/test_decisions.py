"""Decisions of stateful pipelines: what the next driver continues from, and what is refused.

The model of the same rules is tests/model/decisions.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ackwright_stream.decisions import (
    Decision,
    fingerprint,
    last_decision,
    loss_of,
    offsets_of,
    require_same_offsets,
    state_of,
    state_unread,
)
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StateSettings
from ackwright_stream.positions import Lane, Position
from ackwright_stream.spark_internals.state import StateEntry
from minimal_job import minimal_job
from unit.stream.decided import DECISION, FIRST, OFFSETS, SECOND


def position(offset: int, batch: int | None = 3) -> Position:
    return Position(offset, "topic-id", 2, "", batch)


COMMITTED = {FIRST: position(7), SECOND: position(9)}


def test_a_decision_goes_there_and_back() -> None:
    assert Decision.of_json(DECISION.to_json()) == DECISION
    assert "accepted_loss" not in DECISION.to_json()
    after_a_loss = replace(DECISION, accepted_loss="0123456789ab")
    assert Decision.of_json(after_a_loss.to_json()) == after_a_loss


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1}', "no JSON"])
def test_an_unreadable_decision_halts(text: str) -> None:
    with pytest.raises(JobError) as e:
        Decision.of_json(text)
    assert e.value.reason is Reason.STATE_LOST


def test_a_decision_of_a_later_release_halts() -> None:
    text = json.dumps({**json.loads(DECISION.to_json()), "version": 2})
    with pytest.raises(JobError, match="version 2, and this release reads 1"):
        Decision.of_json(text)


def test_the_log_of_commits_names_every_store() -> None:
    assert DECISION.commit == (
        'v2\n{"nextBatchWatermarkMs":1000,"stateUniqueIds":{"0":[["a"],["b"]],"1":[["c","d"],["e","f"]]}}'
    )


def test_a_driver_continues_behind_the_decision_of_its_positions() -> None:
    assert last_decision(DECISION.to_json(), COMMITTED) == DECISION


def test_positions_before_the_first_batch_have_no_decision() -> None:
    assert last_decision(None, {FIRST: position(7, None), SECOND: None}) is None


@pytest.mark.parametrize(
    ("committed", "problem"),
    [
        ({FIRST: position(7), SECOND: position(8)}, "lane in-2-1 is at 8, behind batch 3"),
        ({FIRST: position(7, 2), SECOND: position(9)}, "lane in-0 is at 7, behind batch 2"),  # no records in batch 3
        ({FIRST: position(7, None), SECOND: position(9)}, "behind batch None"),  # of another program
        ({FIRST: position(7), SECOND: None}, "lane in-2-1 has no position"),
        ({FIRST: position(7), Lane("in-2", 0): position(1)}, "lane in-2-1 has no position"),
    ],
)
def test_positions_of_another_batch_halt(committed: Mapping[Lane, Position | None], problem: str) -> None:
    with pytest.raises(JobError, match=problem) as e:
        last_decision(DECISION.to_json(), committed)
    assert e.value.reason is Reason.STATE_LOST


def test_a_topic_cannot_be_removed_from_the_source() -> None:
    with pytest.raises(JobError, match=r"records of in-2, which source\.topics does not name any more") as e:
        last_decision(DECISION.to_json(), {FIRST: position(7)})
    assert e.value.reason is Reason.INVALID_TRANSFORM


def test_a_lost_decision_halts() -> None:
    with pytest.raises(JobError, match="lane in-0 is behind batch 3, and there is no decision") as e:
        last_decision(None, COMMITTED)
    assert e.value.reason is Reason.STATE_LOST


def test_a_loss_is_identified_by_decision_and_positions() -> None:
    """So an acceptance is of one state, and of no later one."""
    texts = (DECISION.to_json(), replace(DECISION, batch=4).to_json(), "")
    losses = {loss_of(text, offsets) for text in texts for offsets in ({FIRST: 7}, {FIRST: 8})}
    assert len(losses) == 6
    with pytest.raises(JobError) as e:
        last_decision(None, COMMITTED)
    assert e.value.fingerprint == loss_of("", {FIRST: 7, SECOND: 9})
    assert f"accept-state-loss NAME that the state starts empty (fingerprint {e.value.fingerprint})" in e.value.message


def test_the_loss_of_state_behind_an_unreadable_decision_cannot_be_accepted() -> None:
    with pytest.raises(JobError, match="use the release of the driver") as e:
        last_decision("{}", COMMITTED)
    assert e.value.fingerprint is None


UNREAD = JobError(Reason.STATE_LOST, "Checksum verification failed")


def test_state_that_cannot_be_loaded_is_read_again_and_then_lost() -> None:
    first, loss = state_unread(UNREAD, DECISION, None)
    assert first.reason is Reason.BATCH_FAILED
    assert "batch 3, in the directory d1, cannot be read: Checksum verification failed; it is read" in first.message
    assert loss == loss_of(DECISION.to_json(), DECISION.positions)
    second, again = state_unread(UNREAD, DECISION, loss)
    assert (second.reason, second.fingerprint, again) == (Reason.STATE_LOST, loss, loss)
    assert f"starts empty (fingerprint {loss})" in second.message
    later = replace(DECISION, batch=4)
    assert state_unread(UNREAD, later, loss)[0].reason is Reason.BATCH_FAILED, "it is of another state"


def test_state_that_does_not_fit_to_the_transform_is_not_to_be_restored_first() -> None:
    misfit = JobError(Reason.STATE_LOST, "other types", "undo the change; or accept")
    _, loss = state_unread(misfit, DECISION, None)
    lost, _ = state_unread(misfit, DECISION, loss)
    assert lost.message.endswith(f"cannot be read: other types; undo the change; or accept (fingerprint {loss})")
    assert "restore" not in lost.message


def test_other_errors_are_not_of_unread_state() -> None:
    for error in (JobError(Reason.BATCH_FAILED, "x"), JobError(Reason.STATE_LOST, "x", fingerprint="0123456789ab")):
        assert state_unread(error, DECISION, None) == (error, None)
    assert state_unread(UNREAD, None, None)[0].reason is Reason.BATCH_FAILED, "there is no state yet"


def test_a_lane_that_was_added_since_the_decision_has_a_position() -> None:
    assert last_decision(DECISION.to_json(), COMMITTED | {Lane("in", 1): position(0)}) == DECISION


def entry(partition: int, operator: int = 0, **changes: Any) -> StateEntry:
    before = DECISION.state[operator][partition]
    return replace(StateEntry(operator, partition, 5, tuple(f"new-{x}" for x in before), before), **changes)


ENTRIES = [entry(p, o) for o in (0, 1) for p in (0, 1)]


def test_the_state_of_one_evaluation() -> None:
    state = state_of(reversed(ENTRIES), (0, 1), 4, 2, DECISION)
    assert state == {0: (("new-a",), ("new-b",)), 1: (("new-c", "new-d"), ("new-e", "new-f"))}


def test_the_first_state_begins_from_none() -> None:
    assert state_of([StateEntry(0, 0, 1, ("a",), ())], (0,), 0, 1, None) == {0: (("a",),)}


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([*ENTRIES, entry(1, ids=("again",))], "has 2 states of partition 1 of operator 0"),  # a task ran twice
        (ENTRIES[1:], "has 0 states of partition 0 of operator 0"),
        ([*ENTRIES, StateEntry(2, 0, 5, ("x",), ())], "has 1 states of partition 0 of operator 2"),
        ([entry(0, base=("zombie",)), *ENTRIES[1:]], "partition 0 of operator 0 from the state zombie"),
        ([entry(0, base=()), *ENTRIES[1:]], "from the state none, and the last decision has a"),
        ([entry(0, ids=()), *ENTRIES[1:]], "partition 0 of operator 0"),  # Spark's checkpoint format 1
        ([entry(0, version=6), *ENTRIES[1:]], "partition 0 of operator 0"),
    ],
)
def test_another_evaluation_is_not_committed(entries: list[StateEntry], problem: str) -> None:
    with pytest.raises(JobError, match=problem) as e:
        state_of(entries, (0, 1), 4, 2, DECISION)
    assert e.value.reason is Reason.POSITION_CONFLICT


def test_offsets_in_sparks_log() -> None:
    assert offsets_of(OFFSETS) == DECISION.positions
    assert offsets_of(OFFSETS + OFFSETS[OFFSETS.rindex("\n") :]) == DECISION.positions  # two uses of the source
    assert require_same_offsets(3, OFFSETS, DECISION.positions) == OFFSETS


def test_state_is_of_one_query() -> None:
    job = minimal_job()
    settings = StateSettings(2, "/state", "update", "at", "5000 milliseconds", 1_000)
    elsewhere = replace(settings, checkpoint="/elsewhere", watermark_delay="9000 milliseconds")
    same = [fingerprint(job, settings), fingerprint(replace(job, slots=9), elsewhere)]
    others = [
        fingerprint(replace(job, transform=replace(job.transform, sql="SELECT 1 FROM source")), settings),
        fingerprint(replace(job, source=replace(job.source, schema="a INT")), settings),
        fingerprint(job, replace(settings, partitions=3)),
        fingerprint(job, replace(settings, output_mode="append")),
        fingerprint(job, replace(settings, event_time="received")),
        fingerprint(replace(job, spark={**job.spark, "spark.sql.session.timeZone": "Europe/Berlin"}), settings),
    ]
    same.append(fingerprint(replace(job, spark={**job.spark, "spark.sql.session.timeZone": "UTC"}), settings))
    assert len({*same}) == 1
    assert len({*same, *others}) == 7


def test_a_batch_with_a_partition_that_was_just_added_is_not_committed() -> None:
    with pytest.raises(JobError, match=r"has new partitions \(in-2-1\), which this driver has to take"):
        require_same_offsets(3, OFFSETS, {FIRST: 7})


@pytest.mark.parametrize("text", [None, OFFSETS.replace("7", "8")])
def test_a_log_of_another_driver_is_not_believed(text: str | None) -> None:
    with pytest.raises(JobError, match="another driver has changed"):
        require_same_offsets(3, text, DECISION.positions)
