"""The pause after a kill, with a candidate that is not a process."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import cast

import pytest
from bench import resume
from bench.load import Delivery
from bench.stream import Stream


class Killed:
    """A stream whose candidate ends by itself `failures` times after the kill, and then delivers two partitions."""

    name = "fake"

    def __init__(self, failures: int) -> None:
        self.failures, self.starts, self.paused = failures, 0, False
        self.candidate = SimpleNamespace(exit_code=lambda: 1 if self.starts <= self.failures else None)
        self.load = SimpleNamespace(take=lambda: [], deliveries=self.deliveries)
        self.killed_at = 0.0

    def resume(self) -> None:
        pass

    def pause(self) -> None:
        self.paused = True

    def restart(self) -> None:
        self.starts += 1
        self.killed_at = self.killed_at or time.time()

    def deliveries(self) -> list[Delivery]:
        """One record of partition 0 from before the kill, and when all is delivered one of each from after it."""
        old, sent = Delivery(0, self.killed_at - 1, self.killed_at + 5), self.killed_at + 0.1
        if self.starts <= self.failures:
            return [old]
        return [old, Delivery(1, sent, self.killed_at + 2), Delivery(0, sent, self.killed_at + 3)]


@pytest.mark.parametrize("failures", [0, 1])
def test_a_pause_lasts_until_each_partition_delivers_what_was_sent_after_the_kill(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.resume._BEFORE_S", -1.0)
    monkeypatch.setattr("bench.resume.random.random", lambda: 1.0)
    stream = Killed(failures)
    pause = resume.measured_pause(cast(Stream, stream), 2)
    assert pause.first == pytest.approx(2, abs=0.9)
    assert pause.complete == pytest.approx(3, abs=0.9)
    assert pause.starts == 1 + failures == stream.starts
    assert stream.paused
