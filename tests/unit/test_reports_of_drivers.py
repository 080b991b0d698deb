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
