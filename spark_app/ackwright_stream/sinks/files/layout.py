"""The names of the sink's files, and what is in them beside rows. Pure.

    <topic>-<partition>.<topic id>/<from>.parquet       the rows of a range that begins at the offset <from>
    <topic>-<partition>.<topic id>/rows-<id>.parquet    rows that move no position (at-least-once, at-most-once)
    batches/<number>.parquet                            of a stateful pipeline: the rows of a batch, with its decision
    _ackwright/state/<number>.json                      what the drivers record (state.py)
    _ackwright/tmp/                                     files that are being written (in a directory alone)

A file is named by the beginning of its range alone, so of two ranges that begin at one offset only one can be there.
That of a batch is named by its number, the one of the file before plus 1: of two files behind one, only one can be
there.
The topic id is in the name of the directory, so a recreated topic, whose offsets begin again, has another one. Readers
of Parquet ignore names that begin with an underscore.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ackwright_stream.positions import Lane, Position

STATE = "_ackwright/state"
BATCHES = "batches"  # no directory of a lane has this name: theirs have the partition and the topic id
TEMPORARY = "_ackwright/tmp"
_NAME = re.compile(r"^(\d{20})\.parquet$")
_ENTRY = re.compile(r"([0-9]{20})\.json")
# The client of Kafka returns ids in base64 with + and /, Kafka's programs print them in the alphabet for URLs.
_URL_SAFE = str.maketrans("+/", "-_")
_PREFIX = "ackwright."  # of the keys in a file's footer


def directory(lane: Lane, topic_id: str) -> str:
    """Where the files of a lane are."""
    return f"{lane}.{topic_id.translate(_URL_SAFE)}"


def file(lane: Lane, topic_id: str, start: int) -> str:
    """The file of the range that begins at this offset."""
    return f"{directory(lane, topic_id)}/{start:020}.parquet"


def before(start: int) -> str:
    """A name that sorts directly in front of that file's: names have the order of the offsets."""
    return f"{start:020}"


BEHIND_FILES = ":"  # sorts behind the digits of their names, and in front of rows-<id>.parquet


def start_of(name: str) -> int | None:
    """The offset at which the range of a file begins, or the number of a batch; None for a file of another kind."""
    match = _NAME.match(name)
    return int(match[1]) if match else None


def batch(number: int) -> str:
    """The file of the batch with this number."""
    return f"{BATCHES}/{number:020}.parquet"


def entry(number: int) -> str:
    """The name of the entry with this number, in the directory STATE."""
    return f"{number:020}.json"


def number_of(name: str) -> int | None:
    """The number of an entry; None for another file, such as an editor's backup of an entry."""
    match = _ENTRY.fullmatch(name)
    return int(match[1]) if match else None


def rows_alone(lane: Lane, topic_id: str) -> str:
    """A new file for rows that move no position."""
    return f"{directory(lane, topic_id)}/rows-{uuid.uuid4()}.parquet"


@dataclass(frozen=True)
class Footer:
    """What a file says of itself, in the key-value metadata of its Parquet footer."""

    lane: Lane
    start: int
    position: Position  # of the lane from this file on; its offset is the end of the range

    def metadata(self, rows: int) -> dict[str, str]:
        """The key-value metadata. It has an id, so no two attempts write equal files."""
        values = {
            "topic": self.lane.topic,
            "partition": self.lane.partition,
            "topicId": self.position.topic_id,
            "from": self.start,
            "until": self.position.offset,
            "driver": self.position.driver,
            "pipeline": self.position.pipeline,
            "rows": rows,
            "id": uuid.uuid4(),
        }
        return {f"{_PREFIX}{key}": str(value) for key, value in values.items()}

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes] | None) -> Footer:
        """The footer with this key-value metadata. Raises KeyError or ValueError for a file of another program."""
        values = {key.decode(): value.decode() for key, value in (metadata or {}).items()}

        def value(key: str) -> str:
            return values[f"{_PREFIX}{key}"]

        lane = Lane(value("topic"), int(value("partition")))
        position = Position(int(value("until")), value("topicId"), int(value("driver")), value("pipeline"))
        return cls(lane, int(value("from")), position)


@dataclass(frozen=True)
class BatchFooter:
    """What the file of a batch says of itself, in the key-value metadata of its Parquet footer."""

    positions: Mapping[Lane, Position]  # of all lanes, behind the batch
    decision: str

    def metadata(self, rows: int) -> dict[str, str]:
        """The key-value metadata. It has an id, so no two attempts write equal files; it comes last, as storage
        requires.
        """
        lanes = [{**asdict(lane), **asdict(position)} for lane, position in sorted(self.positions.items())]
        values = {"decision": self.decision, "positions": json.dumps(lanes), "rows": rows, "id": uuid.uuid4()}
        return {f"{_PREFIX}{key}": str(value) for key, value in values.items()}

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes]) -> BatchFooter:
        """The footer with this key-value metadata. Raises KeyError, TypeError or ValueError for another program's."""
        lanes = json.loads(metadata[f"{_PREFIX}positions".encode()])
        positions = {Lane(lane.pop("topic"), lane.pop("partition")): Position(**lane) for lane in lanes}
        return cls(positions, metadata[f"{_PREFIX}decision".encode()].decode())
