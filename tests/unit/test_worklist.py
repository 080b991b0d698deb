"""The worklist in an event loop with simulated time, which jumps to the next moment at which something is due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright import worklist
from ackwright.worklist import Key, Postponed, Worklist
from unit.simulated_loop import Loop

A, B = ("ns", "a"), ("ns", "b")
Handle = Callable[[Key], Awaitable[float | None]]


class Worked:
    """A worklist with workers."""

    def __init__(self, workers: int = 1) -> None:
        """workers: of which the worklist reserves some."""
        self.loop = Loop()
        self.worklist = Worklist(self.loop.time, workers=workers)
        self.handled: list[tuple[Key, float, float]] = []  # each handled key with its start and end
        self.busy: set[Key] = set()
        self.lasts = 0.0
        self.answer: Callable[[Key], float | None] = lambda _: None  # what handling a key returns or raises

    async def handle(self, key: Key) -> float | None:
        assert key not in self.busy, "two workers at one pipeline"
        self.busy.add(key)
        started = self.loop.now
        try:
            await asyncio.sleep(self.lasts)
            return self.answer(key)
        finally:
            self.busy.remove(key)
            self.handled.append((key, started, self.loop.now))

    def run(self, seconds: float, *, workers: int = 2, at: dict[float, Callable[[], None]] | None = None) -> None:
        """Works for so many seconds. at: actions, by time."""

        async def main() -> None:
            tasks = [asyncio.create_task(self.worklist.work(self.handle)) for _ in range(workers)]
            for moment, act in sorted((at or {}).items()):
                await asyncio.sleep(moment - self.loop.now)
                act()
            await asyncio.sleep(seconds - self.loop.now)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(main())
        self.loop.close()

    def begun(self, key: Key = A) -> list[float]:
        return [round(started, 3) for k, started, _ in self.handled if k == key]


def test_an_added_key_is_handled_once_when_it_is_due() -> None:
    w = Worked()
    w.worklist.add(A)
    w.worklist.add(B, 5)
    w.run(100)
    assert (w.begun(A), w.begun(B)) == ([0], [5])


def test_sooner_beats_later_and_not_the_other_way_round() -> None:
    w = Worked()
    w.worklist.add(A, 10)
    w.worklist.add(A, 1)
    w.worklist.add(A, 20)
    w.run(100)
    assert w.begun() == [1]


def test_a_new_key_wakes_a_worker_that_waits_for_a_later_one() -> None:
    w = Worked()
    w.worklist.add(B, 50)
    w.run(100, workers=1, at={3: lambda: w.worklist.add(A), 7: lambda: w.worklist.add(B, 1)})
    assert (w.begun(A), w.begun(B)) == ([3], [8])


def test_handling_a_key_returns_when_it_is_due_next() -> None:
    w = Worked()
    w.answer = lambda _: 10 if w.loop.now < 25 else None
    w.worklist.add(A)
    w.run(100)
    assert w.begun() == [0, 10, 20, 30]


def test_a_key_that_changes_while_it_is_handled_is_handled_again() -> None:
    w = Worked()
    w.lasts = 5
    w.worklist.add(A)
    w.run(
        100,
        workers=4,
        at={1: lambda: w.worklist.add(A), 2: lambda: w.worklist.add(A), 3: lambda: w.worklist.add(A, 50)},
    )
    assert w.begun() == [0, 5], "once for all that has changed"


def test_a_delay_requested_while_a_key_is_handled_is_respected() -> None:
    w = Worked()
    w.lasts = 5
    w.worklist.add(A)
    w.run(100, at={1: lambda: w.worklist.add(A, 20)})
    assert w.begun() == [0, 21]


def test_other_keys_do_not_wait_for_a_slow_one() -> None:
    w = Worked()
    w.lasts = 50
    w.worklist.add(A)
    w.worklist.add(B)
    w.run(200)
    assert (w.begun(A), w.begun(B)) == ([0], [0])


def test_what_has_changed_comes_before_what_is_merely_due() -> None:
    w = Worked()
    w.lasts = 1
    names = [("ns", f"{i:03}") for i in range(100)]
    for name in names:
        w.worklist.add(name, changed=False)
    w.run(200, workers=1, at={5.5: lambda: w.worklist.add(A), 6.5: lambda: w.worklist.add(names[70])})
    assert w.begun(A) == [6], "a hundred others waited"
    assert w.begun(names[70]) == [7], "it was due as well, and is handled once for both"
    assert len(w.handled) == 101


def test_what_is_merely_due_waits_for_a_while_only() -> None:
    w = Worked()
    w.lasts = 1
    w.answer = lambda key: w.worklist.add(key) if key == A else None  # it changes all the time
    w.worklist.add(A)
    w.worklist.add(B, 3, changed=False)
    w.run(100, workers=1)
    assert w.begun(B) == [13]


def test_a_forgotten_key_is_not_handled() -> None:
    w = Worked()
    w.worklist.add(A, 5)
    w.worklist.add(B, 5)
    w.run(100, at={1: lambda: w.worklist.forget(A)})
    assert (w.begun(A), w.begun(B)) == ([], [5])


def test_the_number_of_those_that_are_due() -> None:
    w = Worked()
    w.lasts = 5
    due: list[int] = []
    w.worklist.add(A)
    w.worklist.add(B, 10)
    w.run(30, at={t: lambda: due.append(len(w.worklist)) for t in (1, 8, 12, 20)})
    assert due == [1, 0, 1, 0]


def test_back_off_grows_is_capped_and_is_forgiven() -> None:
    w = Worked()

    def answer(_: Key) -> float | None:
        if w.loop.now < 600 or w.loop.now > 1000:
            raise RuntimeError("boom")
        return 500

    w.answer = answer
    w.worklist.add(A)
    w.run(1400)
    times = w.begun()
    waits = [round(b - a, 2) for a, b in pairwise(times)]
    good = waits.index(500)
    failures = waits[:good]
    for n, wait in enumerate(failures):
        most = min(60, 2 ** (n + 1))
        assert most / 2 - 0.01 <= wait <= most + 0.01, f"{wait} s after failure {n + 1}"
    assert len(failures) > 8, "it never stops retrying"
    assert waits[good + 1] <= 2, "one success resets the back-off"


def test_failures_of_one_are_no_matter_to_another() -> None:
    w = Worked()

    def answer(key: Key) -> float | None:
        if key == A:
            raise RuntimeError("boom")
        return 10

    w.answer = answer
    w.worklist.add(A)
    w.worklist.add(B)
    w.run(95)
    assert w.begun(B) == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]


_adds = st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 30), st.integers(0, 20)), max_size=12)


@settings(max_examples=60)
@given(adds=_adds, lasts=st.integers(0, 7), workers=st.integers(2, 3))
def test_no_change_is_missed(adds: list[tuple[Key, int, int]], lasts: int, workers: int) -> None:
    """After each change a reconcile starts, not later than the change is due unless one is under way then."""
    w = Worked()
    w.lasts = lasts
    todo: dict[float, list[tuple[Key, int]]] = {}
    for key, moment, delay in adds:
        todo.setdefault(moment + 0.5, []).append((key, delay))  # never at the same moment as something else

    def add(entries: list[tuple[Key, int]]) -> None:
        for key, delay in entries:
            w.worklist.add(key, delay)

    w.run(100, workers=workers, at={moment: partial(add, entries) for moment, entries in todo.items()})
    for key, moment, delay in adds:
        begun = [b for k, b, _ in w.handled if k == key]
        assert any(moment + 0.5 <= b <= moment + 0.5 + max(delay, lasts) + 0.01 for b in begun), (
            key,
            moment,
            delay,
            begun,
        )


def test_a_postponed_key_waits_for_its_time_or_is_resumed_and_is_still_what_it_was_due_for() -> None:
    w = Worked()
    w.lasts = 1
    postponed: list[Postponed] = [Postponed(5), Postponed()]

    def answer(key: Key) -> float | None:
        if key == A and postponed:
            raise postponed.pop(0)
        return None

    w.answer = answer
    w.worklist.add(A)
    routine = [("ns", f"{i:03}") for i in range(30)]

    def add_routine() -> None:
        for name in routine:
            w.worklist.add(name, changed=False)

    def resume() -> None:
        assert len(w.worklist) == 24, "the postponed one counts"
        w.worklist.resume(A)

    w.run(
        100,
        workers=1,
        at={11: add_routine, 18.5: resume},
    )
    assert w.begun(A) == [0, 6, 19], "before the routine reconciles that wait"
    w.worklist.resume(A)
    assert len(w.worklist) == 0, "there is nothing to resume"


def test_postponing_is_neither_a_failure_nor_a_success() -> None:
    w = Worked()
    errors: list[Exception] = [RuntimeError(), RuntimeError(), Postponed(0), RuntimeError()]

    def answer(_: Key) -> float | None:
        if errors:
            raise errors.pop(0)
        return None

    w.answer = answer
    w.worklist.add(A)
    w.run(100)
    _, second, third, fourth, fifth = w.begun()
    assert (third, fifth > fourth + 3) == (fourth, True), "the third failure is followed by the third delay"
    assert second < third


def test_the_age_of_what_waits_and_a_standstill() -> None:
    w = Worked()
    w.lasts = 50
    noted: dict[float, tuple[float, float, float]] = {}

    def note() -> None:
        ages = (w.worklist.age(changed=True), w.worklist.age(changed=False))
        noted[w.loop.now] = (*ages, w.worklist.standstill())

    w.worklist.add(("ns", "c"))
    w.worklist.add(("ns", "d"))
    w.worklist.add(A, 10)
    w.worklist.add(B, 20, changed=False)
    w.run(200, at=dict.fromkeys((5, 15, 45, 55, 115), note))
    assert noted == {
        5: (0, 0, 0),
        15: (5, 0, 5),
        45: (35, 25, 35),
        55: (0, 0, 0),
        115: (0, 0, 0),
    }, "both workers are busy until 50, and then take what waits"


def overloaded(workers: int = 8) -> Worked:
    """For five minutes more is due than eight workers can do: each of 200 routine reconciles takes 8 s."""
    w = Worked(workers)
    dead = {("ns", f"dead-{i}") for i in range(200)}

    async def handle(key: Key) -> float | None:
        await asyncio.sleep(8.0 if key in dead else 0.05)
        w.handled.append((key, w.loop.now, w.loop.now))
        return 10.0 if key in dead else None

    w.handle = handle  # type: ignore[method-assign]
    for key in dead:
        w.worklist.add(key, changed=False)
    w.run(300, workers=8, at={t: lambda: w.worklist.add(A) for t in (100, 200)})
    return w


def test_under_overload_an_edit_is_reconciled_at_once_and_routine_work_goes_on() -> None:
    w = overloaded()
    assert w.begun(A) == [100.05, 200.05]
    assert len(w.handled) - 2 == 6 * (300 // 8), "six of eight workers"


def test_control_without_reserved_workers_and_turns_an_edit_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above: routine reconciles that have waited for ten seconds come first."""
    monkeypatch.setattr(worklist, "_RESERVED", 1000)
    monkeypatch.setattr(worklist, "_TURNS", 0)
    assert overloaded().begun(A) == []


