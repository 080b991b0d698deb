"""A driver takes its pipeline: fences every older driver, then learns where the lanes stand. The same under every guarantee, which is what
makes a change of guarantee safe.

    1  the pipeline's own id is initialised: no older driver's advance (at-least-once) can come through any more
    2  every lane is initialised and read: no older task can commit any more; what it left open is ended
    3  all is looked at before anything is written: positions lost, topics replaced, data expired
    4  every lane is committed once by this driver: missing ones get their start and their record, the others the same position again,
       with this driver's number, so that an older driver that comes back sees who owns the pipeline, and nothing idle expires
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Producer

from ackwright_stream.cluster import Cluster, Topology, expired, recorded_lanes
from ackwright_stream.delivery.at_least_once import owner
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Lanes, transactional_id
from ackwright_stream.positions import Lane, Position

T = TypeVar("T")
_ANY_DRIVER = 1 << 62  # before this driver has a number, nobody's is too high
_AT_ONCE = 16


@dataclass(frozen=True)
class Ownership:
    """What a driver knows once it owns its pipeline. owner: the initialised producer of the pipeline's own id."""

    driver: int
    positions: Mapping[Lane, int]
    topic_ids: Mapping[str, str]
    expired: int
    lanes: Lanes
    owner: Producer


def take(job: JobSpec, cluster: Cluster, previous: int | None = None) -> Ownership:
    """Takes the pipeline. previous: this driver's number, if it has owned the pipeline before. Raises JobError, in which case no position
    has moved (steps 1 to 3), or every lane that has moved stands where it stood or at its start (step 4)."""
    pipeline = owner(job)
    topology = cluster.topology()
    lanes = Lanes(job, previous or _ANY_DRIVER, topology.topic_ids)
    fenced = _each(topology.lanes, lanes.fence)
    topology = cluster.topology()  # again: an older driver may have gone on until it was fenced, beyond the ends that were seen before
    found = {lane: position for lane, (_, position) in fenced.items()}
    found |= _looked_again(job, lanes, [lane for lane, position in found.items() if position is None])
    starts, gone = _starts(job, topology, found)
    driver = previous or 1 + max((p.driver for p in found.values() if p), default=0)
    lanes.for_driver(driver, topology.topic_ids)

    def settle(lane: Lane) -> int:
        producer, position = fenced[lane]
        if position is None:
            return lanes.initialise(producer, lane, starts[lane]).offset
        lanes.commit(producer, lane, starts[lane])
        return starts[lane]

    return Ownership(driver, _each(tuple(fenced), settle), topology.topic_ids, gone, lanes, pipeline)


def add(job: JobSpec, owned: Ownership, lane: Lane, start: int) -> int:
    """Takes a lane that appeared while the pipeline runs; it starts at its earliest offset, which is what `start` has to be. (rule 4)"""
    producer, position = owned.lanes.fence(lane)
    if position is None:
        position = _looked_again(job, owned.lanes, [lane])[lane]
    if position is not None:
        owned.lanes.release(producer, lane)
        return position.offset
    return owned.lanes.initialise(producer, lane, start).offset


def _starts(job: JobSpec, topology: Topology, found: Mapping[Lane, Position | None]) -> tuple[dict[Lane, int], int]:
    """Where each lane goes on, and how many offsets were gone before they were read (at-most-once). Raises JobError for all at once."""
    known = {lane.topic for lane, position in found.items() if position}  # partitions added to a known topic are read whole
    latest = job.source.starting_offsets == "latest"
    starts: dict[Lane, int] = {}
    gone = 0
    problems: list[str] = []
    for lane, position in found.items():
        first, end = topology.earliest[lane], topology.latest[lane]
        if position is None:
            starts[lane] = end if latest and lane.topic not in known else first
        elif expired(position.offset, first, job.guarantee):
            problems.append(f"{lane}: position {position.offset}, first offset left {first}")
        elif position.offset > end:
            problems.append(f"{lane}: position {position.offset}, but the log ends at {end}")
        else:
            starts[lane] = max(position.offset, first)
            gone += starts[lane] - position.offset
    if problems:
        raise JobError(
            Reason.DATA_EXPIRED,
            f"records are gone that were never delivered ({'; '.join(problems)}); raise retention.ms of the source, and if the loss is "
            f"accepted, reset group {job.group} to the earliest offsets",
        )
    return starts, gone


def _looked_again(job: JobSpec, lanes: Lanes, missing: list[Lane]) -> dict[Lane, Position | None]:
    """Of lanes without a position, those that are new, as None. A lane that has a record is read again: another driver may have
    initialised it since it was read, and then our producer is fenced, which shows at the commit.

    Raises JobError(POSITION_LOST) if it is still missing.
    """
    recorded = recorded_lanes(job) if missing else {}
    known = [lane for lane in missing if transactional_id(job.group, lane) in recorded]
    again = lanes.read(known) if known else {}
    lost = [lane for lane in known if again[lane] is None]
    if lost:
        raise _lost(job, lost)
    return {**dict.fromkeys(missing), **again}


def _lost(job: JobSpec, lost: list[Lane]) -> JobError:
    return JobError(
        Reason.POSITION_LOST,
        f"{len(lost)} lanes of group {job.group} were initialised but have no position any more "
        f"({', '.join(map(str, sorted(lost)[:5]))}): it expired, or the group or the topic was deleted, and it cannot be known what was "
        "delivered; set the group's offsets by hand, then start again",
    )


def _each(lanes: tuple[Lane, ...], call: Callable[[Lane], T]) -> dict[Lane, T]:
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="lanes") as pool:
        return dict(zip(lanes, pool.map(call, lanes), strict=True))
