"""Watches pipelines and the objects with the operator's label, for each kind and namespace: a list, then the changes
after it, and from time to time a new list.

Each namespace is watched by itself: one that is deleted, or in which the operator lacks permissions, is lost, and the
others continue. kopf would end the process. It would also watch all objects of a kind and filter them here, and a large
cluster has far more pods and ConfigMaps than the operator owns: the API server filters by label itself. And at its
start kopf takes time that grows with the square of the number of objects.

Ten kinds in 200 namespaces are 2,000 watches, so none has a thread: all run in the event loop, and a few threads read
lists.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, Protocol

from ackwright.clients.event_streams import EventStreams
from ackwright.clients.kubernetes import ApiError, Kubernetes

_LOST = (403, 404)  # statuses by which the API server refuses a list until something changes

log = logging.getLogger("ackwright")

Object = dict[str, Any]
OnList = Callable[[str, str | None, list[Object]], None]
OnChange = Callable[[str, Object], None]
OnLost = Callable[[str, str, str | None], None]

RELIST_EVERY_S = 600.0  # in case a watch has missed an event; each request of a watch ends after _WATCH_S anyway
_WATCH_S = 60.0  # of one request
_BETWEEN_S = 1.0  # between requests to a server that ends each at once
_PAUSE_S = (1.0, 5.0)  # after an error
_EXPIRED_PAUSE_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # after so many watches in a row that have expired (410)
_LOST_PAUSE_S = (5.0, 10.0, 20.0, 40.0, 60.0)  # after so many refusals in a row
_LISTS = 8  # at once


class Streams(Protocol):
    """Watches of the API server: EventStreams, or what a test has in its place."""

    def events(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str] | None = None,
        *,
        version: str,
        seconds: float,
    ) -> AsyncGenerator[tuple[str, Object], None]: ...

    async def close(self) -> None: ...


class Watches:
    """Watches some kinds of objects with these labels.

    on_list is called with the kind, the namespace and all objects; on_change with ADDED, MODIFIED or DELETED and the
    object; on_lost with the namespace, the kind, and why its objects cannot be listed, then with None when they can
    again. All are called in the event loop that runs start(), for each kind and namespace in the order of events.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        targets: Sequence[tuple[str, str, str | None]],
        labels: Mapping[str, str],
        *,
        on_list: OnList,
        on_change: OnChange,
        on_lost: OnLost = lambda *_: None,
        without_labels: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
        streams: Streams | None = None,
    ) -> None:
        """targets: apiVersion, kind and namespace of each watch; None: all namespaces. without_labels: kinds of which
        all objects are watched. streams: default: those of the connection.
        """
        self._kubernetes, self._labels, self._without_labels = kubernetes, labels, without_labels
        self._on_list, self._on_change, self._on_lost, self._clock = on_list, on_change, on_lost, clock
        self._streams: Streams = streams or EventStreams(kubernetes)
        self._last_turns: dict[tuple[str, str | None], float] = {}  # when each last got an answer or an error
        self._targets = targets
        self._listed: set[tuple[str, str]] = set()  # kinds and namespaces whose last list succeeded
        self._lists = ThreadPoolExecutor(_LISTS, thread_name_prefix="list")
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Starts all watches. Returns when everything has been listed once, or is lost."""
        listed = [asyncio.Event() for _ in self._targets]
        self._tasks = [
            asyncio.create_task(self._run(*target, event)) for target, event in zip(self._targets, listed, strict=True)
        ]
        await asyncio.gather(*(event.wait() for event in listed))

    def standstill(self) -> float:
        """For how many seconds the watch that has stood still for longest has neither got an answer nor an error."""
        return self._clock() - min(tuple(self._last_turns.values()), default=self._clock())

    async def stop(self) -> None:
        """Ends all watches, and all calls of on_list and on_change. Lists under way are completed in their threads."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._streams.close()
        self._lists.shutdown(wait=False, cancel_futures=True)

    async def _run(self, api_version: str, kind: str, namespace: str | None, listed: asyncio.Event) -> None:
        refused = expired = 0
        while True:
            self._last_turns[kind, namespace] = self._clock()
            try:
                await self._follow(api_version, kind, namespace, listed)
                expired = 0
            except ApiError as e:
                if namespace is not None and e.status in _LOST:
                    refused = 1 if (kind, namespace) in self._listed else refused + 1
                    self._listed.discard((kind, namespace))
                    self._on_lost(namespace, kind, e.message)
                    listed.set()
                    pause = _LOST_PAUSE_S[min(refused, len(_LOST_PAUSE_S)) - 1]
                    await _pause(pause * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)
                    continue
                if e.status == 410:  # the API server has forgotten the events since the last one; a list is expensive
                    expired += 1
                    pause = _EXPIRED_PAUSE_S[min(expired, len(_EXPIRED_PAUSE_S)) - 1]
                    await _pause(pause * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)
                    continue
                log.warning("watching %s: %s", kind, e.message)
                await _pause(e.retry_after or random.uniform(*_PAUSE_S))  # noqa: S311 (jitter)
            except Exception:
                log.exception("watching %s", kind)
                await _pause(_PAUSE_S[1])

    async def _follow(self, api_version: str, kind: str, namespace: str | None, listed: asyncio.Event) -> None:
        """Lists once, then watches until the next list is due."""
        labels = None if kind in self._without_labels else self._labels
        objects, version = await asyncio.get_running_loop().run_in_executor(
            self._lists, self._kubernetes.listing, api_version, kind, namespace, labels
        )
        self._on_list(kind, namespace, objects)
        if namespace is not None:
            self._listed.add((kind, namespace))
            self._on_lost(namespace, kind, None)
        listed.set()
        del objects  # the cache has them
        # Not all kinds at once: each list is in memory twice until it has replaced the cache.
        until = time.monotonic() + RELIST_EVERY_S * random.uniform(0.7, 1.0)  # noqa: S311 (jitter)
        while (left := until - time.monotonic()) > 0:
            started, seconds = time.monotonic(), max(1.0, min(left, _WATCH_S))
            self._last_turns[kind, namespace] = self._clock()
            stream = self._streams.events(api_version, kind, namespace, labels, version=version, seconds=seconds)
            async with aclosing(stream) as events:
                async for event, changed in events:
                    version = changed["metadata"]["resourceVersion"]
                    if event != "BOOKMARK":
                        self._on_change(event, changed)
            if time.monotonic() - started < _BETWEEN_S:
                await _pause(_BETWEEN_S)


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)
