"""Properties that another program removes from a table: the next driver halts, and delivers nothing again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackwright_stream import ownership
from ackwright_stream.cluster import Cluster, Topology
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from integration.support.iceberg_stores import Table, job
from integration.support.staged_drivers import COLUMNS, IDS, A, B, Driver, Frame

OTHER = Lane("other", 0)
OTHER_ID = {"other": "Zt6fNxVcQbu0M2yEw1RLsA"}
DELIVERED = {A: 10, B: 5}


def take(spec: JobSpec, lanes: Sequence[Lane] = (A, B), ids: Mapping[str, str] = IDS) -> Mapping[Lane, int]:
    """Where a new driver begins. ids: of the source topics. Each lane has 100 records."""
    frame: Any = Frame(COLUMNS)
    sink = IcebergStore(spec)
    sink.prepare(frame)
    topology = Topology(ids, dict.fromkeys(lanes, 0), dict.fromkeys(lanes, 100))
    return ownership.take(spec, cast(Cluster, SimpleNamespace(topology=lambda: topology)), sink).positions


def error_of(spec: JobSpec, lanes: Sequence[Lane] = (A, B), ids: Mapping[str, str] = IDS) -> JobError:
    """Why a new driver halts."""
    with pytest.raises(JobError) as caught:
        take(spec, lanes, ids)
    return caught.value


def remove(table: Table, *names: str) -> dict[str, str]:
    """Another program removes these properties. Returns them."""
    before = table.properties()
    with table.handle().transaction() as change:
        change.remove_properties(*names)
    return {name: before[name] for name in names}


def restore(table: Table, properties: Mapping[str, str]) -> None:
    with table.handle().transaction() as change:
        change.set_properties(dict(properties))


def of_topics(spec: JobSpec, *topics: str) -> JobSpec:
    return replace(spec, source=replace(spec.source, topics=topics))


@pytest.fixture
def spec(table: Table, tmp_path: Path) -> JobSpec:
    """A pipeline that has delivered, and whose driver was killed."""
    spec = job(tmp_path, table)
    Driver(spec, list(DELIVERED)).deliver(*(Range(lane, 0, until) for lane, until in DELIVERED.items()))
    return spec


def test_each_property_that_is_removed_halts_the_next_driver(table: Table, spec: JobSpec) -> None:
    prefix = f"ackwright/{spec.group}"
    names = [name for name in table.properties() if name.startswith(prefix)]
    halts = {}
    for name in names:
        removed = remove(table, name)
        try:
            assert take(spec) == DELIVERED, name
        except JobError as e:
            halts[name] = e.reason
        restore(table, removed)
        assert take(spec) == DELIVERED, "the driver continues once the property is there again"
    # A commit writes both of these before anything reads them.
    rewritten = {f"{prefix}/topics", f"{prefix}/snapshot"}
    lost = dict.fromkeys(names, Reason.POSITION_LOST)
    assert halts == {
        name: reason
        for name, reason in {**lost, f"{prefix}/driver": Reason.POSITIONS_MOVED}.items()
        if name not in rewritten
    }
    assert f"{prefix}/in/id/4" in names, "it ends the topic's id"


def test_a_message_says_which_property_is_missing(table: Table, spec: JobSpec) -> None:
    lane = f"ackwright/{spec.group}/in/0/{IDS['in']}"
    for name, text in (
        (f"{lane}/first", f"removed a number of the pipeline from the table ({lane}/first), so it is not known"),
        (lane, f"1 lane of group {spec.group} had a position and has none any more (in-0)"),
    ):
        removed = remove(table, name)
        assert text in error_of(spec).message
        restore(table, removed)


def test_a_driver_halts_if_all_properties_of_its_topics_are_removed(table: Table, spec: JobSpec) -> None:
    prefix = f"ackwright/{spec.group}"
    assert take(of_topics(spec, "in", "other"), (A, B, OTHER), {**IDS, **OTHER_ID}) == {**DELIVERED, OTHER: 0}
    names = [name for name in table.properties() if name.startswith(f"{prefix}/in/")]
    removed = remove(table, *names)
    error = error_of(of_topics(spec, "in", "other"), (A, B, OTHER), {**IDS, **OTHER_ID})
    assert error.reason is Reason.POSITION_LOST
    assert f"removed a number of the pipeline from the table ({prefix}/in/id/0)" in error.message
    restore(table, removed)

    assert take(spec) == DELIVERED
    remove(table, *names)
    assert error_of(spec).reason is Reason.POSITION_LOST


def test_a_pipeline_that_reads_other_topics_than_before_begins_them(table: Table, spec: JobSpec) -> None:
    """The driver before has settled none of them."""
    assert take(of_topics(spec, "other"), [OTHER], OTHER_ID) == {OTHER: 0}
    assert take(spec) == DELIVERED


def test_a_pipeline_begins_again_once_the_loss_of_all_its_topics_is_accepted(table: Table, spec: JobSpec) -> None:
    recreated = {"in": "short-id"}
    assert error_of(spec, ids=recreated).reason is Reason.TOPIC_REPLACED
    assert take(replace(spec, accepted_losses=IDS), ids=recreated) == {A: 0, B: 0}
    assert take(spec, ids=recreated) == {A: 0, B: 0}


def test_a_driver_that_was_killed_after_its_join_has_lost_nothing(table: Table, tmp_path: Path) -> None:
    frame: Any = Frame(COLUMNS)
    spec = job(tmp_path, table)
    first = IcebergStore(spec)
    first.prepare(frame)
    first.join([A, B])
    assert take(spec) == {A: 0, B: 0}


def test_a_position_that_is_set_by_hand_where_one_was_lost_is_accepted_once(table: Table, spec: JobSpec) -> None:
    """As docs/recover.md has it."""
    name = f"ackwright/{spec.group}/in/0/{IDS['in']}"
    remove(table, name)
    assert error_of(spec).reason is Reason.POSITION_LOST
    restore(table, {name: "7", f"ackwright/{spec.group}/driver": "0"})
    error = error_of(spec)
    assert error.reason is Reason.POSITIONS_MOVED
    assert take(replace(spec, accepted_positions=error.fingerprint)) == {A: 7, B: 5}
    assert take(spec) == {A: 7, B: 5}


def test_a_position_that_is_set_by_hand_for_a_new_partition_gets_its_record(table: Table, spec: JobSpec) -> None:
    """The partition was added while no driver ran."""
    new = Lane("in", 2)
    name = f"ackwright/{spec.group}/in/2/{IDS['in']}"
    restore(table, {name: "7", f"ackwright/{spec.group}/driver": "0"})
    error = error_of(spec, [A, B, new])
    assert error.reason is Reason.POSITIONS_MOVED
    assert take(replace(spec, accepted_positions=error.fingerprint), [A, B, new]) == {**DELIVERED, new: 7}
    assert take(spec, [A, B, new]) == {**DELIVERED, new: 7}
    assert table.properties()[f"{name}/first"] == "7"
    assert table.properties()[f"ackwright/{spec.group}/in/0/{IDS['in']}/first"] == "0", "an earlier one stays"


def test_a_table_of_an_earlier_release_has_no_number_of_its_topics(table: Table, spec: JobSpec) -> None:
    remove(table, f"ackwright/{spec.group}/topics")
    assert take(spec) == DELIVERED
    assert f"ackwright/{spec.group}/topics" in table.properties()
