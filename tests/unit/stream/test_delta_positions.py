"""Positions as application transactions of a Delta table."""

from __future__ import annotations

import hashlib

import pytest

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
