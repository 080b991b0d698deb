"""A query reports the watermark of the last decision: behind which it starts, and behind each batch.

It starts from other state than the decision names if that one was lost and computed again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream import processors, state_start
from ackwright_stream import query as module
from ackwright_stream.decisions import Decision
from ackwright_stream.delivery.batch import Batch, BatchResult, Output
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import StateSettings
from ackwright_stream.ownership import Ownership
from ackwright_stream.progress import Progress
from ackwright_stream.query import Query
from ackwright_stream.state_log import StateDirectory
from minimal_job import minimal_job
from unit.stream.decided import DECISION
from unit.stream.decided_chain import LOST

SPARK: Any = SimpleNamespace(streams=SimpleNamespace(active=[None]))
ROWS: Any = SimpleNamespace()


class Decides:
    """A guarantee under which each batch moves the watermark by a second."""

    counts_expired = False

    def deliver(self, batch: Batch, _: object) -> BatchResult:
        assert batch.chain is not None
        last = batch.chain.last
        batch.chain.last = replace(last or DECISION, watermark_ms=(last.watermark_ms if last else 0) + 1_000)
        return BatchResult(DECISION.positions)


def query_behind(
    monkeypatch: pytest.MonkeyPatch, directory: Path, last: Decision | None, opens: Callable[..., StateDirectory]
) -> tuple[Query, Progress]:
    """A query behind this decision, and what it reports. opens: in place of open_directory()."""
    state = StateSettings(2, str(directory), "append", "at", "5 seconds", 1_000)
    job: Any = SimpleNamespace(**{**vars(minimal_job()), "state": state})  # without Spark's settings for it
    lanes: Any = SimpleNamespace(sink=None)
    progress = Progress(job)
    subject = Query(SPARK, job, Ownership(DECISION.positions, 0, lanes, last), progress, threading.Event())
    monkeypatch.setattr(state_start, "set_hadoop", lambda *_: None)
    monkeypatch.setattr(processors, "processor_of", lambda _: None)
    monkeypatch.setattr(state_start, "CheckpointFiles", lambda *_: None)
    monkeypatch.setattr(state_start, "open_directory", opens)
    monkeypatch.setattr(module, "running_execution", lambda *_: None)
    monkeypatch.setattr(module, "of_stateful", lambda _: [])
    monkeypatch.setattr(subject, "_delivery", Decides())
    return subject, progress


@pytest.mark.parametrize(("last", "at_start"), [(DECISION, 1.0), (None, None)], ids=["decided", "first"])
def test_the_watermark_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, last: Decision | None, at_start: float | None
) -> None:
    subject, progress = query_behind(monkeypatch, tmp_path, last, lambda *_, **__: StateDirectory(ROWS, "d1"))
    with subject._checkpoint(ROWS):
        assert progress.snapshot().watermark == at_start
        subject._deliver(ROWS, 4, Output(ROWS))
        assert progress.snapshot().watermark == (at_start or 0) + 1


def test_the_next_batch_is_behind_state_that_was_computed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next query, and an acceptance of the loss, are of the decision as it was made."""
    again = replace(DECISION, state={0: (("x",), ("y",))})
    monkeypatch.setattr(state_start, "Replay", lambda *_, **__: SimpleNamespace(recover=lambda *_, **__: again))

    def opens(*_: object, recover: Callable[[JobError], Decision], **__: object) -> StateDirectory:
        assert recover(LOST) is again
        return StateDirectory(ROWS, "d1")

    subject, _ = query_behind(monkeypatch, tmp_path, DECISION, opens)
    with subject._checkpoint(ROWS):
        assert subject._chain
        assert subject._chain.last is again
        assert subject.decision is DECISION
        subject._deliver(ROWS, 4, Output(ROWS))
        assert subject.decision is not DECISION
        assert subject.decision is not None
        assert subject.decision.state == again.state