def test_many_changes_leave_a_share_to_routine_work() -> None:
    w = Worked(8)
    w.lasts = 1
    changing = [("ns", f"{i:03}") for i in range(100)]
    w.answer = lambda key: w.worklist.add(key) if key in changing else None
    for key in changing:
        w.worklist.add(key)
    routine = [("ns", f"routine-{i}") for i in range(20)]
    for key in routine:
        w.worklist.add(key, changed=False)
    w.run(60, workers=8)
    ends = [end for key, _, end in w.handled if key in routine]
    assert len(ends) == 20
    assert max(ends) <= 10 + 20 / (8 / 4) + 2, "after ten seconds every fourth turn is theirs"


def test_control_without_its_turns_routine_work_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    monkeypatch.setattr(worklist, "_TURNS", 10**9)
    w = Worked(8)
    w.lasts = 1
    changing = [("ns", f"{i:03}") for i in range(100)]
    w.answer = lambda key: w.worklist.add(key) if key in changing else None
    for key in changing:
        w.worklist.add(key)
    w.worklist.add(B, changed=False)
    w.run(300, workers=8)
    assert w.begun(B) == []


def test_a_paused_worklist_keeps_what_is_added_and_seems_idle() -> None:
    worked = Worked()
    worked.worklist.pause()
    worked.worklist.add(A)
    shown: list[tuple[int, float, float]] = []

    def show() -> None:
        work = worked.worklist
        shown.append((len(work), work.age(changed=True), work.standstill()))

    worked.run(20, at={5: show, 10: worked.worklist.unpause})
    assert shown == [(0, 0.0, 0.0)]
    assert [started for _, started, _ in worked.handled] == [10]


