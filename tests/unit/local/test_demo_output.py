"""ackwright demo: its output, and the arguments that it refuses before it starts anything."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from ackwright.cli.demo import demo
from ackwright.cli.demo_output import Screen, median_and_longest, print_table
from ackwright.cli.main import invoke
from ackwright.local.demo import flights
from ackwright.local.demo.kills import TARGETS, Target
from ackwright.local.demo.pipelines import Pipeline, Sink
from ackwright.local.demo.results import RunResult
from ackwright_stream.jobspec import ExitCode, Guarantee
from ackwright_stream.reports import StartPart, Verdict
from waiting import wait_until


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--fail", "driver,moon"],
            "'moon' cannot be killed with --sink kafka; choose from driver, worker, broker, or",
        ),
        (["--fail", "database"], "'database' cannot be killed with --sink kafka; choose from driver, worker, broker,"),
        (["--fail", "database", "--sink", "kafka"], "'database' cannot be killed with --sink kafka"),
        (["--fail", "moon", "--sink", "postgres"], "choose from driver, worker, broker, database, or none"),
        (["--sink", "paper"], "'paper' is not one of 'kafka', 'postgres'"),
        (["--fail", "none,driver"], "none cannot be combined"),
        (["--guarantee", "sometimes"], "'sometimes' is not one of"),
        (["--records", "5"], "not in the range"),
        (["--pipeline", "counts", "--sink", "delta"], "--pipeline counts delivers exactly-once into Kafka"),
        (["--pipeline", "counts", "--guarantee", "at-most-once"], "omit --sink and --guarantee"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["demo", *arguments]) == ExitCode.INVALID
    assert message in capsys.readouterr().err


def test_a_directory_with_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kafka").mkdir()
    assert invoke(["demo", "--dir", str(tmp_path)]) == ExitCode.INVALID
    assert "is not empty" in capsys.readouterr().err


def test_without_the_package_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    monkeypatch.setattr("ackwright.cli.demo.EmbeddedKafka", lambda *_: pytest.fail("brokers were started"))
    assert invoke(["demo"]) == ExitCode.FAILED
    assert "pip install '.[demo,spark]'" in capsys.readouterr().err


def test_without_postgresql_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ackwright.local.postgres._DEBIAN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("ackwright.cli.demo.EmbeddedKafka", lambda *_: pytest.fail("brokers were started"))
    assert invoke(["demo", "--sink", "postgres", "--dir", str(tmp_path / "demo")]) == ExitCode.FAILED
    assert "PostgreSQL is not installed on this machine" in (message := capsys.readouterr().err)
    assert "apt-get install postgresql" in message


@pytest.mark.parametrize(
    ("arguments", "targets"),
    [
        ([], TARGETS[Sink.KAFKA]),
        (["--sink", "postgres"], TARGETS[Sink.POSTGRES]),
        (["--fail", "database, driver", "--sink", "postgres"], (Target.DATABASE, Target.DRIVER)),
        (["--fail", "none"], ()),
    ],
)
def test_what_is_killed_depends_on_the_sink(arguments: list[str], targets: tuple[Target, ...]) -> None:
    assert demo.make_context("demo", arguments).params["targets"] == frozenset(targets)


def printed(runs: list[RunResult]) -> str:
    out = Console(file=io.StringIO(), width=160)
    print_table(runs, Sink.POSTGRES, out)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_the_table_has_a_row_for_each_guarantee_and_marks_the_broken_ones() -> None:
    runs = [
        RunResult(Guarantee.AT_MOST_ONCE, 336_776, 136_687, 130_000, 6_687, 0, 4, 21_000.4, (9.5, 0.5), Verdict.HELD),
        RunResult(Guarantee.EXACTLY_ONCE, 336_776, 136_687, 136_686, 1, 0, 4, 18_000.0, (), Verdict.BROKEN),
        RunResult(Guarantee.AT_LEAST_ONCE, 336_776, 136_687, 136_687, 0, 0, 4, 18_000.0, (), Verdict.UNPROVEN),
    ]
    text = printed(runs)
    held = next(line for line in text.splitlines() if "at-most-once" in line)
    assert [cell.strip() for cell in held.strip("│").split("│")] == [
        "at-most-once",
        "336,776",
        "130,000",
        "6,687",
        "0",
        "4",
        "21,000/s",
        "5.0 s, 9.5 s",
        "✓",
    ]
    assert next(line for line in text.splitlines() if "exactly-once" in line).strip("│ ").endswith("✗")
    assert next(line for line in text.splitlines() if "at-least-once" in line).strip("│ ").endswith("?")
    assert "136,687 of them pass the filter" in text
    assert "Sink postgres: the same records, the same failures" in text


def test_the_table_of_counts_explains_what_is_expected() -> None:
    out = Console(file=io.StringIO(), width=160)
    run = RunResult(Guarantee.EXACTLY_ONCE, 336_776, 11_901, 90_000, 0, 0, 4, 18_000.0, (), Verdict.HELD)
    print_table([run], Sink.KAFKA, out, Pipeline.COUNTS)
    assert isinstance(out.file, io.StringIO)
    assert "Pipeline counts, sink kafka" in (text := out.file.getvalue())
    assert "11,901 groups by airport, airline and day" in text


def test_the_table_is_followed_by_the_notes_and_names_the_sink() -> None:
    text = printed([RunResult(Guarantee.AT_LEAST_ONCE, 9, 3, 3, 0, 0, 4, 1.0, (), Verdict.HELD)])
    assert "note: at-least-once duplicated nothing" in text
    assert text.split()[:2] == ["Sink", "postgres"]


def test_times_to_resume_are_shown_as_median_and_longest() -> None:
    assert median_and_longest((1.0, 9.0, 2.0)) == "2.0 s, 9.0 s"
    assert median_and_longest(()) == "–"


def test_while_a_driver_starts_the_part_of_its_start_is_shown() -> None:
    out = Console(file=io.StringIO(), width=160)
    with Screen(out, clock=lambda: 0.0) as screen:
        screen.progress(0, 100, 0.0, StartPart.JVM)
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().endswith("0 of 100 records  0/s  lag 100  starting Spark's JVM\n")


def test_without_a_terminal_progress_is_a_line_every_five_seconds_and_kills_are_printed_at_once() -> None:
    now = [0.0]
    out = Console(file=io.StringIO(), width=160)
    with Screen(out, clock=lambda: now[0]) as screen:
        screen.phase("exactly-once", 100)
        for step in range(10):
            now[0] = float(step)
            screen.progress(step, 100, 1.0)
        screen.killed("killed the driver")
        screen.progress(10, 100, 1.0)
        now[0] = 11.0
        screen.progress(11, 100, 1.0)
    assert isinstance(out.file, io.StringIO)
    lines = [line.strip() for line in out.file.getvalue().splitlines()]
    assert lines == [
        "0.0 s  exactly-once",
        "0.0 s  exactly-once: 0 of 100 records  1/s  lag 100",
        "5.0 s  exactly-once: 5 of 100 records  1/s  lag 95",
        "9.0 s  ✗ killed the driver",
        "11.0 s  exactly-once: 11 of 100 records  1/s  lag 89  kills 1",
    ]


def test_without_a_terminal_a_phase_without_progress_is_printed_again_after_five_seconds() -> None:
    now = [0.0]
    printed = io.StringIO()
    with Screen(Console(file=printed, width=160), clock=lambda: now[0]) as screen:
        screen.phase("auditing")
        assert printed.getvalue() == "   0.0 s  auditing\n"
        now[0] = 6.0
        wait_until(lambda: "   6.0 s  auditing ...\n" in printed.getvalue(), "the phase is printed again")
    assert printed.getvalue().count("\n") == 2
