"""`ackwright` with a fence that is always open: the control of tests of the fence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ackwright.cli.main import main
from ackwright.clients.fence import Fence


@contextmanager
def _always(self: Fence) -> Iterator[float]:
    yield float("inf")


Fence.write = _always  # type: ignore[method-assign]
main()
