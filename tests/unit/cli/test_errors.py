"""How commands report errors, and what their help says."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from ackwright.cli import main
from ackwright.cli.examples import EXAMPLES
from ackwright_stream.jobspec import ExitCode
from waiting import ANSWER

EXAMPLE = Path(__file__).parents[3] / "examples" / "delayed-flights-exactly-once.yaml"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A file with three mistakes, in lines 5, 16 and 20."""
    file = tmp_path / "p.yaml"
    text = EXAMPLE.read_text().replace("FROM source", "FROM orders")
    text = text.replace("retention.ms", "retentionms").replace("maxOffsetsPerTrigger: 500000", "startFrom: 1")
    file.write_text(text)
    return file


@pytest.mark.parametrize("command", ["plan", "explain", "check"])
def test_errors_are_lines_with_file_line_and_column(
    command: str, wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke([command, "-f", str(wrong)]) == ExitCode.INVALID
    printed = capsys.readouterr()
    assert printed.out == ""
    unknown, setting = printed.err.splitlines()
    lines = wrong.read_text().splitlines()
    for error, text in ((unknown, "startFrom"), (setting, "retentionms")):
        line = next(i for i, line in enumerate(lines, 1) if text in line)
        assert error.startswith(f"{wrong}:{line}:{lines[line - 1].index(text) + 1}: InvalidSpec: spec.")


def test_errors_as_json_and_yaml(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert main.invoke(["plan", "-f", str(wrong), "-o", output]) == ExitCode.INVALID
        printed = capsys.readouterr()
        assert printed.err == ""
        errors = read(printed.out)["errors"]
        assert [(e["reason"], e["file"], e["field"]) for e in errors] == [
            ("InvalidSpec", str(wrong), "spec.source.startFrom"),
            ("InvalidSpec", str(wrong), "spec.topics[1].config['retentionms']"),
        ]
        assert all(e["line"] and e["column"] and e["message"] for e in errors)


def test_the_sql_is_judged_beside_other_errors_that_do_not_concern_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    text = EXAMPLE.read_text().replace("FROM source", "FROM orders").replace("instances: 2", "instances: 0")
    file.write_text(text)
    assert main.invoke(["plan", "-f", str(file)]) == ExitCode.INVALID
    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()] == ["InvalidTransform", "InvalidSpec"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "-o", "json"], "Missing option '-f' / '--file'."),
        (["plan", "-o", "json", "-f", "nowhere"], "nowhere: there is no such file; check the path after -f"),
        (["audit", "-o", "json", "-f", "nowhere"], "nowhere: there is no such file; check the path after -f"),
        (["run", "-o", "json", "-f", "nowhere"], "nowhere: there is no such file; check the path after -f"),
        (
            ["demo", "-o", "json", "--pipeline", "counts", "--guarantee", "at-most-once"],
            "--pipeline counts delivers exactly-once into Kafka; omit --sink and --guarantee",
        ),
    ],
)
def test_every_error_is_json_if_that_is_the_output(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(arguments) == ExitCode.INVALID
    [error] = json.loads(capsys.readouterr().out)["errors"]
    assert error["message"] == message


def test_errors_of_a_run_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["run", "-o", "json", "-f", "nowhere"]) == ExitCode.INVALID
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["event"] == "errors"


def test_errors_of_yamls_syntax_have_line_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("a: [1\nb: 2\n")
    assert main.invoke(["plan", "-f", str(file), "-o", "json"]) == ExitCode.INVALID
    [error] = json.loads(capsys.readouterr().out)["errors"]
    assert (error["file"], error["line"], error["column"]) == (str(file), 2, 2)


def test_the_place_in_a_file_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("a: 1\n  b: 2\n")
    assert main.invoke(["plan", "-f", str(file)]) == ExitCode.INVALID
    error = capsys.readouterr().err
    assert error.startswith(f"{file}:2:4: InvalidSpec: not valid YAML: mapping values")
    assert error.count(str(file)) == 1


def test_warnings_are_part_of_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(EXAMPLE.read_text().replace("FROM source", "FROM source |>"))
    for command in ("plan", "explain"):
        assert main.invoke([command, "-f", str(file), "-o", "json"]) == ExitCode.OK
        printed = capsys.readouterr()
        [warning] = json.loads(printed.out)["warnings"]
        assert "is not checked" in warning["message"]
        assert printed.err == ""


