"""The output of a stateful batch as pieces: in memory up to a limit, and beyond it in files beside the state."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from obstore.store import MemoryStore

from ackwright_stream import encoded_output, state_bucket
from ackwright_stream.encoded_output import LocalPieces, Piece, PieceFiles, clear, decode, digest, encode, files_of
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StateSettings

DRIVER = 7
LARGE = pa.RecordBatch.from_pydict({"key": [bytes([i]) * 1_000 for i in range(40)], "n": list(range(40))})
ROWS = [LARGE, LARGE.slice(0, 0), LARGE.slice(3, 5)]


@pytest.fixture(params=["directory", "bucket"])
def state(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateSettings:
    store = MemoryStore()
    monkeypatch.setattr(state_bucket, "store_of", lambda *_: store)
    place = str(tmp_path) if request.param == "directory" else "s3a://lake/state/p"
    return StateSettings(2, place, "append", None, None, 1_000)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_output, "PIECE_BYTES", 3_000)


def encoded(files: PieceFiles, memory: int, rows: Sequence[pa.RecordBatch] = ROWS, driver: int = DRIVER) -> list[Piece]:
    return list(encode(rows, memory, driver, lambda: files))


def table(rows: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(rows)


def test_rows_reach_the_driver_as_they_are_in_memory_and_in_files(state: StateSettings) -> None:
    files = files_of(state)
    in_memory, in_files = encoded(files, 1_000_000), encoded(files, 10_000)
    assert {piece.file for piece in in_memory} == {None} == {piece.content for piece in in_files}
    for pieces in (in_memory, in_files):
        assert table(decode(pieces, lambda: files)) == table(ROWS)
        assert sum(piece.records for piece in pieces) == 45
    assert digest(in_memory) == digest(in_files) != digest(in_memory[1:])


def in_memory(rows: Sequence[pa.RecordBatch]) -> str:
    """The digest of rows that are in memory."""
    return digest(encode(rows, 1_000_000, DRIVER, lambda: pytest.fail("files were opened")))


def test_a_digest_is_of_the_rows_in_any_order() -> None:
    order = pa.array([*range(20, 40), *range(20)])
    assert in_memory([LARGE]) == in_memory([LARGE.take(order)]) == in_memory([LARGE.slice(9), LARGE.slice(0, 9)])
    assert in_memory([LARGE]) != in_memory([LARGE, LARGE.slice(0, 1)])
    assert in_memory([LARGE, LARGE]) != in_memory([])


def test_rows_that_are_not_compared_are_not_hashed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_output, "_hashes", lambda _: pytest.fail("rows were hashed"))
    nowhere = lambda: pytest.fail("files were opened")  # noqa: E731
    pieces = list(encode(ROWS, 1_000_000, DRIVER, nowhere, compared=False))
    assert table(decode(pieces, nowhere)) == table(ROWS)
    assert {piece.digest for piece in pieces} == {b""}


@pytest.mark.parametrize(
    "other",
    [{"a": [b"x", None], "b": ["y", "z"]}, {"a": [b"x", b""], "b": ["z", "y"]}, {"b": [b"x", b""], "a": ["y", None]}],
)
def test_other_rows_have_another_digest(other: dict[str, Any]) -> None:
    rows = pa.RecordBatch.from_pydict({"a": [b"x", b""], "b": ["y", "z"]})
    assert in_memory([rows]) != in_memory([pa.RecordBatch.from_pydict(other)])


@pytest.mark.parametrize("zone", [None, "UTC", "Nowhere/Unknown"])
def test_a_digest_is_of_values_that_python_has_no_type_for(zone: str | None) -> None:
    moments = pa.timestamp("us", zone)
    nested = pa.map_(pa.string(), pa.list_(pa.struct([("at", moments), ("for", pa.duration("us"))])))

    def rows(at: int) -> list[pa.RecordBatch]:
        values = {"at": pa.array([at], moments), "in": pa.array([[("k", [{"at": at, "for": at}])]], nested)}
        return [pa.RecordBatch.from_pydict({**values, "on": pa.array([at >> 40], pa.date32())})]

    assert in_memory(rows(1 << 62)) != in_memory(rows((1 << 62) + 1))


def test_a_piece_has_few_rows_however_many_a_record_batch_has(state: StateSettings) -> None:
    pieces = encoded(files_of(state), 0)
    contents = [files_of(state).read(piece.file or "") or b"" for piece in pieces]
    assert max(map(len, contents)) < 2 * 3_000 + 1_000  # a part that is complete, one more, and the schema
    assert [hashlib.sha256(content).digest() for content in contents] == [piece.hash for piece in pieces]


def test_a_row_that_is_larger_than_a_piece_is_one(state: StateSettings) -> None:
    rows = [pa.RecordBatch.from_pydict({"value": [b"a" * 9_000, b"b" * 9_000]})]
    assert [piece.records for piece in encoded(files_of(state), 0, rows)] == [1, 1]


def test_no_rows_are_no_pieces() -> None:
    assert list(encode([LARGE.slice(0, 0)], 0, DRIVER, lambda: pytest.fail("files were opened"))) == []
    assert list(encode(ROWS, 1_000_000, DRIVER, lambda: pytest.fail("files were opened"))) != []


def test_every_attempt_has_its_own_files(state: StateSettings) -> None:
    first, second = (encoded(files_of(state), 0) for _ in range(2))
    assert not {piece.file for piece in first} & {piece.file for piece in second}


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "changed"])
def test_a_file_that_is_lost_or_changed_fails_the_batch_before_any_row_of_it(state: StateSettings, lost: bool) -> None:
    files = files_of(state)
    pieces = encoded(files, 0)
    files.remove([pieces[1].file or ""])
    if not lost:
        files.write(pieces[1].file or "", files.read(pieces[0].file or "") or b"")
    received = list[int]()
    with pytest.raises(JobError, match="is not there any more" if lost else "was changed") as error:
        received.extend(batch.num_rows for batch in decode(pieces, lambda: files))
    assert (sum(received), error.value.reason) == (pieces[0].records, Reason.BATCH_FAILED)


def test_control_rows_of_another_evaluation_are_passed_on_without_the_hash(state: StateSettings) -> None:
    files = files_of(state)
    first, other = encoded(files, 0)[0], encoded(files, 0, [LARGE.slice(20)])[0]
    assert table(decode([replace(first, file=other.file, hash=other.hash)], lambda: files)) != table(
        [LARGE.slice(0, 2)]
    )


def test_the_files_of_drivers_up_to_a_number_are_removed(state: StateSettings) -> None:
    files = files_of(state)
    files.write("owner.json", b"{}")
    files.write("output/other", b"not a driver's")
    of_drivers = {driver: encoded(files, 0, driver=driver)[0].file or "" for driver in (6, 7, 8)}
    clear(state, 7)
    assert [driver for driver, file in of_drivers.items() if files.read(file)] == [8]
    assert files.read("owner.json") == b"{}"
    assert files.read("output/other") == b"not a driver's"
    clear(replace(state, checkpoint=f"{state.checkpoint}/nowhere"), 9)
    clear(replace(state, checkpoint="s3a://lake/state", credentials="/nowhere"), 9)


def test_a_full_volume_is_named_and_what_was_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, write = LocalPieces(str(tmp_path)), Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        write(path, content[: len(content) // 2])
        if path.name.endswith("-2"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(JobError, match=r"output/7 \(No space left on device\); make room there") as error:
        encoded(files, 0)
    assert error.value.reason is Reason.BATCH_FAILED
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_task_that_fails_while_it_computes_leaves_no_file(state: StateSettings) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield LARGE
        raise ValueError("of the transform")

    files = files_of(state)
    pieces = encode(rows(), 0, DRIVER, lambda: files)
    stored = next(pieces).file or ""
    assert files.read(stored) is not None
    with pytest.raises(ValueError, match="of the transform"):
        list(pieces)
    assert files.read(stored) is None
