"""make nightly runs every suite, also after one that fails, and reports each."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import nightly
from chaos.__main__ import options_of

MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text()


def python(program: str) -> tuple[str, ...]:
    return sys.executable, "-c", program


def test_a_suite_that_fails_does_not_stop_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_make = {"MAKEFLAGS": " -- ARGS=--kills\\ 500", "MAKEOVERRIDES": "ARGS=--kills\\ 500", "ARGS": "--kills 500"}
    for name, value in of_make.items():
        monkeypatch.setenv(name, value)
    second = f"import os; print({set(of_make)} & {{*os.environ}} or None); print('2 passed | 0 failed'); print()"
    commands = {"first": python("import sys; sys.exit('no broker')"), "second": python(second), "third": python("")}
    results = list(nightly.run(commands, tmp_path / "new"))
    assert [(r.suite, r.exit_code, r.last_line) for r in results] == [
        ("first", 1, "no broker"),
        ("second", 0, "2 passed | 0 failed"),
        ("third", 0, ""),
    ]
    assert (tmp_path / "new" / "second.log").read_text().splitlines()[0] == "None"


def test_the_table_has_a_row_for_each_suite() -> None:
    results = [nightly.Result("e2e", 2, 3540, "1 failed | 3 passed"), nightly.Result("chaos", 0, 60, "held")]
    assert nightly.table(results)[2:] == [
        "| e2e | FAILED (2) | 59 | 1 failed / 3 passed |",
        "| chaos | passed | 1 | held |",
    ]


def test_main_fails_if_a_suite_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "DIRECTORY", tmp_path / "build")
    ends = {"works": python(""), "fails": python("raise SystemExit(3)")}
    monkeypatch.setattr(nightly, "suites", lambda _: ends)
    assert nightly.main([]) == 1
    assert "| fails | FAILED (3) | 0 |  |" in capsys.readouterr().out
    monkeypatch.setattr(nightly, "suites", lambda _: {"works": ends["works"]})
    assert nightly.main([]) == 0


@pytest.mark.parametrize(("arguments", "expected"), [([], "--kills 200"), (["--seed", "7"], "--seed 7")])
def test_the_campaign_gets_the_arguments(arguments: list[str], expected: str) -> None:
    assert nightly.suites(arguments)["chaos"] == ("make", "chaos", f"ARGS={expected}")


def test_the_campaign_of_a_stateful_pipeline_is_a_suite() -> None:
    make, target, arguments = nightly.suites(["--guarantee", "at-most-once"])["chaos-stateful"]
    assert (make, target) == ("make", "chaos")
    options = options_of(shlex.split(arguments.removeprefix("ARGS=")))
    assert (options.stateful, options.kills) == (True, 40)


def test_each_suite_runs_a_target_of_the_makefile() -> None:
    for suite, (make, target, *_) in nightly.suites([]).items():
        assert make == "make"
        assert suite.startswith(target)
        assert f"\n{target}: " in MAKEFILE
    assert "tools/nightly.py $(ARGS)" in MAKEFILE
