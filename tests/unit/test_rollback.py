"""An edit that does not deliver in time is rolled back to the last spec that delivered, if the spec asks for it.

The last test draws sequences of edits: there are never two drivers, and no edit is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ackwright.errors import AckwrightError
from ackwright.rollouts import Rollouts
from ackwright_stream.reasons import ExitCode, Reason
from ackwright_stream.reports import Ending, Failure
from unit.world import RUNNING, SPEC, World

LIMITED = SPEC | {"rollback": {"after": "5m"}}
EDITED = LIMITED | {"transform": {"sql": "SELECT key, value FROM source"}}
BAD = Ending(ExitCode.FAILED, Failure(Reason.BATCH_FAILED, "CAST_INVALID_INPUT"))
AFTER_S = 300.0


def broken_edit(spec: dict[str, Any] = EDITED, before: dict[str, Any] = LIMITED) -> World:
    """A pipeline whose driver delivered, and whose edit has passed its check and fails at its first batch."""
    world = World(before).settle()
    world.kubernetes.declare("p", spec)
    world.kubernetes.ready = False
    for _ in range(6):
        world.reconcile()
    world.end_driver(BAD)
    return world


def recover(world: World) -> World:
    """Drivers become ready again, as one by the earlier spec does."""
    world.progress, world.kubernetes.ready = RUNNING, True
    return world.settle()


def accepted(world: World) -> Any:
    return world.resource["status"]["accepted"]["spec"]


def test_an_edit_that_does_not_deliver_is_rolled_back_after_its_time() -> None:
    world = broken_edit()
    assert accepted(world) == EDITED
    assert world.resource["status"]["previous"]["spec"] == LIMITED
    assert world.condition("RolledBack") == "none"
    world.seconds += AFTER_S
    world.reconcile()
    assert accepted(world) == LIMITED
    recover(world)
    assert world.conditions("Ready", "JobRunning", "Stalled", "RolledBack") == [
        *("True/Delivering", "True/Running", "True/BatchFailed", "True/BatchFailed"),
    ]
    status = world.resource["status"]
    assert (status["edit"]["state"], status["edit"]["generation"], "previous" in status) == ("RolledBack", 2, False)
    ready = next(c for c in status["conditions"] if c["type"] == "RolledBack")
    assert ready["message"].startswith("the edit has not delivered within 5m (spec.rollback.after): CAST_INVALID_INPUT")
    assert ready["message"].endswith("the pipeline runs by generation 1 until the spec changes again")


def test_it_stays_rolled_back_through_restarts_of_the_operator_until_the_next_edit() -> None:
    world = broken_edit()
    world.seconds += AFTER_S
    world.reconcile()
    recover(world)
    writes = len(world.kubernetes.writes)
    for _ in range(50):
        world.start_operator()
        world.reconcile()
    assert world.kubernetes.writes[writes:] == []
    world.kubernetes.declare("p", EDITED | {"transform": {"sql": "SELECT value FROM source"}})
    world.settle()
    assert world.conditions("Ready", "Stalled", "RolledBack") == ["True/Delivering", "False/NotStalled", "none"]
    assert accepted(world)["transform"] == {"sql": "SELECT value FROM source"}
    assert "edit" not in world.resource["status"]


def test_restoring_the_earlier_spec_clears_the_rollback_without_a_restart() -> None:
    world = broken_edit()
    world.seconds += AFTER_S
    world.reconcile()
    uid = recover(world).kubernetes.stored["Pod", "p-0"]["metadata"]["uid"]
    world.kubernetes.declare("p", LIMITED)
    world.settle()
    assert world.conditions("Ready", "RolledBack") == ["True/Delivering", "none"]
    assert world.kubernetes.stored["Pod", "p-0"]["metadata"]["uid"] == uid


def test_control_without_the_field_the_pipeline_stays_with_the_edit() -> None:
    without = {name: value for name, value in EDITED.items() if name != "rollback"}
    world = broken_edit(without, SPEC)
    world.seconds += 10 * AFTER_S
    world.reconcile()
    assert (accepted(world), world.condition("RolledBack")) == (without, "none")


def test_an_edit_that_has_delivered_once_is_not_rolled_back() -> None:
    world = World(LIMITED).settle()
    world.kubernetes.declare("p", EDITED)
    world.settle()
    assert world.resource["status"]["accepted"]["delivered"] is True
    world.end_driver(BAD)
    world.seconds += 10 * AFTER_S
    world.reconcile()
    assert (accepted(world), world.condition("RolledBack")) == (EDITED, "none")


def test_a_driver_that_runs_and_has_delivered_no_batch_is_rolled_back() -> None:
    """It fails in its first batch each time: it is ready in between, and delivers nothing."""
    world = World(LIMITED).settle()
    world.kubernetes.declare("p", EDITED)
    world.progress = replace(RUNNING, batches=0, lag=3)
    world.settle()
    assert world.resource["status"]["accepted"].get("delivered") is False
    world.seconds += AFTER_S
    world.reconcile()
    assert accepted(world) == LIMITED


def test_the_first_spec_has_nothing_to_return_to() -> None:
    world = World(LIMITED)
    world.kubernetes.ready = False
    for _ in range(5):
        world.reconcile()
    world.end_driver(BAD)
    world.seconds += 10 * AFTER_S
    world.reconcile()
    assert (accepted(world), world.condition("RolledBack")) == (LIMITED, "none")


def test_several_edits_return_to_the_last_that_delivered() -> None:
    world = broken_edit()
    world.kubernetes.declare("p", EDITED | {"transform": {"sql": "SELECT value FROM source"}})
    for _ in range(6):
        world.reconcile()
    world.seconds += AFTER_S
    world.reconcile()
    assert accepted(world) == LIMITED


def test_what_does_not_affect_the_job_is_not_rolled_back() -> None:
    """Topics do not shrink: a declaration with fewer partitions would be refused."""
    topics = [{"name": "in", "partitions": 4}, {"name": "out", "partitions": 2}]
    world = broken_edit(EDITED | {"topics": topics})
    world.seconds += AFTER_S
    world.reconcile()
    assert accepted(world) == LIMITED | {"topics": topics}


def test_brokers_that_do_not_answer_are_not_the_edits_fault() -> None:
    world = broken_edit()
    world.kafka.down = AckwrightError(Reason.BROKERS_UNREACHABLE, "connecting to k:9092 failed; check the network")
    world.seconds += AFTER_S
    world.reconcile()
    world.seconds += 60
    world.reconcile()
    before = accepted(world)
    world.reconcile()
    assert accepted(world) == before


def test_an_edit_with_other_brokers_that_do_not_answer_is_rolled_back() -> None:
    world = World(LIMITED).settle()
    world.kafka.down = AckwrightError(Reason.BROKERS_UNREACHABLE, "connecting to other:9092 failed")
    world.kubernetes.ready = False
    world.kubernetes.declare("p", LIMITED | {"kafka": {"bootstrapServers": "other:9092"}})
    for _ in range(4):
        world.reconcile()
    world.end_driver(Ending(ExitCode.UNAVAILABLE, Failure(Reason.BROKERS_UNREACHABLE, "no")))
    world.seconds += AFTER_S
    world.reconcile()
    world.reconcile()
    assert accepted(world) == LIMITED


# ------------------------------------------------ sequences of edits

_TRANSFORMS = [
    {"sql": "SELECT value FROM source"},
    {"sql": "SELECT key, value FROM source"},
    {"sql": "SELECT value FROM source WHERE value IS NOT NULL"},
]
_EDITS = st.fixed_dictionaries(
    {"transform": st.sampled_from(_TRANSFORMS)},
    optional={"suspend": st.booleans(), "trigger": st.sampled_from([{"interval": "2s"}, {"availableNow": True}])},
)
_ENDINGS = st.sampled_from(
    [Ending(0), Ending(ExitCode.INVALID, Failure(Reason.INVALID_TRANSFORM, "no")), None, BAD]
)  # of the edit's check


@pytest.mark.parametrize("limited", [True, False])
@settings(max_examples=12)
@given(
    history=st.lists(st.tuples(_EDITS, _ENDINGS, st.booleans(), st.integers(0, 4), st.booleans()), max_size=4),
    last=_EDITS,
    passes=st.booleans(),
)
@example(
    history=[({"transform": _TRANSFORMS[0]}, Ending(0), False, 2, False)],
    last={"transform": _TRANSFORMS[0], "suspend": False},
    passes=False,
)
def test_after_any_edits_there_is_one_driver_and_the_last_edit_is_applied_or_reported(
    *, limited: bool, history: list[tuple[dict[str, Any], Ending | None, bool, int, bool]], last: Any, passes: bool
) -> None:
    base = LIMITED if limited else SPEC
    world = World(base).settle()

    def reconcile() -> None:
        world.reconcile()
        pods = [p for p in world.kubernetes.pods() if p["metadata"]["labels"]["ackwright.io/role"] == "driver"]
        assert len(pods) <= 1

    for edit, ending, ready, rounds, restart in history:
        world.kubernetes.check_ending, world.kubernetes.ready = ending, ready
        world.kubernetes.declare("p", base | edit)
        for _ in range(rounds):
            reconcile()
        world.seconds += 200.0
        if restart:
            world.start_operator()
    world.kubernetes.ready, world.progress = True, RUNNING
    world.kubernetes.check_ending = Ending(0) if passes else Ending(ExitCode.INVALID, BAD.failure)
    world.kubernetes.declare("p", base | last)
    for _ in range(25):
        reconcile()
        world.seconds += 130.0  # longer than the pause before a check is repeated
    status = world.resource["status"]
    # A text that differs by a default alone is no edit: the status keeps the one before.
    applied = {"suspend": False} | status["accepted"]["spec"] == {"suspend": False} | base | last
    held = status.get("edit")
    assert applied != (held is not None), "an edit is applied, or the status tells why not"
    if held is not None:
        assert (held["state"], held["generation"]) in (
            ("Refused", world.resource["metadata"]["generation"]),
            ("RolledBack", world.resource["metadata"]["generation"]),
        )
        assert world.condition("Stalled").startswith("True/")
    if passes and held is not None:
        assert held["state"] == "RolledBack" or held["reason"] == Reason.INVALID_TRANSFORM


DEFAULTS = {"suspend": False, "standby": False}  # that the CRD of the next release adds to every spec


def test_defaults_of_another_release_are_no_edit() -> None:
    """Otherwise every pipeline would have one at once, and those that are not ready would be rolled back."""
    world = World(LIMITED).settle()
    before = world.resource["status"]["accepted"]
    world.resource["spec"] = LIMITED | DEFAULTS
    world.settle()
    assert world.resource["status"]["accepted"] == before
    assert "previous" not in world.resource["status"]
    world.kubernetes.declare("p", LIMITED | DEFAULTS | {"trigger": {"interval": "2s"}})
    world.settle()
    assert accepted(world) == world.resource["spec"], "control: an edit"


def test_defaults_of_another_release_do_not_let_a_pipeline_skip_its_turn() -> None:
    world = World().settle()
    world.settings = replace(world.settings, spark_image="ackwright-spark:next")
    world.start_operator()
    world.operator._rollouts = Rollouts(1)
    assert world.operator._rollouts.admit("another", "ops")
    world.resource["spec"] = SPEC | DEFAULTS
    world.reconcile()
    template = world.kubernetes.stored["StatefulSet", "p"]["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "ackwright-spark:latest"


def test_defaults_of_another_release_do_not_repeat_an_edit_that_was_rolled_back() -> None:
    world = broken_edit()
    world.seconds += AFTER_S
    world.reconcile()
    recover(world)
    world.resource["spec"] = EDITED | DEFAULTS
    world.resource["metadata"]["resourceVersion"] = "with defaults"
    world.settle()
    assert accepted(world) == LIMITED
    assert world.condition("RolledBack") == "True/BatchFailed"


def test_a_spec_that_the_platform_refuses_by_now_is_not_returned_to() -> None:
    previous = LIMITED | {"kafka": {"bootstrapServers": "k:9092,refused:9092"}}
    world = broken_edit(EDITED, previous)
    world.operator._observer._policy = replace(world.operator._observer._policy, servers=("k:9092",))
    world.operator._policy = world.operator._observer._policy
    world.seconds += AFTER_S
    world.reconcile()
    assert accepted(world) == EDITED
    assert world.condition("RolledBack") == "none"