def test_a_paused_worklist_completes_what_is_being_handled() -> None:
    worked = Worked()
    worked.lasts = 4.0
    idle: list[bool] = []
    worked.worklist.add(A)
    worked.run(
        20,
        at={
            1: worked.worklist.pause,
            2: lambda: idle.append(worked.worklist.is_idle()),
            3: lambda: worked.worklist.add(B),
            6: lambda: idle.append(worked.worklist.is_idle()),
        },
    )
    assert [key for key, *_ in worked.handled] == [A]
    assert idle == [False, True]


def test_a_worker_ends_that_is_cancelled_while_a_name_is_added() -> None:
    """An operator that stops cancels its workers, while events may still come."""
    worked = Worked()

    async def main() -> bool:
        worked.worklist.add(B, 1000)
        task = asyncio.create_task(worked.worklist.work(worked.handle))
        await asyncio.sleep(1)
        worked.worklist.add(A, 100)
        await asyncio.sleep(0)  # the worker's wait is over, and the worker has not continued yet
        task.cancel()
        await asyncio.wait([task], timeout=50)
        return task.cancelled()

    assert worked.loop.run_until_complete(main())
    worked.loop.close()


def test_a_change_wakes_one_of_the_idle_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    worked, turns, pop = Worked(workers=8), [], Worklist._pop

    def counted(self: Worklist, now: float) -> object:
        turns.append(now)
        return pop(self, now)

    monkeypatch.setattr(Worklist, "_pop", counted)
    worked.run(100, workers=8, at={float(n): partial(worked.worklist.add, A) for n in range(1, 51)})
    assert len(worked.begun(A)) == 50
    assert len(turns) <= 3 * 50, "eight times as many if each change woke all"
