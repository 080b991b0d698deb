"""The seconds that each file of tests took in a run. The summary of the run shows the longest; no test asserts them."""

from __future__ import annotations

import pytest

_FILES = 40  # that are shown
_LEAST_S = 1.0


class SecondsPerFile:
    """A plugin of pytest: adds up set-up, call and teardown of the tests of each file, from all workers of xdist."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] = self._seconds.get(file, 0.0) + report.duration

    @pytest.hookimpl(trylast=True)  # at the end, which is all that is kept of some logs
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        longest = sorted(self._seconds.items(), key=lambda entry: -entry[1])[:_FILES]
        longest = [(file, seconds) for file, seconds in longest if seconds >= _LEAST_S]
        if longest:
            total = sum(self._seconds.values())
            terminalreporter.section(f"seconds of the longest files of tests, of {total:.0f} s")
        for file, seconds in longest:
            terminalreporter.line(f"{seconds:6.0f} {file}")
