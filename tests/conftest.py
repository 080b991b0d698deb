"""Prints failures as they happen, and what a run left out.

A long run that is interrupted keeps its failures that way.
"""

from __future__ import annotations

import os
import sys
from collections import Counter

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} {report.when} failed\n{report.longreprtext}\n", file=sys.__stderr__, flush=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Reports what a run left out, so that no test is skipped unseen."""
    deselected = terminalreporter.stats.get("deselected", [])
    if deselected and config.option.markexpr:
        files = Counter(item.nodeid.partition("::")[0] for item in deselected)
        terminalreporter.section(f"{len(deselected)} tests not run ({config.option.markexpr}); make test-all runs them")
        for file, count in sorted(files.items()):
            terminalreporter.line(f"{count:5} {file}")
