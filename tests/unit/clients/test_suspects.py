"""Which namespace uses which client process after processes have ended."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwright.clients.suspects import SHARED, Suspects


class World:
    """Namespaces whose connections are always open, of which some have brokers that end the process."""

    def __init__(self, namespaces: int, *hostile: str) -> None:
        self.now = 0.0
        self.suspects = Suspects(lambda: self.now)
        self.hostile, self.namespaces = hostile, (*hostile, *(f"team-{i}" for i in range(namespaces)))
        self.errors = dict.fromkeys(self.namespaces, 0)  # how often a process ended with a connection of the namespace

    def process(self, namespace: str) -> str | None:
        """The process that the namespace uses; None: it is refused."""
        return None if self.suspects.refusal(namespace) else self.suspects.process(namespace)

    def end(self, hostile: str, busy: frozenset[str] = frozenset()) -> None:
        """The brokers of a namespace end its process, in the moment when calls of the busy ones are under way."""
        process = self.process(hostile)
        assert process is not None
        connected = [n for n in self.namespaces if self.process(n) == process]
        for n in connected:
            self.errors[n] += 1
        self.suspects.ended(process, {n: n in busy for n in connected}, "ended by SIGABRT")


def test_without_an_end_all_namespaces_share_one_process() -> None:
    world = World(50)
    assert {world.process(n) for n in world.namespaces} == {SHARED[0]}


def test_a_namespace_whose_call_ends_a_process_uses_a_separate_one_from_then_on_and_is_refused_at_the_next_end() -> (
    None
):
    world = World(50, "hostile")
    world.end("hostile", frozenset({"hostile"}))
    assert world.process("hostile") == "of hostile"
    world.end("hostile")
    assert world.process("hostile") is None
    refusal = world.suspects.refusal("hostile")
    assert refusal is not None
    assert refusal.cause == "ended by SIGABRT; no request of the namespace is sent for 60 s"
    assert max(n for name, n in world.errors.items() if name != "hostile") == 1


def test_the_time_for_which_a_namespace_is_refused_grows() -> None:
    world = World(10, "hostile")
    world.end("hostile", frozenset({"hostile"}))
    pauses = []
    for _ in range(6):
        world.end("hostile")
        start = world.now
        while world.process("hostile") is None:
            world.now += 1
        pauses.append(world.now - start)
    assert pauses == [60, 120, 300, 600, 600, 600]


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_brokers_that_end_processes_while_only_calls_of_others_are_under_way_are_identified(number: int) -> None:
    """They choose the moment, so their namespace is not among those with a call under way."""
    random = Random(number)
    hostile = [f"hostile-{i}" for i in range(number)]
    world = World(200, *hostile)
    ends = 0
    while able := [h for h in hostile if world.process(h) is not None]:
        busy = frozenset(random.sample([n for n in world.namespaces if n not in hostile], 8))
        world.end(random.choice(able), busy)
        ends += 1
        assert ends < 40 * number
    assert not [n for n in world.namespaces if n not in hostile and world.process(n) is None], "no other is refused"


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sets(st.integers(0, 30)), st.integers(0, 400)), max_size=60),
    st.integers(1, 4),
)
def test_however_processes_end_only_a_namespace_whose_separate_process_ends_is_refused(
    ends: list[tuple[int, set[int], int]], hostile: int
) -> None:
    world = World(30, *(f"hostile-{i}" for i in range(hostile)))
    for which, busy, passed in ends:
        world.now += passed
        if world.process(culprit := f"hostile-{which % hostile}") is not None:
            world.end(culprit, frozenset(f"team-{i}" for i in busy))
        processes = {n: world.process(n) for n in world.namespaces}
        assert None not in [processes[n] for n in world.namespaces if n not in world.hostile]
        assert len(set(processes.values()) - {None}) <= 4
        for n, process in processes.items():
            if process is not None and process not in SHARED:
                assert [m for m in world.namespaces if processes[m] == process] == [n]


def test_after_a_day_without_an_end_nothing_is_suspected() -> None:
    world = World(5, "hostile")
    world.end("hostile")
    world.now += 24 * 3600 + 1
    assert {world.process(n) for n in world.namespaces} == {SHARED[0]}


def test_the_memory_is_limited_to_the_most_suspected() -> None:
    world = World(0)
    world.suspects.ended("of hostile", {"hostile": True}, "ended")
    world.suspects.ended(SHARED[0], {f"n-{i}": False for i in range(20_000)}, "ended")
    assert len(world.suspects._suspicion) == 10_000
    assert world.process("hostile") is None
