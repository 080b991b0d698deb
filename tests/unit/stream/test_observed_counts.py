"""Counts that Spark observes are read once for each batch, however often a query checks for new ones."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from ackwright_stream import ownership, source
from ackwright_stream.progress import Progress
from ackwright_stream.query import Query
from minimal_job import minimal_job

NOTHING: Any = None


class SparkQuery:
    """A StreamingQuery with the progress of the batches 0 to 99, each with one malformed record."""

    def __init__(self) -> None:
        self.read: list[int] = []  # batches whose JSON was read
        self.requests = 0
        self._jsq = SimpleNamespace(recentProgress=self._recent)
        self.reports = [SimpleNamespace(batchId=lambda n=n: n, json=lambda n=n: self._json(n)) for n in range(100)]

    def _recent(self) -> list[Any]:
        self.requests += 1
        return self.reports

    def _json(self, number: int) -> str:
        self.read.append(number)
        return json.dumps({"batchId": number, "observedMetrics": {source.METRICS: {"malformed": 1}}})


def test_each_batch_is_read_once_and_nothing_without_a_new_batch() -> None:
    job = minimal_job(skip_malformed=True)
    progress = Progress(job)
    subject = Query(NOTHING, job, ownership.Ownership({}, 0, NOTHING), progress, NOTHING)
    query: Any = SparkQuery()
    subject._count_observed(query)
    assert query.requests == 0
    subject._observed, subject._delivered = 96, 99
    for _ in range(3):
        subject._count_observed(query)
    assert sorted(query.read) == [97, 98, 99]
    assert query.requests == 1
    assert progress.snapshot().malformed_records == 3
