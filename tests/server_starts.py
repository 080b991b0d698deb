"""The seconds that each server of a run took to start. The summary of the run shows them; no test asserts them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

_starts: list[tuple[str, float]] = []  # of this process: the server's name, and seconds


@contextmanager
def starting(name: str) -> Iterator[None]:
    """Records how long the block takes, which starts a server. Also a decorator of a function that does."""
    start = time.monotonic()
    yield
    _starts.append((name, time.monotonic() - start))


@contextmanager
def started(name: str, server: AbstractContextManager[T]) -> Iterator[T]:
    """The server while it runs; records how long its start takes."""
    with ExitStack() as stack:
        with starting(name):
            running = stack.enter_context(server)
        yield running


class StartsOfServers:
    """A plugin of pytest: collects the starts from all workers of xdist, and prints them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._of_workers: list[tuple[str, float]] = []

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["server_starts"] = _starts

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._of_workers += getattr(node, "workeroutput", {}).get("server_starts", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        by_name: dict[str, list[float]] = {}
        for name, seconds in (*_starts, *self._of_workers):
            by_name.setdefault(name, []).append(seconds)
        if by_name:
            terminalreporter.section("seconds that servers took to start")
        for name, all_ in sorted(by_name.items()):
            each = "" if len(all_) == 1 else f", median {sorted(all_)[len(all_) // 2]:.1f} of {len(all_)} starts"
            terminalreporter.line(f"{name}: at most {max(all_):.1f}{each}")
