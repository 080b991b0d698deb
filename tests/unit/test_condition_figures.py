"""The figures of the status: what a driver has measured, and nothing that nobody has."""

from __future__ import annotations

from dataclasses import replace

from ackwright.api.status import DeliveryStatus, parse_status
from ackwright_stream.reports import ProgressReport, State
from unit.world import RUNNING, World

STARTING = replace(RUNNING, state=State.STARTING, batches=0, batch_id=-1, ends={}, records_per_second=0.0)


def settled(world: World, progress: ProgressReport) -> DeliveryStatus | None:
    """The figures once the driver reports this."""
    world.progress = progress
    return parse_status(world.settle().resource["status"]).delivery


def guarantee_met(world: World) -> tuple[str, str]:
    condition = parse_status(world.resource["status"]).condition("GuaranteeMet")
    assert condition
    return condition.status, condition.message


def test_before_a_driver_has_measured_there_is_no_lag_and_the_guarantee_rests_on_topics_and_brokers() -> None:
    world = World()
    assert settled(world, STARTING) is None
    assert guarantee_met(world) == ("True", "topics and brokers keep it; no driver has delivered yet")
    measured = settled(world, RUNNING)
    assert measured
    assert measured.lag == 0
    assert guarantee_met(world) == ("True", "")


def test_while_a_driver_restarts_the_figures_of_the_one_before_stay_with_their_time() -> None:
    world = World()
    before = settled(world, replace(RUNNING, lag=70))
    assert before
    assert before.lag == 70
    assert settled(world, STARTING) == before
    after = settled(world, replace(RUNNING, lag=3))
    assert after
    assert after.lag == 3


def test_the_watermark_is_a_time_and_is_absent_until_there_is_one() -> None:
    world = World()
    figures = settled(world, RUNNING)
    assert figures
    assert figures.watermark is None
    assert "watermark" not in world.resource["status"]["delivery"]
    figures = settled(world, replace(RUNNING, watermark=1_356_998_400.5))
    assert figures
    assert figures.watermark == "2013-01-01T00:00:00Z"


def test_a_driver_that_delivers_and_cannot_read_the_ends_has_no_lag() -> None:
    figures = settled(World(), replace(RUNNING, ends={}))
    assert figures
    assert (figures.batch, figures.lag) == (7, None)
