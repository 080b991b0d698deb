"""What a command on this machine reports to the console, and how the page gets only what is new."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ackwright.apply.topics import Ensured
from ackwright.cli.demo_output import Screen
from ackwright.cli.local_console import ConsoleDisplay
from ackwright.cli.run_output import JsonDisplay
from ackwright.console.activity import Activity, LocalSource
from ackwright.console.views import Remedies, detail, row
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import Failure, State
from unit.console import live, recorded

REPORT = recorded.progress("ops", "delayed-flights", "flights")


def test_stages_have_their_figures_and_kills() -> None:
    *_, first, second = live.demo().after(0)["stages"]
    assert (first["name"], first["over"], first["done"], first["kills"]) == ("at-most-once", True, 60_000, 1)
    assert (second["over"], second["done"], second["lag"], second["kills"]) == (False, 30_000, 30_000, 1)
    assert second["pipeline"] == "demo/disrupted-at-least-once"


def test_an_answer_has_only_what_is_new() -> None:
    activity = live.demo()
    number = activity.after(0)["number"]
    activity.kill("killed broker 2")
    activity.progress(40_000, 60_000, 1.0, 20_000)
    news = activity.after(number)
    assert [e["text"] for e in news["entries"]] == ["killed broker 2"]
    assert [len(s["samples"]) for s in news["stages"]] == [0, 0, 0, 1]
    assert activity.after(news["number"])["entries"] == []


def test_samples_keep_a_distance_and_figures_do_not() -> None:
    now = [100.0]
    activity = Activity("x", lambda: now[0])
    activity.stage("s", 10)
    for done in range(5):
        activity.progress(done, 10, 1.0, 10 - done)
        now[0] += 0.2
    (stage,) = activity.after(0)["stages"]
    assert (stage["done"], [s["done"] for s in stage["samples"]]) == (4, [0, 3])


def test_results_end_the_last_stage() -> None:
    activity = live.demo()
    assert activity.after(0)["results"] is None
    activity.end(("guarantee",), [("exactly-once",)], ["a note"])
    news = activity.after(0)
    assert news["stages"][-1]["over"]
    assert news["results"] == {"columns": ["guarantee"], "rows": [["exactly-once"]], "notes": ["a note"]}


def test_everything_is_json() -> None:
    assert json.loads(json.dumps(live.demo().after(0)))["entries"]


def test_the_pipeline_of_a_run_has_its_chain_lanes_and_state() -> None:
    activity = Activity("ackwright run")
    activity.pipeline(recorded.resource("new-arrivals"))
    source = LocalSource(activity)
    read = source.details("ops", "new-arrivals")
    assert read
    assert read[1].missing
    activity.report(replace(REPORT, pipeline="ops/new-arrivals"))
    read = source.details("ops", "new-arrivals")
    assert read
    shown = detail(*read, Remedies())
    assert (shown["row"]["health"], shown["row"]["reason"], shown["row"]["lag"]) == ("ready", "Delivering", 2_310)
    assert len(shown["lanes"]) == 6
    assert shown["chain"]["links"]
    assert row(source.pipelines().resources[0])["guarantee"] == "exactly-once"
    assert source.details("ops", "other") is None


def test_a_run_writes_to_the_console_and_prints_as_before(tmp_path: Path) -> None:
    activity = Activity("ackwright run")
    activity.stage("ops/p", pipeline="ops/p")
    with ConsoleDisplay(JsonDisplay(), activity) as display:
        display.brokers("127.0.0.1:9092", tmp_path, keep=False)
        display.topics(Ensured(("in", "out"), ()))
        display.progress(replace(REPORT, restarts=0))
        display.progress(replace(REPORT, restarts=1, state=State.RESTARTING))
        display.progress(replace(REPORT, restarts=1, last_error=Failure(Reason.BROKERS_UNREACHABLE, "no answer")))
        display.takeover(137)
        display.stopping(last=False)
        display.end(4, Failure(Reason.BROKERS_UNREACHABLE, "no answer"), tmp_path / "job.log")
    entries = [(e["kind"], e["text"]) for e in activity.after(0)["entries"]]
    assert entries == [
        ("stage", "ops/p"),
        ("event", "three brokers answer at 127.0.0.1:9092"),
        ("event", "created in, out"),
        ("event", "driver 7: running"),
        ("event", "driver 7: restarting"),
        ("event", "the query has restarted: 1 restart since the driver started"),
        ("event", "driver 7: running"),
        ("failure", "BrokersUnreachable: no answer"),
        ("kill", "a driver was killed (exit code 137); the other one delivers"),
        ("event", "stopping: the running batch ends first"),
        ("failure", "the job ended with exit code 4: BrokersUnreachable: no answer"),
        ("stage", "the end"),
    ]


def test_a_demo_writes_to_the_console_what_it_shows() -> None:
    activity = Activity("ackwright demo")
    out = io.StringIO()
    with Screen(Console(file=out, width=200), activity=activity) as screen:
        screen.phase("starting three brokers")
        screen.pipeline("exactly-once", 100, recorded.resource("stock"))
        screen.progress(40, 100, 5.0)
        screen.killed("killed broker 1")
        screen.event("delivery has resumed")
    news = activity.after(0)
    assert [(e["kind"], e["text"]) for e in news["entries"]] == [
        ("stage", "starting three brokers"),
        ("stage", "exactly-once"),
        ("kill", "killed broker 1"),
        ("event", "delivery has resumed"),
    ]
    assert (news["stages"][1]["lag"], news["stages"][1]["pipeline"]) == (60, "shop/stock")
    assert "killed broker 1" in out.getvalue()
