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
from ackwright_stream.reports import Ending
from unit.cli.halted_cluster import HaltedCluster, condition
from unit.world import World

MOVED = [(Lane("flights", partition), Position(5 * partition)) for partition in range(7)]
FINGERPRINT, ANOTHER = positions.fingerprint(MOVED), positions.fingerprint(MOVED[:1])
BY_THE_JOB = f"{positions.moved(MOVED, namespace='ops', name='p')} (exit code 3, 1 restarts)"


def status(halt: dict[str, Any] | None, fingerprint: str | None = FINGERPRINT) -> dict[str, Any]:
    """The status with this condition. fingerprint None: of a driver that reports none."""
    details = {"movedPositions": {"fingerprint": fingerprint}} if fingerprint else {}
    return {"conditions": [halt] if halt else [], **details}


def moved(message: str = BY_THE_JOB, reason: str = "PositionsMoved", truth: str = "True") -> dict[str, Any]:
    return condition("Stalled", truth, reason, message)


def after_the_halt(*lanes: tuple[Lane, Position]) -> dict[str, Any]:
    """The status that the operator writes once the job has halted at these positions."""
    error = positions.moved(lanes, namespace="ops", name="p")
    written: dict[str, Any] = World().settle().end_driver(Ending(3, error.failure)).resource["status"]
    return written


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
def test_the_offsets_of_the_status_are_accepted(
    accept: Invoke, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], before: dict[str, str]
) -> None:
    cluster = HaltedCluster(status(moved("whatever people read")), before)
    assert accept(cluster, *arguments) == ExitCode.OK
    assert cluster.patched == [{"metadata": {"annotations": {ACCEPTED_POSITIONS_ANNOTATION: FINGERPRINT}}}]
    assert capsys.readouterr().out == (
        f"the move of positions with fingerprint {FINGERPRINT} is accepted\np: Delivering\n"
    )


@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_every_report_of_the_job_names_what_it_has_halted_at(accept: Invoke, lanes: int) -> None:
    cluster = HaltedCluster(after_the_halt(*MOVED[:lanes]))
    assert accept(cluster, "p", "--no-wait") == ExitCode.OK
    (change,) = cluster.patched
    accepted = change["metadata"]["annotations"][ACCEPTED_POSITIONS_ANNOTATION]
    assert accepted == positions.fingerprint(MOVED[:lanes])


@pytest.mark.parametrize(
    ("halted", "arguments", "sentence"),
    [
        (status(None), (), "has not halted because its positions were moved"),
        (status(moved(truth="False")), (), "has not halted"),
        (status(moved(reason="PositionLost")), (), "has not halted"),
        (status(condition("Ready", "True", "PositionsMoved", BY_THE_JOB)), (), "has not halted"),
        (status(moved()), (ANOTHER,), f"because of the offsets {FINGERPRINT}, and not {ANOTHER}"),
        (status(moved()), (FINGERPRINT[:6],), "they were set again"),
        # Of a driver of an earlier release, whose message has the fingerprint.
        (status(moved(), None), (), f"names no fingerprint ({BY_THE_JOB}); use the command line of the release"),
        (status(moved(), None), (FINGERPRINT,), "names no fingerprint"),
    ],
)
def test_nothing_else_is_accepted(
    accept: Invoke,
    capsys: pytest.CaptureFixture[str],
    halted: dict[str, Any],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    cluster = HaltedCluster(halted)
    assert accept(cluster, "p", *arguments) == ExitCode.INVALID
    assert cluster.patched == []
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert sentence in printed.err


def test_a_dry_run_changes_nothing(accept: Invoke, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = HaltedCluster(status(moved()))
    assert accept(cluster, "p", "--dry-run") == ExitCode.OK
    assert (cluster.patched, cluster.dry_runs) == ([], 1)
    assert capsys.readouterr().out == (
        f"the move of positions with fingerprint {FINGERPRINT} would be accepted (dry run)\n"
    )


def test_the_second_time_it_waits_and_changes_nothing(
    accept: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = HaltedCluster(status(moved()), {ACCEPTED_POSITIONS_ANNOTATION: FINGERPRINT})
    monkeypatch.setattr(time, "sleep", lambda _: cluster.resume())
    assert accept(cluster) == ExitCode.OK
    assert cluster.patched == []
    printed = capsys.readouterr()
    assert "is already accepted" in printed.err
    assert printed.out == "p: Delivering\n"


def test_offsets_that_are_set_meanwhile_are_named_when_the_time_is_over(
    accept: Invoke, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = HaltedCluster(status(moved()))
    cluster.after = status(moved(str(positions.moved(MOVED[:1], namespace="ops", name="p"))), ANOTHER)
    moments = iter(range(0, 100, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert accept(cluster, "p", "--timeout", "15") == ExitCode.FAILED
    assert (
        f"p has not resumed after 15 s: PositionsMoved: {positions.moved(MOVED[:1], namespace='ops', name='p')}"
        in capsys.readouterr().err
    )
    assert len(cluster.patched) == 1
