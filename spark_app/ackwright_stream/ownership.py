"""A driver takes its pipeline: fences every older driver, then learns where the lanes stand. The same under every guarantee, which is what
makes a change of guarantee safe.

    1  the pipeline's own id is initialised: no older driver's advance (at-least-once) can come through any more
    2  every lane is initialised and read: no older task can commit any more; what it left open is ended
    3  all is looked at before anything is written: positions lost, topics replaced, data expired
    4  every lane is committed once by this driver: missing ones get their start and their record, the others the same position again,
       with this driver's number, so that an older driver that comes back sees who owns the pipeline, and nothing idle expires;
       positions that somebody else has set, of a group that is adopted, get their record as well

A topic that was deleted and made anew halts in step 2 or 3, until a person accepts the loss of the old one (JobSpec.accepted_losses): its
positions and records then count as none, and its lanes begin anew in step 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Producer

from ackwright_stream import positions
from ackwright_stream.cluster import Cluster, Topology, expired, recorded_lanes
from ackwright_stream.delivery.at_least_once import owner
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Lanes, record_key
from ackwright_stream.positions import Lane, Position

T = TypeVar("T")
_ANY_DRIVER = 1 << 62  # before this driver has a number, nobody's is too high
_AT_ONCE = 16
_PROPAGATION_S = 5.0  # brokers hear of new partitions one after the other, within a second


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
    topology = _seen_again(cluster, fenced)
    # Judged again: a topic may have been made anew since its lanes were fenced, and the commit below would say that all is of the new one.
    found = {lane: _standing(job, topology.topic_ids, lane, position) for lane, (_, position) in fenced.items()}
    again, begun_anew = _looked_again(
        job, lanes, topology.topic_ids, [lane for lane, position in found.items() if position is None]
    )
    found |= again
    starts, gone = _starts(job, topology, found, begun_anew)
    unrecorded = _unrecorded(job, topology.topic_ids, found)
    driver = previous or 1 + max((p.driver for p in found.values() if p), default=0)
    lanes.for_driver(driver, topology.topic_ids)
    sink = (
        cluster.sink_now() if begun_anew else None
    )  # all older tasks are fenced: whatever the old topic's records became is in it

    def settle(lane: Lane) -> int:
        producer, position = fenced[lane][0], found[lane]
        if position is None or lane in unrecorded:
            return lanes.initialise(producer, lane, starts[lane], sink if lane.topic in begun_anew else None).offset
        lanes.commit(producer, lane, starts[lane])
        return starts[lane]

    return Ownership(driver, _each(tuple(fenced), settle), topology.topic_ids, gone, lanes, pipeline)


def _seen_again(cluster: Cluster, fenced: Iterable[Lane]) -> Topology:
    """The topics after the fencing: an older driver may have gone on until it was fenced, beyond the ends that were seen before. Another
    broker may answer now, one that has not heard yet of partitions just added. Raises JobError(BROKERS_UNREACHABLE) if that lasts."""
    deadline = time.monotonic() + _PROPAGATION_S
    while True:
        topology = cluster.topology()
        missing = sorted(set(fenced) - set(topology.lanes))
        if not missing:
            return topology
        if time.monotonic() > deadline:
            what = ", ".join(map(str, missing[:5]))
            raise JobError(
                Reason.BROKERS_UNREACHABLE,
                f"brokers told of {what}, and now do not; starting again from what they tell",
            )
        time.sleep(0.1)


def add(job: JobSpec, owned: Ownership, lane: Lane, start: int) -> int:
    """Takes a lane that appeared while the pipeline runs; it starts at its earliest offset, which is what `start` has to be, unless it has
    a position. (rule 4)"""
    producer, position = owned.lanes.fence(lane)
    if position is None:
        again, _ = _looked_again(job, owned.lanes, owned.topic_ids, [lane])
        position = again[lane]
    if position is not None:
        if _unrecorded(job, owned.topic_ids, {lane: position}):
            return owned.lanes.initialise(producer, lane, position.offset).offset
        owned.lanes.release(producer, lane)
        return position.offset
    return owned.lanes.initialise(producer, lane, start).offset


def _starts(
    job: JobSpec, topology: Topology, found: Mapping[Lane, Position | None], begun_anew: frozenset[str]
) -> tuple[dict[Lane, int], int]:
    """Where each lane goes on, and how many offsets were gone before they were read (at-most-once). Raises JobError for all at once."""
    # Partitions added to a known topic are read whole, and so is a topic that was made anew: it was filled while the pipeline stood still.
    known = {lane.topic for lane, position in found.items() if position} | begun_anew
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


def _looked_again(
    job: JobSpec, lanes: Lanes, topic_ids: Mapping[str, str], missing: list[Lane]
) -> tuple[dict[Lane, Position | None], frozenset[str]]:
    """Of lanes without a position, those that are new, as None; and which topics among theirs were given up. All are read again: another
    driver may have initialised one since it was read, and then our producer is fenced, which shows at the commit.

    Raises JobError if the position of a lane that has a record is still missing: TOPIC_REPLACED if the record is of another topic of the
    same name (brokers delete a topic's positions with it), else POSITION_LOST.
    """
    if not missing:
        return {}, frozenset()
    recorded = recorded_lanes(job)
    records = {lane: recorded[key] for lane in missing if (key := record_key(job.group, lane).decode()) in recorded}
    committed = lanes.read(missing)
    found = {lane: _standing(job, topic_ids, lane, position) for lane, position in committed.items()}
    given_up = {lane for lane, topic_id in records.items() if _is_given_up(job, topic_ids, lane, topic_id)}
    lost = [lane for lane in records if found[lane] is None and lane not in given_up]
    for lane in lost:
        was, now = records[lane], topic_ids.get(lane.topic, "")
        if was and now and was != now:
            raise positions.replaced(lane, "the record that it was begun", was, now)
    if lost:
        raise _lost(job, lost)
    given_up |= {lane for lane, position in committed.items() if position and found[lane] is None}
    return found, frozenset(lane.topic for lane in given_up)


def _unrecorded(job: JobSpec, topic_ids: Mapping[str, str], found: Mapping[Lane, Position | None]) -> frozenset[Lane]:
    """Lanes whose offsets somebody else has committed and that have no record of the present topic: of a group that is adopted, or set by
    hand for a topic that was made anew. Without a record nobody would notice that the positions are lost. One of the present topic stays:
    it tells the audit where to begin."""
    by_hand = [lane for lane, position in found.items() if position and not position.topic_id]
    recorded = recorded_lanes(job) if by_hand else {}
    return frozenset(x for x in by_hand if recorded.get(record_key(job.group, x).decode()) != topic_ids[x.topic])


def _standing(job: JobSpec, topic_ids: Mapping[str, str], lane: Lane, position: Position | None) -> Position | None:
    return positions.standing(lane, position, topic_ids.get(lane.topic, ""), job.accepted_losses.get(lane.topic))


def _is_given_up(job: JobSpec, topic_ids: Mapping[str, str], lane: Lane, was: str) -> bool:
    return positions.is_given_up(was, topic_ids.get(lane.topic, ""), job.accepted_losses.get(lane.topic))


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
