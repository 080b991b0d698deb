"""Dead letters as values: their form as text and as records, and how many are too many."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream.dead_letters import COLUMNS, keyed_records, of_text, records
from ackwright_stream.delivery import dead_letters as module
from ackwright_stream.delivery.dead_letters import (
    RECENT,
    Counts,
    Instructions,
    TaskLetters,
    Window,
    require_all,
    require_few,
)
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from minimal_job import minimal_job

PLACE = {"topic": "in", "partition": 3, "offset": 7, "reason": "is not JSON"}


def coded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def line(**fields: Any) -> str:
    return json.dumps(PLACE | fields)


def test_text_becomes_the_record_as_it_was() -> None:
    headers = [{"key": "h", "value": coded(b"\xff")}, {"key": "h"}]
    letters = of_text([line(key=coded(b"k"), value=coded(b"\xfe{"), headers=headers), line(value="")])
    assert letters.schema == COLUMNS
    assert letters.to_pylist() == [
        {
            **PLACE,
            "key": b"k",
            "value": b"\xfe{",
            "headers": [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}],
        },
        {**PLACE, "key": None, "value": b"", "headers": None},
    ]


def test_a_record_has_its_own_headers_first_and_then_where_it_was_and_why() -> None:
    headers = [{"key": "h", "value": coded(b"1")}, {"key": "ackwright.dead-letter.reason", "value": coded(b"before")}]
    (record,) = records(of_text([line(key=coded(b"k"), value=coded(b"v"), headers=headers)]), "ops.flights").to_pylist()
    assert (record["key"], record["value"]) == (b"k", b"v")
    assert [(h["key"], h["value"]) for h in record["headers"]] == [
        ("h", b"1"),
        ("ackwright.dead-letter.reason", b"before"),
        ("ackwright.dead-letter.group", b"ops.flights"),
        ("ackwright.dead-letter.topic", b"in"),
        ("ackwright.dead-letter.partition", b"3"),
        ("ackwright.dead-letter.offset", b"7"),
        ("ackwright.dead-letter.reason", b"is not JSON"),
    ]


def test_a_keyed_record_has_its_place_and_pipeline_as_key_and_its_own_key_as_a_header() -> None:
    headers = [{"key": "h", "value": coded(b"1")}]
    letters = of_text(
        [line(key=coded(b"k\xff"), value=coded(b"v"), headers=headers), line(value=coded(b"w"), offset=8)]
    )
    first, second = keyed_records(letters, "ops.flights").to_pylist()
    assert (first["key"], first["value"]) == (b"ops.flights/in-3@7", b"v")
    assert [(h["key"], h["value"]) for h in first["headers"]] == [
        ("h", b"1"),
        ("ackwright.dead-letter.group", b"ops.flights"),
        ("ackwright.dead-letter.topic", b"in"),
        ("ackwright.dead-letter.partition", b"3"),
        ("ackwright.dead-letter.offset", b"7"),
        ("ackwright.dead-letter.key", b"k\xff"),
        ("ackwright.dead-letter.reason", b"is not JSON"),
    ]
    assert (second["key"], second["value"]) == (b"ops.flights/in-3@8", b"w")
    assert {"key": "ackwright.dead-letter.key", "value": None} in second["headers"]
    (other,) = keyed_records(letters.slice(0, 1), "ops.another").to_pylist()
    assert other["key"] != first["key"], "compaction would keep one of the two"


@pytest.mark.parametrize(
    ("counts", "recent", "is_too_many"),
    [
        (Counts(10, 10), Counts(), False),  # of a short batch nothing follows
        (Counts(50, 50), Counts(), False),  # 5 % of 1,000
        (Counts(51, 51), Counts(), True),
        (Counts(1, 1), Counts(999, 50), True),  # a schema that is wrong while few records arrive
        (Counts(1, 0), Counts(999, 60), False),  # nothing to be written
        (Counts(100_000, 5_000), Counts(), False),
        (Counts(100_000, 5_001), Counts(), True),
        (Counts(100, 60), Counts(1_900, 0), False),
    ],
)
def test_the_fraction_is_of_at_least_the_latest_thousand_records(
    counts: Counts, recent: Counts, *, is_too_many: bool
) -> None:
    if not is_too_many:
        require_few(counts, recent, 0.05, "in-0@3")
        return
    with pytest.raises(JobError, match=r"more than maxFraction \(0.05\) of .*; one is in-0@3") as raised:
        require_few(counts, recent, 0.05, "in-0@3")
    assert raised.value.reason is Reason.TOO_MANY_DEAD_LETTERS


def test_dead_letters_that_tasks_have_not_read_are_reported() -> None:
    require_all(Counts(100, 3), Counts(100, 3))
    with pytest.raises(JobError, match="wrote 0 dead letters of 0 records, and Spark counted 3 of 100") as raised:
        require_all(Counts(), Counts(100, 3))
    assert raised.value.reason is Reason.UNEXPECTED


def test_a_window_forgets_batches_before_the_latest_thousand_records() -> None:
    window = Window()
    for _ in range(10):
        window.add(Counts(RECENT // 4, 2))
    assert window.counts == Counts(RECENT, 8)
    window.add(Counts(10 * RECENT, 1))
    assert window.counts == Counts(10 * RECENT, 1)


def task(monkeypatch: pytest.MonkeyPatch, directory: Path, limit: float = 0.05) -> tuple[TaskLetters, Path]:
    """A task's dead letters and its file."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(directory))
    monkeypatch.setattr(Instructions, "current", classmethod(lambda cls: cls("here")))
    context = SimpleNamespace(taskAttemptId=lambda: 5)
    monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
    return TaskLetters(minimal_job(dead_letter_fraction=limit)), directory / "here" / "5"


def test_what_several_workers_append_is_read_in_order_and_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    letters, file = task(monkeypatch, tmp_path, 1.0)
    numbers = iter(range(2000))
    for count in (700, 0, 500):
        module._append(file, 1000, [line(value=coded(b"%d" % next(numbers))) for _ in range(count)])
    batches = list(letters)
    assert [v for b in batches for v in b["value"].to_pylist()] == [b"%d" % n for n in range(1200)]
    assert max(b.num_rows for b in batches) < 1200
    assert letters.counts == Counts(3000, 1200)
    assert (file.stat().st_mode & 0o077, file.parent.stat().st_mode & 0o077) == (0, 0)
    letters.close()
    assert not file.exists()


def test_too_many_fail_before_the_first_one_is_returned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    letters, file = task(monkeypatch, tmp_path)
    module._append(file, 100, [line()] * 60)
    with pytest.raises(JobError, match="one is in-3@7, which is not JSON") as raised:
        next(iter(letters))
    assert raised.value.reason is Reason.TOO_MANY_DEAD_LETTERS


def test_a_task_without_records_has_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    letters, _ = task(monkeypatch, tmp_path)
    assert list(letters) == []
    letters.close()


def test_nothing_is_kept_in_a_run_that_delivers_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    letters = TaskLetters(minimal_job(dead_letter_fraction=0.05))
    assert list(letters) == []
    assert list(tmp_path.iterdir()) == []
