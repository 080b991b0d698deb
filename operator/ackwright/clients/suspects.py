"""Decides which client process makes the calls of which namespace, and which namespace may make none. Pure.

Brokers can end the process whose client reads their answer, at any time while a connection is open. So every namespace
with a connection in a process that ended is suspected, most of all those whose calls were under way. From then on all
namespaces are divided into two processes, by chance, again after each end: brokers that end processes are in each
process that ends, and the others in half of them. The two most suspected namespaces have a process each, which does
them no harm; if that ends, its namespace is refused for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SHARED = ("shared 1", "shared 2")  # the names of the processes of several namespaces; without suspicion only the first
_UNDER_WAY, _CONNECTED = 2, 1  # how much an end adds to the suspicion of a namespace
_SEPARATE = 2  # how many namespaces have a separate process
_REFUSED_S = (60.0, 120.0, 300.0, 600.0)  # after so many ends of its separate process
_FORGET_S = 24 * 3600.0  # after the last end
_KNOWN = 10_000  # namespaces that are remembered


@dataclass(frozen=True)
class Refusal:
    """Why a namespace may make no call for now."""

    cause: str
    remedy: str


@dataclass
class _Offences:
    """The ends of the separate process of one namespace."""

    ends: int = 0
    until: float = 0.0  # refused
    cause: str = ""


class Suspects:
    """What is known of the ends of client processes. Not safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._suspicion: dict[str, int] = {}  # by namespace
        self._offences: dict[str, _Offences] = {}  # by namespace
        self._separate: frozenset[str] = frozenset()  # the namespaces with a separate process
        self._ends, self._last_end = 0, 0.0

    def process(self, namespace: str) -> str:
        """The name of the process that makes the calls of the namespace."""
        self._forget()
        if not self._suspicion:
            return SHARED[0]
        if namespace in self._separate:
            return _separate_process(namespace)
        return SHARED[self._draw(namespace) % 2]

    def refusal(self, namespace: str) -> Refusal | None:
        """Why the namespace may make no call now; None: it may."""
        self._forget()
        offences = self._offences.get(namespace)
        if offences is None:
            return None
        check = "check that every bootstrapServers of the namespace names Kafka brokers"
        if self._clock() < offences.until:
            return Refusal(offences.cause, check)
        if namespace not in self._separate:  # it never shares a process again
            return Refusal(f"{offences.cause}, then when it can have a separate process", check)
        return None

    def ended(self, process: str, namespaces: Mapping[str, bool], what: str) -> None:
        """Takes that a process has ended.

        namespaces: those with a connection in it, each with whether a call was under way. what: how it ended.
        """
        self._forget()
        self._ends += 1
        self._last_end = self._clock()
        for namespace, under_way in namespaces.items():
            gain = _UNDER_WAY if under_way else _CONNECTED
            self._suspicion[namespace] = self._suspicion.get(namespace, 0) + gain
            if process == _separate_process(namespace):
                offences = self._offences.setdefault(namespace, _Offences())
                pause = _REFUSED_S[min(offences.ends, len(_REFUSED_S) - 1)]
                offences.ends += 1
                offences.until = self._last_end + pause
                offences.cause = f"{what}; no request of the namespace is sent for {pause:g} s"
        ranked = sorted(self._suspicion, key=lambda n: (self._suspicion[n], self._draw(n)), reverse=True)
        for namespace in ranked[_KNOWN:]:
            del self._suspicion[namespace]
            self._offences.pop(namespace, None)
        self._separate = frozenset(ranked[:_SEPARATE])

    def _draw(self, namespace: str) -> int:
        """A number that changes with each end. Python's hashes of text differ in each run, so nobody knows it."""
        return hash(f"{self._ends}/{namespace}")

    def _forget(self) -> None:
        if self._suspicion and self._clock() - self._last_end > _FORGET_S:
            self._suspicion.clear()
            self._offences.clear()
            self._separate = frozenset()


def _separate_process(namespace: str) -> str:
    return f"of {namespace}"
