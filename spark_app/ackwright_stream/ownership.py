"""A driver takes its pipeline: it fences every older driver, then learns the lanes' positions.

The steps are the same under every guarantee and for every sink, which makes a change of guarantee safe:

    1  older drivers are fenced: none of their advances (at-least-once) comes through any more
    2  every lane is fenced and read: no older task can commit any more, and what it left open is ended
    3  everything is checked before anything is written: positions lost, topics replaced, data expired
    4  every lane is committed once by this driver. Lanes without a position get their start and their record. The
       others get the same position again with this driver's number, so that an older driver that comes back sees the
       new owner, and no idle position expires. Positions that another program set get their record as well

A topic that was deleted and recreated halts in step 2 or 3, until a person accepts the loss of the old one
(JobSpec.accepted_losses). Its positions and records then count as none, and its lanes start again in step 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from ackwright_stream import delivery, positions
from ackwright_stream.cluster import Cluster, Topology
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Lanes
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks import registry

T = TypeVar("T")
_ANY_DRIVER = 1 << 62  # until this driver has a number, no other driver's is too high
_THREADS = 16
_PROPAGATION_S = 5.0  # brokers learn of new partitions one after the other, within a second


@dataclass(frozen=True)
class Ownership:
    """What a driver knows once it owns its pipeline."""

    positions: Mapping[Lane, int]
    expired: int  # offsets that were gone before they were read, and are counted as lost
    lanes: Lanes

    @property
    def driver(self) -> int:
        """The driver's number."""
        return self.lanes.driver

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the source topics."""
        return self.lanes.topic_ids


def take(job: JobSpec, cluster: Cluster, previous: int | None = None) -> Ownership:
    """Takes the pipeline. previous: this driver's number, if it owned the pipeline before.

    Raises JobError: either no position has moved (steps 1 to 3), or each lane is at its old position or at its start
    (step 4).
    """
    sink = registry.for_driver(job, cluster)
    sink.fence_drivers()
    topology = cluster.topology()
    lanes = Lanes(job, sink, previous or _ANY_DRIVER, topology.topic_ids)
    fenced = _each(topology.lanes, lanes.fence)
    try:
        starts = _check(lanes, cluster, {lane: position for lane, (_, position) in fenced.items()})
        # All older tasks are fenced, so what became of the old topic's records is in the output.
        output_ends = sink.output_ends() if starts.restarted else None
    except JobError:
        for transaction, _ in fenced.values():
            transaction.release()
        raise
    lanes.driver = previous or 1 + starts.last_driver

    def settle(lane: Lane) -> int:
        transaction, start = fenced[lane][0], starts.offsets[lane]
        if lane in starts.to_record:
            return lanes.initialise(
                transaction, lane, start, output_ends if lane.topic in starts.restarted else None
            ).offset
        lanes.commit(transaction, lane, start)
        return start

    return Ownership(_each(tuple(fenced), settle), starts.expired, lanes)


def add(owned: Ownership, lane: Lane, start: int) -> int:
    """Takes a lane that appeared while the pipeline runs; returns its position.

    start: the first offset that Spark reads of it, which is its earliest; the lane starts there unless it has a
    position. (docs/protocol.md#rule-4)
    """
    lanes = owned.lanes
    transaction, position = lanes.fence(lane)
    try:
        if position is None:
            position = _missing_positions(lanes, [lane])[0][lane]
        to_record = position is None or lane in _unrecorded(lanes, {lane: position})
    except JobError:
        transaction.release()
        raise
    offset = start if position is None else position.offset
    if to_record:
        return lanes.initialise(transaction, lane, offset).offset
    transaction.release()
    return offset


@dataclass(frozen=True)
class _Starts:
    """The result of step 3: all that step 4 needs."""

    offsets: Mapping[Lane, int]  # where each lane resumes
    to_record: frozenset[Lane]  # lanes that need a record
    restarted: frozenset[str]  # topics that were recreated and whose loss is accepted
    expired: int  # offsets that were gone before they were read
    last_driver: int  # the highest number of a driver so far


def _check(lanes: Lanes, cluster: Cluster, positions_read: Mapping[Lane, Position | None]) -> _Starts:
    """Step 3, with the positions of step 2. Raises JobError."""
    topology = _topology_with(cluster, positions_read)
    lanes.topic_ids = topology.topic_ids
    # Checked again: a topic may have been recreated after its lanes were fenced, and step 4 would mark the positions as
    # the new topic's.
    current = {lane: lanes.current(lane, position) for lane, position in positions_read.items()}
    missing, restarted = _missing_positions(lanes, [lane for lane, position in current.items() if position is None])
    current |= missing
    offsets, expired = _starts(lanes.job, topology, current, restarted)
    new = frozenset(lane for lane, position in current.items() if position is None)
    last_driver = max((p.driver for p in current.values() if p), default=0)
    return _Starts(offsets, new | _unrecorded(lanes, current), restarted, expired, last_driver)


def _topology_with(cluster: Cluster, fenced: Iterable[Lane]) -> Topology:
    """The topology after the fencing: an older driver may have moved lanes beyond the ends that were read before.

    Another broker may answer now, one that has not learnt yet of partitions just added. Raises
    JobError(BROKERS_UNREACHABLE) if that lasts.
    """
    deadline = time.monotonic() + _PROPAGATION_S
    while True:
        topology = cluster.topology()
        absent = sorted(set(fenced) - set(topology.lanes))
        if not absent:
            return topology
        if time.monotonic() > deadline:
            what = ", ".join(map(str, absent[:5]))
            raise JobError(
                Reason.BROKERS_UNREACHABLE,
                f"the brokers listed {what} a moment ago and do not list it now; this driver restarts with the topics "
                "as they are then",
            )
        time.sleep(0.1)


def _starts(
    job: JobSpec, topology: Topology, current: Mapping[Lane, Position | None], restarted: frozenset[str]
) -> tuple[dict[Lane, int], int]:
    """Where each lane resumes, and how many offsets were gone before they were read.

    Raises JobError with the problems of all lanes. restarted: topics that were recreated and whose loss is accepted.
    """
    # Partitions added to a known topic are read from their beginning. So is a recreated topic, which filled up while
    # the pipeline halted.
    known = {lane.topic for lane, position in current.items() if position} | restarted
    latest = job.source.starting_offsets == "latest"
    counts_expired = delivery.of(job).counts_expired
    starts: dict[Lane, int] = {}
    expired = 0
    problems: list[str] = []
    for lane, position in current.items():
        first, end = topology.earliest[lane], topology.latest[lane]
        if position is None:
            starts[lane] = end if latest and lane.topic not in known else first
        elif position.offset < first and not counts_expired:
            problems.append(f"{lane}: position {position.offset}, first offset left {first}")
        elif position.offset > end:
            problems.append(f"{lane}: position {position.offset}, but the log ends at {end}")
        else:
            starts[lane] = max(position.offset, first)
            expired += starts[lane] - position.offset
    if problems:
        raise JobError(
            Reason.DATA_EXPIRED,
            f"records that were never delivered are gone from the source ({'; '.join(problems)}); raise retention.ms "
            f"of the source, and to accept the loss reset group {job.group} to the earliest offsets",
        )
    return starts, expired


def _missing_positions(lanes: Lanes, missing: list[Lane]) -> tuple[dict[Lane, Position | None], frozenset[str]]:
    """The positions of lanes that had none when they were fenced, None for new lanes; and which topics restart.

    Those are the lanes' topics whose loss is accepted. All are read again: if another driver has initialised one
    since, our fenced lane fails at the commit.

    Raises JobError if a lane that has a record still has no position: TOPIC_REPLACED if the record is of another topic
    of the same name (brokers delete a topic's positions with it), else POSITION_LOST.
    """
    if not missing:
        return {}, frozenset()
    recorded = lanes.sink.recorded_lanes()
    records = {lane: recorded[lane] for lane in missing if lane in recorded}
    committed = lanes.read(missing)
    current = {lane: lanes.current(lane, position) for lane, position in committed.items()}

    def topic_id(lane: Lane) -> str:
        return lanes.topic_ids.get(lane.topic, "")

    accepted = {
        lane
        for lane, of_topic in records.items()
        if positions.is_loss_accepted(of_topic, topic_id(lane), lanes.job.accepted_losses.get(lane.topic))
    }
    lost = [lane for lane in records if current[lane] is None and lane not in accepted]
    for lane in lost:
        if records[lane] and topic_id(lane) and records[lane] != topic_id(lane):
            raise positions.topic_replaced(lane, "the record of its first position", records[lane], topic_id(lane))
    if lost:
        raise _lost(lanes.job, lost)
    accepted |= {lane for lane, position in committed.items() if position and current[lane] is None}
    return current, frozenset(lane.topic for lane in accepted)


def _unrecorded(lanes: Lanes, current: Mapping[Lane, Position | None]) -> frozenset[Lane]:
    """Lanes whose offsets another program committed, and that have no record of the current topic.

    They are of a group that is adopted, or were set by hand for a recreated topic. Without a record nobody would notice
    a lost position. A record of the current topic stays: it tells the audit where to begin.
    """
    by_hand = [lane for lane, position in current.items() if position and not position.topic_id]
    recorded = lanes.sink.recorded_lanes() if by_hand else {}
    return frozenset(lane for lane in by_hand if recorded.get(lane) != lanes.topic_ids[lane.topic])


def _lost(job: JobSpec, lost: list[Lane]) -> JobError:
    some = ", ".join(map(str, sorted(lost)[:5]))
    return JobError(
        Reason.POSITION_LOST,
        f"{len(lost)} {'lane' if len(lost) == 1 else 'lanes'} of group {job.group} had a position and "
        f"{'has' if len(lost) == 1 else 'have'} none any more ({some}): it expired, or the group or the topic was "
        "deleted, so it is not known what was delivered; set the group's offsets by hand, then start again",
    )


def _each(lanes: tuple[Lane, ...], call: Callable[[Lane], T]) -> dict[Lane, T]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="lanes") as pool:
        return dict(zip(lanes, pool.map(call, lanes), strict=True))
