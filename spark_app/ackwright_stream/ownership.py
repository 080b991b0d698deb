"""A driver takes its pipeline: it fences every older driver, then learns the lanes' positions.

The steps are the same under every guarantee and for every sink, which makes a change of guarantee safe:

    1  join      the sink accepts no position of an older driver any more, nor of an earlier query of this one
    2  read      every position, once what older drivers had moved and not committed has ended
    3  check     everything, before anything is written: positions lost or moved, topics replaced, data expired
       decide    of a stateful pipeline: the last decision is read, and has to agree with the positions (decisions.py)
    4  settle    every position is committed once with this driver's number, in one transaction. Lanes without a
                 position get their start and their record. Positions that another program set get their record as well

Step 1 fences, so no position can move between steps 2 and 4. The number of step 4 tells tasks that a position is one
that this driver has committed, and shows a driver that comes back that there is a newer one.

A topic that was deleted and recreated halts in step 3, until a person accepts the loss of the old one
(JobSpec.accepted_losses). Its positions and records then count as none, and its lanes start again in step 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from ackwright_stream import delivery, positions, topic_ids
from ackwright_stream.cluster import Cluster, Topology
from ackwright_stream.decisions import Decision, last_decision
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Lanes
from ackwright_stream.positions import Lane, Position
from ackwright_stream.reasons import REASONS
from ackwright_stream.sinks.base import Records, Sink

_Recorded = Callable[[], Records]  # Sink.records(), read when it is first called
_ENDING_S = 2.0  # a transaction that was committed becomes visible, mostly within milliseconds
_PROPAGATION_S = 5.0  # brokers learn of new partitions one after the other, within a second


@dataclass(frozen=True)
class Ownership:
    """What a driver knows once it owns its pipeline."""

    positions: Mapping[Lane, int]
    expired: int  # offsets that were gone before they were read, and are counted as lost
    lanes: Lanes
    decision: Decision | None = None  # of a stateful pipeline: the last one, behind which the positions are
    accepted_loss: str | None = None  # of the state of a pipeline that has positions and no such decision
    before: Mapping[Lane, Position | None] = field(default_factory=dict)  # the positions as it has taken them

    @property
    def driver(self) -> int:
        """The driver's number."""
        return self.lanes.driver

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the source topics."""
        return self.lanes.topic_ids


def take(job: JobSpec, cluster: Cluster, sink: Sink, previous: int | None = None) -> Ownership:
    """Takes the pipeline. previous: this driver's number, if it owned the pipeline before.

    Raises JobError: either no position has moved (steps 1 to 3), or the outcome of step 4 is unknown, and each lane is
    at its old position or at its start.
    """
    topology = cluster.topology()
    _check_before_join(Lanes(job, sink, b"", previous or 0, topology.topic_ids), topology.lanes)
    membership = sink.join(topology.lanes)
    lanes = Lanes(job, sink, membership, previous or 0, topology.topic_ids, ids_now=topic_ids.reader(job))
    starts = _check(lanes, cluster, sink.read(topology.lanes))
    restarts = {lane: offset for lane, offset in starts.offsets.items() if lane.topic in starts.restarted}
    decision, accepted_loss = _decision(job, sink, starts.current, restarts)
    # Of a state that is lost, so that the next driver learns it as well until a batch is decided.
    batches = [p.batch for p in starts.current.values() if p and p.batch is not None] if job.state else []
    lanes.batch = max(batches, default=None)
    if previous is None:
        lanes.driver = 1 + starts.last_driver
    elif starts.last_driver > previous:
        raise positions.superseded(starts.last_driver, previous)
    # All older tasks are fenced, so what became of the old topic's records is in the output.
    output_ends = sink.output_ends() if starts.restarted else None
    lanes.settle(starts.offsets, starts.to_record, output_ends, starts.restarted, starts.accepted)
    return Ownership(starts.offsets, starts.expired, lanes, decision, accepted_loss, starts.current)


def _decision(
    job: JobSpec, sink: Sink, committed: Mapping[Lane, Position | None], restarts: Mapping[Lane, int]
) -> tuple[Decision | None, str | None]:
    """The last decision of a stateful pipeline, and the loss of its state if a person has accepted it.

    restarts: as for last_decision().
    """
    if job.state is None or sink.decisions is None:
        return None, None
    try:
        return last_decision(sink.decisions.last(), committed, restarts), None
    except JobError as e:
        if e.fingerprint is None or e.fingerprint != job.accepted_state_loss:
            raise
        return None, e.fingerprint


def add(owned: Ownership, starts: Mapping[Lane, int]) -> Mapping[Lane, int]:
    """Takes lanes that appeared while the pipeline runs, in one transaction; returns their positions.

    starts: the first offset that Spark reads of each, which is its earliest; a lane starts there unless it has a
    position. (docs/protocol.md#rule-4) Raises JobError, as take() does.
    """
    lanes, recorded = owned.lanes, cache(owned.lanes.sink.records)
    current = {lane: lanes.current(lane, position) for lane, position in lanes.read(starts).items()}
    current |= _missing_positions(lanes, [lane for lane, p in current.items() if p is None], recorded)[0]
    for position in current.values():
        if position is not None:
            positions.check_driver(position, lanes.driver)
    accepted = _require_own(lanes, current, recorded)
    offsets = {lane: starts[lane] if position is None else position.offset for lane, position in current.items()}
    lanes.settle(offsets, _to_record(lanes, current, recorded), None, (), accepted)
    return offsets


def require_member(sink: Sink) -> None:
    """Raises JobError(POSITION_CONFLICT) if this driver does not own the pipeline any more, as far as it knows."""
    if not sink.is_member():
        raise JobError(
            Reason.POSITION_CONFLICT,
            "this driver does not own the pipeline any more: another driver has joined, the topics' partitions have "
            "changed, the sink's server was restarted, or it has sent no heartbeat for too long; it restarts from the "
            "positions",
        )


def complete(error: JobError, owned: Ownership) -> JobError:
    """The error; if positions were moved, with those of all lanes, as the next start finds them.

    The task or the advance that raised it knows its own lanes alone, and a person accepts all at once.
    """
    if error.reason is not Reason.POSITIONS_MOVED:
        return error
    sink = owned.lanes.sink
    try:
        records = sink.records()
        lanes = [lane for lane in records.lanes if lane.topic in owned.topic_ids]
        _require_own(owned.lanes, sink.peek(lanes), lambda: records)
    except JobError as e:
        return e if e.reason is Reason.POSITIONS_MOVED else error
    return error


def _check_before_join(lanes: Lanes, topic_lanes: Iterable[Lane]) -> None:
    """Raises JobError if the pipeline is another driver's, which the join would fence, or if it has state and the spec
    has none.

    Positions that were just settled may still be pending, so that the moved ones that they replace are read.
    """
    deadline = time.monotonic() + _ENDING_S
    while True:
        committed = lanes.sink.peek(topic_lanes)
        newest = max((p.driver for p in committed.values() if p), default=0)
        if lanes.driver and newest > lanes.driver:
            raise positions.superseded(newest, lanes.driver)
        if lanes.job.state is None:
            _require_stateless(committed)
        try:
            _require_own(lanes, committed, lanes.sink.records)
            return
        except JobError as e:
            if e.reason is not Reason.POSITIONS_MOVED or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def require_known(job: JobSpec, sink: Sink, lanes: Iterable[Lane] = ()) -> None:
    """Raises JobError(POSITION_LOST) if the pipeline has delivered, and the sink knows nothing of it.

    lanes: whose positions count as well, which a person may have set by hand. Failure window: an edit of the sink's
    address, which leads to another server. The pipeline would start again there.
    """
    if any(sink.peek(lanes).values()):
        return
    records = sink.records()
    if records.joined or records.lanes or records.driver:
        return
    raise JobError(
        Reason.POSITION_LOST,
        f"{job.group} has delivered, and sink.{job.sink.kind} has no positions of it, so its address probably leads to "
        "another server than before, where it would start again",
        "correct the address, move the positions there together with the rows, or create another pipeline",
    )


def _require_stateless(committed: Mapping[Lane, Position | None]) -> None:
    batch = max((p.batch for p in committed.values() if p and p.batch is not None), default=None)
    if batch is not None:
        raise JobError(
            Reason.INVALID_TRANSFORM,
            f"the positions are behind batch {batch} of a stateful pipeline, and the spec has no state; undo the "
            "change, or create a pipeline with another source.groupId",
        )


@dataclass(frozen=True)
class _Starts:
    """The result of step 3: all that step 4 needs."""

    offsets: Mapping[Lane, int]  # where each lane resumes
    current: Mapping[Lane, Position | None]  # the positions, those of an orderly stop included
    to_record: frozenset[Lane]  # lanes that need a record
    restarted: frozenset[str]  # topics that were recreated and whose loss is accepted
    expired: int  # offsets that were gone before they were read
    last_driver: int  # the highest number that a driver has had
    accepted: str | None  # the fingerprint of positions that another program has set, and a person has accepted


def _check(lanes: Lanes, cluster: Cluster, positions_read: Mapping[Lane, Position | None]) -> _Starts:
    """Step 3, with the positions of step 2. Raises JobError."""
    topology, recorded = _topology_with(cluster, positions_read), cache(lanes.sink.records)
    lanes.topic_ids = topology.topic_ids
    # With the ids as they are after the join: step 4 marks the positions as those of the current topic.
    current = {lane: lanes.current(lane, position) for lane, position in positions_read.items()}
    missing, restarted = _missing_positions(lanes, [lane for lane, p in current.items() if p is None], recorded)
    current |= missing
    accepted = _require_own(lanes, current, recorded)
    offsets, expired = _starts(lanes.job, topology, current, restarted)
    # Also of positions that do not count any more: their driver may come back.
    numbers = [p.driver for p in (*positions_read.values(), *current.values()) if p]
    if not all(p and p.driver for p in current.values()):
        numbers.append(recorded().driver)
    to_record = _to_record(lanes, current, recorded)
    return _Starts(offsets, current, to_record, restarted, expired, max(numbers, default=0), accepted)


def _require_own(lanes: Lanes, committed: Mapping[Lane, Position | None], recorded: _Recorded) -> str | None:
    """Raises JobError(POSITIONS_MOVED) for offsets that another program has committed on lanes of this pipeline.

    Returns their fingerprint if a person has accepted them; None if there are none.

    A lane without a record is a lane of a group that is adopted: its offsets are where the pipeline begins.
    """
    own = {lane: p and positions.own_or_foreign(p, lanes.job.identity) for lane, p in committed.items()}
    foreign = [(lane, position) for lane, position in own.items() if position and position.is_foreign]
    if not foreign:
        return None
    records = recorded()
    moved = [
        (lane, position)
        for lane, position in foreign
        if position.pipeline or records.lanes.get(lane) == lanes.topic_ids[lane.topic]
    ]
    if not moved:
        return None
    # An acceptance is used once: the next one has another fingerprint, also for the same offsets.
    fingerprint = positions.fingerprint(moved, records.accepted)
    if fingerprint != lanes.job.accepted_positions:
        raise positions.moved(moved, records.accepted, namespace=lanes.job.namespace, name=lanes.job.name)
    return fingerprint


def _topology_with(cluster: Cluster, fenced: Iterable[Lane]) -> Topology:
    """The topology after the join: an older driver may have moved lanes beyond the ends that were read before.

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
    counts_expired = delivery.for_job(job).counts_expired
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
            f"records that {job.group} never delivered are gone from the source ({'; '.join(problems)})",
            REASONS[Reason.DATA_EXPIRED].remedy,
        )
    return starts, expired


