"""docs/conditions.md tells of every reason that the operator can give, and of no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ackwright.cli.main import COMMANDS
from ackwright_stream.jobspec import Reason
from unit.documents import REASON_ROWS, REASONS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "ackwright"
TRUTHS = {"True", "False", "Unknown"}
SAYS = {"Finding", "Clause", "TopicProblem", "write_event"}  # what makes a condition's reason or an Event's


def reasons(source: str) -> Iterator[str]:
    """Yields the reasons that a module names: CamelCase texts in a call of one of SAYS.

    A reason is one of the first two arguments, or the keyword argument of that name.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            parts: list[ast.expr] = []
            if name in SAYS:
                parts = [*node.args[:2], *(k.value for k in node.keywords if k.arg == "reason")]
            for part in parts:
                yield from _names(part)
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == "reason"
            and node.value
        ):
            yield from _names(node.value)


def _names(part: ast.expr) -> Iterator[str]:
    for node in ast.walk(part):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"(?:[A-Z][a-z]+)+", node.value)
        ):
            yield node.value


def used_reasons() -> set[str]:
    """Every reason that the package uses in a condition or an Event."""
    names = {name for file in PACKAGE.rglob("*.py") if "cli" not in file.parts for name in reasons(file.read_text())}
    return (names | set(Reason)) - TRUTHS


def test_control_the_search_covers_every_way_to_name_a_reason() -> None:
    """One reason of each way in which the package names them."""
    one_of_each = {
        "Delivering",
        "NoLeader",
        "TopicsKept",
        "BrokersTooFew",
        "TopicsUnfit",
        "Crashed",
        "Halted",
        "Superseded",
    }
    assert one_of_each <= used_reasons()
    assert set(reasons('Finding("False", name or "New", "Message")')) == {"False", "New"}


def test_no_reason_lacks_an_entry_and_no_entry_is_stale() -> None:
    assert set(REASONS) == used_reasons()
    assert len(REASONS) == len(set(REASONS))


def test_each_has_cause_remedy_and_command() -> None:
    for names, *cells in REASON_ROWS:
        assert all(cell.strip() for cell in cells), names
        command = cells[-1]
        assert command.strip() == "–" or re.search(r"`(ackwright|kubectl|kafka-[a-z-]+) ", command), (names, command)
        for word in re.findall(r"`ackwright ([a-z-]+)", command):
            assert word in COMMANDS
