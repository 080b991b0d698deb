"""How many pipelines may have their drivers replaced at a time because the operator or its settings have changed."""

from __future__ import annotations

import threading


class Rollouts:
    """The pipelines whose drivers are being replaced. Several threads use it.

    A pipeline keeps its place until its new driver is ready: if the new drivers do not start, the others keep theirs.
    """

    def __init__(self, limit: int) -> None:
        """limit: the number of places."""
        self._limit = limit
        self._lock = threading.Lock()
        self._replacing: set[str] = set()

    def admit(self, uid: str) -> bool:
        """Whether the driver of the pipeline with this uid may be replaced now. It then has a place until `end`."""
        with self._lock:
            if uid not in self._replacing and len(self._replacing) >= self._limit:
                return False
            self._replacing.add(uid)
            return True

    def end(self, uid: str) -> None:
        """Frees the place of a pipeline, if it has one."""
        with self._lock:
            self._replacing.discard(uid)
