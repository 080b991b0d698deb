"""One table of the reasons of conditions; docs/conditions.md describes each that the operator has, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwright.cli.main import COMMANDS
from ackwright.reasons import ConditionReason, consequences, severity, worst
from ackwright_stream.jobspec import Reason
from unit.documents import REASON_ROWS, REASONS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "ackwright"
# The columns of the table, written out here a second time.
STALLS = {
    "TopicsReady": {"AuthorizationFailed", "BrokersTooFew", "TopicsUnfit", "TopicConflict"},
    "JobRunning": {"NoProgress", "DriverUnreachable", "Unschedulable", "ImageUnavailable"},
}
FLAGS = {
    "expected": {
        *("Creating", "Repairing", "NotStarted", "Starting", "StandingBy", "Draining", "Restarting", "Suspended"),
        *("Completed", "Scheduled", "CheckingEdit", "Replaying"),
    },
    "remark": {"Drifted", "NotCompacted", "OneRack", "UnderReplicated"},
    "unavailable": {"NoLeader", "NotEnoughReplicas"},
}
CLAUSES = ["NoLeader", "NotEnoughReplicas", "UncleanElection", "TopicsTooWeak", "InternalTopicsTooWeak"]
PROBLEMS = ["AuthorizationFailed", "TopicsUnfit", "BrokersTooFew"]
ALL = (*Reason, *ConditionReason)


# Texts of another meaning: the phase of a pod, and why it has failed; the title of a column.
OTHER = {"observe/workload.py: Running", "observe/workload.py: DeadlineExceeded", "api/crd.py: Met"}


def texts(source: str) -> Iterator[str]:
    """Yields the texts of a module that are exactly a reason's, except where a condition's type has the same name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in set(ALL) - {"Stalled"}:
            yield node.value


def members(source: str) -> Iterator[str]:
    """Yields the members of ConditionReason that a module names."""
    return (ConditionReason[name].value for name in re.findall(r"\bConditionReason\.([A-Z_]+)", source))


def modules() -> Iterator[Path]:
    """The operator's own modules, without the table."""
    return (file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "reasons.py")


@pytest.mark.parametrize("kind", STALLS)
def test_what_stalls_a_pipeline(kind: str) -> None:
    assert {reason.value for reason in ALL if consequences(reason).stalls == kind} == STALLS[kind]


@pytest.mark.parametrize("flag", FLAGS)
def test_the_members_of_each_column(flag: str) -> None:
    assert {reason.value for reason in ALL if getattr(consequences(reason), flag)} == FLAGS[flag]


@pytest.mark.parametrize("order", [CLAUSES, PROBLEMS], ids=["clauses", "problems"])
def test_the_order_of_severity(order: list[str]) -> None:
    reasons = [next(reason for reason in ALL if reason == name) for name in order]
    assert sorted(set(reasons), key=severity) == order
    assert worst(reversed(reasons)) == order[0]


def test_every_reason_with_a_severity_is_in_one_of_the_orders() -> None:
    assert {reason.value for reason in ALL if consequences(reason).severity} == {*CLAUSES, *PROBLEMS}
    with pytest.raises(ValueError, match="Delivering has no severity"):
        severity(ConditionReason.DELIVERING)


def test_a_reason_of_another_release_has_no_consequences() -> None:
    assert consequences("NoSuchReason") == consequences(ConditionReason.DELIVERING)


def test_no_module_names_a_reason_by_its_text() -> None:
    """mypy checks what a Finding, a Clause and a TopicProblem get; this finds sets and comparisons of texts, too."""
    named = {f"{file.relative_to(PACKAGE)}: {text}" for file in modules() for text in texts(file.read_text())}
    assert named == OTHER


def test_control_the_search_covers_sets_comparisons_and_arguments() -> None:
    source = 'A = frozenset({"NoLeader"}) if reason == "Drifted" else Finding("True", "Met")'
    assert set(texts(source)) == {"NoLeader", "Drifted", "Met"}


def test_every_reason_is_used() -> None:
    assert {name for file in modules() for name in members(file.read_text())} == set(ConditionReason)


def test_no_reason_lacks_an_entry_and_no_entry_is_stale() -> None:
    assert set(REASONS) == set(ALL)
    assert len(REASONS) == len(ALL) == len(set(ALL))


def named_in_troubleshooting(page: str) -> set[str]:
    """The reasons in the first cells of the tables."""
    return {
        name
        for row in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)
        for name in re.findall(r"`(?:[^`]*: )?([A-Z]\w+)`", row)
    }


def test_troubleshooting_has_every_failure() -> None:
    """Each failure of a job or a command, and each reason for which a pipeline stops or its guarantee does not hold."""
    harmful = [r for r in ConditionReason if (c := consequences(r)).stalls or c.unavailable or c.severity]
    named = named_in_troubleshooting((ROOT / "docs" / "troubleshooting.md").read_text())
    assert {*Reason, *harmful} - named == set()
    assert named - set(ALL) == set()


def test_each_has_cause_remedy_and_command() -> None:
    for names, *cells in REASON_ROWS:
        assert all(cell.strip() for cell in cells), names
        command = cells[-1]
        assert command.strip() == "–" or re.search(r"`(ackwright|kubectl|kafka-[a-z-]+) ", command), (names, command)
        for word in re.findall(r"`ackwright ([a-z-]+)", command):
            assert word in COMMANDS