def _missing_positions(
    lanes: Lanes, missing: list[Lane], recorded: _Recorded
) -> tuple[dict[Lane, Position | None], frozenset[str]]:
    """The positions of lanes that had none when they were read, None for new lanes; and which topics restart.

    Those are the lanes' topics whose loss is accepted. All are read again: if another driver has joined and initialised
    one since, our settlement is refused.

    A lane whose position expired after an orderly stop has its final position.

    Raises JobError if a lane that has a record still has no position: TOPIC_REPLACED if the record is of another topic
    of the same name (brokers delete a topic's positions with it), else POSITION_LOST.
    """
    if not missing:
        return {}, frozenset()
    store = recorded()
    records = {lane: store.lanes[lane] for lane in missing if lane in store.lanes}
    # The final position also of a lane whose own record was lost with the lanes topic.
    committed = {lane: position or store.final.get(lane) for lane, position in lanes.read(missing).items()}
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


def _to_record(lanes: Lanes, current: Mapping[Lane, Position | None], recorded: _Recorded) -> frozenset[Lane]:
    """Lanes that need a record: new ones, and those of _unrecorded()."""
    new = frozenset(lane for lane, position in current.items() if position is None)
    return new | _unrecorded(lanes, current, recorded)


def _unrecorded(lanes: Lanes, current: Mapping[Lane, Position | None], recorded: _Recorded) -> frozenset[Lane]:
    """Lanes whose offsets another program committed, and that have no record of the current topic.

    They are of a group that is adopted, or were set by hand for a recreated topic. Without a record nobody would notice
    a lost position. A record of the current topic stays: it tells the audit where to begin.
    """
    by_hand = [lane for lane, position in current.items() if position and not position.topic_id]
    records = recorded().lanes if by_hand else {}
    return frozenset(lane for lane in by_hand if records.get(lane) != lanes.topic_ids[lane.topic])


def _lost(job: JobSpec, lost: list[Lane]) -> JobError:
    some = ", ".join(map(str, sorted(lost)[:5]))
    return JobError(
        Reason.POSITION_LOST,
        f"{len(lost)} {'lane' if len(lost) == 1 else 'lanes'} of group {job.group} had a position and "
        f"{'has' if len(lost) == 1 else 'have'} none any more ({some}): it expired, or the group or the topic was "
        "deleted, so it is not known what was delivered",
        REASONS[Reason.POSITION_LOST].remedy,
    )
