"""Failures of the sink's directory and of its files: what is written, and what the error says."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, NullType, StringType, StructField, StructType

from ackwright_stream import ownership
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import LANE, Range
from ackwright_stream.sinks.files.columns import to_sink_columns
from ackwright_stream.sinks.files.sink import FilesStore
from integration.support.files_stores import ID, A, Driver, Files, Frame, directory, job, rows
from integration.support.small_disk import filled
from integration.support.weaker_outages import WEAKER, deliver_through

ROWS = 400_000  # 2 MB in a file


def refused(call: Callable[[], Any], reason: Reason, *words: str) -> None:
    """Asserts that the call raises a JobError with this reason and one line with the words."""
    with pytest.raises(JobError) as caught:
        call()
    message = caught.value.message
    assert caught.value.reason is reason, caught.value
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 1 MB."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a file system")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True, timeout=30)
    try:
        yield place
    finally:
        subprocess.run(["/bin/umount", "--lazy", place], check=True, timeout=30)


def test_a_full_disk_stops_the_pipeline_and_loses_and_repeats_nothing(small_disk: Path, tmp_path: Path) -> None:
    files = Files(small_disk / "files")
    driver = Driver(job(tmp_path, files.path))
    for _ in range(2):
        refused(
            lambda: driver.deliver(Range(A, 0, ROWS)), Reason.SINK_UNREACHABLE, "No space left on device", "check the"
        )
        assert (files.names(), files.temporary()) == ([], []), "what was written is removed"
    assert driver.deliver(Range(A, 0, 1000)) == (Outcome.DONE, 1000)
    full = small_disk / "full"
    with full.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    refused(lambda: driver.lanes.advance_all([Range(A, 0, 1001)]), Reason.SINK_UNREACHABLE, "No space left on device")
    full.unlink()
    assert driver.deliver(Range(A, 1000, 1002)) == (Outcome.DONE, 2)
    assert (files.offsets(), files.chain()) == (list(range(1002)), [(0, 1000), (1000, 1002)])


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_disk_that_is_full_between_rows_and_positions_keeps_the_weaker_guarantees(
    small_disk: Path, tmp_path: Path, guarantee: Guarantee
) -> None:
    files = Files(small_disk / "files")
    spec = replace(job(tmp_path, files.path), guarantee=guarantee)
    expected = deliver_through(filled(small_disk), guarantee, lambda: Driver(spec), Reason.SINK_UNREACHABLE)
    assert files.offsets() == expected


def test_a_directory_that_may_not_be_written_any_more(files: Files, tmp_path: Path) -> None:
    """With an immutable directory, which root obeys, too."""
    driver = Driver(job(tmp_path, files.path))
    driver.deliver(Range(A, 0, 5))
    for name in ("_ackwright/tmp", directory()):
        with immutable(Path(files.path, name)):
            refused(lambda: driver.deliver(Range(A, 5, 9)), Reason.AUTHORIZATION_FAILED, "not permitted", "grant")
    assert files.chain() == [(0, 5)]
    assert driver.deliver(Range(A, 5, 9)) == (Outcome.DONE, 4)
    assert (files.offsets(), files.chain()) == (list(range(9)), [(0, 5), (5, 9)])


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_named(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As FAT and some network file systems are."""

    def refused_link(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused_link)
    refused(lambda: Driver(job(tmp_path, files.path)), Reason.TABLE_UNSUITABLE, f"of {files.path} has no hard links")
    assert files.temporary() == []


@contextmanager
def immutable(directory: Path) -> Iterator[None]:
    """A directory in which nothing can be created."""
    if os.getuid() != 0:
        directory.chmod(0o500)
        yield
        directory.chmod(0o700)
        return
    if subprocess.run(["chattr", "+i", directory], check=False, capture_output=True, timeout=30).returncode:
        pytest.skip("this file system knows no immutable directories")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", directory], check=True, timeout=30)


def test_a_check_creates_nothing(files: Files, tmp_path: Path) -> None:
    FilesStore(job(tmp_path, files.path)).check()
    assert not Path(files.path).exists()
    path = tmp_path / "file"
    path.write_text("")
    refused(FilesStore(job(tmp_path, path / "below")).check, Reason.SINK_UNREACHABLE, "Not a directory")


