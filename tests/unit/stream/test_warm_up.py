"""A standby takes over without a warm-up if that hangs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from ackwright_stream import checkpoint, source, warm_up
from ackwright_stream.cluster import Topology
from minimal_job import minimal_job


class Hanging:
    """A stream's writer, and its query, which does not end by itself."""

    stopped = False

    def __getattr__(self, _: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def awaitTermination(self, timeout: int | None = None) -> bool:
        if timeout is None:
            pytest.fail("it waits without a limit")
        return False

    def stop(self) -> None:
        self.stopped = True


def test_a_warm_up_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    anything: Any = Hanging()
    monkeypatch.setattr(source, "read_stream", anything)
    monkeypatch.setattr(warm_up, "sink_columns", anything)
    monkeypatch.setattr(warm_up, "in_tasks", anything)
    monkeypatch.setattr(checkpoint, "throwaway", nullcontext)
    monkeypatch.setattr(anything, "topology", lambda: Topology({}, {}, {}), raising=False)
    warm_up.warm_up(anything, minimal_job(), anything, anything, headers=False)
    assert anything.stopped
    assert "the standby could not be warmed up" in caplog.text
    assert "it did not end within 60 s" in caplog.text
