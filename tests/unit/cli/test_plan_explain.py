"""The command line without a broker: plan, explain, and how failures are reported."""

from __future__ import annotations

import io
import json
import sys
import types
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from ackwright.cli import main
from ackwright.cli.explain import carrying
from ackwright.errors import AckwrightError
from ackwright.planning.chain import chain
from ackwright.planning.plan import load
from ackwright_stream.jobspec import ExitCode, Reason

EXAMPLES = Path(__file__).parents[3] / "examples"
EXACTLY_ONCE = str(EXAMPLES / "delayed-flights-exactly-once.yaml")


@pytest.mark.parametrize("command", ["plan", "explain"])
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_in_every_format(command: str, example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs: list[Any] = []
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load), ("table", str)):
        assert main.invoke([command, "-f", str(example), "-o", output]) == ExitCode.OK
        printed = capsys.readouterr()
        assert printed.err == ""
        assert "\x1b" not in printed.out  # colours are for terminals
        outputs.append(read(printed.out))
    assert outputs[0] == outputs[1]
    assert outputs[0]["guarantee"] in outputs[2]


def test_plan_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["plan", "-f", EXACTLY_ONCE, "-o", "json"]) == ExitCode.OK
    plan = json.loads(capsys.readouterr().out)
    assert plan["group"] == "ops.delayed-flights-exactly-once"
    assert [(t["name"], t["partitions"], t["replicationFactor"]) for t in plan["topics"]] == [
        ("flights", 6, 3),
        ("delayed-flights-exactly-once", 6, 3),
        ("ackwright-lanes", 1, 3),
    ]
    assert {"name", "value", "reason"} == set(plan["producer"][0])


