"""Objects of the API server in little memory: thousands of them are cached, and most of their parts are equal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Hashable, Mapping
from typing import Any

from ackwright.clients.nesting import DEEPEST, TOO_DEEP

Object = dict[str, Any]

_INTERN_MAX = 128  # characters; longer strings are hardly ever equal
_SHARED_PARTS = 10_000  # the parts used last, a few MiB; parts of most objects are equal to one of them


class _Parts:
    """The mappings and lists that were used last, by their content. Threads use it in turn."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._known: dict[Hashable, Any] = {}  # the one used last is the last
        self._lock = threading.Lock()

    def shared(self, value: Any) -> Any:
        """An equal value, of which equal parts are one object. What is nested too deeply is replaced."""
        with self._lock:
            return self._shared(value, DEEPEST)

    def _shared(self, value: Any, levels: int) -> Any:
        """levels: below the value."""
        if type(value) is str:
            return sys.intern(value) if len(value) <= _INTERN_MAX else value
        if not levels and isinstance(value, Mapping | list | tuple):
            return TOO_DEEP
        if isinstance(value, Mapping):
            part: Any = {sys.intern(k): self._shared(v, levels - 1) for k, v in value.items()}
            key: Hashable = tuple((k, _identity(v)) for k, v in part.items())
        elif isinstance(value, list | tuple):
            part = [self._shared(v, levels - 1) for v in value]
            key = (list, *(_identity(v) for v in part))
        else:
            return value
        # A known part holds its own parts, so their ids are not used again while it is known.
        part = self._known.pop(key, part)
        self._known[key] = part
        if len(self._known) > self._longest:
            del self._known[next(iter(self._known))]
        return part


def _identity(value: Any) -> Hashable:
    """Equal for equal strings, numbers of one type (1 is not True), and the same mapping or list."""
    return value if type(value) is str else (type(value), id(value) if isinstance(value, dict | list) else value)


_parts = _Parts(_SHARED_PARTS)


def compact(body: Mapping[str, Any]) -> Object:
    """A copy for the caches: without managedFields, which nothing reads and which takes most of the memory.

    Equal parts of all copies are one object: nobody may change them. What is nested too deeply to be handled by
    recursive functions is replaced by a text, which is valid nowhere in a spec.
    """
    metadata = {k: v for k, v in body.get("metadata", {}).items() if k != "managedFields"}
    return {k: _parts.shared(metadata if k == "metadata" else v) for k, v in body.items()}
