"""The batches of a stateful pipeline as their decisions record them, for the audit.

Pure. It shares no code with the job, because it must be right when the job is wrong. What a decision has:
docs/protocol.md#stateful-pipelines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from ackwright_stream.audit_kafka import Lane
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason


@dataclass(frozen=True)
class DecidedBatch:
    """One batch. Times are in milliseconds since 1970; 0: none."""

    number: int
    start: Mapping[Lane, int]  # of every lane: the first offset that is not in a batch before
    end: Mapping[Lane, int]  # the first offset behind it
    # Records whose window had ended before this were not counted: the watermark with which the batch before began.
    late_before: int
    emitted_before: int  # in append mode, windows that have ended before this are in the output: its own watermark
    records: int  # of its output
    accepted_loss: bool = False  # whether its state began empty in place of a lost one


@dataclass(frozen=True)
class History:
    """The last batches of one state, without a gap in their numbers, oldest first; one at least."""

    batches: tuple[DecidedBatch, ...]

    @property
    def last(self) -> DecidedBatch:
        return self.batches[-1]

    @property
    def is_complete(self) -> bool:
        """Whether it has every batch since the state was empty."""
        return self.batches[0].number == 0

    @property
    def begin(self) -> Mapping[Lane, int]:
        """Where the state began to count in each lane; a lane that was added later begins with its first batch."""
        first: dict[Lane, int] = {}
        for batch in self.batches:
            for lane, offset in batch.start.items():
                first.setdefault(lane, offset)
        return first

    @property
    def records(self) -> int:
        """Of the output of all batches."""
        return sum(batch.records for batch in self.batches)

    def skipped(self) -> int:
        """Offsets between two batches that are in neither."""
        return sum(max(0, gap) for gap in self._gaps())

    def repeated(self) -> int:
        """Offsets that are in two batches."""
        return sum(max(0, -gap) for gap in self._gaps())

    def _gaps(self) -> list[int]:
        return [
            after.start[lane] - end
            for before, after in pairwise(self.batches)
            for lane, end in before.end.items()
            if lane in after.start
        ]

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> Self | None:
        """The history in a pipeline's decisions, oldest first; None if there are none.

        Compaction removes old ones. The first decision of a new state has the number 0. Raises JobError(STATE_LOST) for
        a text that is no decision.
        """
        batches: list[DecidedBatch] = []
        for text in texts:
            batch = _batch(text)
            if batches and batch.number != batches[-1].number + 1:
                batches.clear()
            batches.append(batch)
        return cls(tuple(batches)) if batches else None


def _batch(text: str) -> DecidedBatch:
    try:
        data = json.loads(text)
        return DecidedBatch(
            number=int(data["batch"]),
            start=_offsets(data["starts"]),
            end=_offsets(data["positions"]),
            late_before=_watermark(data["offsets_before"]),
            emitted_before=_watermark(data["offsets"]),
            records=int(data["records"]),
            accepted_loss="accepted_loss" in data,
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
        raise JobError(
            Reason.STATE_LOST, f"a decision of the pipeline cannot be read ({e!r}); use the audit of the job's release"
        ) from e


def _watermark(log_entry: str | None) -> int:
    """The watermark in an entry of Spark's log of offsets: the second line is JSON; 0 without an entry."""
    if log_entry is None:
        return 0
    metadata: Mapping[str, Any] = json.loads(log_entry.splitlines()[1])
    return int(metadata["batchWatermarkMs"])


def _offsets(by_name: Mapping[str, Any]) -> dict[Lane, int]:
    named = ((name.rpartition("-"), offset) for name, offset in by_name.items())
    return {(topic, int(partition)): int(offset) for (topic, _, partition), offset in named}
