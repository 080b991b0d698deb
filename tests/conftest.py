"""Prints failures as they happen, and how many slow tests of each file a run left out.

A long run that is interrupted keeps its failures that way.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key, get_timeout_config_value
from hypothesis import settings

from seconds_per_file import SecondsPerFile
from server_starts import StartsOfServers

# An example may take longer than Hypothesis' 200 ms on a busy machine.
settings.register_profile("ackwright", deadline=None)
settings.load_profile("ackwright")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NotRun(config), "not-run")
    config.pluginmanager.register(StartsOfServers(config), "starts-of-servers")
    config.pluginmanager.register(SecondsPerFile(), "seconds-per-file")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} {report.when} failed\n{report.longreprtext}\n", file=sys.__stderr__, flush=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Limits the teardown of a test that has failed, too: pytest ends its own limits with the failure."""
    if limit := get_timeout_config_value(item.config):
        stderr = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(limit, file=stderr, exit=True)
    return (yield)


class NotRun:
    """Counts the slow tests of each file that -m left out, so that no test is left out without notice."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tests: list[str] = []

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        if self._config.option.markexpr:
            self._tests += [item.nodeid for item in items if item.get_closest_marker("slow")]

    def pytest_sessionfinish(self) -> None:
        """Sends the list from a worker of xdist, which selects the tests, to the process that prints the summary."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["not_run"] = self._tests

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes the list of one worker: all of them select the same tests."""
        self._tests = getattr(node, "workeroutput", {}).get("not_run") or self._tests

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._tests:
            terminalreporter.section(f"{len(self._tests)} slow tests not run; make test-all runs them")
            for file, number in Counter(test.partition("::")[0] for test in self._tests).items():
                terminalreporter.line(f"{number:6} {file}")
