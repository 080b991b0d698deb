"""Which records of source and sink an audit cannot judge, because records that it needs no longer exist. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ackwright_stream.audit_kafka import Lane, LaneStart, Offsets
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

_ACCEPTED = "a source topic was recreated and the loss of the old one accepted"


@dataclass(frozen=True)
class Doubt:
    """What keeps records from being judged."""

    reason: str
    lanes: Collection[Lane] = ()  # of the source, of which records no longer exist
    topics: Collection[str] = ()  # of the sink, of which records may no longer exist


def counting_from(
    group: str,
    lanes: Sequence[Lane],
    recorded: Mapping[Lane, LaneStart],
    first: Mapping[Lane, int | None],
    earliest: Offsets,
) -> tuple[dict[Lane, int], list[Doubt]]:
    """Where counting begins in each lane, and the lanes from which retention removed what was perhaps delivered.

    first: the positions. Raises JobError(POSITION_LOST).
    """
    lost = [f"{t}-{p}" for t, p in lanes if (t, p) in recorded and first[t, p] is None]
    if lost:
        raise JobError(
            Reason.POSITION_LOST,
            f"group {group} no longer has a position for {', '.join(lost)}, so the audit cannot know where to stop "
            "counting; restore the positions",
        )
    recorded_start = {lane: recorded[lane].start if lane in recorded else 0 for lane in lanes}
    start = {lane: max(recorded_start[lane], earliest[lane]) for lane in lanes}
    return start, [
        Doubt(
            f"{t}-{p}: records from {recorded_start[t, p]} to {earliest[t, p]} are no longer in the source; the audit "
            f"counts from {earliest[t, p]} and does not judge records that may come from earlier ones",
            lanes=[(t, p)],
        )
        for t, p in lanes
        if earliest[t, p] > recorded_start[t, p] and first[t, p] is not None
    ]


def compaction_of_source(
    compacted: Collection[str], start: Offsets, passed: Offsets, counted: Mapping[Lane, int]
) -> tuple[list[Doubt], list[str]]:
    """The lanes from which compaction may have removed records, and notes on those from which it did not.

    compacted: topics. counted: records in [start, passed). Offsets without a record may also be those of aborted
    records and of the ends of transactions, which cannot be distinguished.
    """
    doubts, complete = [], []
    for (topic, partition), end in passed.items():
        begin = start[topic, partition]
        empty = end - begin - counted[topic, partition]
        name = f"{topic}-{partition}"
        if topic in compacted and empty:
            doubts.append(
                Doubt(
                    f"{name}: the topic is compacted, and {empty} of the {end - begin} offsets from {begin} to {end} "
                    "have no record; the audit judges the records that are left, and not those in the sink that may "
                    "come from removed ones",
                    lanes=[(topic, partition)],
                )
            )
        elif topic in compacted:
            complete.append(name)
    notes = [f"{', '.join(complete)}: the topic is compacted, but no record was removed yet"] if complete else []
    return doubts, notes


def removals_from_sink(compacted: Collection[str], earliest: Offsets, begin: Offsets, end: Offsets) -> list[Doubt]:
    """The topics of the sink from which retention or compaction may have removed output.

    compacted: topics. earliest: the first offsets of the sink; begin: from where it is judged.
    """
    trimmed = [
        Doubt(
            f"{t}-{p} begins at offset {offset}; the audit does not judge whether output was removed in front of it",
            topics=[t],
        )
        for (t, p), offset in earliest.items()
        if 0 < offset == begin[t, p]
    ]
    written = {topic for topic, p in end if topic in compacted and end[topic, p] > begin[topic, p]}
    return trimmed + [
        Doubt(f"{topic} is compacted; the audit does not judge whether output was removed from it", topics=[topic])
        for topic in sorted(written)
    ]


def output_of_old_topic(
    sink: str | None, sink_id: str, sources: int, recorded: Mapping[Lane, LaneStart], begin: Offsets
) -> tuple[Offsets, list[Doubt], list[str]]:
    """Where the sink's records of the current source topic begin, after the loss of an old topic was accepted.

    What is in front of that comes from the old topic, of which nothing is known. With several source topics it may also
    come from the others. sink: the declared topic; sink_id: its id. sources: the number of source topics.
    """
    recreated = {lane: start for lane, start in recorded.items() if start.sink is not None}
    if not recreated:
        return begin, [], []
    # The ends of a sink that was recreated since are those of another topic.
    known = [r.sink for r in recreated.values() if r.sink and sink and r.sink_id == sink_id]
    if sources > 1 or not known:
        reason = f"{_ACCEPTED}; the audit does not judge records that may be output of the old one"
        return begin, [Doubt(reason, lanes=recreated)], []
    later = {
        (t, p): max(first, min(ends.get(p, 0) for ends in known)) if t == sink else first
        for (t, p), first in begin.items()
    }
    places = ", ".join(f"{t}-{p}@{offset}" for (t, p), offset in later.items() if offset > begin[t, p])
    judged = f"; the audit judges the sink from {places}" if places else " before the sink had any records"
    return later, [], [_ACCEPTED + judged]


def reader_disagrees(sent: int, counted: int) -> list[Doubt]:
    """A doubt if the audit's reader read another number of source records than a second client."""
    reason = (
        f"the audit's reader has {sent} source records, and another client has {counted} in the same offsets; the "
        "audit does not judge records that it does not expect; run it again"
    )
    return [] if sent == counted else [Doubt(reason)]


def refused_late(rows: int) -> list[Doubt]:
    """A doubt if the table refuses rows of source records that the positions have not passed."""
    what = "1 row that" if rows == 1 else f"{rows} rows that"
    reason = (
        f"the table does not take {what} the transform returns for records behind the positions; the audit does not "
        "judge them, and the job halts at them: change the transform or the table"
    )
    return [Doubt(reason)] if rows else []


def passed_although_malformed(refused: int) -> list[str]:
    """A note on malformed records that the positions have passed and must not have."""
    records = "record" if refused == 1 else "records"
    note = f"the positions have passed {refused} malformed {records} although onMalformed is fail; they count as lost"
    return [note] if refused else []
