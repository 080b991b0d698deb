"""Outages of a sink between the two steps of a weaker guarantee, without Kafka and Spark.

Under at-least-once rows are written before their position moves, under at-most-once afterwards. The driver that is
interrupted in between has a successor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Lane, Range
from integration.support.s3_server import S3Server

A = Lane("in", 0)
BEFORE, DURING, AFTER = Range(A, 0, 5), Range(A, 5, 9), Range(A, 9, 12)  # delivered before, during, after the outage
WEAKER = [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE]
OUTAGES_OF_S3 = [  # of a server, and the reason of what fails meanwhile
    pytest.param(S3Server.killed, Reason.SINK_UNREACHABLE, id="killed"),
    pytest.param(S3Server.full, Reason.SINK_UNREACHABLE, id="full"),
    pytest.param(S3Server.revoked, Reason.AUTHORIZATION_FAILED, id="revoked"),
]


class Driver(Protocol):
    """A driver of a pipeline with lane A."""

    sink: Any
    lanes: Lanes

    def prepared(self, batch: Range) -> Callable[[], Any]:
        """A function that writes the rows of a range, without a position."""


def deliver_through(
    outage: AbstractContextManager[Any],
    guarantee: Guarantee,
    new_driver: Callable[[], Driver],
    reason: Reason,
    *,
    hits_rows: bool = False,
) -> list[int]:
    """Delivers before, during and after the outage; returns the offsets whose rows must be there, sorted.

    reason: of what fails while the sink is not available. hits_rows: whether the outage begins before the rows under
    at-least-once, too, in place of between the rows and their position.
    """
    if guarantee is Guarantee.AT_MOST_ONCE:
        _deliver_at_most_once(outage, new_driver, reason)
        return [*range(BEFORE.start, BEFORE.until), *range(AFTER.start, AFTER.until)]
    _deliver_at_least_once(outage, new_driver, reason, hits_rows=hits_rows)
    repeated = [] if hits_rows else [*range(DURING.start, DURING.until)]
    return sorted([*range(AFTER.until), *repeated])


def _deliver_at_most_once(
    outage: AbstractContextManager[Any], new_driver: Callable[[], Driver], reason: Reason
) -> None:
    driver = new_driver()
    assert driver.lanes.advance(0, [BEFORE]) == (Outcome.DONE, 0)
    driver.prepared(BEFORE)()
    assert driver.lanes.advance(0, [DURING]) == (Outcome.DONE, 0)
    write = driver.prepared(DURING)
    with outage:
        _refused(write, reason)
    following = new_driver()
    assert following.sink.read([A])[A].offset == DURING.until
    assert following.lanes.advance(0, [DURING]) == (Outcome.SKIPPED, 0)
    assert following.lanes.advance(0, [AFTER]) == (Outcome.DONE, 0)
    following.prepared(AFTER)()


def _deliver_at_least_once(
    outage: AbstractContextManager[Any], new_driver: Callable[[], Driver], reason: Reason, *, hits_rows: bool
) -> None:
    driver = new_driver()
    driver.prepared(BEFORE)()
    driver.lanes.advance_all([BEFORE])
    write = driver.prepared(DURING)
    if not hits_rows:
        write()
    with outage:
        _refused(write if hits_rows else lambda: driver.lanes.advance_all([DURING]), reason)
    following = new_driver()
    assert following.sink.read([A])[A].offset == DURING.start
    for batch in (DURING, AFTER):
        following.prepared(batch)()
        following.lanes.advance_all([batch])
    assert new_driver().sink.read([A])[A].offset == AFTER.until


def _refused(call: Callable[[], Any], reason: Reason) -> None:
    with pytest.raises(JobError) as caught:
        call()
    assert caught.value.reason is reason, caught.value
