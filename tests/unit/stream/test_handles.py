"""Handles: one per transaction, never mixed up, prepared and destroyed while no transaction needs the processor."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ackwright.local.wait import wait_for
from ackwright_stream.sinks.kafka import handles as module
from ackwright_stream.sinks.kafka.handles import MAX_RETIRED, MAX_WARM, Handles


class Factory:
    """Makes numbered handles, and notes which were warmed."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.warmed: list[object] = []
        self.ready = threading.Event()

    def make(self, name: str) -> Any:
        self.created.append(name)
        return f"{name}#{len(self.created)}"

    def warm(self, handle: Any) -> None:
        self.warmed.append(handle)
        self.ready.set()


class Used:
    """A producer that tells when it is destroyed."""

    def __init__(self) -> None:
        self.gone = threading.Event()

    def __del__(self) -> None:
        self.gone.set()


@pytest.fixture
def factory() -> Factory:
    return Factory()


@pytest.fixture
def lull(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lulls that end at once."""
    monkeypatch.setattr(module, "_LULL_S", 0.001)


@pytest.fixture
def no_lull(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lulls that do not come."""
    for name in ("_LULL_S", "_TASK_S", "_AT_LATEST_S"):
        monkeypatch.setattr(module, name, 1000.0)


def test_a_prepared_handle_is_taken_once(factory: Factory, lull: None) -> None:
    handles = Handles(factory.make, factory.warm)
    handles.prepare("a")
    handles.prepare("a")
    assert factory.ready.wait(10)
    first, second = handles.take("a"), handles.take("a")
    assert first == "a#1"
    assert factory.warmed == [first]
    assert second == "a#2"  # not the same again: one epoch carries one transaction


@pytest.mark.usefixtures("no_lull")
def test_of_more_slots_than_it_keeps_handles_for_those_alone_that_come_back_soon_are_prepared(factory: Factory) -> None:
    handles = Handles(factory.make, factory.warm)
    for i in range(3 * 64):
        assert str(handles.take(f"slot-{i % 64}")).startswith(f"slot-{i % 64}#")
        handles.prepare(f"slot-{i % 64}")
        handles._quiet()
        assert len(handles._ready) <= MAX_WARM
    assert len(factory.created) - 3 * 64 <= MAX_WARM  # the first slots', before there were more
    handles.take("slot-63")
    handles.prepare("slot-63")
    handles._quiet()
    assert set(handles._ready) == {"slot-63"}


@pytest.mark.usefixtures("no_lull")
def test_a_handle_that_is_not_kept_is_destroyed_by_another_thread_than_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller holds the lock, and the end of a handle waits for librdkafka's threads."""
    monkeypatch.setattr(module, "MAX_WARM", 1)
    ended_in: list[int] = []

    class Prepared:
        def __del__(self) -> None:
            ended_in.append(threading.get_ident())

    make: Any = lambda _: Prepared()  # noqa: E731
    handles = Handles(make, lambda _: None)
    handles.prepare("a")
    handles._quiet()
    handles._ready["a"].result(10)
    handles.prepare("b")
    wait_for(lambda: bool(ended_in), "the handle is destroyed", 10)
    assert threading.get_ident() not in ended_in


@pytest.mark.usefixtures("lull")
def test_a_handle_whose_preparation_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker answers nothing. The transaction begins with another handle, and the late one is destroyed."""
    monkeypatch.setattr(module, "_READY_WITHIN_S", 0.01)
    hangs, released, created = threading.Event(), threading.Event(), list[str]()

    class Prepared(Used):
        name = ""

    def make(name: str) -> Any:
        handle = Prepared()
        handle.name = f"{name}#{len(created)}"
        created.append(handle.name)
        return handle

    gone: list[threading.Event] = []

    def warm(handle: Any) -> None:
        gone.append(handle.gone)
        hangs.set()
        assert released.wait(30)

    handles = Handles(make, warm)
    handles.prepare("a")
    assert hangs.wait(10)
    assert str(handles.take("a").name) == "a#1"
    released.set()
    assert gone[0].wait(10)


def test_a_handle_that_could_not_be_prepared_is_replaced(factory: Factory, lull: None) -> None:
    """Its credentials were being replaced at that moment."""
    begun = threading.Event()

    def make(name: str) -> Any:
        if not begun.is_set():
            begun.set()
            raise ValueError("half a file")
        return factory.make(name)

    handles = Handles(make, factory.warm)
    handles.prepare("a")
    assert begun.wait(10)
    assert handles.take("a") == "a#1"


@pytest.mark.usefixtures("no_lull")
def test_nothing_is_prepared_during_a_transaction(factory: Factory) -> None:
    handles = Handles(factory.make, factory.warm)
    handles.prepare("a")
    handles.take("b")
    assert factory.created == ["b"]
    assert handles.take("a") == "a#2"  # created when it is needed, and not twice
    handles._quiet()
    assert factory.created == ["b", "a"]


@pytest.mark.usefixtures("no_lull")
def test_lanes_that_come_back_before_a_lull_find_their_handles_ready(factory: Factory) -> None:
    handles = Handles(factory.make, factory.warm)
    handles.prepare("a")
    handles.take("a")
    assert factory.warmed == []
    handles.prepare("a")
    assert factory.ready.wait(10)
    assert handles.take("a") in factory.warmed


@pytest.mark.usefixtures("lull")
def test_lanes_that_come_back_soon_after_a_lull_do_not_wait_for_one_again(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        begun.set()
        go_on.wait(10)

    handles = Handles(factory.make, slow)
    handles.prepare("a")
    assert begun.wait(10)
    threading.Timer(0.01, go_on.set).start()
    handles.take("a")  # it was not ready yet
    monkeypatch.setattr(module, "_LULL_S", 1000.0)
    begun.clear()
    handles.prepare("a")
    assert begun.wait(10)


def test_it_waits_for_lulls_again_when_handles_stay_unused(
    factory: Factory, no_lull: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG_BEFORE_S", -1.0)
    handles = Handles(factory.make, factory.warm)
    for _ in range(2):
        handles.prepare("a")
        handles.take("a")
    handles.prepare("a")
    handles.take("b")
    assert factory.created == ["a", "a", "b"]  # the third of a waits


def test_a_process_that_is_never_quiet_is_served_too(
    factory: Factory, no_lull: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_LATEST_S", -1.0)
    handles = Handles(factory.make, factory.warm)
    handles.prepare("a")
    handles.take("b")
    assert factory.ready.wait(10)


@pytest.mark.usefixtures("no_lull")
def test_a_spent_handle_waits_and_a_doubtful_one_does_not(factory: Factory) -> None:
    handles = Handles(factory.make, factory.warm)
    spent, doubtful = Used(), Used()
    spent_gone, doubtful_gone = spent.gone, doubtful.gone
    handles.retire(spent)
    handles.drop(doubtful)
    del spent, doubtful
    assert doubtful_gone.wait(10)
    assert not spent_gone.is_set()
    handles._quiet()
    wait_for(spent_gone.is_set, "the spent handle is destroyed", 10)


@pytest.mark.usefixtures("no_lull")
def test_spent_handles_do_not_pile_up(factory: Factory) -> None:
    handles = Handles(factory.make, factory.warm)
    gone = []
    for _ in range(10 * MAX_RETIRED):
        spent = Used()
        gone.append(spent.gone)
        handles.retire(spent)
        assert len(handles._retired) <= MAX_RETIRED
    del spent
    wait_for(lambda: sum(g.is_set() for g in gone) >= 9 * MAX_RETIRED, "the others are destroyed", 10)
