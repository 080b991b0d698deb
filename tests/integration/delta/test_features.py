"""Features and properties that another program gives the table while a pipeline runs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.delta.sink import DeltaStore
from integration.support.delta_stores import Table, job
from integration.support.staged_drivers import A, Driver, Frame

AT_MOST_S = 5  # of a call that is refused at once; a commit is repeated for 10 s


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


@pytest.fixture
def spec(table: Table, tmp_path: Path) -> JobSpec:
    return job(tmp_path, table.path)


def enable(table: Table, *features: str, of_readers: Sequence[str] = ()) -> None:
    """Commits a protocol with these features, as another program does."""
    protocol: dict[str, Any] = {"minWriterVersion": 7, "writerFeatures": [*features, *of_readers]}
    protocol |= {"minReaderVersion": 3, "readerFeatures": [*of_readers]} if of_readers else {"minReaderVersion": 1}
    entry = {"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES"}}
    path = table.path / "_delta_log" / f"{table.version + 1:020}.json"
    path.write_text("\n".join(json.dumps(action) for action in (entry, {"protocol": protocol})))


def refused(call: Any, *words: str) -> None:
    """Asserts that the call raises JobError(TABLE_UNSUITABLE) at once, with these words."""
    begin = time.monotonic()
    with pytest.raises(JobError) as caught:
        call()
    assert caught.value.reason is Reason.TABLE_UNSUITABLE, caught.value
    assert time.monotonic() - begin < AT_MOST_S
    for word in words:
        assert word in caught.value.message, caught.value.message


@pytest.mark.parametrize("feature", ["rowTracking", "clustering", "inCommitTimestamp", "featureOfTheFuture"])
def test_a_feature_that_is_enabled_while_a_driver_runs(table: Table, spec: JobSpec, feature: str) -> None:
    """delta-rs refuses a commit for it with the error of a commit that another one has overtaken."""
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    enable(table, feature)
    for call in (lambda: driver.deliver(Range(A, 5, 9)), lambda: driver.sink.join([A]), DeltaStore(spec).check):
        refused(call, f"it uses {feature}, which this sink does not support")
    assert (table.offsets(), table.position(spec.group)) == (list(range(5)), 5)
    enable(table, "appendOnly", "invariants")
    assert driver.deliver(Range(A, 5, 9)) == (Outcome.DONE, 4)


def test_a_feature_of_readers_that_is_enabled_while_a_driver_runs(table: Table, spec: JobSpec) -> None:
    """delta-rs cannot read such a version."""
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    enable(table, of_readers=["featureOfTheFuture"])
    words = ("delta-rs cannot read it", "Feature 'featureOfTheFuture' is not supported")
    frame: Any = Frame()
    for call in (
        lambda: driver.deliver(Range(A, 5, 9)),
        lambda: driver.sink.join([A]),
        DeltaStore(spec).check,
        lambda: DeltaStore(spec).prepare(frame),
    ):
        refused(call, *words)
    assert (table.offsets(), table.position(spec.group)) == (list(range(5)), 5)


def test_a_table_that_a_catalog_manages_cannot_be_read(table: Table, spec: JobSpec) -> None:
    Driver(spec)
    enable(table, "inCommitTimestamp", of_readers=["catalogManaged"])
    refused(DeltaStore(spec).check, "catalog-managed")


@pytest.mark.parametrize("interval", ["0", "-3", "abc", ""])
def test_an_interval_of_checkpoints_that_is_no_number_is_that_of_the_sink(
    table: Table, spec: JobSpec, interval: str
) -> None:
    Driver(spec)
    set_property(table, "delta.checkpointInterval", interval)
    driver = Driver(replace(spec, sink=replace(spec.sink, commit={"timeout.ms": "2000", "checkpoint.interval": "4"})))
    for offset in range(5):
        assert driver.deliver(Range(A, offset, offset + 1)) == (Outcome.DONE, 1)
    assert list((table.path / "_delta_log").glob("*.checkpoint.parquet"))
    assert DeltaTable(str(table.path)).to_pyarrow_table().num_rows == 5


def set_property(table: Table, name: str, value: str) -> None:
    """Commits the property, as a program that does not check it."""
    log = table.path / "_delta_log"
    (metadata,) = [a["metaData"] for a in map(json.loads, (log / f"{0:020}.json").open()) if "metaData" in a]
    metadata["configuration"][name] = value
    (log / f"{table.version + 1:020}.json").write_text(json.dumps({"metaData": metadata}))
