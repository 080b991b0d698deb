"""Positions as numbers of a table: application transactions of Delta Lake, properties of Iceberg."""

from __future__ import annotations

import hashlib

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.staged import positions as store

NAMES = store.Names("shop.orders")
A, B = Lane("in", 0), Lane("in", 1)
OLD, NEW = "8mhvHSzDTZeBgiJfv3vIHQ", "short-id"


@pytest.mark.parametrize("topic_id", [OLD, NEW, "x", "seven77"])
@pytest.mark.parametrize("pipeline", ["3f1b0c0e-uid", "local-host", ""])
def test_a_position_is_read_as_it_was_settled(topic_id: str, pipeline: str) -> None:
    position = Position(7, topic_id, 3, pipeline)
    numbers = store.settled(NAMES, {A: position})
    assert all(0 <= number < 1 << 63 for number in numbers.values())
    assert store.read(NAMES, numbers.get, [A, B], pipeline or "any") == {A: position, B: None}


@pytest.mark.parametrize("recorded", ["namespace/before", "uid", "namespace/uid"])
def test_a_position_of_a_resource_that_was_applied_again_and_of_an_earlier_release_is_own(recorded: str) -> None:
    numbers = store.settled(NAMES, {A: Position(7, OLD, 3, recorded)})
    assert store.read(NAMES, numbers.get, [A], "namespace/uid") == {A: Position(7, OLD, 3, "namespace/uid")}


def test_a_position_that_an_earlier_release_has_committed_with_todays_jobspec_is_own() -> None:
    """It does not know that the identity has parts."""
    of_all_parts = int.from_bytes(hashlib.sha256(b"namespace/uid").digest()[:7])
    numbers = {**store.settled(NAMES, {A: Position(7, OLD, 3)}), NAMES.pipeline: of_all_parts}
    assert store.read(NAMES, numbers.get, [A], "namespace/uid") == {A: Position(7, OLD, 3, "namespace/uid")}


def test_a_position_of_another_pipeline_does_not_have_this_pipelines_identity() -> None:
    numbers = store.settled(NAMES, {A: Position(7, OLD, 3, "another")})
    read = store.read(NAMES, numbers.get, [A], "this")[A]
    assert read is not None
    assert read.pipeline not in ("", "this")


def test_a_partition_that_a_recreated_topic_gets_later_does_not_take_the_old_offset() -> None:
    numbers = {
        **store.settled(NAMES, {A: Position(7, OLD, 1, "p"), B: Position(9, OLD, 1, "p")}),
        **store.settled(NAMES, {A: Position(0, NEW, 2, "p")}),
    }
    assert store.read(NAMES, numbers.get, [A, B], "p") == {A: Position(0, NEW, 2, "p"), B: None}


def test_a_shorter_topic_id_replaces_a_longer_one() -> None:
    numbers = {**store.settled(NAMES, {A: Position(7, OLD, 1)}), **store.settled(NAMES, {A: Position(7, "abc", 1)})}
    assert store.topic_id(NAMES, numbers.get, "in") == "abc"


@pytest.mark.parametrize("topic_id", [OLD, NEW, "x", "seven77"])
def test_a_topics_id_of_which_a_part_is_missing_is_lost(topic_id: str) -> None:
    """Also the 0 that ends it, behind which parts of an earlier and longer id may be."""
    longer = store.settled(NAMES, {A: Position(7, "a-much-longer-id-than-any-of-these", 1)})
    numbers = {**longer, **store.settled(NAMES, {A: Position(7, topic_id, 3)})}
    parts = range(-(-len(topic_id) // 7) + 1)
    assert numbers[NAMES.topic_id("in", parts[-1])] == 0
    for part in parts:
        others = {name: number for name, number in numbers.items() if name != NAMES.topic_id("in", part)}
        with pytest.raises(JobError, match=f"in/id/{part}") as caught:
            store.read(NAMES, others.get, [A], "p")
        assert caught.value.reason is Reason.POSITION_LOST
    none: dict[str, int] = {}
    assert store.topic_id(NAMES, none.get, "in") is None, "a new topic has none"


def test_a_lane_with_a_record_or_a_position_is_recorded() -> None:
    positions = {A: Position(7, OLD, 3), B: Position(9, OLD, 3)}
    numbers = {**store.settled(NAMES, positions), **store.recorded(NAMES, positions, [A])}
    assert store.recorded_lanes(NAMES, numbers.get, [A, B, Lane("in", 2), Lane("new", 0)]) == {A: OLD, B: OLD}
    del numbers[NAMES.lane(A, OLD)]
    assert store.recorded_lanes(NAMES, numbers.get, [A, B]) == {A: OLD, B: OLD}
    assert store.without_record(NAMES, numbers.get, positions) == {B}


def test_all_numbers_that_are_missing_are_listed() -> None:
    lanes = [Lane("in", n) for n in range(6)]
    of_earlier_release = store.settled(NAMES, {lane: Position(7, OLD, 3) for lane in lanes})
    numbers = {**of_earlier_release, NAMES.topics: store.topics_number(["in"])}
    with pytest.raises(JobError, match=r"removed 7 numbers .*/generation, .* and 2 more\), .*; set them") as caught:
        store.require_complete(NAMES, numbers.get, lanes, ["in"])
    assert caught.value.reason is Reason.POSITION_LOST
    # It may have settled lanes without their records.
    store.require_complete(NAMES, {**of_earlier_release, NAMES.generation: 3}.get, lanes, ["in"])
    none: dict[str, int] = {}
    store.require_complete(NAMES, none.get, lanes, ["in"])  # of a new pipeline


def test_offsets_that_are_set_by_hand_are_another_programs() -> None:
    numbers = {**store.settled(NAMES, {A: Position(7, OLD, 3, "p")}), NAMES.lane(A, OLD): 2, NAMES.driver: 0}
    read = store.read(NAMES, numbers.get, [A], "p")[A]
    assert read is not None
    assert (read.offset, read.is_foreign) == (2, True)


@pytest.mark.parametrize("fingerprint", ["0123456789ab", "ffffffffffff", "000000000000"])
def test_a_fingerprint_is_read_as_it_was_accepted(fingerprint: str) -> None:
    assert store.fingerprint(store.accepted(fingerprint)) == fingerprint
    assert store.fingerprint(None) == ""


def test_pipelines_do_not_share_names() -> None:
    position = {A: Position(7, OLD, 3, "p")}
    assert not set(store.settled(NAMES, position)) & set(store.settled(store.Names("shop.orders-2"), position))
