"""What the displays print: plain lines at intervals, JSON and nothing else, failures on stderr."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ackwright.apply.topics import Ensured
from ackwright.cli.run_output import JsonDisplay, TextDisplay, summary
from ackwright.planning.comparison import Difference
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import Failure, ProgressReport, StartPart, State

STARTING = ProgressReport(
    pipeline="ops/flights",
    guarantee="exactly-once",
    state=State.STARTING,
    driver=0,
    batch_id=-1,
    batch_seconds=0.0,
    last_batch_at=None,
    positions={},
    lag=0,
    records=0,
    batches=0,
    restarts=0,
    abandoned_records=0,
    expired_records=0,
    malformed_records=0,
    dead_letters=0,
    skipped_lanes=0,
    records_per_second=0.0,
)
REPORT = replace(STARTING, state=State.RUNNING, records=12345, records_per_second=1500.4, lag=7, restarts=1, batch_id=3)
EXPIRED = Failure(Reason.DATA_EXPIRED, "gone")
ENSURED = Ensured(("a",), (Difference("b", "partitions", "6", "4", "as declared"),))


def test_the_summary_names_written_records_rate_lag_and_only_counters_that_count() -> None:
    assert summary(REPORT) == "running  12,345 records written  1,500/s  lag 7  restarts 1"
    assert summary(STARTING) == "starting  0 records written  0/s  lag unknown"
    assert summary(replace(STARTING, ends={"in": {"0": 5}})).endswith("  lag 0")
    assert summary(replace(REPORT, watermark=1.5)).endswith("  lag 7  watermark 1970-01-01T00:00:01Z  restarts 1")
    assert summary(replace(REPORT, records=1)).startswith("running  1 record written  ")


def test_before_the_first_batch_the_summary_says_what_the_driver_does() -> None:
    starting = replace(STARTING, start_seconds={StartPart.IMPORTS: 1.2})
    assert summary(starting).startswith("starting Spark's JVM  ")
    owning = replace(starting, state=State.RUNNING, start_seconds=dict.fromkeys(list(StartPart)[:-1], 1.0))
    assert summary(owning).startswith("delivering the first batch  ")
    assert summary(replace(owning, batches=1)).startswith("running  ")
    assert summary(replace(owning, state=State.RESTARTING)).startswith("restarting  ")


def test_batches_that_run_again_are_shown() -> None:
    replaying = replace(STARTING, state=State.REPLAYING, replay_batch=3, replay_last=9)
    assert summary(replaying).startswith("replaying batch 3 of 9  ")


def test_plain_lines_come_at_intervals() -> None:
    out, now = io.StringIO(), [0.0]
    shown = TextDisplay(Console(file=out, width=200), clock=lambda: now[0])
    with shown:
        for now[0] in (0.0, 1.0, 2.0, 3.5):
            shown.progress(REPORT)
    assert out.getvalue().count("12,345 records") == 2


def test_an_error_of_the_job_is_shown_once() -> None:
    out = io.StringIO()
    shown = TextDisplay(Console(file=out, width=200), clock=lambda: 0.0)
    for _ in range(3):
        shown.progress(replace(REPORT, last_error=Failure(Reason.BATCH_FAILED, "broke")))
    assert out.getvalue().count("BatchFailed: broke") == 1


def test_a_terminal_gets_a_bar_with_records_rate_and_lag() -> None:
    out = io.StringIO()
    shown = TextDisplay(Console(file=out, width=200, force_terminal=True))
    with shown:
        shown.progress(REPORT)
    assert "12,345 records written  1,500/s  lag 7" in out.getvalue()


def test_differences_name_both_values() -> None:
    out = io.StringIO()
    TextDisplay(Console(file=out, width=200)).topics(ENSURED)
    assert out.getvalue() == "created a\ndiffers: topic b: partitions is 4, planned is 6 (as declared); left as it is\n"


def test_failures_go_to_stderr_and_a_silent_job_to_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.log"
    log.write_text("first\nlast words\n")
    shown = TextDisplay(Console(file=io.StringIO()))
    shown.end(3, EXPIRED, log)
    shown.end(137, None, log)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "DataExpired: gone"
    assert second.endswith("ended with code 137 and reported no reason; its log ends: last words")


def test_with_json_a_failure_is_on_stderr_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.log"
    log.write_text("last words\n")
    JsonDisplay().end(3, EXPIRED, log)
    JsonDisplay().end(1, None, log)
    output = capsys.readouterr()
    known, unknown = map(json.loads, output.out.splitlines())
    assert (known["exitCode"], unknown["exitCode"]) == (3, 1)
    assert (known["failure"], unknown["failure"]) == ({"reason": "DataExpired", "message": "gone"}, None)
    first, second = output.err.splitlines()
    assert first == "DataExpired: gone"
    assert second.startswith("Unexpected: the job ended with code 1 ")
    JsonDisplay().end(0, None, log)
    assert capsys.readouterr().err == ""


def test_json_is_one_object_a_line_and_repeats_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shown = JsonDisplay()
    with shown:
        shown.brokers("h:1", Path("/d"), keep=False)
        shown.topics(ENSURED)
        shown.progress(REPORT)
        shown.progress(REPORT)
        shown.progress(replace(REPORT, lag=0))
    shown.end(0, None, Path("/l"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["brokers", "topics", "progress", "progress", "end"]
    assert lines[1]["differences"][0]["found"] == "4"


def test_a_takeover_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    TextDisplay(Console(file=out, width=200), clock=lambda: 0.0).takeover(137)
    assert "exit code 137" in out.getvalue()
    JsonDisplay().takeover(137)
    assert json.loads(capsys.readouterr().out) == {"event": "takeover", "exitCode": 137}
