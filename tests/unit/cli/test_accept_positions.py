"""ackwright accept-positions: for the offsets that the pipeline has halted at, and for no others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ackwright.api.spec import ACCEPTED_POSITIONS_ANNOTATION
from ackwright.cli import main, target
from ackwright.cli.target import Target
from ackwright_stream import positions
from ackwright_stream.jobspec import ExitCode
from ackwright_stream.positions import Lane, Position
from unit.cli.halted_cluster import HaltedCluster, condition

MOVED = [(Lane("flights", partition), Position(5 * partition)) for partition in range(7)]
FINGERPRINT, ANOTHER = positions.fingerprint(MOVED), positions.fingerprint(MOVED[:1])
BY_THE_JOB = f"{positions.moved(MOVED)} (exit code 3, 1 restarts)"


def moved(message: str = BY_THE_JOB, reason: str = "PositionsMoved", status: str = "True") -> dict[str, Any]:
    return condition("Stalled", status, reason, message)


Invoke = Callable[..., int]


@pytest.fixture
def accept(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """accept(cluster, *arguments) runs the command against it; the exit code."""

    def invoke(cluster: HaltedCluster, *arguments: str) -> int:
        monkeypatch.setattr(target, "_connect", lambda *_: Target(cluster, "ops"))
        return main.invoke(["accept-positions", *(arguments or ("p",))])

    return invoke


@pytest.mark.parametrize("arguments", [("p",), ("p", FINGERPRINT)])
@pytest.mark.parametrize("before", [{}, {ACCEPTED_POSITIONS_ANNOTATION: ANOTHER, "kept": "by others"}])
def test_the_offsets_of_the_message_are_accepted(
    accept: Invoke, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], before: dict[str, str]
) -> None:
    cluster = HaltedCluster([moved()], before)
    assert accept(cluster, *arguments) == ExitCode.OK
    assert cluster.patched == [{"metadata": {"annotations": {ACCEPTED_POSITIONS_ANNOTATION: FINGERPRINT}}}]
    assert capsys.readouterr().out == (
        f"the move of positions with fingerprint {FINGERPRINT} is accepted\np: Delivering\n"
    )


@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_every_message_of_the_job_names_what_it_has_halted_at(accept: Invoke, lanes: int) -> None:
    cluster = HaltedCluster([moved(str(positions.moved(MOVED[:lanes])))])
    assert accept(cluster, "p", "--no-wait") == ExitCode.OK
    (change,) = cluster.patched
    accepted = change["metadata"]["annotations"][ACCEPTED_POSITIONS_ANNOTATION]
    assert accepted == positions.fingerprint(MOVED[:lanes])


@pytest.mark.parametrize(
    ("conditions", "arguments", "sentence"),
    [
        ([], (), "has not halted because its positions were moved"),
        ([moved(status="False")], (), "has not halted"),
        ([moved(reason="PositionLost")], (), "has not halted"),
        ([condition("Ready", "True", "PositionsMoved", BY_THE_JOB)], (), "has not halted"),
        ([moved()], (ANOTHER,), f"because of the offsets {FINGERPRINT}, and not {ANOTHER}"),
        ([moved()], (FINGERPRINT[:6],), "they were set again"),
        ([moved("another program has moved a position")], (), "names no fingerprint"),
        ([moved("another program has moved a position")], (FINGERPRINT,), "names no fingerprint"),
    ],
)
def test_nothing_else_is_accepted(
    accept: Invoke,
    capsys: pytest.CaptureFixture[str],
    conditions: list[dict[str, Any]],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    cluster = HaltedCluster(conditions)
    assert accept(cluster, "p", *arguments) == ExitCode.INVALID
    assert cluster.patched == []
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert sentence in printed.err


def test_a_dry_run_changes_nothing(accept: Invoke, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = HaltedCluster([moved()])
    assert accept(cluster, "p", "--dry-run") == ExitCode.OK
    assert (cluster.patched, cluster.dry_runs) == ([], 1)
    assert capsys.readouterr().out == (
        f"the move of positions with fingerprint {FINGERPRINT} would be accepted (dry run)\n"
    )


def test_the_second_time_it_waits_and_changes_nothing(
    accept: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = HaltedCluster([moved()], {ACCEPTED_POSITIONS_ANNOTATION: FINGERPRINT})
    monkeypatch.setattr(time, "sleep", lambda _: cluster.resource["status"].update(conditions=cluster.after))
    assert accept(cluster) == ExitCode.OK
    assert cluster.patched == []
    printed = capsys.readouterr()
    assert "is already accepted" in printed.err
    assert printed.out == "p: Delivering\n"


def test_offsets_that_are_set_meanwhile_are_named_when_the_time_is_over(
    accept: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = HaltedCluster([moved()])
    cluster.after = [moved(str(positions.moved(MOVED[:1])))]
    moments = iter(range(0, 100, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert accept(cluster, "p", "--timeout", "15") == ExitCode.FAILED
    assert f"p has not resumed after 15 s: PositionsMoved: {positions.moved(MOVED[:1])}" in capsys.readouterr().err
    assert len(cluster.patched) == 1