def test_a_place_without_the_positions_of_a_pipeline_that_has_delivered_is_refused(
    files: Files, tmp_path: Path
) -> None:
    spec = replace(job(tmp_path, files.path), expects_positions=True)
    what = "has delivered, and sink.files has no positions of it"
    refused(lambda: ownership.require_known(spec, FilesStore(spec), [A]), Reason.POSITION_LOST, what)
    Driver(job(tmp_path, files.path))
    ownership.require_known(spec, FilesStore(spec))


def frame(**columns: Any) -> Any:
    return Frame(StructType([StructField(name, kind) for name, kind in columns.items()]))


def test_every_problem_of_the_output_is_reported_at_once() -> None:
    output = frame(
        a=NullType(), A=LongType(), __ackwright_lane=LongType(), m=ArrayType(MapType(StringType(), LongType()))
    )
    refused(
        lambda: to_sink_columns(output),
        Reason.INVALID_TRANSFORM,
        "column 'a' appears twice",
        "'__ackwright_lane' begins with __ackwright",
        "column 'a' is void, which this sink does not write; cast it",
        "column 'm' is array<map<string,bigint>>, which this sink does not write; convert it with to_json",
    )


def test_columns_that_do_not_fit_to_the_files_before_are_reported_at_once(files: Files, tmp_path: Path) -> None:
    spec = job(tmp_path, files.path)
    Driver(spec)
    store, output = FilesStore(spec), frame(lane=LongType(), N=LongType(), more=StringType())
    for call in (lambda: store.prepare(output), lambda: store.check(output)):
        refused(
            call,
            Reason.TABLE_UNSUITABLE,
            "column 'lane' is bigint in the output and int in files that were written before; cast it",
            "the files have a column 'n' and the output has 'N': write the same letters",
        )


def test_a_column_may_come_and_leave_and_has_one_type_forever(files: Files, tmp_path: Path) -> None:
    spec = job(tmp_path, files.path)
    Driver(spec).deliver(Range(A, 0, 2))
    wider = StructType(
        [StructField("lane", IntegerType()), StructField("n", LongType()), StructField("s", StringType())]
    )
    Driver(spec, columns=wider)
    narrow = Driver(spec)
    assert narrow.deliver(Range(A, 2, 3)) == (Outcome.DONE, 1)
    assert narrow.task().advance(0, [Range(A, 3, 4)]) == (Outcome.DONE, 0)
    assert files.offsets() == [0, 1, 2]
    refused(
        lambda: FilesStore(spec).prepare(frame(s=LongType())),
        Reason.TABLE_UNSUITABLE,
        "column 's' is bigint in the output and string in files that were written before",
    )


def test_text_that_is_not_utf8_is_refused(files: Files, tmp_path: Path) -> None:
    """DuckDB and others refuse to read the whole file."""
    driver = Driver(job(tmp_path, files.path))
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\x01\0\0\0"), pa.py_buffer(b"\xff")])
    batch = pa.record_batch({"s": text, LANE: pa.array([0], pa.int32())})
    refused(
        lambda: driver.task().advance(0, [Range(A, 0, 1)], [batch]),
        Reason.ROW_REFUSED,
        "column 's' has text that is not UTF-8",
    )
    with driver.sink.trial() as trial:
        refusal = trial.refusal(pa.Table.from_batches([batch.select(["s"])]))
        assert trial.refusal(pa.table({"s": ["ü"]})) is None
    assert refusal is not None
    assert (files.names(), files.temporary()) == ([], [])


def test_names_of_columns_that_are_not_ascii(files: Files, tmp_path: Path) -> None:
    columns = StructType([StructField("größe", LongType()), StructField("straße", StringType())])
    driver = Driver(job(tmp_path, files.path), columns=columns)
    batch = pa.record_batch({"größe": [1, 2], "straße": ["ä/ö", None], LANE: pa.array([0, 0], pa.int32())})
    assert driver.task().advance(0, [Range(A, 0, 2)], [batch]) == (Outcome.DONE, 2)
    assert driver.task().advance(0, [Range(A, 2, 3)]) == (Outcome.DONE, 0)
    assert files.rows() == [{"größe": 1, "straße": "ä/ö"}, {"größe": 2, "straße": None}]


