"""The guarantees, one file each: the order of writing rows and moving positions, and what follows from it."""

from __future__ import annotations

from typing import assert_never

from ackwright_stream.delivery.at_least_once import AtLeastOnce
from ackwright_stream.delivery.at_most_once import AtMostOnce
from ackwright_stream.delivery.batch import Delivery
from ackwright_stream.delivery.exactly_once import ExactlyOnce
from ackwright_stream.delivery.stateful import Stateful
from ackwright_stream.jobspec import Guarantee, JobSpec


def for_job(job: JobSpec) -> Delivery:
    """The code of the declared guarantee."""
    if job.state is not None:
        return Stateful(job, job.state)
    match job.guarantee:
        case Guarantee.EXACTLY_ONCE:
            return ExactlyOnce(job)
        case Guarantee.AT_LEAST_ONCE:
            return AtLeastOnce(job)
        case Guarantee.AT_MOST_ONCE:
            return AtMostOnce(job)
        case _:
            assert_never(job.guarantee)
