"""ackwright accept-state-loss: for the state that the pipeline has halted for, and for no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ackwright.api.spec import ACCEPTED_STATE_LOSS_ANNOTATION
from ackwright.cli import main, target
from ackwright.cli.target import Target
from ackwright_stream import decisions
from ackwright_stream.jobspec import ExitCode
from ackwright_stream.reports import Ending
from unit.cli.halted_cluster import HaltedCluster, condition
from unit.world import World

FINGERPRINT, ANOTHER = "0123456789ab", "ba9876543210"
LOST = decisions.state_lost("d1/state/0/0 below the checkpoint has no file of the state a", FINGERPRINT)

Invoke = Callable[..., int]


@pytest.fixture
def accept(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """accept(cluster, *arguments) runs the command against it; the exit code."""

    def invoke(cluster: HaltedCluster, *arguments: str) -> int:
        monkeypatch.setattr(target, "_connect", lambda *_: Target(cluster, "ops"))
        return main.invoke(["accept-state-loss", "p", *arguments])

    return invoke


def halted() -> dict[str, Any]:
    """The status that the operator writes once the job has halted."""
    written: dict[str, Any] = World().settle().end_driver(Ending(3, LOST.failure)).resource["status"]
    return written


@pytest.mark.parametrize("arguments", [(), (FINGERPRINT,)])
def test_the_state_of_the_status_is_accepted_and_the_costs_are_named(
    accept: Invoke, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    cluster = HaltedCluster(halted(), {"kept": "by others"})
    assert accept(cluster, *arguments) == ExitCode.OK
    assert cluster.patched == [{"metadata": {"annotations": {ACCEPTED_STATE_LOSS_ANNOTATION: FINGERPRINT}}}]
    printed = capsys.readouterr()
    assert printed.out == f"the loss of the state with fingerprint {FINGERPRINT} is accepted\np: Delivering\n"
    assert "groups count from 0 again" in printed.err


def test_the_status_names_lost_state_and_no_moved_positions() -> None:
    status = halted()
    assert status["lostState"] == {"fingerprint": FINGERPRINT}
    assert "movedPositions" not in status


@pytest.mark.parametrize(
    ("status", "arguments", "sentence"),
    [
        ({"conditions": []}, (), "has not halted because its state was lost"),
        ({"conditions": [condition("Stalled", "True", "PositionsMoved", "")]}, (), "has not halted"),
        ({"conditions": [condition("Stalled", "True", "StateLost", "m")]}, (), "names no lost state (m)"),
        (
            {"conditions": [condition("Stalled", "True", "StateLost", "m")], "lostState": {"fingerprint": FINGERPRINT}},
            (ANOTHER,),
            f"because of the state {FINGERPRINT}, and not {ANOTHER}",
        ),
    ],
)
def test_nothing_else_is_accepted(
    accept: Invoke,
    capsys: pytest.CaptureFixture[str],
    status: dict[str, Any],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    cluster = HaltedCluster(status)
    assert accept(cluster, *arguments) == ExitCode.INVALID
    assert cluster.patched == []
    assert sentence in capsys.readouterr().err


def test_a_dry_run_changes_nothing_and_a_second_acceptance_neither(
    accept: Invoke, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = HaltedCluster(halted())
    assert accept(cluster, "--dry-run") == ExitCode.OK
    assert (cluster.patched, cluster.dry_runs) == ([], 1)
    accepted = HaltedCluster(halted(), {ACCEPTED_STATE_LOSS_ANNOTATION: FINGERPRINT})
    assert accept(accepted, "--no-wait") == ExitCode.OK
    assert accepted.patched == []
    assert "is already accepted" in capsys.readouterr().err
