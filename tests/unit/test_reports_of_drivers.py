"""Reports of drivers: only those of the pipeline's present driver count."""

from __future__ import annotations

from unit.world import RUNNING, World


def test_the_number_of_an_earlier_driver_is_not_shown_for_the_present_one() -> None:
    world = World().settle()
    assert world.resource["status"]["driver"]["number"] == 1
    world.progress = None
    world.kubernetes.vanish("Pod", "p-0")
    world.kubernetes.run()
    for _ in range(3):
        world.reconcile()
    driver = world.resource["status"]["driver"]
    assert (driver["pod"], driver.get("number")) == ("p-0", None)


ASPECTS = ("Ready", "JobRunning", "GuaranteeMet", "Stalled")
UNREACHABLE = ["False/DriverUnreachable", "Unknown/DriverUnreachable", "Unknown/DriverUnreachable"]


def silent_from_the_beginning() -> World:
    world = World()
    world.progress = None
    for _ in range(6):
        world.reconcile()
    return world


def test_a_driver_that_never_reports_does_not_deliver() -> None:
    """As if a NetworkPolicy blocked its port: its own readiness is no report."""
    world = silent_from_the_beginning()
    assert world.conditions("Ready", "JobRunning") == ["False/Starting", "False/Starting"]
    world.seconds += 120
    for _ in range(2):
        world.reconcile()
    assert world.conditions(*ASPECTS) == [*UNREACHABLE, "True/DriverUnreachable"]
    job = next(c for c in world.resource["status"]["conditions"] if c["type"] == "JobRunning")
    assert "no report from http://192.0.2.7:8090/progress" in job["message"]
    assert "NetworkPolicies" in job["message"]
    assert not world.resource["status"]["accepted"]["delivered"]


def test_an_unreachable_driver_stays_so_after_a_restart_of_the_operator_until_it_reports() -> None:
    world = silent_from_the_beginning()
    world.seconds += 120
    world.reconcile()
    world.start_operator()
    world.reconcile()
    assert world.conditions(*ASPECTS[:3]) == UNREACHABLE
    world.progress = RUNNING
    world.settle()
    assert world.conditions(*ASPECTS) == ["True/Delivering", "True/Running", "True/Met", "False/NotStalled"]


def test_a_request_without_an_answer_changes_nothing_nor_does_a_restart_of_the_operator() -> None:
    world = World().settle()
    for restart in (False, True):
        if restart:
            world.start_operator()
        world.progress = None
        for _ in range(5):
            world.reconcile()
            assert world.conditions("Ready", "JobRunning") == ["True/Delivering", "True/Running"]
        world.progress = RUNNING
        world.reconcile()
    world.progress = None
    world.seconds_between = 50
    for _ in range(4):
        world.reconcile()
    assert world.condition("Ready") == "False/DriverUnreachable"
