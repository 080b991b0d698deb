"""A bounded run that has completed does not run again, whether its Job is still there or not."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from ackwright.api.status import format_time
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason
from unit.fake_kubernetes import Killed
from unit.world import SPEC, World


def bounded(ttl: int | None = 600) -> World:
    """A pipeline whose bounded run is under way."""
    trigger = {"availableNow": True} | ({} if ttl is None else {"ttlSecondsAfterFinished": ttl})
    return World(SPEC | {"trigger": trigger}).settle()


def complete(world: World) -> World:
    """The run completes, and the operator observes it."""
    world.kubernetes.complete("p", format_time(world.now()))
    world.progress = None
    return world.settle()


def has_job(world: World) -> bool:
    return ("Job", "p") in world.kubernetes.stored


def after(world: World, seconds: float) -> World:
    world.seconds += seconds
    return world.settle()


def edit(world: World, **spec: Any) -> World:
    world.kubernetes.declare("p", {**world.resource["spec"], **spec})
    return world.settle()


def test_the_job_of_a_completed_run_is_deleted_after_its_time_to_live_and_does_not_come_back() -> None:
    world = complete(bounded(ttl=600))
    assert has_job(world)
    assert has_job(after(world, 300))
    for _ in range(3):
        assert not has_job(after(world, 900))
        assert world.conditions("Ready", "JobRunning") == ["True/Completed", "False/Completed"]
        assert world.conditions("Stalled", "Reconciling") == ["False/NotStalled", "False/Settled"]


def test_the_run_is_recorded_before_its_job_is_deleted() -> None:
    """Whatever the operator is killed at, the run does not run again."""
    world = bounded(ttl=0)
    world.kubernetes.complete("p", format_time(world.now()))
    first = len(world.kubernetes.writes)
    last = len(world.copy().settle().kubernetes.writes)
    assert last > first
    for number in range(first, last):
        for later in (False, True):
            killed = world.copy()
            killed.kubernetes.die, killed.kubernetes.die_after = number, later
            with suppress(Killed):
                killed.settle()
            killed.kubernetes.die = None
            killed.start_operator()
            killed.settle()
            assert not has_job(killed)
            assert "create Job p" not in killed.kubernetes.writes[first:]


@pytest.mark.parametrize("ttl", [None, 2**31 - 1])
def test_without_a_time_to_live_the_job_stays(ttl: int | None) -> None:
    assert has_job(after(complete(bounded(ttl)), 10**6))


def test_another_operator_does_not_run_it_again() -> None:
    world = after(complete(bounded()), 900)
    world.start_operator()
    assert not has_job(after(world, 900))


def test_an_edit_of_what_the_run_depends_on_runs_it_again() -> None:
    world = after(complete(bounded()), 900)
    assert has_job(edit(world, transform={"sql": "SELECT value FROM source"}))
    assert "finishedRun" not in world.resource["status"]


@pytest.mark.parametrize(
    "spec", [{"trigger": {"availableNow": True}}, {"suspend": True}, {"tolerate": {"brokerFailures": 2}}]
)
def test_an_edit_of_what_it_does_not_depend_on_does_not(spec: dict[str, Any]) -> None:
    assert not has_job(edit(after(complete(bounded()), 900), **spec))


def test_an_edit_that_runs_again_and_is_undone_runs_again() -> None:
    world = after(complete(bounded()), 900)
    edit(world, transform={"sql": "SELECT value FROM source"})
    assert has_job(edit(world, transform=SPEC["transform"]))


def test_a_run_after_a_stream_of_the_same_spec_runs() -> None:
    """A stream has delivered since, and the user asks for a run again."""
    world = after(complete(bounded()), 900)
    edit(world, trigger={"interval": "1s"})
    assert "finishedRun" not in world.resource["status"]
    assert has_job(edit(world, trigger={"availableNow": True, "ttlSecondsAfterFinished": 600}))


def test_without_the_record_the_deleted_job_comes_back() -> None:
    """The control: only the record keeps a run from running again."""
    world = after(complete(bounded()), 900)
    assert not has_job(world.copy().settle())
    del world.resource["status"]["finishedRun"]
    assert has_job(world.settle())


def test_a_topic_that_cannot_be_changed_after_the_job_is_deleted_rolls_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run has delivered, whether its Job is still there or not."""
    world = after(complete(World(bounded().resource["spec"] | {"rollback": {"after": "5m"}}).settle()), 900)
    assert not has_job(world)

    def add_partitions(name: str, total: int, *, validate_only: bool = False) -> Outcome:
        if validate_only:
            return Outcome.DONE
        raise AckwrightError(Reason.BROKERS_UNREACHABLE, "no answer")

    monkeypatch.setattr(world.kafka, "add_partitions", add_partitions)
    world.kubernetes.declare(
        "p", world.resource["spec"] | {"topics": [{**topic, "partitions": 3} for topic in SPEC["topics"]]}
    )
    world.reconcile()
    assert "previous" in world.resource["status"], "the edit has not been applied"
    world.seconds += 900
    world.reconcile()
    assert world.condition("RolledBack") == "none"
    assert "edit" not in world.resource["status"]


def test_an_upgrade_of_the_operator_keeps_a_completed_job_and_its_configuration() -> None:
    """The audit's pod is a copy of the Job's, and mounts its ConfigMap."""
    world = complete(bounded(ttl=600))
    job = world.kubernetes.stored["Job", "p"]
    before = {name for kind, name in world.kubernetes.stored if kind == "ConfigMap" and "-job-" in name}
    world.kubernetes.vanish("Pod", "p-x7k2p")  # such as by the garbage collector of ended pods
    world.settings = replace(world.settings, spark_image="ackwright-spark:next")
    world.start_operator()
    world.settle()
    assert world.kubernetes.stored["Job", "p"]["metadata"]["uid"] == job["metadata"]["uid"]
    present = {name for kind, name in world.kubernetes.stored if kind == "ConfigMap" and "-job-" in name}
    assert before < present, "the new release renders another one"
    after(world, 900)
    assert {
        name for kind, name in world.kubernetes.stored if kind == "ConfigMap" and "-job-" in name
    } == present - before