def test_rows_of_many_megabytes(files: Files, tmp_path: Path) -> None:
    columns = StructType([StructField("n", LongType()), StructField("s", StringType())])
    driver = Driver(job(tmp_path, files.path), columns=columns)
    texts = [chr(97 + n) * (24 << 20) for n in range(4)]  # more than a task keeps in memory
    batches = [
        pa.record_batch({"n": [n], "s": [text], LANE: pa.array([0], pa.int32())}) for n, text in enumerate(texts)
    ]
    assert driver.task().advance(0, [Range(A, 0, 4)], batches) == (Outcome.DONE, 4)
    assert [(row["n"], row["s"]) for row in files.rows()] == list(enumerate(texts))


def write_own(path: Path, metadata: dict[str, str]) -> None:
    schema = pa.schema([("n", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        writer.add_key_value_metadata({f"ackwright.{key}": value for key, value in metadata.items()})


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (None, "is no file of Parquet"),
        ({}, "was not written by this sink"),
        ({"from": "4"}, "it is of in-0 from 4"),
        ({"until": "10"}, "it ends at 10"),
        ({"topicId": "another"}, "it is of in-0 from 10"),
    ],
)
def test_a_file_of_another_program_is_not_a_position(
    files: Files, tmp_path: Path, metadata: dict[str, str] | None, words: str
) -> None:
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 10))
    path = Path(files.path, directory(), f"{10:020}.parquet")
    own = {"topic": "in", "partition": "0", "topicId": ID, "from": "10", "until": "20", "driver": "1", "pipeline": ""}
    if metadata is None:
        path.write_bytes(b"no Parquet")
    else:
        write_own(path, {**own, **metadata} if metadata else {})
    for call in (lambda: driver.deliver(Range(A, 10, 20)), lambda: FilesStore(spec).read([A])):
        refused(call, Reason.TABLE_UNSUITABLE, str(path), words, "move it elsewhere")
    path.unlink()
    assert driver.deliver(Range(A, 10, 20)) == (Outcome.DONE, 10)


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_state_that_is_gone_for_a_while_keeps_the_weaker_guarantees(
    files: Files, tmp_path: Path, guarantee: Guarantee
) -> None:
    """Until it is restored."""
    spec = replace(job(tmp_path, files.path), guarantee=guarantee)

    @contextmanager
    def gone() -> Iterator[None]:
        state = Path(files.path, "_ackwright/state")
        state.rename(tmp_path / "elsewhere")
        yield
        (tmp_path / "elsewhere").rename(state)

    expected = deliver_through(gone(), guarantee, lambda: Driver(spec), Reason.POSITION_LOST, hits_rows=True)
    assert files.offsets() == expected


def test_an_entry_of_the_state_that_is_damaged_is_named(files: Files, tmp_path: Path) -> None:
    spec = job(tmp_path, files.path)
    Driver(spec)
    entry = max(Path(files.path, "_ackwright/state").iterdir())
    entry.write_text("{}")
    refused(
        FilesStore(spec).check, Reason.TABLE_UNSUITABLE, str(entry), "is not an entry of this release", "restore it"
    )


def test_rows_outside_of_transactions(files: Files, tmp_path: Path) -> None:
    """As at-least-once and at-most-once write them: no position moves."""
    driver = Driver(job(tmp_path, files.path))
    store = FilesStore(driver.lanes.job)
    for _ in range(2):
        assert store.write([A], rows(A, 0, 3), membership=driver.membership) == 3
    assert files.offsets() == [0, 0, 1, 1, 2, 2]
    assert (files.chain(), len(files.names())) == ([], 2)
    assert store.write([A], [], membership=driver.membership) == 0
    driver.lanes.advance_all([Range(A, 0, 3)])
    assert Driver(driver.lanes.job).deliver(Range(A, 3, 5)) == (Outcome.DONE, 2)
    assert files.chain() == [(3, 5)]
