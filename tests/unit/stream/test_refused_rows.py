"""Which record's row a sink has refused: the search, with a sink that refuses chosen offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from ackwright_stream import refused_rows
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.base import Sink

A, B = Lane("in", 0), Lane("in", 1)
RANGES = [Range(A, 0, 12_000), Range(B, 7, 6_000)]
ERROR = JobError(Reason.ROW_REFUSED, "too long")


class Refusing:
    """A sink that refuses some records, and what it was asked."""

    def __init__(self, *refused: tuple[Lane, int]) -> None:
        self.refused, self.tried = set(refused), list[tuple[Lane, int, int]]()
        self.accepted: set[tuple[Lane, int]] = set()

    def rows(self, lane: Lane, start: int, until: int) -> pa.Table:
        """The numbers of the records; the schema says of which lane."""
        self.tried.append((lane, start, until))
        return pa.table({str(lane.partition): range(start, until)})

    @contextmanager
    def trial(self) -> Iterator[Any]:
        yield SimpleNamespace(refusal=self.refusal)

    def refusal(self, rows: pa.Table) -> JobError | None:
        records = {(Lane("in", int(name)), n) for name in rows.column_names for n in rows[name].to_pylist()}
        if records & self.refused:
            return JobError(Reason.ROW_REFUSED, f"refused among {rows.num_rows}")
        assert not records & self.accepted, "it has them already"
        self.accepted |= records
        return None


def located(sink: Any) -> JobError:
    return refused_rows.locate(ERROR, RANGES, cast(Sink, sink), getattr(sink, "rows", lambda *_: pa.table({})))


@pytest.mark.parametrize(("lane", "offset"), [(A, 0), (A, 4_999), (A, 5_000), (A, 11_999), (B, 7), (B, 5_999)])
def test_the_first_record_that_is_refused_is_named(lane: Lane, offset: int) -> None:
    sink = Refusing((lane, offset), (B, 5_999))
    assert located(sink).message.startswith(f"record {lane}@{offset}: refused among 1; ")
    before = {(A, n) for n in range(12_000 if lane == B else offset)} | {(B, n) for n in range(7, offset) if lane == B}
    assert sink.accepted == before, "a duplicate of an earlier row is refused as in the task"
    assert len(sink.tried) < 40


def test_few_large_rows_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the driver's memory."""
    monkeypatch.setattr(refused_rows, "_SMALL", 0)
    sink = Refusing((A, 11_999))
    assert located(sink).message.startswith(f"record {A}@11999: ")
    assert max(until - start for _, start, until in sink.tried) == 100


def test_without_a_refusal_the_error_stays() -> None:
    assert located(Refusing()) is ERROR


def test_the_search_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_rows, "_LIMIT_S", 0.0)
    sink = Refusing((A, 0))
    assert located(sink) is ERROR
    assert sink.tried == []


def test_a_sink_without_trials_keeps_its_error() -> None:
    assert located(SimpleNamespace(trial=lambda: None)) is ERROR


def test_a_search_that_fails_keeps_the_error(caplog: pytest.LogCaptureFixture) -> None:
    @contextmanager
    def unreachable() -> Iterator[Any]:
        raise JobError(Reason.SINK_UNREACHABLE, "no route to host")
        yield

    assert located(SimpleNamespace(trial=unreachable)) is ERROR
    assert "no route to host" in caplog.text
