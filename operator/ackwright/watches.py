"""Follows the objects that carry our label, kind by kind, each in a thread: a list, the changes after it, and some time later a list again.

kopf would watch whole kinds and leave what is not ours aside here. The API server can do that itself, by label, and a large cluster has
far more pods and ConfigMaps than ours. And when kopf begins, each object waits for all others, which takes the square of their number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ackwright.clients.kubernetes import ApiError, Kubernetes

log = logging.getLogger("ackwright")

Object = dict[str, Any]
OnList = Callable[[str, str | None, list[Object]], None]
OnChange = Callable[[str, Object], None]

RELIST_EVERY_S = 120.0  # a watch that has fallen silent looks like one in which nothing happens
_WATCH_S = 60.0  # one request; so long may a thread outlive stop()
_BETWEEN_S = 1.0  # requests of a server that ends each at once
_PAUSE_S = (1.0, 5.0)  # after an error


class Watches:
    """Every kind of `kinds` (apiVersion and kind) in every namespace, None being all of them.

    on_list is told kind, namespace and all objects; on_change is told ADDED, MODIFIED or DELETED, and the object. Both are called in the
    event loop that runs start(), in the order in which it happened for each kind and namespace.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        kinds: Sequence[tuple[str, str]],
        namespaces: Iterable[str | None],
        labels: Mapping[str, str],
        *,
        on_list: OnList,
        on_change: OnChange,
    ) -> None:
        self._kubernetes, self._labels, self._on_list, self._on_change = kubernetes, labels, on_list, on_change
        self._what = [(*kind, namespace) for namespace in namespaces for kind in kinds]
        self._ended = threading.Event()

    async def start(self) -> None:
        """Returns once everything has been listed for the first time."""
        self._loop = asyncio.get_running_loop()
        listed = [asyncio.Event() for _ in self._what]
        for (api_version, kind, namespace), event in zip(self._what, listed, strict=True):
            name = f"watch-{kind}-{namespace or 'all'}"
            threading.Thread(
                target=self._run, args=(api_version, kind, namespace, event), name=name, daemon=True
            ).start()
        await asyncio.gather(*(event.wait() for event in listed))

    def stop(self) -> None:
        """Nothing is told any more; the threads end by themselves."""
        self._ended.set()

    def _run(self, api_version: str, kind: str, namespace: str | None, listed: asyncio.Event) -> None:
        while not self._ended.is_set():
            try:
                self._follow(api_version, kind, namespace, listed)
            except ApiError as e:
                if e.status == 410:  # what we saw last is no longer kept
                    continue
                log.warning("watching %s: %s", kind, e.message)
                self._ended.wait(e.retry_after or random.uniform(*_PAUSE_S))  # noqa: S311 (jitter)
            except Exception:
                log.exception("watching %s", kind)
                self._ended.wait(_PAUSE_S[1])

    def _follow(self, api_version: str, kind: str, namespace: str | None, listed: asyncio.Event) -> None:
        """From one list to the next."""
        objects, version = self._kubernetes.listing(api_version, kind, namespace, self._labels)
        self._tell(self._on_list, kind, namespace, objects)
        self._tell(listed.set)
        until = time.monotonic() + RELIST_EVERY_S
        while not self._ended.is_set() and (left := until - time.monotonic()) > 0:
            begun, seconds = time.monotonic(), max(1.0, min(left, _WATCH_S))
            for event, changed in self._kubernetes.watch(
                api_version, kind, namespace, self._labels, version=version, seconds=seconds
            ):
                version = changed["metadata"]["resourceVersion"]
                if event != "BOOKMARK":
                    self._tell(self._on_change, event, changed)
                if self._ended.is_set():
                    return
            if time.monotonic() - begun < _BETWEEN_S:
                self._ended.wait(_BETWEEN_S)

    def _tell(self, whom: Callable[..., None], *what: Any) -> None:
        if not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(whom, *what)
