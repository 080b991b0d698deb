"""The table of reasons: its columns, each written out here a second time, and the pages that repeat it for people."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ackwright_stream.reasons import REASONS, ExitCode, Reason

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
MODULES = [
    file
    for package in ("operator/ackwright", "spark_app/ackwright_stream")
    for file in (ROOT / package).rglob("*.py")
    if file.name != "reasons.py"
]
FLAGS = {
    "permanent": {
        *("InvalidSpec", "InvalidTransform", "NotStateless", "MalformedRecord", "DataExpired", "PositionLost"),
        *("PositionsMoved", "TopicReplaced", "GroupInUse", "BrokersUnsupported", "Superseded", "RowRefused"),
        *("FileUnreadable", "ClusterReplaced", "TooManyDeadLetters", "StateLost"),
    },
    "driver_decides": {
        *("PositionConflict", "PositionLost", "PositionsMoved", "Superseded", "TopicReplaced", "TransactionTimedOut"),
        *("AuthenticationFailed", "AuthorizationFailed", "SinkLoginRefused", "TableUnsuitable", "RowRefused"),
        *("ClusterReplaced", "TooManyDeadLetters", "StateLost"),
    },
    "blames_batch": {"BatchFailed", "MalformedRecord", "RowRefused", "Unexpected"},
    "excuses_batch": {
        *("Superseded", "PositionConflict", "PositionLost", "PositionsMoved", "TopicReplaced", "TransactionTimedOut"),
        *("BrokersUnreachable", "AuthenticationFailed", "AuthorizationFailed"),
        *("SinkUnreachable", "SinkLoginRefused", "TableUnsuitable", "ClusterReplaced", "StateLost"),
        *("RegistryUnreachable", "RegistryLoginRefused", "SchemaIncompatible", "StateUnreachable"),
    },
    "of_schemas": {"RegistryUnreachable", "RegistryLoginRefused", "SchemaNotFound", "SchemaIncompatible"},
    "breaks_guarantee": {
        *("DataExpired", "PositionLost", "PositionsMoved", "TopicReplaced", "ClusterReplaced", "StateLost"),
    },
    "of_connection": {"BrokersUnreachable", "AuthenticationFailed"},
}
EXIT_CODES = {
    ExitCode.FAILED: {"BatchFailed", "PositionConflict", "TransactionTimedOut", "Unexpected"},
    ExitCode.INVALID: {"FileUnreadable", "InvalidSpec", "InvalidTransform", "NotStateless"},
    ExitCode.HALTED: {
        *("MalformedRecord", "DataExpired", "PositionLost", "PositionsMoved", "TopicReplaced", "GroupInUse"),
        *("RowRefused", "ClusterReplaced", "TooManyDeadLetters", "StateLost"),
    },
    ExitCode.UNAVAILABLE: {
        *("SinkUnreachable", "SinkLoginRefused", "TableUnsuitable", "StateUnreachable"),
        *("RegistryUnreachable", "RegistryLoginRefused", "SchemaNotFound", "SchemaIncompatible"),
        *("TopicMissing", "BrokersUnreachable", "BrokersTooFew", "BrokersUnsupported"),
        *("AuthenticationFailed", "AuthorizationFailed"),
        *("NameTaken", "KubernetesRefused", "KubernetesUnreachable"),
    },
    ExitCode.SUPERSEDED: {"Superseded"},
}


def test_every_reason_has_a_row() -> None:
    assert set(REASONS) == set(Reason)
    assert all(row.remedy for row in REASONS.values())


@pytest.mark.parametrize("flag", FLAGS)
def test_the_members_of_each_column(flag: str) -> None:
    assert {reason.value for reason, row in REASONS.items() if getattr(row, flag)} == FLAGS[flag]


def test_exit_codes() -> None:
    by_code = {code: {r.value for r, row in REASONS.items() if row.exit_code is code} for code in ExitCode}
    assert by_code == {ExitCode.OK: set(), ExitCode.UNPROVEN: set(), **EXIT_CODES}


def test_no_reason_both_blames_and_excuses_the_batch() -> None:
    assert not [r for r, row in REASONS.items() if row.blames_batch and row.excuses_batch]


def test_a_permanent_failure_does_not_look_like_one_that_passes() -> None:
    assert ExitCode.FAILED not in {row.exit_code for row in REASONS.values() if row.permanent}


def plain(cell: str) -> str:
    """A cell's text without links and code marks."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).replace("`", "").strip()


@pytest.mark.parametrize("page", ["conditions.md", "exit-codes.md"])
def test_the_pages_give_the_same_remedies(page: str) -> None:
    rows = re.findall(r"^\| `?([A-Z]\w+)`? \|.*?\| ([^|]+) \|", (DOCS / page).read_text(), re.MULTILINE)
    remedies = {name: plain(remedy) for name, remedy in rows}
    documented = {r: row.remedy for r, row in REASONS.items() if page == "conditions.md" or r in remedies}
    assert documented
    for reason, remedy in documented.items():
        assert remedies[reason].startswith(remedy), reason


def repeated(source: str) -> set[Reason]:
    """The reasons whose remedy, or its first part, a module writes out again."""
    texts = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    first_parts = {reason: row.remedy.partition(";")[0] for reason, row in REASONS.items()}
    return {reason for reason, part in first_parts.items() if len(part) > 20 and any(part in text for text in texts)}


def test_no_module_repeats_a_remedy_of_the_table() -> None:
    assert {f"{file.name}: {reason}" for file in MODULES for reason in repeated(file.read_text())} == set()


def test_control_a_remedy_is_recognised_within_a_longer_message() -> None:
    source = "f'{lane} is lost; set the positions by hand, start the pipeline ' 'again, and accept them with "
    assert repeated(source + "ackwright accept-positions NAME'") == {Reason.POSITION_LOST}
