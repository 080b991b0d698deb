"""Positions of a pipeline as numbers that a table keeps by name.

Such a number is an application transaction (a `txn` action) of a Delta table, or a property of an Iceberg table. The
table has the last one of each name, also when its older versions are cleaned up. Names begin with `ackwright/<group>/`:

    generation                          raised by each join; every commit of a driver has it
    driver                              the driver's number; 0: the positions were set by hand
    pipeline                            a hash of the first part of the pipeline's identity; 0: of none
    accepted                            the fingerprint of accepted positions
    topics                              a hash of the source topics' names, each of which has an id
    rows                                of a Delta table: a random number of the last rows without positions
    snapshot                            of an Iceberg table: the id of the pipeline's last snapshot
    batch                               of a stateful pipeline: the last decided batch plus 1; 0: none was decided
    decision                            and the hash of its decision (decisions.py)
    <topic>/id/<n>                      the id of the source topic, seven characters to a number
    <topic>/<partition>/<topic id>      the offset of a lane
    <topic>/<partition>/<topic id>/first    where the lane began

A lane's name has the topic id, so a partition that a recreated topic gets later cannot take the offset of the old one.
Pure: the log of each kind of table reads and commits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position

Numbers = Mapping[str, int]  # the numbers of a commit by their names
Lookup = Callable[[str], int | None]  # the number of a name in one version of the table

_TEXT_BYTES = 7  # of a text to a number, which has 63 bits


class Names:
    """The names of one pipeline's numbers."""

    def __init__(self, group: str) -> None:
        self._prefix = f"ackwright/{group}"
        self.generation = f"{self._prefix}/generation"
        self.driver = f"{self._prefix}/driver"
        self.pipeline = f"{self._prefix}/pipeline"
        self.accepted = f"{self._prefix}/accepted"
        self.topics = f"{self._prefix}/topics"
        self.rows = f"{self._prefix}/rows"
        self.snapshot = f"{self._prefix}/snapshot"
        self.batch = f"{self._prefix}/batch"
        self.decision = f"{self._prefix}/decision"

    def topic_id(self, topic: str, part: int) -> str:
        return f"{self._prefix}/{topic}/id/{part}"

    def lane(self, lane: Lane, topic_id: str) -> str:
        return f"{self._prefix}/{lane.topic}/{lane.partition}/{topic_id}"

    def first(self, lane: Lane, topic_id: str) -> str:
        return f"{self.lane(lane, topic_id)}/first"


def read(names: Names, lookup: Lookup, lanes: Iterable[Lane], identity: str) -> dict[Lane, Position | None]:
    """The lanes' positions. identity: JobSpec.identity, which tells whether they are of this pipeline.

    Raises JobError as topic_id() does.
    """
    lanes = list(lanes)
    driver, pipeline = lookup(names.driver) or 0, _pipeline(lookup(names.pipeline) or 0, identity)
    batch = (lookup(names.batch) or 0) - 1
    ids = {topic: topic_id(names, lookup, topic) for topic in {lane.topic for lane in lanes}}
    positions: dict[Lane, Position | None] = {}
    for lane in lanes:
        of_topic = ids[lane.topic]
        offset = None if of_topic is None else lookup(names.lane(lane, of_topic))
        if offset is None:
            positions[lane] = None
        else:
            positions[lane] = Position(offset, of_topic or "", driver, pipeline, None if batch < 0 else batch)
    return positions


