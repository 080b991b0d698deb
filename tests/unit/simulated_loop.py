"""An event loop with simulated time, which jumps to the next moment at which something is due."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class Loop(asyncio.SelectorEventLoop):
    """Nobody waits: instead of sleeping, time is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(selectors.DefaultSelector())  # select() refuses file descriptors above 1023
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            assert timeout is not None, "nothing will ever happen again"
            self.now += max(0.0, timeout)
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now
