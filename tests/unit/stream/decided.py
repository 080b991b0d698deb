"""A decision, for tests of what follows from it."""

from __future__ import annotations

from ackwright_stream.decisions import Decision
from ackwright_stream.positions import Lane

FIRST, SECOND = Lane("in", 0), Lane("in-2", 1)
# As Spark 4.1 writes them: a version, metadata, and a line for each use of the source.
OFFSETS = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"in":{"0":7},"in-2":{"1":9}}'
DECISION = Decision(
    batch=3,
    driver=2,
    directory="d1",
    query="q1",
    starts={FIRST: 5, SECOND: 9},
    positions={FIRST: 7, SECOND: 9},
    watermark_ms=1_000,
    state={0: (("a",), ("b",)), 1: (("c", "d"), ("e", "f"))},
    records=2,
    digest="00",
    offsets_before="before",
    offsets=OFFSETS,
)