def test_warnings_do_not_change_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        EXAMPLE.read_text().replace("  topics:\n    -", "  topics:\n    - {name: other, partitions: 1}\n    -")
    )
    assert main.invoke(["plan", "-f", str(file)]) == ExitCode.OK
    assert ": warning: spec.topics[0].name = 'other'" in capsys.readouterr().err
    assert main.invoke(["plan", "-f", str(file), "-o", "json"]) == ExitCode.OK
    [warning] = json.loads(capsys.readouterr().out)["warnings"]
    assert warning["field"] == "spec.topics[0].name"


@pytest.mark.parametrize(
    ("typed", "meant"), [("pln", "plan"), ("stauts", "status"), ("audti", "audit"), ("accept-topics", "accept-topic")]
)
def test_a_misspelt_command_gets_a_suggestion(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke([typed]) == ExitCode.INVALID
    assert f"No such command '{typed}'; did you mean {meant}?" in capsys.readouterr().err


def test_a_file_without_its_option_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["plan", "orders.yaml"]) == ExitCode.INVALID
    assert "Missing option '-f' / '--file'. Write -f orders.yaml." in capsys.readouterr().err
    assert main.invoke(["plan", "orders"]) == ExitCode.INVALID
    assert "Write -f" not in capsys.readouterr().err


def test_an_audit_of_a_file_without_its_option_does_not_ask_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["audit", "orders.yaml"]) == ExitCode.INVALID
    assert "orders.yaml is the name of a file, not of a pipeline; write -f orders.yaml" in capsys.readouterr().err


def test_an_unknown_command_gets_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["xyzzy"]) == ExitCode.INVALID
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_help_has_examples_that_the_command_line_accepts(name: str) -> None:
    context = click.Context(main.cli, info_name="ackwright", **main.cli.context_settings)  # commands keep its -h
    command = main.cli.get_command(context, name)
    assert command is not None
    text = command.get_help(click.Context(command, info_name=name, parent=context))
    assert "\n  Example" in text
    for example in EXAMPLES[name]:
        assert f"\n    {example}" in text
        program, typed, *arguments = shlex.split(example)
        assert (program, typed) == ("ackwright", name)
        command.make_context(name, arguments, parent=context)


def test_the_help_of_the_program_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["--help"]) == ExitCode.OK
    assert capsys.readouterr().out.endswith("Example:\n    ackwright plan -f pipeline.yaml\n")


@pytest.mark.parametrize(("no_color", "styled"), [("", True), ("1", False)])
def test_errors_have_colours_on_a_terminal_unless_the_user_wants_none(
    no_color: str, styled: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main.invoke(["plan", "-f", "nowhere"]) == ExitCode.INVALID
    assert ("\x1b[" in capsys.readouterr().err) is styled


@pytest.mark.parametrize(("no_color", "styled"), [("", True), ("1", False)])
def test_output_has_colours_on_a_terminal_unless_the_user_wants_none(
    no_color: str, styled: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main.invoke(["plan", "-f", str(EXAMPLE)]) == ExitCode.OK
    assert ("\x1b[" in capsys.readouterr().out) is styled


def test_the_plan_begins_with_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["plan", "-f", str(EXAMPLE)]) == ExitCode.OK
    summary = capsys.readouterr().out
    labels = ["guarantee", "reader has to", "survives", "costs", "weakest link", "not guaranteed"]
    places = [summary.index(f"\n{label} ") for label in labels]
    assert places == sorted(places)
    assert "transactional.id" not in summary
    assert main.invoke(["plan", "-f", str(EXAMPLE), "--details"]) == ExitCode.OK
    details = capsys.readouterr().out
    assert details.startswith(summary)
    assert "transactional.id" in details


HEAVY = (
    "aiohttp",
    "confluent_kafka",
    "deltalake",
    "kafka",
    "kopf",
    "kubernetes",
    "numpy",
    "pandas",
    "prometheus_client",
    "psycopg",
    "pyarrow",
    "pyiceberg",
    "pyspark",
    "rich",
)


def test_plan_imports_no_client_of_kafka_kubernetes_or_spark_and_no_tables() -> None:
    """The start of the command stays short. Control: with --details it prints tables."""
    assert _imported("plan", "-f", str(EXAMPLE)) == "[]"
    assert _imported("plan", "-f", str(EXAMPLE), "--details") == "['rich']"


def _imported(*arguments: str) -> str:
    """Which of HEAVY a command imports."""
    code = (
        "import sys; from ackwright.cli.main import invoke; "
        f"code = invoke({arguments!r}); "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=ANSWER)
    return done.stdout.splitlines()[-1]
