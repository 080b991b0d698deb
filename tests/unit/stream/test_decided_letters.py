"""Dead letters of a stateful batch whose sink is not in Kafka: they are durable before the commit of the decision.

With Spark and brokers: integration/delivery/test_stateful_letters.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.files import batches
from ackwright_stream.sinks.staged import decisions
from ackwright_stream.sinks.staged import positions as staged_positions
from unit.stream.decided import DECISION

POSITIONS = {Lane("in", 0): Position(8, "id", 2, "this", 4)}
TEXT = replace(DECISION, offsets_before=None).to_json()
LETTERS = [pa.RecordBatch.from_pydict({"value": [b"?"]})]
Commit = Callable[["Sink"], int]


class Sink:
    """Records what a commit does, in its order."""

    names = staged_positions.Names("g")

    def __init__(self, *, refuses: bool) -> None:
        self._refuses = refuses
        self.steps: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def step(*_: Any) -> Any:
            self.steps.append(name)
            return (2, b"") if name == "stage" else None

        return step

    def number(self, _: str) -> None:
        return None

    def write_all_dead_letters(self, letters: Any, _: Any) -> None:
        if self._refuses:
            raise JobError(Reason.ROW_REFUSED, "too large")
        self.steps += ["letters" for _ in letters]


def to_table(sink: Sink) -> int:
    files: Any = sink
    transaction = decisions.DecidingTransaction(cast(Any, sink), files, b"1", {})
    return transaction.commit(POSITIONS, (), TEXT, LETTERS)


@pytest.fixture
def to_files(monkeypatch: pytest.MonkeyPatch) -> Commit:
    class File:
        rows = 2

        def __init__(self, storage: Sink) -> None:
            self._storage = storage

        def finish(self, *_: Any) -> None:
            self._storage.steps.append("commit")

        def discard(self) -> None:
            pass

    monkeypatch.setattr(batches, "RowFile", File)
    monkeypatch.setattr(batches, "arrow_schema", lambda _: None)

    def commit(sink: Sink) -> int:
        entry = SimpleNamespace(state=SimpleNamespace(columns=None))
        store: Any = SimpleNamespace(member_entry=lambda *_: entry, write_all_dead_letters=sink.write_all_dead_letters)
        storage: Any = SimpleNamespace(steps=sink.steps, create=lambda *_: True)
        numbers: Any = SimpleNamespace(decided=None)
        transaction = batches.BatchTransaction(store, numbers, storage, b"1", {})
        return transaction.commit(POSITIONS, (), TEXT, LETTERS)

    return commit


@pytest.fixture(params=["table", "files"])
def commit(request: pytest.FixtureRequest) -> Commit:
    return to_table if request.param == "table" else request.getfixturevalue("to_files")


def test_dead_letters_precede_the_commit(commit: Commit) -> None:
    sink = Sink(refuses=False)
    assert commit(sink) == 2
    assert sink.steps.index("letters") < sink.steps.index("commit")


def test_nothing_is_decided_if_a_dead_letter_is_refused(commit: Commit) -> None:
    sink = Sink(refuses=True)
    with pytest.raises(JobError, match="too large"):
        commit(sink)
    assert "commit" not in sink.steps
