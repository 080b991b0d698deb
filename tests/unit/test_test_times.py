"""tools/test_times.py adds up the durations of a pytest log."""

from __future__ import annotations

from pathlib import Path

import pytest

import test_times

LOG = """
tests/unit/test_a.py ..                                            [100%]
============================= slowest durations ==============================
61.46s call     tests/unit/test_a.py::test_one[a b]
1.04s setup    tests/unit/test_a.py::test_one[a b]
0.25s teardown tests/unit/test_b.py::test_two
0.13s call     tests/unit/api/test_c.py::test_three[x::y]

(3 durations < 0.005s hidden.  Use -vv to show these durations.)
"""


def test_seconds_of_set_up_call_and_teardown_are_added_per_file() -> None:
    files = test_times.seconds_by_file(LOG.splitlines())
    assert files == pytest.approx(
        {"tests/unit/test_a.py": 62.5, "tests/unit/test_b.py": 0.25, "tests/unit/api/test_c.py": 0.13}
    )


def test_a_folder_has_the_sum_of_its_files() -> None:
    folders = test_times.by_folder(test_times.seconds_by_file(LOG.splitlines()))
    assert folders == pytest.approx({"tests/unit": 62.75, "tests/unit/api": 0.13})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0"), (0.016, "0.016"), (0.25, "0.25"), (1.04, "1"), (9.96, "10"), (62.5, "62"), (1234.0, "1200")],
)
def test_times_have_two_significant_digits(seconds: float, text: str) -> None:
    assert test_times.two_digits(seconds) == text


def test_the_longest_time_is_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(LOG)
    assert test_times.main([str(tmp_path / "log")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["| seconds | folder |", "|---:|---|", "| 63 | tests/unit |", "| 0.13 | tests/unit/api |"]
    assert lines[7] == "| 62 | tests/unit/test_a.py |"


def test_a_log_without_durations_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text("1 passed\n")
    assert test_times.main([str(tmp_path / "log")]) == 1
    assert "--durations=0" in capsys.readouterr().err
