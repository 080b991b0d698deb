"""The decisions of a stateful pipeline in the snapshots of a real Iceberg table, as the audit reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackwright_stream.audit_decisions import History
from ackwright_stream.audit_sinks.iceberg import IcebergReader
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.sinks.base import StagedRows
from ackwright_stream.sinks.staged import positions as store
from ackwright_stream.sinks.staged.decisions import Decided, note_for_audit
from integration.support.iceberg_stores import Table, add_elsewhere, job
from integration.support.staged_drivers import A, Driver, rows
from unit.stream.decided import DECISION, OFFSETS

SIZE = 5  # records of a batch


def decide(driver: Driver, *batches: int) -> None:
    """Decides batches of one lane; the hash of a decision is the number of its batch plus 1."""
    for number in batches:
        read = driver.sink.read([A])
        start, end = number * SIZE, (number + 1) * SIZE
        decision = replace(
            DECISION, batch=number, starts={A: start}, positions={A: end}, offsets_before=None, offsets=OFFSETS
        )
        answer = driver.task().stage(rows(A, start, end))
        numbers = store.decided(driver.sink.names, number, number + 1)
        decided = Decided(numbers, number or None, note_for_audit(decision.to_json()))
        positions = {A: replace(read[A], offset=end, batch=number)}
        driver.sink.commit(driver.membership, positions, read, StagedRows((answer[1],), answer[0]), decided)


def history(spec: JobSpec) -> tuple[list[int], bool]:
    """The numbers of the batches that the audit knows, and whether it knows that one was decided."""
    spark: Any = None  # decisions are read without it
    with IcebergReader(spark, spec) as reader:
        known = History.of_texts(reader.decisions())
        return [batch.number for batch in known.batches] if known else [], reader.has_decided()


def with_decision(table: Table, spec: JobSpec) -> list[int]:
    """The ids of the snapshots that have a decision."""
    name = f"ackwright/{spec.group}/decision"
    return [s["snapshot-id"] for s in table.metadata["snapshots"] if name in s["summary"]]


def test_each_snapshot_has_the_decision_of_its_batch_until_it_expires(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    assert history(spec) == ([], False)
    driver = Driver(spec)
    assert history(spec) == ([], False)
    decide(driver, 0, 1, 2)
    assert history(spec) == ([0, 1, 2], True)
    first, *others = with_decision(table, spec)

    table.roll_back(first)
    assert history(spec) == ([0, 1, 2], True), "the rows are gone, and the decisions say so"
    table.roll_back(others[-1])
    add_elsewhere(table.handle())
    table.handle().maintenance.expire_snapshots().by_ids([first]).commit()
    assert history(spec) == ([1, 2], True)
    table.handle().maintenance.expire_snapshots().by_ids(others).commit()
    assert history(spec) == ([], True)


def test_a_decision_that_cannot_be_read_ends_the_audit(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    monkeypatch.setattr("ackwright_stream.sinks.iceberg.log._packed", lambda text: text)
    decide(driver, 0)
    with pytest.raises(JobError, match="in the summary of a snapshot cannot be read") as raised:
        history(spec)
    assert raised.value.reason is Reason.STATE_LOST
