"""Watches against an API server with scripted lists and events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

import pytest

from ackwright import watches
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.watches import Object, Watches

Calls = list[tuple[Any, ...]]
NO_EVENTS: tuple[tuple[str, Object], ...] = ()


def thing(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Server:
    """An API server with scripted answers: `lists` (the last one repeats) and `watched`, the events or errors of each
    watch.
    """

    def __init__(self, lists: list[Any], watched: list[list[Any]] | None = None) -> None:
        self.lists, self.watched = lists, watched or []
        self.asked: list[str] = []

    def listing(self, api_version: str, kind: str, namespace: str | None, labels: Any) -> tuple[list[Object], str]:
        self.asked.append(f"list {kind} {namespace}")
        answer = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(answer, Exception):
            raise answer
        return answer, "10"

    async def close(self) -> None: ...

    async def events(
        self, api_version: str, kind: str, *_: Any, version: str, seconds: float
    ) -> AsyncGenerator[tuple[str, Object], None]:
        self.asked.append(f"watch {kind} after {version}")
        for event in self.watched.pop(0) if self.watched else ():
            if isinstance(event, Exception):
                raise event
            yield event
        await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_PAUSE_S", (0.0, 0.0))
    monkeypatch.setattr(watches, "_BETWEEN_S", 0.001)
    monkeypatch.setattr(watches, "_EXPIRED_PAUSE_S", (0.0,))


def observed(
    server: Server,
    until: Callable[[Calls], bool],
    *,
    kinds: tuple[str, ...] = ("Pod",),
    then: Callable[[Calls], Awaitable[None]] | None = None,
) -> Calls:
    """What came up to the moment at which `until` holds."""
    calls: Calls = []

    async def main() -> None:
        followed = Watches(
            cast(Kubernetes, server),
            [("v1", k, "ops") for k in kinds],
            {},
            streams=server,
            on_list=lambda kind, _, objects: calls.append(("list", kind, [o["metadata"]["name"] for o in objects])),
            on_change=lambda event, o: calls.append((event, o["metadata"]["name"])),
        )
        await followed.start()
        async with asyncio.timeout(20):
            while not until(calls):
                await asyncio.sleep(0.001)
        await followed.stop()
        if then:
            await then(calls)

    asyncio.run(main())
    return calls


def test_it_begins_when_every_kind_is_listed() -> None:
    server = Server([[]])
    assert sorted(observed(server, lambda _: True, kinds=("Pod", "Job"))) == [("list", "Job", []), ("list", "Pod", [])]


def test_changes_come_in_their_order_and_each_watch_goes_on_after_the_last() -> None:
    changes = [("ADDED", thing("a", 11)), ("MODIFIED", thing("a", 12)), ("BOOKMARK", thing("", 15))]
    server = Server([[thing("z", 3)]], [changes, [("DELETED", thing("a", 16))]])
    calls = observed(server, lambda f: ("DELETED", "a") in f)
    assert calls == [("list", "Pod", ["z"]), ("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert server.asked[:3] == ["list Pod ops", "watch Pod after 10", "watch Pod after 15"]


@pytest.mark.parametrize(
    "error", [ApiError(410, "too old"), ApiError(None, "broke off"), ApiError(403, "may not"), ZeroDivisionError()]
)
def test_whatever_goes_wrong_it_lists_again(error: Exception) -> None:
    server = Server([[], [thing("b", 5)]], [[("ADDED", thing("a", 11)), error]])
    assert observed(server, lambda f: len(f) == 3) == [("list", "Pod", []), ("ADDED", "a"), ("list", "Pod", ["b"])]


def test_watches_that_expire_in_a_row_list_again_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each list of a large cluster costs the API server as much as thousands of events."""
    waited: list[float] = []

    async def recording(seconds: float) -> None:
        waited.append(seconds)
        await asyncio.sleep(0.0)

    monkeypatch.setattr(watches, "_EXPIRED_PAUSE_S", (2_000.0, 4_000.0, 8_000.0))
    monkeypatch.setattr(watches, "_pause", recording)
    gone = ApiError(410, "too old")
    server = Server([[]], [[gone], [gone], [gone], [gone], [("ADDED", thing("a", 11))], [gone]])
    observed(server, lambda calls: ("ADDED", "a") in calls)
    first, second, third, fourth = [seconds for seconds in waited if seconds > 1000][:4]
    assert 1_000 <= first <= 2_000 <= second <= 4_000 <= third <= 8_000
    assert 4_000 <= fourth <= 8_000


def test_a_list_that_fails_is_asked_for_again_before_it_begins() -> None:
    server = Server([ApiError(None, "no answer"), ApiError(500, "etcd is away"), [thing("a", 5)]])
    assert observed(server, lambda _: True) == [("list", "Pod", ["a"])]


def test_a_watch_that_has_fallen_silent_is_made_good_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "RELIST_EVERY_S", 0.05)
    server = Server([[thing("a", 5)], []])
    assert observed(server, lambda f: len(f) > 1)[:2] == [("list", "Pod", ["a"]), ("list", "Pod", [])]


