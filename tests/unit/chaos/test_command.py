"""The options and the output of `python -m tests.chaos`."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from ackwright_stream.jobspec import Guarantee
from chaos.__main__ import as_json, options_of, report, write_csv
from chaos.account import Counts
from chaos.campaign import Outcome
from chaos.plan import Fault
from chaos.soak import Sample

KILLS, FAULTS = Counter({"process killed at a point": 2}), Counter({"quota set": 1})
BROKEN = Outcome(Guarantee.EXACTLY_ONCE, 7, KILLS, FAULTS, Counts(9, 1, 2, 0, 3), 1, 4.2, ("round 1: 1 records lost",))


def test_faults_are_selected_by_name() -> None:
    assert options_of([]).faults == list(Fault)
    assert options_of(["--faults", "none"]).faults == []
    assert options_of(["--faults", "quota,topic"]).faults == [Fault.QUOTA, Fault.TOPIC]


def test_an_unknown_fault_is_refused_and_the_known_ones_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options_of(["--faults", "fire"])
    assert "network" in capsys.readouterr().err


@pytest.mark.parametrize("other", [["--guarantee", "exactly-once"], ["--soak", "60"], ["--faults", "quota"]])
def test_a_stateful_campaign_ignores_no_option(other: list[str]) -> None:
    assert options_of(["--stateful"]).faults == []
    with pytest.raises(SystemExit):
        options_of(["--stateful", *other])


def test_the_report_has_every_count_and_problem() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    report(console, [BROKEN])
    text = console.export_text()
    for part in ("seed 7", "2 × process killed at a point", "1 × quota set", "did not hold: round 1: 1 records lost"):
        assert part in text


def test_an_outcome_is_json() -> None:
    outcome = json.loads(json.dumps(as_json(BROKEN)))
    assert (outcome["held"], outcome["kills"], outcome["counts"]["lost"]) == (False, dict(KILLS), 1)


def test_samples_are_written_as_csv(tmp_path: Path) -> None:
    write_csv(tmp_path / "samples.csv", [Sample(5.0, "driver", 7, 100, 10, 50)])
    assert (tmp_path / "samples.csv").read_text().splitlines() == [
        "seconds,role,pid,memory,threads,handles",
        "5.0,driver,7,100,10,50",
    ]
