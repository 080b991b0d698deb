"""Tests do not depend on each other: what two of them share is in a module of helpers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))
TEST_MODULES = {file.stem for file in FILES if file.stem.startswith("test_")}


def dependencies(source: str) -> Iterator[str]:
    """The imports of test modules, and the calls of test functions, in Python source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
            yield from (name for name in names if name.rpartition(".")[2] in TEST_MODULES)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.rpartition(".")[2] in TEST_MODULES)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name.startswith("test_"):
                yield name


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TESTS)))
def test_no_file_imports_a_test_module_or_calls_a_test(file: Path) -> None:
    assert list(dependencies(file.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "from unit.test_topics import topic",
        "import unit.test_topics",
        "from unit import test_topics",
        "def helper():\n    test_topics()",
        "unit.test_topics()",
    ],
)
def test_control_each_kind_of_dependency_is_reported(source: str) -> None:
    assert len(list(dependencies(source))) == 1
