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
def test_a_run_counts_the_slow_tests_that_it_left_out(
    pytester: pytest.Pytester, arguments: list[str], reported: bool
) -> None:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini(f"[pytest]\nmarkers = slow\npythonpath = {CONFTEST.parent}")
    pytester.makepyfile(test_sample=TESTS)
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret == 0
    lines = [line for line in result.outlines if "make test-all" in line or line.endswith(" test_sample.py")]
    if reported:
        assert "2 slow tests not run; make test-all runs them" in lines[0]
        assert lines[1:] == ["     2 test_sample.py"]
    else:
        assert lines == []


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_run_names_the_files_that_took_longest(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini(f"[pytest]\npythonpath = {CONFTEST.parent}")
    pytester.makepyfile(
        test_long="import time\n\ndef test_a(): time.sleep(1.5)\ndef test_b(): time.sleep(1.5)",
        test_short="def test_c(): ...",
    )
    lines = pytester.runpytest_subprocess(*workers).outlines
    start = next(i for i, line in enumerate(lines) if "seconds of the longest files" in line)
    assert lines[start + 1] == "     3 test_long.py"
    assert not lines[start + 2].endswith("test_short.py"), "it took less than a second"
