"""How many workers may wait for clusters that do not answer.

A cluster that has answered promptly is read by many workers at a time, and any other by one, until it answers. All of
those others together have half of the workers, and those of one namespace a quarter.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PROMPT_S = 2.0  # a use of a connection that takes longer does not count as prompt
_KNOWN = 10_000  # connections and addresses that are remembered


class ConnectionBusy(Exception):
    """Other workers wait for the cluster already, or too many for clusters that do not answer."""


class Attempts:
    """The uses of connections that are under way. Safe for threads."""

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        """workers: how many threads use connections."""
        self._clock = clock
        self._address_max = max(1, workers - workers // 4)  # at one address
        self._slow_max = max(1, workers // 2)
        self._slow_max_of_namespace = max(1, workers // 4)
        self._prompt: dict[str, None] = {}  # keys of connections that have answered promptly, the oldest first
        self._failed: dict[str, None] = {}  # addresses at which the last attempt failed, the oldest first
        self._in_use: Counter[str] = Counter()  # by address
        self._slow_now: dict[str, str] = {}  # by the connection's key, the namespace
        self._lock = threading.Lock()

    @contextmanager
    def attempt(self, key: str, address: str, namespace: str) -> Iterator[None]:
        """The context of one use of the connection with this key. Raises ConnectionBusy.

        Only its duration counts: a cluster that refuses a request at once has answered.
        """
        prompt = self._begin(key, address, namespace)
        started = self._clock()
        try:
            yield
        finally:
            self._end(key, address, prompt=prompt, answered=self._clock() - started <= _PROMPT_S)

    def _begin(self, key: str, address: str, namespace: str) -> bool:
        with self._lock:
            if self._in_use[address] >= self._address_max:
                raise ConnectionBusy
            prompt = key in self._prompt and address not in self._failed
            if not prompt:
                of_namespace = sum(n == namespace for n in self._slow_now.values())
                full = len(self._slow_now) >= self._slow_max or of_namespace >= self._slow_max_of_namespace
                if key in self._slow_now or full:
                    raise ConnectionBusy
                self._slow_now[key] = namespace
            self._in_use[address] += 1
            return prompt

    def _end(self, key: str, address: str, *, prompt: bool, answered: bool) -> None:
        with self._lock:
            self._in_use[address] -= 1
            if not self._in_use[address]:
                del self._in_use[address]
            if not prompt:
                del self._slow_now[key]
            if answered:
                self._failed.pop(address, None)
                _remember(self._prompt, key)
            else:
                self._prompt.pop(key, None)
                _remember(self._failed, address)


def _remember(names: dict[str, None], name: str) -> None:
    names.pop(name, None)
    names[name] = None
    if len(names) > _KNOWN:
        del names[next(iter(names))]
