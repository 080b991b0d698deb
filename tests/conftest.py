"""Failures are printed when they happen: a run of many minutes that is cut short must not take them with it."""

from __future__ import annotations

import os
import sys

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} {report.when} failed\n{report.longreprtext}\n", file=sys.__stderr__, flush=True)
