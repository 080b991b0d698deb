"""`ackwright demo` as a user runs it: with fewer records, the same failures, and a check of what remains afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ackwright.local.demo import flights
from integration.support.processes import naming
from waiting import ANSWER, WAIT, wait_until

COMMAND = [sys.executable, "-c", "from ackwright.cli.main import main; main()", "demo"]
RECORDS = 20_000


def environment(directory: Path) -> Mapping[str, str]:
    """The environment that puts temporary files below the directory."""
    return {**os.environ, "TMPDIR": str(directory)}


def nothing_is_left(directory: Path) -> None:
    wait_until(lambda: not naming(directory), f"no process of {directory} is left")
    assert [f.name for f in directory.iterdir() if f.name.startswith("ackwright")] == []


def run_demo(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [*COMMAND, "--records", str(RECORDS), "-o", "json", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=1200, check=False, env=environment(directory))


def assert_each_guarantee_held(done: subprocess.CompletedProcess[str], kills: int) -> None:
    """The weaker guarantees are the control: the same failures lose or duplicate records, and the audit counts them."""
    assert done.returncode == 0, done.stderr
    expected = sum(flights.is_disrupted(json.loads(value)) for _, value in flights.records(flights.archive(), RECORDS))
    runs: dict[str, dict[str, Any]] = {r["guarantee"]: r for r in json.loads(done.stdout)["runs"]}
    assert list(runs) == ["at-most-once", "at-least-once", "exactly-once"]
    for r in runs.values():
        assert (r["guaranteeHeld"], r["verdict"]) == (True, "held")
        assert (r["sent"], r["expected"]) == (RECORDS, expected), "the demo counts its data, and not the audit"
        assert r["kills"] == kills
        assert len(r["resumeSeconds"]) == kills
        assert all(s > 0 for s in r["resumeSeconds"])
        assert r["recordsPerSecond"] > 0
    most, least, exactly = runs.values()
    assert most["lost"] > 0
    assert most["duplicated"] == 0
    assert least["lost"] == 0
    assert least["duplicated"] > 0
    assert (exactly["lost"], exactly["duplicated"]) == (0, 0)
    assert exactly["delivered"] == expected
    assert most["delivered"] == expected - most["lost"]
    assert least["delivered"] == expected + least["duplicated"]


def assert_each_was_killed(done: subprocess.CompletedProcess[str], *targets: str) -> None:
    """In the live view: one kill of each target under each guarantee."""
    kills = [line for line in done.stderr.splitlines() if "✗" in line]
    assert len(kills) == 3 * len(targets)
    for target in targets:
        assert sum(f"killed {target}" in line for line in kills) == 3


PROCESSES = ("the driver in the middle of a batch", "the driver between commit steps", "a Python worker", "broker")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    directory = tmp_path_factory.mktemp("demo")
    return run_demo(directory), directory


def test_each_guarantee_holds_and_each_weaker_one_shows_what_it_allows(
    outcome: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, _ = outcome
    assert_each_guarantee_held(done, kills=4)
    assert json.loads(done.stdout)["sink"] == "kafka"


def test_every_kill_is_made_and_reported(outcome: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = outcome
    assert_each_was_killed(done, *PROCESSES)


def test_the_guarantees_hold_in_postgresql_and_each_weaker_one_shows_what_it_allows() -> None:
    # Not in pytest's directories, which only their owner may enter: as root, the server has another account.
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        done = run_demo(directory, "--sink", "postgres")
        assert_each_guarantee_held(done, kills=5)
        assert json.loads(done.stdout)["sink"] == "postgres"
        assert_each_was_killed(done, *PROCESSES, "the database")
        nothing_is_left(directory)


@pytest.mark.parametrize("sink", ["delta", "iceberg", "files"])
def test_the_guarantees_hold_in_files_and_each_weaker_one_shows_what_it_allows(tmp_path: Path, sink: str) -> None:
    done = run_demo(tmp_path, "--sink", sink)
    assert_each_guarantee_held(done, kills=4)
    assert json.loads(done.stdout)["sink"] == sink
    assert_each_was_killed(done, *PROCESSES)
    nothing_is_left(tmp_path)


def test_counts_hold_under_the_same_failures(tmp_path: Path) -> None:
    """What is expected are the groups that the producer counted."""
    done = run_demo(tmp_path, "--pipeline", "counts")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(value) for _, value in flights.records(flights.archive(), RECORDS)]
    groups = {(row["origin"], row["carrier"], row["time_hour"][:10]) for row in rows}
    document = json.loads(done.stdout)
    assert (document["pipeline"], document["sink"]) == ("counts", "kafka")
    [run] = document["runs"]
    assert (run["guarantee"], run["verdict"], run["kills"]) == ("exactly-once", "held", 4)
    assert (run["sent"], run["expected"], run["lost"], run["duplicated"]) == (RECORDS, len(groups), 0, 0)
    assert run["delivered"] >= len(groups)
    assert done.stderr.count("✗") == 4
    nothing_is_left(tmp_path)


def test_nothing_is_left_behind(outcome: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    _, directory = outcome
    nothing_is_left(directory)


def test_an_interrupt_cleans_up(tmp_path: Path) -> None:
    argv = [*COMMAND, "--records", "1000", "--guarantee", "exactly-once"]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(tmp_path)
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "exactly-once: " in line:  # a driver has been started
                break
        assert naming(tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 130
    finally:
        process.kill()
        process.wait(ANSWER)
    nothing_is_left(tmp_path)
