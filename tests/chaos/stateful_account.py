"""What a stateful campaign expects in the sink: an independent count of what was sent. Pure.

The pipeline counts records by id and minute, and writes each count that a batch has changed. So the counts of a group
rise, and the last one is the number of its records. Each accepted loss of the state begins a new *span* of records, in
which every group counts from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from chaos.account import Counts

IDS = 7
SECONDS = 10  # of event time between two records of a partition
WINDOW_S = 60


def group_of(partition: int, n: int) -> tuple[str, int]:
    """The id of a partition's nth record, and the beginning of its window (seconds since 1970)."""
    return f"id{(n + partition) % IDS}", n * SECONDS // WINDOW_S * WINDOW_S


def count_span(starts: Mapping[int, int], ends: Mapping[int, int]) -> Counter[str]:
    """The number of records of each group, as the sink names it. starts and ends: of the span, by partition."""
    groups = (group_of(p, n) for p, end in ends.items() for n in range(starts.get(p, 0), end))
    return Counter(f"{id_} {window}" for id_, window in groups)


def judge(expected: Counter[str], output: Iterable[tuple[str, int]]) -> Counts:
    """Compares the counts of a span, in the order of each partition's log, with what they have to be."""
    written: dict[str, list[int]] = {}
    for group, count in output:
        written.setdefault(group, []).append(count)
    lost = duplicated = disordered = 0
    for group, records in expected.items():
        counts = written.get(group, [0])
        lost += max(0, records - counts[-1])
        duplicated += max(0, counts[-1] - records)
        disordered += sum(after <= before for before, after in pairwise(counts))
    unexpected = sum(len(counts) for group, counts in written.items() if group not in expected)
    return Counts(expected.total(), lost, duplicated, unexpected, disordered)
