"""The seam between the audit and the sinks whose content it judges. No part of it commits, or imports code that does.

The order of the reads is audit.py, the same for every sink: the positions, the content of the sink, and then how far
the source explains that content.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame

from ackwright_stream.audit_kafka import Lane, LaneStart
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison


@dataclass(frozen=True)
class Output:
    """The transform's output over a range of the source, computed again."""

    records: DataFrame  # with the columns of the sink
    source: Sequence[Lane]  # all lanes
    lanes: Sequence[int]  # of each Spark partition, the number of its lane in `source`
    ordered: bool = True  # whether its rows are in the order of the source
    last_of_key: bool = False  # whether only the last record of each key in the sink is compared with it
    # Of columns with sums or averages of fractions, the relative tolerance (audit_fractions.py).
    tolerances: Mapping[str, float] = field(default_factory=dict)
    # Columns of the transform's output that are not compared, and that SinkReader.without() has left out of `records`.
    left_out: Collection[str] = ()
    keys_only: bool = False  # whether keys are compared, each once; only of a reader with writes_apart


class SinkReader(Protocol):
    """Reads one pipeline's sink once. Every method raises JobError."""

    @property
    def precedes_positions(self) -> bool:
        """Whether the content may be of records that the positions have not passed, also under exactly-once."""
        ...

    def lane_starts(self) -> Mapping[Lane, LaneStart]:
        """Where each lane began, as far as the store records it."""
        ...

    def positions(self, lanes: Collection[Lane]) -> Mapping[Lane, int | None]:
        """The positions, None where there is none. Called before and after fix_content()."""
        ...

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        """The transform's output in the sink's columns. Contacts no server."""
        ...

    def dead_letters(self) -> SinkReader | None:
        """A reader of the pipeline's dead letters, for which they are the output. None: it has none.

        Its to_sink_columns() takes the columns of source.malformed(). It compares all but the reasons, because the
        audit decodes records with separate code.
        """
        ...

    def fix_content(self, required: Output, starts: Mapping[Lane, LaneStart]) -> tuple[list[Doubt], list[str]]:
        """Fixes what is compared: the content of the sink up to now. Returns what cannot be judged of it, and notes.

        Later writes do not count. required: the output that must be in the sink. starts: where the lanes began.
        """
        ...

    def compare(self, required: Output, late: Output | None, doubts: Sequence[Doubt], counted: int) -> Comparison:
        """Compares the fixed content with the output.

        late: output of records that the positions had not passed, which may be in the sink or not. doubts: what cannot
        be judged so far. counted: how many source records `required` comes from, as another client counts them; if
        Spark has read another number, the sink's other content cannot be judged.
        """
        ...


@runtime_checkable
class DecidingReader(SinkReader, Protocol):
    """Reads a sink that stateful pipelines can have."""

    @property
    def writes_apart(self) -> bool:
        """Whether output is written outside of the commit of its decision, under guarantees but exactly-once."""
        ...

    def decisions(self) -> Sequence[str]:
        """The decisions of the pipeline that the store still has, oldest first."""
        ...

    def tolerances(self, output: DataFrame, rounded: Mapping[str, float]) -> Mapping[str, float] | None:
        """Output.tolerances, by the columns of to_sink_columns(). None: the sink has such a number where it is compared
        exactly. rounded: the same by the columns of the transform's output.
        """
        ...

    def without(self, rows: DataFrame, columns: Collection[str]) -> DataFrame | None:
        """The rows of to_sink_columns() without what these columns of the transform's output are; None if a key has it,
        or if nothing is left."""
        ...

    def has_decided(self) -> bool:
        """Whether the pipeline has decided a batch, also if the store has none of its decisions any more."""
        ...

    def key_columns(self, *, last_of_key: bool) -> Sequence[str]:
        """The columns of the output by which compare() takes one record for each key; none: it takes each record.

        last_of_key: as Output.last_of_key.
        """
        ...