def test_no_event_is_reported_after_the_end() -> None:
    server = Server([[]], [[("ADDED", thing("a", n))] for n in range(1000)])
    at_the_end: list[int] = []

    async def later(calls: Calls) -> None:
        await asyncio.sleep(0)  # calls from before
        at_the_end.append(len(calls))
        await asyncio.sleep(0.05)

    assert len(observed(server, lambda f: len(f) > 3, then=later)) == at_the_end[0]


class Namespaces:
    """An API server with namespaces, of which some are refused."""

    def __init__(self, refused: dict[str, int]) -> None:
        """refused: by namespace, the status of the answer."""
        self.refused = refused

    def listing(self, api_version: str, kind: str, namespace: str, labels: Any) -> tuple[list[Object], str]:
        if status := self.refused.get(namespace):
            raise ApiError(status, f"{namespace} is refused")
        return [thing(f"in-{namespace}", 5)], "10"

    async def close(self) -> None: ...

    async def events(self, *_: Any, **__: Any) -> AsyncGenerator[tuple[str, Object], None]:
        await asyncio.sleep(0.01)
        for event in NO_EVENTS:
            yield event


@pytest.mark.parametrize("status", [403, 404])
def test_a_namespace_that_is_refused_is_lost_and_the_others_go_on(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "RELIST_EVERY_S", 0.05)
    monkeypatch.setattr(watches, "_LOST_PAUSE_S", (0.01,))
    server = Namespaces({"b": status})
    lists: list[str] = []
    lost: list[tuple[str, str | None]] = []

    async def main() -> None:
        followed = Watches(
            cast(Kubernetes, server),
            [("v1", "Pod", namespace) for namespace in ("a", "b", "c")],
            {},
            streams=server,
            on_list=lambda _, namespace, __: lists.append(str(namespace)),
            on_change=lambda *_: None,
            on_lost=lambda namespace, _, why: lost.append((namespace, why)),
        )
        async with asyncio.timeout(20):
            await followed.start()
            assert sorted(set(lists)) == ["a", "c"], "the start does not wait for a lost namespace"
            assert ("b", "b is refused") in lost
            server.refused = {"a": status}
            while not (("a", "a is refused") in lost and ("b", None) in lost and "b" in lists):
                await asyncio.sleep(0.001)
        await followed.stop()

    asyncio.run(main())


def test_control_an_api_server_that_does_not_answer_loses_no_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above: the start waits, as nothing is known about any namespace."""

    async def main() -> None:
        lost: list[Any] = []
        server = Namespaces({"b": 503})
        followed = Watches(
            cast(Kubernetes, server),
            [("v1", "Pod", "a"), ("v1", "Pod", "b")],
            {},
            streams=server,
            on_list=lambda *_: None,
            on_change=lambda *_: None,
            on_lost=lambda namespace, _, why: lost.append(why),
        )
        start = asyncio.create_task(followed.start())
        async with asyncio.timeout(20):
            while None not in lost:
                await asyncio.sleep(0.001)
            assert not start.done()
            server.refused = {}
            await start
        await followed.stop()
        assert set(lost) == {None}

    asyncio.run(main())


def test_a_watch_that_stands_still_is_noticed() -> None:
    now = 0.0
    answered = asyncio.Event()

    class Silent(Namespaces):
        async def events(self, *_: Any, **__: Any) -> AsyncGenerator[tuple[str, Object], None]:
            answered.set()
            await asyncio.sleep(20)
            for event in NO_EVENTS:
                yield event

    async def main() -> None:
        nonlocal now
        server = Silent({})
        followed = Watches(
            cast(Kubernetes, server),
            [("v1", "Pod", "a")],
            {},
            streams=server,
            on_list=lambda *_: None,
            on_change=lambda *_: None,
            clock=lambda: now,
        )
        assert followed.standstill() == 0, "before the start"
        await followed.start()
        await answered.wait()
        now = 400.0
        assert followed.standstill() == 400
        await followed.stop()

    asyncio.run(main())


def test_watches_need_no_thread_each() -> None:
    """Ten kinds in 200 namespaces are 2,000 watches."""
    running = 0

    class Counting(Namespaces):
        async def events(self, *_: Any, **__: Any) -> AsyncGenerator[tuple[str, Object], None]:
            nonlocal running
            running += 1
            await asyncio.sleep(60)
            for event in NO_EVENTS:
                yield event

    async def main() -> None:
        server = Counting({})
        followed = Watches(
            cast(Kubernetes, server),
            [("v1", kind, f"n-{n}") for kind in ("Pod", "Job") for n in range(200)],
            {},
            streams=server,
            on_list=lambda *_: None,
            on_change=lambda *_: None,
        )
        before = threading.active_count()
        async with asyncio.timeout(20):
            await followed.start()
            while running < 400:
                await asyncio.sleep(0.001)
        assert threading.active_count() <= before + 8
        await followed.stop()

    asyncio.run(main())
