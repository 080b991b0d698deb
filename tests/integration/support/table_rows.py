"""Judges rows and positions that a sink of files holds: rows without an order, positions as numbers by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from integration.support.pipelines import Record, Verdict, judge


def judge_rows(rows: Iterable[Mapping[str, Any]], partitions: int, fed: int) -> Verdict:
    """What a table has, compared with what feed() has sent. Rows have no order, so none is out of it."""
    ordered = sorted(((row["key"], row["value"]) for row in rows), key=lambda row: [int(n) for n in row[1].split(b":")])
    records = [Record("", int(value.split(b":")[0]), n, key, value, ()) for n, (key, value) in enumerate(ordered)]
    return judge(records, partitions, fed)


def offsets_by_name(numbers: Mapping[str, Any], group: str, topic: str, partitions: int) -> list[int]:
    """The positions of a topic's partitions. numbers: those of the table, by name."""
    lanes = [f"ackwright/{group}/{topic}/{partition}/" for partition in range(partitions)]
    offsets = [
        int(number)
        for lane in lanes
        for name, number in numbers.items()
        if name.startswith(lane) and not name.endswith("/first")
    ]
    assert len(offsets) == partitions
    return offsets