def topic_id(names: Names, lookup: Lookup, topic: str) -> str | None:
    """The id of the topic that the positions count in; None if there are none.

    Raises JobError(POSITION_LOST) if a part of it is missing: all lanes of the topic would look new.
    """
    text, part = b"", 0
    while number := lookup(names.topic_id(topic, part)):
        text, part = text + number.to_bytes((number.bit_length() + 7) // 8), part + 1
    if number is None and (part or lookup(names.topic_id(topic, 1)) is not None):
        raise _lost([names.topic_id(topic, part)])
    return text.decode() or None


def recorded_lanes(names: Names, lookup: Lookup, lanes: Iterable[Lane]) -> dict[Lane, str]:
    """Those of the lanes that ever had a position, with the ids of their topics. Raises JobError as topic_id() does.

    A lane without its record counts if its position is there, which may have been set by hand.
    """
    return {
        lane: of_topic
        for lane, of_topic in _with_id(names, lookup, lanes)
        if any(lookup(name) is not None for name in (names.lane(lane, of_topic), names.first(lane, of_topic)))
    }


def require_complete(names: Names, lookup: Lookup, lanes: Iterable[Lane], topics: Collection[str]) -> None:
    """Raises JobError(POSITION_LOST) if another program has removed numbers that the last driver has settled.

    lanes: whose records are required. topics: of the source. A missing position is left to the driver, which compares
    the positions with recorded_lanes().
    """
    driver = lookup(names.driver)
    if driver is None:
        return  # no driver has settled, or the positions count as another program's
    missing = [name for name in (names.generation, names.pipeline) if lookup(name) is None]
    # The last driver may have had other topics: those of this one are new then.
    if lookup(names.topics) == topics_number(topics):
        missing += [names.topic_id(topic, 0) for topic in topics if topic_id(names, lookup, topic) is None]
    # If positions were set by hand, a lane may be new. Earlier releases settle such a lane without its record.
    if driver and lookup(names.topics) is not None:
        missing += [
            names.first(lane, of_topic)
            for lane, of_topic in _with_id(names, lookup, lanes)
            if lookup(names.lane(lane, of_topic)) is not None and lookup(names.first(lane, of_topic)) is None
        ]
    if missing:
        raise _lost(missing)


def moved(names: Names, positions: Mapping[Lane, Position]) -> Numbers:
    """The numbers of a commit that moves positions."""
    return {names.lane(lane, position.topic_id): position.offset for lane, position in positions.items()}


def settled(names: Names, positions: Mapping[Lane, Position]) -> Numbers:
    """The numbers of a commit with which a driver takes lanes, or hands them over: with all that the positions say."""
    numbers = dict(moved(names, positions))
    for lane, position in positions.items():
        numbers |= {names.driver: position.driver, names.pipeline: _number(position.pipeline)}
        numbers |= {names.topic_id(lane.topic, part): n for part, n in enumerate(_chunks(position.topic_id))}
    return numbers


def decided(names: Names, batch: int | None, decision: int) -> Numbers:
    """The numbers of a commit that decides a batch of a stateful pipeline. decision: the hash of its decision."""
    return {**of_batch(names, batch), names.decision: decision}


def of_batch(names: Names, batch: int | None) -> Numbers:
    """The number of the last decided batch; None: there is none."""
    return {names.batch: 0 if batch is None else batch + 1}


def recorded(names: Names, positions: Mapping[Lane, Position], lanes: Iterable[Lane]) -> Numbers:
    """The numbers that record where lanes begin."""
    return {names.first(lane, positions[lane].topic_id): positions[lane].offset for lane in lanes}


def topics_number(topics: Iterable[str]) -> int:
    """The number of the source topics' names."""
    return _hash("/".join(sorted(topics)))


def without_record(names: Names, lookup: Lookup, positions: Mapping[Lane, Position]) -> set[Lane]:
    """The lanes of these positions of which there is no record."""
    return {lane for lane, at in positions.items() if lookup(names.first(lane, at.topic_id)) is None}


def accepted(fingerprint: str) -> int:
    """The number of a fingerprint, which is hexadecimal."""
    return int(fingerprint, 16)


def fingerprint(number: int | None) -> str:
    """The fingerprint that accepted() made a number of; empty if there is none."""
    return "" if number is None else f"{number:012x}"


def _with_id(names: Names, lookup: Lookup, lanes: Iterable[Lane]) -> list[tuple[Lane, str]]:
    """The lanes of topics with an id, each with that id."""
    lanes = list(lanes)
    ids = {topic: topic_id(names, lookup, topic) for topic in {lane.topic for lane in lanes}}
    return [(lane, of_topic) for lane in lanes if (of_topic := ids[lane.topic])]


def _lost(missing: Sequence[str]) -> JobError:
    """The error for numbers that another program has removed."""
    some = ", ".join(sorted(missing)[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    what, them = ("a number", "it") if len(missing) == 1 else (f"{len(missing)} numbers", "them")
    return JobError(
        Reason.POSITION_LOST,
        f"another program has removed {what} of the pipeline from the table ({some}), so it is not known what was "
        f"delivered; set {them} again as an earlier version of the table has {them}",
    )


def _chunks(text: str) -> Iterator[int]:
    """The text as numbers, and a 0 behind it, so that nothing of a longer one from before remains."""
    encoded = text.encode()
    for start in range(0, len(encoded), _TEXT_BYTES):
        yield int.from_bytes(encoded[start : start + _TEXT_BYTES])
    yield 0


def _number(identity: str) -> int:
    """The number that is recorded for an identity: of its first part."""
    first = identity.partition("/")[0]
    return _hash(first) if first else 0


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def _pipeline(number: int, identity: str) -> str:
    """The identity with this number: this pipeline's, none, or one that stands for another pipeline's.

    That of a part of the identity is this pipeline's, see own_or_foreign(). Earlier releases record one of the whole.
    """
    if number in (0, _hash(identity), *map(_hash, identity.split("/"))):
        return identity if number else ""
    return f"another-{number:x}"
