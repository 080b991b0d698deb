"""The fence: when writes may begin, and how long they may take."""

from __future__ import annotations

import threading
import time

import pytest

from ackwright.clients.fence import Fence, Fenced, clock


class Now:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_writes_begin_and_end_within_times_after_the_renewal() -> None:
    now = Now()
    fence = Fence(6.0, 11.0, now)
    assert not fence.is_open()
    with pytest.raises(Fenced), fence.write():
        pass
    fence.extend(100.0)
    with fence.write() as seconds:
        assert seconds == 11.0
    now.seconds = 105.9
    with fence.write() as seconds:
        assert seconds == pytest.approx(5.1)
    now.seconds = 106.0
    assert not fence.is_open()
    with pytest.raises(Fenced), fence.write():
        pass
    fence.extend(102.0)
    assert fence.is_open()
    fence.close()
    with pytest.raises(Fenced), fence.write():
        pass


def test_closing_waits_for_writes_under_way() -> None:
    fence = Fence(6.0, 11.0)
    fence.extend(clock())
    begun, end = threading.Event(), threading.Event()

    def write() -> None:
        with fence.write():
            begun.set()
            end.wait(10)

    thread = threading.Thread(target=write)
    thread.start()
    assert begun.wait(10)
    fence.close()
    ended: list[bool] = []
    waiting = threading.Thread(target=lambda: ended.append(fence.wait_for_writes()))
    waiting.start()
    assert ended == []
    end.set()
    waiting.join(10)
    thread.join(10)
    assert ended == [True]


def test_the_wait_for_writes_is_limited() -> None:
    fence = Fence(0.05, 0.1)
    fence.extend(clock())
    with fence.write():
        fence.close()
        assert not fence.wait_for_writes()


def test_the_clock_runs_at_least_as_fast_as_the_monotonic_one() -> None:
    before, monotonic = clock(), time.monotonic()
    time.sleep(0.01)
    assert clock() - before >= (time.monotonic() - monotonic) * 0.5
