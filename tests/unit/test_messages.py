"""What messages and pages name exists: commands with their options, and fields of the spec and the status."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from pydantic import BaseModel

from ackwright.api.checks import Transition
from ackwright.api.spec import Spec
from ackwright.api.violations import _REFUSED, models_in
from ackwright.cli import main
from ackwright.cli.main import cli
from unit.documents import DOCUMENTS, ROOT

MODULES = [
    file
    for package in ("operator/ackwright", "spark_app/ackwright_stream")
    for file in sorted((ROOT / package).rglob("*.py"))
]
_COMMAND = re.compile(r"\backwright ([a-z][a-z-]+)((?: (?:-[a-zA-Z]|--[a-z-]+|[A-Z][A-Z_:,]*|\w+\.yaml))*)")
_ROOTS = "kafka|source|sink|transform|state|checkpoint|trigger|tolerate|schemaRegistry|rollback|driver|executor"
_FIELD = re.compile(rf"(?<![\w./$-])(?:(spec|status)\.)?((?:{_ROOTS})(?:\.[a-z][A-Za-z0-9]*)+)(?![\w(/-]|\.[A-Z])")
# Words behind the name of the program that are no command.
_PROSE = frozenset(("and", "charts", "embedded", "is", "with"))
# What looks like a field of the spec and is none: columns of the view, settings of clients, hosts, fields of jobspecs.
_OTHERS = re.compile(
    r"kafka\.(topic|partition|offset|timestamps?|headers|key|value|security|bootstrap\.servers|isolation\.level)\b.*"
    r"|kafka\.example\.com|trigger\.interval\.ms|sink\.positions(\.\w+)?|\w+\.(py|json|yaml|md)"
)


def _texts(file: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that are no docstrings, each with its line; {} stands for a value."""
    tree = ast.parse(file.read_text())
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if " " in text:  # a name alone may be one of the jobspec or of a setting that is printed
                yield node.lineno, text
    for node in (node for node in ast.walk(tree) if id(node) not in skipped):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def _command(name: str) -> click.Command | None:
    return cli.get_command(cli.make_context("ackwright", [name], resilient_parsing=True), name)


def _options(command: click.Command) -> set[str]:
    named = {o for p in command.params if isinstance(p, click.Option) for o in (*p.opts, *p.secondary_opts)}
    return {*named, "-h", "--help", "-v", "--verbose"}


@cache
def _schema() -> Mapping[str, Any]:
    [file] = (ROOT / "crds").glob("*.yaml")
    schema: Mapping[str, Any] = yaml.safe_load(file.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _exists(root: str, path: str) -> bool:
    """Whether the CRD has a field; below a map or a Kubernetes type every name may be one."""
    node = _schema()["properties"][root]
    for name in path.split("."):
        node = node.get("items", node)
        if "properties" not in node:
            return bool(node.get("additionalProperties") or node.get("x-kubernetes-preserve-unknown-fields"))
        if name not in node["properties"]:
            return False
        node = node["properties"][name]
    return True


@cache
def _unchangeable() -> tuple[str, ...]:
    """The fields of the spec that cannot change, as messages name them."""

    def below(model: type[BaseModel], path: str) -> Iterator[str]:
        for name, field in model.model_fields.items():
            at = f"{path}{field.alias or name}"
            if any(isinstance(part, Transition) and not part.allowed("1Gi", "2Gi") for part in field.metadata):
                yield at
            for inner in models_in(field.annotation):
                yield from below(inner, f"{at}.")

    return tuple(below(Spec, ""))


def impossible(text: str) -> list[str]:
    """The changes that a text proposes although the API server refuses them."""
    fields = "|".join(map(re.escape, _unchangeable()))
    advised = re.findall(
        rf"\b(?:choose|change|correct|write)(?: (?:another|other))?(?: \w+ to)? ((?:spec\.)?(?:{fields}))\b", text
    )
    return [] if "create" in text else advised


def wrong(text: str) -> list[str]:
    """What a text names and what does not exist."""
    problems = []
    for match in _COMMAND.finditer(text):
        command = _command(match[1])
        if command is None:
            problems += [] if match[1] in _PROSE else [f"ackwright {match[1]}"]
            continue
        options = [word for word in match[2].split() if word.startswith("-")]
        problems += [f"ackwright {match[1]} {option}" for option in options if option not in _options(command)]
    for match in _FIELD.finditer(text):
        roots = [("spec", ""), ("status", ""), ("spec", "spark.")] if match[1] is None else [(match[1], "")]
        if not _OTHERS.fullmatch(match[2]) and not any(_exists(root, below + match[2]) for root, below in roots):
            problems.append(match[0])
    return problems


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_messages_name_what_exists(file: Path) -> None:
    assert [f"line {line}: {problem}" for line, text in _texts(file) for problem in wrong(text)] == []


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_messages_propose_no_change_that_is_refused(file: Path) -> None:
    assert [f"line {line}: {field}" for line, text in _texts(file) for field in impossible(text)] == []


def test_the_command_that_shows_derived_values_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    remedies = {name: remedy for name, (problem, remedy) in _REFUSED.items() if "derived" in problem}
    [command] = {match for remedy in remedies.values() for match in re.findall(r"`ackwright ([^`]*)`", remedy)}
    file = ROOT / "examples" / "delayed-flights-exactly-once.yaml"
    assert main.invoke([*command.split(), "-f", str(file)]) == 0
    shown = re.sub(r"[^a-z]", "", capsys.readouterr().out.lower())
    assert [name for name in remedies if name.lower() not in shown] == []


def test_control_a_change_that_is_refused_is_reported() -> None:
    assert impossible("stop them, or choose another source.groupId") == ["source.groupId"]
    assert impossible("stop them, or recreate the pipeline with another source.groupId") == []
    assert impossible("correct source.subject") == []


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_pages_name_what_exists(file: Path) -> None:
    lines = enumerate(file.read_text().splitlines(), 1)
    assert [f"line {number}: {problem}" for number, text in lines for problem in wrong(text)] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("run ackwright accept-topics NAME", "ackwright accept-topics"),
        ("ackwright plan -f FILE --aginst cluster", "ackwright plan --aginst"),
        ("set source.maxOffsets", "source.maxOffsets"),
        ("correct spec.kafka.bootstrapServer", "spec.kafka.bootstrapServer"),
        ("spec.sink.postgres.keys = 'a'", "spec.sink.postgres.keys"),
    ],
)
def test_control_what_does_not_exist_is_reported(text: str, problem: str) -> None:
    assert wrong(text) == [problem]


@pytest.mark.parametrize(
    "text",
    ["ackwright accept-topic NAME TOPIC --dry-run", "source.maxOffsetsPerTrigger", "spec.spark.driver.memory: 2g"],
)
def test_control_what_exists_is_not_reported(text: str) -> None:
    assert wrong(text) == []
