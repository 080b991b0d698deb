"""Names, footers and entries of sink.files: what is written is read as it was."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import DecimalType, StructField, StructType

from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.files import layout
from ackwright_stream.sinks.files.layout import BatchFooter, Footer
from ackwright_stream.sinks.files.state import Decided, LaneState, State

LANE = Lane("a.b-1", 7)
POSITION = Position(2**40, "_id-2", 3, "uid")


def test_names_have_the_order_of_the_offsets_and_are_read_again() -> None:
    starts = [0, 9, 10, 2**63 - 1]
    names = [layout.file(LANE, "_id-2", start).partition("/")[2] for start in starts]
    assert names == sorted(names)
    assert [layout.start_of(name) for name in names] == starts
    assert layout.file(LANE, "_id-2", 5) == "a.b-1-7._id-2/00000000000000000005.parquet"
    assert all(layout.before(start) < name for start, name in zip(starts, names, strict=True))
    assert layout.before(10) > names[1]


@pytest.mark.parametrize(
    "name", ["1.parquet", f"{0:020}.json", "rows-x.parquet", f"{0:020}.parquet.tmp", f"x{0:020}.parquet"]
)
def test_other_names_are_no_positions(name: str) -> None:
    assert layout.start_of(name) is None


def test_entries_have_the_order_of_their_numbers_and_other_files_are_none() -> None:
    names = [layout.entry(number) for number in (0, 9, 10)]
    assert names == sorted(names)
    assert [layout.number_of(name) for name in names] == [0, 9, 10]
    others = ["1.json", f"{0:020}.parquet", f"{0:020}.json~", f"{0:020}.json.bak", f"x{0:020}.json", f"{0:020}.json\n"]
    assert [layout.number_of(name) for name in others] == [None] * len(others)


def test_a_directory_is_seen_by_readers_whatever_the_topic_id() -> None:
    assert not layout.directory(LANE, "_id-2").startswith(("_", "."))
    assert "=" not in layout.directory(LANE, "_id-2")
    assert layout.directory(LANE, "a+b/c") == "a.b-1-7.a-b_c", "ids of the client of Kafka have slashes"


def test_a_footer_is_read_as_it_was_written() -> None:
    footer = Footer(LANE, 5, POSITION)
    metadata = footer.metadata(12)
    encoded = {key.encode(): value.encode() for key, value in metadata.items()}
    assert Footer.of(encoded) == footer
    assert metadata["ackwright.rows"] == "12"
    assert metadata["ackwright.id"] != footer.metadata(12)["ackwright.id"], "no two attempts write equal files"


@pytest.mark.parametrize("metadata", [None, {}, {b"ackwright.topic": b"a", b"ackwright.partition": b"one"}])
def test_the_footer_of_another_program_is_recognised(metadata: dict[bytes, bytes] | None) -> None:
    with pytest.raises((KeyError, ValueError)):
        Footer.of(metadata)


def test_the_footer_of_a_batch_is_read_as_it_was_written() -> None:
    other = Lane("a.b-1", 8)
    footer = BatchFooter({other: Position(5, "_id-2", 3, "uid", 4), LANE: POSITION}, '{"batch": 4}')
    metadata = footer.metadata(12)
    assert BatchFooter.of({key.encode(): value.encode() for key, value in metadata.items()}) == footer
    assert list(metadata)[-1] == "ackwright.id", "storage compares the end of a file"
    with pytest.raises(KeyError):
        BatchFooter.of({})


def test_names_of_batches_have_the_order_of_their_numbers() -> None:
    names = [layout.batch(number).partition("/")[2] for number in (0, 9, 10)]
    assert names == sorted(names)
    assert [layout.start_of(name) for name in names] == [0, 9, 10]
    assert not layout.batch(0).startswith(("_", "."))


def test_an_entry_has_the_last_decision_of_a_stateful_pipeline_alone() -> None:
    stateful = State("ns.p", decided=Decided(7, "the last decision"))
    assert State.of_json(stateful.to_json()) == stateful
    assert "decided" not in json.loads(State("ns.p").to_json())


def test_an_entry_is_read_as_it_was_written() -> None:
    columns = StructType([StructField("n", DecimalType(12, 2))])
    state = State("ns.p", 4, "abc", columns, {LANE: LaneState(POSITION, "_id-2", 9, recreated=True)})
    assert State.of_json(state.to_json()) == state
    assert state.to_json() != state.to_json(), "no two entries are equal"


def test_positions_move_and_keep_where_their_lanes_began() -> None:
    other = Lane("other", 0)
    before = State("ns.p", lanes={LANE: LaneState(Position(1), "_id-2", 1)})
    after = before.moved({LANE: POSITION, other: POSITION})
    assert after.lanes == {LANE: LaneState(POSITION, "_id-2", 1), other: LaneState(POSITION)}
    assert before.lanes[LANE].position == Position(1)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", json.dumps({"group": "g"}).encode()])
def test_something_else_is_no_entry(text: bytes) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        State.of_json(text)
