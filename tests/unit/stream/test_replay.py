"""Batches that run again: what is recorded of them, and when the driver halts. Without Spark.

With Spark and brokers: integration/delivery/test_stateful_replay.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException

from ackwright_stream import replay as module
from ackwright_stream.decisions import Decision, StateIds
from ackwright_stream.delivery.stateful import Stateful
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.ownership import Ownership
from ackwright_stream.progress import Progress
from ackwright_stream.replay import Replay, ReplayStopped
from ackwright_stream.reports import State
from minimal_job import minimal_job
from unit.stream.decided import FIRST, SECOND
from unit.stream.decided_chain import LOST, decision, earlier, files_with
from unit.stream.memory_files import Memory
from unit.stream.stateful_jobs import SETTINGS, stateful_job

NOTHING: Any = None
Evaluate = Callable[[Decision, Decision], Decision]


class Stream:
    """A frame, its writer and its query in one: start() runs one batch, and Spark fails behind it."""

    def __init__(self) -> None:
        self.starts = 0
        self.ends = True
        self.writeStream = self
        self.option = self.options = self.queryName = self.outputMode = self.trigger = lambda *_, **__: self

    def foreachBatch(self, process: Callable[[Any, int], None]) -> Stream:
        self._process = process
        return self

    def start(self) -> Stream:
        self.starts += 1
        return self

    def awaitTermination(self, timeout: float) -> bool:
        if self.ends:
            try:
                self._process(NOTHING, 0)
            finally:
                raise StreamingQueryException("ended behind the batch")
        return False

    def stop(self) -> None:
        return


class Subject:
    """A replay over files in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: Memory, evaluate: Evaluate) -> None:
        self.files, self.stream, self.stop, self.member = files, Stream(), threading.Event(), True
        self.progress = Progress(minimal_job())
        self.closed = 0  # how often the stores of ended queries were closed
        self.reported: list[tuple[State, int | None, int | None]] = []
        sink = SimpleNamespace(
            decisions=SimpleNamespace(earlier=lambda: earlier(0, 1, 2, 3, 4)), is_member=lambda: self.member
        )
        owned = Ownership(decision(5).positions, 0, cast(Any, SimpleNamespace(sink=sink)), decision(5))
        topology = SimpleNamespace(earliest={FIRST: 0, SECOND: 0})
        monkeypatch.setattr(module, "Cluster", lambda _: SimpleNamespace(topology=lambda: topology))
        monkeypatch.setattr(module, "closing_stores", lambda _: nullcontext(self._close_stores))
        monkeypatch.setattr(Stateful, "attach", lambda *_: SimpleNamespace(rows=self.stream))

        def evaluated(_: Replay, __: object, base: Decision, decided: Decision) -> Decision:
            report = self.progress.snapshot()
            self.reported.append((report.state, report.replay_batch, report.replay_last))
            return evaluate(base, decided)

        monkeypatch.setattr(Replay, "_evaluate", evaluated)
        self._replay = Replay(
            NOTHING,
            stateful_job(),
            owned,
            self.progress,
            self.stop,
            settings=SETTINGS,
            files=files,
            columns=NOTHING,
        )

    def _close_stores(self) -> None:
        self.closed += 1

    def recover(self) -> Decision:
        return self._replay.recover(decision(5), LOST, is_processor=False)


def again(files: Memory) -> Evaluate:
    """An evaluation with the same output."""

    def evaluate(base: Decision, decided: Decision) -> Decision:
        assert base.batch + 1 == decided.batch
        ids: StateIds = {0: ((f"{base.state[0][0][0]}-{decided.batch}",), ("y",))}
        files.texts |= files_with(decided.batch, ids=ids).texts
        return replace(decided, state=ids)

    return evaluate


def test_every_batch_begins_from_the_state_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_with(2)
    subject = Subject(monkeypatch, files, again(files))
    assert subject.recover() == decision(5, state={0: (("a2-3-4-5",), ("y",))})
    assert subject.reported == [(State.REPLAYING, batch, 5) for batch in (3, 4, 5)]
    assert subject.closed == 3
    report = subject.progress.snapshot()
    assert (report.state, report.replay_batch, report.replay_last) == (State.RUNNING, None, None)


def test_the_next_driver_runs_no_batch_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_with(2)
    restored = Subject(monkeypatch, files, again(files)).recover()
    second = Subject(monkeypatch, files, lambda *_: pytest.fail("a batch ran again"))
    assert second.recover() == restored
    assert second.stream.starts == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"digest": "01"}, "has other values in its 2 rows"), ({"records": 3}, "has 3 rows in place of 2")],
)
def test_other_output_halts_and_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], problem: str
) -> None:
    files = files_with(3)
    same = again(files)
    subject = Subject(
        monkeypatch, files, lambda base, decided: replace(same(base, decided), **(changes if base.batch == 4 else {}))
    )
    for _ in range(2):  # the second one continues behind batch 4
        with pytest.raises(JobError, match=problem) as caught:
            subject.recover()
        assert (caught.value.reason, caught.value.fingerprint) == (Reason.STATE_LOST, LOST.fingerprint)
        assert "batch 5, which ran again from the state behind batch 4" in caught.value.cause
    assert subject.stream.starts == 3


@pytest.mark.parametrize(
    ("error", "reason", "fingerprint"),
    [
        (JobError(Reason.STATE_LOST, "a file is damaged"), Reason.STATE_LOST, None),  # is read once more
        (JobError(Reason.DATA_EXPIRED, "gone"), Reason.STATE_LOST, LOST.fingerprint),
        (JobError(Reason.BATCH_FAILED, "Division by zero"), Reason.BATCH_FAILED, None),
    ],
)
def test_a_batch_that_fails(
    monkeypatch: pytest.MonkeyPatch, error: JobError, reason: Reason, fingerprint: str | None
) -> None:
    def fails(*_: Decision) -> Decision:
        raise error

    with pytest.raises(JobError, match=error.cause) as caught:
        Subject(monkeypatch, files_with(4), fails).recover()
    assert (caught.value.reason, caught.value.fingerprint) == (reason, fingerprint)


def test_it_ends_when_the_driver_is_to_end_or_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(monkeypatch, files_with(4), lambda *_: pytest.fail("a batch ran"))
    subject.stream.ends, subject.member = False, False
    with pytest.raises(JobError, match="does not own the pipeline any more") as caught:
        subject.recover()
    assert caught.value.reason is Reason.POSITION_CONFLICT
    subject.stop.set()
    with pytest.raises(ReplayStopped):
        subject.recover()