def test_a_file_is_also_taken_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main.invoke(["plan", "-f", EXACTLY_ONCE, "-o", "json"])
    expected = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(EXACTLY_ONCE).read_bytes())))
    assert main.invoke(["plan", "-f", "-", "-o", "json"]) == ExitCode.OK
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_the_next_runs_of_a_schedule(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = yaml.safe_load(Path(EXACTLY_ONCE).read_text())
    trigger = {"availableNow": True, "schedule": "0 3 * * *", "timeZone": "Asia/Kolkata"}
    document["spec"]["trigger"] = trigger
    file = tmp_path / "scheduled.yaml"
    file.write_text(yaml.safe_dump(document))
    assert main.invoke([command, "-f", str(file), "-o", "json"]) == ExitCode.OK
    runs = json.loads(capsys.readouterr().out)["nextRuns"]
    assert [time[10:] for time in runs] == ["T21:30:00Z"] * 3
    assert runs == sorted(set(runs))
    assert main.invoke([command, "-f", str(file)]) == ExitCode.OK
    shown = " ".join(capsys.readouterr().out.split())
    assert "At 03:00 every day (Asia/Kolkata): next " in shown
    assert shown.count(" 03:00 IST") == 3
    assert main.invoke([command, "-f", EXACTLY_ONCE, "-o", "json"]) == ExitCode.OK
    assert "nextRuns" not in json.loads(capsys.readouterr().out)


def test_an_edit_of_a_scheduled_pipeline_has_effect_with_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(Path(EXACTLY_ONCE).read_text())
    document["spec"]["trigger"] = {"availableNow": True, "schedule": "0 3 * * *"}
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    before.write_text(yaml.safe_dump(document))
    document["spec"]["transform"] = {"sql": "SELECT origin AS value FROM source"}
    after.write_text(yaml.safe_dump(document))
    assert main.invoke(["plan", "-f", str(after), "--against", str(before)]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "has effect with the next run" in printed
    assert "the edit is checked in a pod" in printed


def test_explain_names_the_weakest_link(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["explain", "-f", EXACTLY_ONCE, "-o", "json"]) == ExitCode.OK
    explanation = json.loads(capsys.readouterr().out)
    assert explanation["weakestLink"]["link"] == "downstream consumer"
    assert explanation["clients"]["downstreamConsumer"]["java"]["isolation.level"] == "read_committed"
    assert explanation["clients"]["upstreamProducer"]["librdkafka"]["partitioner"] == "murmur2_random"
    main.invoke(["explain", "-f", EXACTLY_ONCE])
    assert "Weakest link: downstream consumer" in capsys.readouterr().out


def _lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main.invoke(["explain", *arguments]) == ExitCode.OK
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_explain_shows_each_link_on_a_screen_and_all_of_it_with_details(
    capsys: pytest.CaptureFixture[str], example: Path
) -> None:
    brief = _lines(capsys, "-f", str(example))
    assert len(brief) <= 30
    links = chain(load(example)[1]).links
    details = _lines(capsys, "-f", str(example), "--details")
    assert len(details) > 3 * len(brief)
    for link in links:
        assert any(line.startswith(link.name + "  ") and link.subject in line for line in brief), link.name
        assert any(line.strip() == f"{link.name}: {link.subject}" for line in details), link.name


def test_explain_shows_of_each_link_the_setting_that_carries_the_guarantee() -> None:
    links = chain(load(Path(EXACTLY_ONCE))[1]).links
    assert [setting.name for link in links if (setting := carrying(link))] == [
        "acks",
        "replication.factor",
        "isolation.level",
        "spark.task.maxFailures",
        "acks",
        "advance",
        "replication.factor",
        "isolation.level",
    ]
    delta = chain(load(EXAMPLES / "orders-to-delta.yaml")[1]).links
    assert {link.name for link in delta if carrying(link) is None} == {"sink table", "downstream reader"}


def test_bad_input_is_one_sentence_without_a_stack_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(Path(EXACTLY_ONCE).read_text().replace("exactly-once\n", "exactly-onec\n", 1))
    for command in ("plan", "explain"):
        assert main.invoke([command, "-f", str(file)]) == ExitCode.INVALID
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert "did you mean exactly-once?" in printed.err


@pytest.mark.parametrize("arguments", [["-v", "plan", "-f", "nowhere"], ["plan", "-f", "nowhere", "-v"]])
def test_stack_traces_only_if_asked_for(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(arguments) == ExitCode.INVALID
    assert "Traceback" in capsys.readouterr().err
    assert main.invoke([a for a in arguments if a != "-v"]) == ExitCode.INVALID
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["plan"], ["nothing"], ["plan", "-f", EXACTLY_ONCE, "-o", "xml"], []])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(arguments) == ExitCode.INVALID
    assert "Usage" in capsys.readouterr().err


def test_help_and_version_import_no_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert main.invoke(["--help"]) == ExitCode.OK
    assert all(name in capsys.readouterr().out for name in ("plan",))
    assert main.invoke(["--version"]) == ExitCode.OK


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            AckwrightError(Reason.BROKERS_UNREACHABLE, "no broker answers"),
            ExitCode.UNAVAILABLE,
            "BrokersUnreachable: no broker answers",
        ),
        (RuntimeError("boom"), ExitCode.FAILED, "Unexpected: RuntimeError: boom"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_of_commands_become_exit_codes(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("failing")
    module.run = click.command("run")(lambda: _raise(error))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "failing", module)
    monkeypatch.setitem(main.COMMANDS, "run", ("failing", "Fails."))
    assert main.invoke(["run"]) == code
    stderr = capsys.readouterr().err
    assert message in stderr
    assert "Traceback" not in stderr


def test_the_exit_code_is_what_a_command_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("returning")
    module.run = click.command("run")(lambda: ExitCode.HALTED)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "returning", module)
    monkeypatch.setitem(main.COMMANDS, "run", ("returning", "Returns."))
    assert main.invoke(["run"]) == ExitCode.HALTED


@pytest.mark.parametrize("name", ["orders-to-postgres", "orders-to-delta", "orders-to-iceberg", "orders-to-files"])
def test_explain_and_plan_tell_the_reader_of_a_sink_outside_kafka_the_same(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file = str(EXAMPLES / f"{name}.yaml")
    assert main.invoke(["explain", "-f", file, "-o", "json"]) == ExitCode.OK
    explained = json.loads(capsys.readouterr().out)
    assert main.invoke(["plan", "-f", file, "-o", "json"]) == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    assert explained["readerHasTo"] == shown["summary"]["reader"] == "nothing"
    assert not any("at a time" in cost for cost in shown["summary"]["costs"])
