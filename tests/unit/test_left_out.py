"""Every run reports the slow tests that it leaves out, with and without workers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2])
def test_campaign(n): ...

def test_proof(): ...
"""


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["-m", "not slow"], True),
        (["-m", "not slow", "-k", "proof"], True),
        (["-m", "not slow", "-n", "2"], True),
        ([], False),
        (["-k", "proof"], False),
        (["-n", "2"], False),
    ],
    ids=["marker", "marker-and-name", "marker-workers", "all", "name", "all-workers"],
)
def test_a_run_lists_the_slow_tests_that_it_left_out(
    pytester: pytest.Pytester, arguments: list[str], reported: bool
) -> None:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini(f"[pytest]\nmarkers = slow\npythonpath = {CONFTEST.parent}")
    pytester.makepyfile(test_sample=TESTS)
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret == 0
    lines = [line for line in result.outlines if "::test_campaign" in line or "make test-all" in line]
    if reported:
        assert "2 slow tests not run; make test-all runs them" in lines[0]
        assert lines[1:] == ["test_sample.py::test_campaign[1]", "test_sample.py::test_campaign[2]"]
    else:
        assert lines == []
