"""A schedule of bounded runs: one run at a time, at its time or as soon as it can start."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from ackwright.api.status import format_time
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Ending, Failure
from unit.fake_kubernetes import Killed, end_container
from unit.world import RUNNING, SPEC, World

HOUR = 3600.0
SCHEDULED = SPEC | {"trigger": {"availableNow": True, "schedule": "0 * * * *"}}  # each hour; a World begins at 12:00
EDIT = {"transform": {"sql": "SELECT value FROM source"}}
WRONG = Ending(ExitCode.INVALID, Failure(Reason.INVALID_TRANSFORM, "there is no such column"))  # of an edit's check


def scheduled(spec: dict[str, Any] = SCHEDULED) -> World:
    """A pipeline before its first run, which is due at 13:00."""
    return World(spec).settle()


def at(world: World, hours: float) -> World:
    """The state at so many hours after 12:00."""
    world.seconds = hours * HOUR
    return world.settle()


def complete(world: World) -> World:
    """The run completes, and the operator observes it."""
    world.kubernetes.complete("p", format_time(world.now()))
    world.progress = None
    world.settle()
    world.progress = RUNNING
    return world


def edit(world: World, **spec: Any) -> World:
    world.kubernetes.declare("p", {**world.resource["spec"], **spec})
    return world.settle()


def run(world: World) -> str | None:
    """The run that the Job is of; None: there is no Job."""
    job = world.kubernetes.stored.get(("Job", "p"))
    assert len(world.kubernetes.pods()) <= 1, "there are two drivers"
    return job["metadata"]["annotations"]["ackwright.io/run"] if job else None


def times(world: World) -> list[str | None]:
    """The last and the next run, as the status has them, without the day."""
    status = world.resource["status"]["schedule"]
    return [status[name][11:16] if name in status else None for name in ("lastScheduleTime", "nextScheduleTime")]


def jobs_created(world: World) -> int:
    return world.kubernetes.writes.count("create Job p")


def crash(world: World, code: int = ExitCode.FAILED) -> World:
    """The driver has failed and waits for its next start."""
    pod = next(p for p in world.kubernetes.pods() if p["metadata"]["name"] == "p-x7k2p")
    end_container(pod, Ending(code, Failure(Reason.UNEXPECTED, "broken")))
    container = pod["status"]["containerStatuses"][0]
    container |= {"lastState": container.pop("state"), "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    container["lastState"]["terminated"]["finishedAt"] = format_time(world.now())
    pod["status"] |= {"phase": "Running", "conditions": []}
    world.kubernetes.ready, world.progress = False, None
    return world


def starts_again(world: World) -> World:
    """Drivers become ready from now on."""
    world.kubernetes.ready, world.progress = True, RUNNING
    return world.settle()


def test_nothing_runs_before_the_first_time() -> None:
    world = scheduled()
    assert run(world) is None
    assert times(world) == [None, "13:00"]
    assert world.conditions("Ready", "JobRunning") == ["True/Scheduled", "False/Scheduled"]
    assert world.conditions("Stalled", "Reconciling") == ["False/NotStalled", "False/Settled"]
    assert not world.resource["status"]["accepted"].get("delivered")
    assert run(at(world, 0.9)) is None


def test_each_time_has_its_run_and_the_pipeline_is_ready_between_them() -> None:
    world = at(scheduled(), 1)
    assert run(world) == "2026-11-21T13:00:00Z"
    assert times(world) == ["13:00", "14:00"]
    assert world.conditions("Ready", "JobRunning") == ["True/Delivering", "True/Running"]
    complete(world)
    for hours in (1.1, 1.5, 1.9):
        assert run(at(world, hours)) == "2026-11-21T13:00:00Z"
        assert world.conditions("Ready", "JobRunning") == ["True/Scheduled", "False/Scheduled"]
        assert world.conditions("Stalled", "Reconciling") == ["False/NotStalled", "False/Settled"]
    assert world.resource["status"]["finishedRun"]["run"] == "2026-11-21T13:00:00Z"
    assert run(at(world, 2)) == "2026-11-21T14:00:00Z"
    assert times(world) == ["14:00", "15:00"]
    assert world.condition("JobRunning") == "True/Running"


@pytest.mark.parametrize("before", ["first run", "later run"])
def test_the_operator_wakes_when_a_run_is_due(before: str) -> None:
    """Also if the last reconcile before the run only compared versions."""
    world, due = scheduled(), HOUR
    if before == "later run":
        complete(at(world, 1))
        due = 2 * HOUR
    world.seconds, world.seconds_between = due - 25, 0.0
    world.reconcile()
    while world.seconds < due:
        world.seconds += world.reconcile() or 0.0
    assert world.seconds == due
    world.progress = None
    for _ in range(9):
        world.reconcile()
    assert run(world) == format_time(world.now())


def test_brokers_are_not_read_more_often_because_the_pod_of_a_completed_run_stays() -> None:
    world = at(complete(at(scheduled(), 1)), 1.5)
    world.progress, world.seconds_between = None, 0.0
    assert len(world.kubernetes.pods()) == 1
    reads = world.kafka.calls.total()
    world.seconds += world.reconcile() or 0.0
    assert world.kafka.calls.total() == reads


def test_a_time_that_comes_while_a_run_is_active_is_skipped() -> None:
    world = at(scheduled(), 1)
    job = world.kubernetes.stored["Job", "p"]["metadata"]["uid"]
    assert times(at(world, 3.2)) == ["13:00", "16:00"]
    assert world.kubernetes.stored["Job", "p"]["metadata"]["uid"] == job
    complete(world)
    assert run(at(world, 3.5)) == "2026-11-21T13:00:00Z"
    assert run(at(world, 4)) == "2026-11-21T16:00:00Z"
    assert jobs_created(world) == 2


def test_a_run_that_is_starting_is_active() -> None:
    world = scheduled()
    world.kubernetes.ready, world.progress = False, None
    at(world, 1)
    assert times(at(world, 2.5)) == ["13:00", "15:00"]
    assert jobs_created(world) == 1


def test_one_run_catches_up_on_the_times_without_an_operator() -> None:
    world = complete(at(scheduled(), 1))
    world.seconds = 50.5 * HOUR
    world.start_operator()
    world.settle()
    assert run(world) == "2026-11-23T14:00:00Z", "the latest"
    assert times(world) == ["14:00", "15:00"]
    assert jobs_created(world) == 2


@pytest.mark.parametrize("before", ["first run", "later run"])
def test_whatever_the_operator_is_killed_at_there_is_one_run(before: str) -> None:
    world = scheduled()
    if before == "later run":
        complete(at(world, 1))
        at(world, 1.9)
    world.seconds = (1 if before == "first run" else 2) * HOUR
    first = len(world.kubernetes.writes)
    last = len(world.copy().settle().kubernetes.writes)
    assert last > first
    due = jobs_created(world) + 1
    for number in range(first, last):
        for later in (False, True):
            killed = world.copy()
            killed.kubernetes.die, killed.kubernetes.die_after = number, later
            with suppress(Killed):
                killed.settle()
            killed.kubernetes.die = None
            killed.start_operator()
            killed.settle()
            assert run(killed) == format_time(world.now())
            complete(killed)
            killed.start_operator()
            assert jobs_created(killed.settle()) == due


def test_a_run_whose_job_is_deleted_by_hand_runs_again() -> None:
    world = at(scheduled(), 1)
    world.kubernetes.vanish("Job", "p")
    world.kubernetes.vanish("Pod", "p-x7k2p")
    assert run(world.settle()) == "2026-11-21T13:00:00Z"
    assert jobs_created(world) == 2


def test_a_suspended_pipeline_starts_no_run_and_does_not_catch_up() -> None:
    world = edit(complete(at(scheduled(), 1)), suspend=True)
    assert run(at(world, 4)) == "2026-11-21T13:00:00Z"
    assert times(world) == ["13:00", None]
    assert world.conditions("JobRunning", "Stalled") == ["False/Suspended", "False/NotStalled"]
    at(world, 4.5)
    edit(world, suspend=False)
    assert times(world) == ["13:00", "17:00"]
    assert jobs_created(world) == 1
    assert run(at(world, 5)) == "2026-11-21T17:00:00Z"


def test_a_pipeline_that_is_suspended_as_a_run_is_due_starts_none() -> None:
    world = scheduled()
    world.kubernetes.declare("p", SCHEDULED | {"suspend": True})
    assert run(at(world, 1)) is None
    assert times(world) == [None, None]


def test_a_run_that_is_suspended_continues() -> None:
    world = edit(at(scheduled(), 1), suspend=True)
    assert world.kubernetes.pods() == []
    at(world, 2.5)
    assert world.kubernetes.pods() == []
    assert run(edit(world, suspend=False)) == "2026-11-21T13:00:00Z"
    assert world.condition("JobRunning") == "True/Running"


def test_a_run_starts_as_soon_as_it_can() -> None:
    """The operator checks topics and brokers before each run."""
    world = complete(at(scheduled(), 1))
    at(world, 1.9)
    world.kafka.down = AckwrightError(Reason.BROKERS_UNREACHABLE, "no answer")
    world.seconds = 3.5 * HOUR
    for _ in range(3):
        world.reconcile()
    assert len(world.kubernetes.pods()) == 0
    assert times(world) == ["13:00", "14:00"]
    assert world.condition("Ready").startswith("False/")
    world.kafka.down = None
    assert run(at(world, 4.2)) == "2026-11-21T16:00:00Z"
    assert times(world) == ["16:00", "17:00"]


def test_a_failed_run_is_repeated() -> None:
    world = crash(at(scheduled(), 1))
    world.reconcile()
    assert world.condition("JobRunning") == "False/Unexpected"
    pod = world.kubernetes.pods()[0]["metadata"]["uid"]
    at(world, 1.5)
    assert run(world) == "2026-11-21T13:00:00Z"
    assert world.kubernetes.pods()[0]["metadata"]["uid"] != pod, "in another pod, after its back-off"


@pytest.mark.parametrize("at_two", ["waits for a start", "is starting again", "has another pod", "its Job has failed"])
def test_whatever_a_failing_driver_does_when_the_next_run_is_due_it_starts(at_two: str) -> None:
    world = at(scheduled(), 1)
    at(world, 1.99)
    job, pod = world.kubernetes.stored["Job", "p"], crash(world).kubernetes.pods()[0]
    container = pod["status"]["containerStatuses"][0]
    if at_two == "is starting again":
        container |= {"restartCount": 1, "state": {"running": {}}}
    elif at_two == "has another pod":
        pod["status"] = {"phase": "Running", "podIP": "192.0.2.7", "conditions": []}
        job["status"] = {"failed": 1}
    elif at_two == "its Job has failed":
        job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    world.seconds = 2 * HOUR
    world.reconcile()
    starts_again(world)
    assert run(world) == "2026-11-21T14:00:00Z"
    assert world.condition("JobRunning") == "True/Running"


def test_a_run_whose_driver_failed_before_and_delivers_now_is_left_alone() -> None:
    world = at(scheduled(), 1)
    crash(world).kubernetes.pods()[0]["status"]["containerStatuses"][0] |= {"restartCount": 1, "state": {"running": {}}}
    world.kubernetes.stored["Job", "p"]["status"] = {"failed": 1}
    starts_again(world)
    assert run(at(world, 2)) == "2026-11-21T13:00:00Z"
    assert times(world) == ["13:00", "15:00"]
    assert jobs_created(world) == 1


def test_a_run_that_halted_waits_for_a_person() -> None:
    """Another Job at each time would report the halt again, and an alert would never be old enough to be sent."""
    world = crash(at(scheduled(), 1), ExitCode.HALTED)
    world.settle()
    assert world.condition("Stalled").startswith("True/")
    at(world, 3.5)
    assert jobs_created(world) == 1
    assert world.condition("Stalled").startswith("True/")
    world.kubernetes.check_ending = WRONG
    assert run(edit(world, **EDIT)) == "2026-11-21T13:00:00Z", "it is repeated with the edit, without a check"
    assert jobs_created(world) == 2
    assert world.resource["status"]["accepted"]["spec"] == SCHEDULED | EDIT


def test_an_edit_has_effect_with_the_next_run() -> None:
    world = at(scheduled(), 1)
    job = world.kubernetes.stored["Job", "p"]
    edit(world, **EDIT)
    assert world.kubernetes.stored["Job", "p"] == job
    assert world.conditions("Ready", "Reconciling") == ["True/Delivering", "False/Settled"]
    at(complete(world), 2)
    assert world.kubernetes.stored["Job", "p"]["spec"]["template"] != job["spec"]["template"]
    assert run(world) == "2026-11-21T14:00:00Z"


def test_an_edit_between_two_runs_starts_none() -> None:
    world = edit(at(complete(at(scheduled(), 1)), 1.5), **EDIT)
    assert jobs_created(world) == 1
    assert run(at(world, 2)) == "2026-11-21T14:00:00Z"


@pytest.mark.parametrize("before", ["first run", "later run"])
def test_an_edit_between_two_runs_is_checked_and_a_refused_one_changes_no_run(before: str) -> None:
    world = scheduled()
    if before == "later run":
        complete(at(world, 1))
        at(world, 1.5)
    world.kubernetes.check_ending = WRONG
    edit(world, **EDIT)
    assert world.conditions("Ready", "JobRunning", "Stalled") == [
        "True/Scheduled",
        "False/Scheduled",
        "True/InvalidTransform",
    ]
    at(world, 2)
    assert world.condition("JobRunning") == "True/Running"
    assert world.resource["status"]["accepted"]["spec"] == SCHEDULED
    assert world.condition("Stalled") == "True/InvalidTransform"


def test_a_run_does_not_wait_for_the_check_of_an_edit() -> None:
    world = complete(at(scheduled(), 1))
    at(world, 1.9)
    world.kubernetes.check_ending = None
    edit(world, **EDIT)
    assert world.conditions("Ready", "Reconciling") == ["True/Scheduled", "True/CheckingEdit"]
    world.seconds = 2 * HOUR
    for _ in range(9):
        world.reconcile()
    assert world.condition("JobRunning") == "True/Running"
    assert world.resource["status"]["accepted"]["spec"] == SCHEDULED


@pytest.mark.parametrize("when", ["between two runs", "during a run"])
def test_an_edit_has_delivered_when_a_run_by_it_has(when: str) -> None:
    world = at(scheduled(), 1)
    if when == "between two runs":
        complete(world)
    edit(world, **EDIT)
    complete(world)
    status = world.resource["status"]
    assert status["accepted"]["spec"] == SCHEDULED | EDIT
    assert not status["accepted"]["delivered"]
    assert status["previous"]["spec"] == SCHEDULED
    at(world, 2)
    assert world.resource["status"]["accepted"]["delivered"]
    assert "previous" not in world.resource["status"]


def test_another_release_of_the_operator_leaves_a_run_alone() -> None:
    world = at(scheduled(), 1)
    world.settings = replace(world.settings, spark_image="ackwright-spark:next")
    world.start_operator()
    at(world, 1.5)
    assert jobs_created(world) == 1
    at(complete(world), 2)
    container = world.kubernetes.stored["Job", "p"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "ackwright-spark:next"


def test_an_edit_of_the_schedule_counts_from_the_edit() -> None:
    """Not from the last run: 12:30 and 13:30 would be due at once."""
    world = at(complete(at(scheduled(), 1)), 1.75)
    edit(world, trigger={"availableNow": True, "schedule": "30 * * * *"})
    assert run(world) == "2026-11-21T13:00:00Z"
    assert times(world) == ["13:00", "14:30"]
    edit(world, trigger={"availableNow": True, "schedule": "30 * * * *", "timeZone": "Asia/Kolkata"})
    assert times(world) == ["13:00", "14:00"]


def test_the_job_of_a_completed_run_is_deleted_after_its_time_to_live() -> None:
    world = scheduled(SPEC | {"trigger": SCHEDULED["trigger"] | {"ttlSecondsAfterFinished": 600}})
    complete(at(world, 1))
    assert run(at(world, 1.1)) is not None
    assert run(at(world, 1.5)) is None
    assert world.conditions("Ready", "JobRunning") == ["True/Scheduled", "False/Scheduled"]
    assert run(at(world, 2)) == "2026-11-21T14:00:00Z"


def test_from_a_stream_to_a_schedule_and_back() -> None:
    world = World(SPEC).settle()
    edit(world, trigger=SCHEDULED["trigger"])
    assert run(world) is None
    assert world.kubernetes.pods() == []
    assert world.condition("JobRunning") == "False/Scheduled"
    assert run(at(world, 1)) == "2026-11-21T13:00:00Z"
    edit(world, trigger={"interval": "1s"})
    assert run(world) is None
    assert world.condition("JobRunning") == "True/Running"
    assert "schedule" not in world.resource["status"]


def test_a_run_without_a_schedule_ends_before_the_schedule_begins() -> None:
    world = World(SPEC | {"trigger": {"availableNow": True}}).settle()
    edit(world, trigger=SCHEDULED["trigger"])
    at(world, 1.5)
    assert jobs_created(world) == 1
    assert times(world) == [None, "14:00"]
    complete(world)
    assert world.condition("JobRunning") == "False/Scheduled"
    assert run(at(world, 2)) == "2026-11-21T14:00:00Z"


def unscheduled_that_fails() -> World:
    """A run without a schedule that fails; an edit corrects the transform and adds a schedule."""
    world = crash(World(SPEC | {"trigger": {"availableNow": True}}).settle())
    world.reconcile()
    world.kubernetes.declare("p", SCHEDULED | EDIT)
    return world


def test_a_run_without_a_schedule_that_fails_is_repeated_with_the_edit_that_adds_one() -> None:
    world = starts_again(unscheduled_that_fails())
    assert world.condition("JobRunning") == "True/Running"
    assert run(world) == world.resource["status"]["schedule"]["lastScheduleTime"]
    assert jobs_created(world) == 2
    complete(world)
    assert world.conditions("Ready", "JobRunning") == ["True/Scheduled", "False/Scheduled"]
    assert jobs_created(at(world, 0.9)) == 2
    assert run(at(world, 1)) == "2026-11-21T13:00:00Z"


def test_whatever_the_operator_is_killed_at_the_run_without_a_schedule_is_repeated() -> None:
    world = unscheduled_that_fails()
    first = len(world.kubernetes.writes)
    last = len(starts_again(world.copy()).kubernetes.writes)
    assert last > first
    for number in range(first, last):
        for later in (False, True):
            killed = world.copy()
            killed.kubernetes.die, killed.kubernetes.die_after = number, later
            with suppress(Killed):
                starts_again(killed)
            killed.kubernetes.die = None
            killed.start_operator()
            killed.settle()
            assert jobs_created(killed) <= 2
            assert killed.condition("JobRunning") == "True/Running"


def test_without_the_schedule_it_runs_once_more_now() -> None:
    world = complete(at(scheduled(), 1))
    edit(world, trigger={"availableNow": True})
    assert jobs_created(world) == 2
    assert "schedule" not in world.resource["status"]
    complete(world)
    at(world, 9)
    assert jobs_created(world) == 2


def test_topics_that_are_too_weak_are_reported_also_between_two_runs() -> None:
    world = complete(at(scheduled(), 1))
    world.kafka.count = 1  # topics cannot be repaired with one broker
    world.kafka.lagging = {1, 2}
    at(world, 1.3)
    assert world.condition("GuaranteeMet").startswith("False/")
    assert world.condition("Ready") == world.condition("GuaranteeMet")
    assert world.condition("JobRunning") == "False/Scheduled"


def test_a_run_each_minute_never_has_two_drivers() -> None:
    world = scheduled(SPEC | {"trigger": {"availableNow": True, "schedule": "* * * * *"}})
    world.seconds_between = 1.0
    started = set()
    while world.seconds < 600:
        world.reconcile()
        if (name := run(world)) is None:
            continue
        started.add(name)
        if world.seconds % 100 < 2:  # some runs take longer than a minute
            world.kubernetes.complete("p", format_time(world.now()))
    assert len(started) == jobs_created(world) >= 5
