"""The positions that the demo reads in the log of a Delta table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.demo.positions import LogPositions
from ackwright.planning.plan import load, plan
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import DeltaSink
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.staged import positions as store
from unit.documents import ROOT


@pytest.mark.parametrize("topic_id", ["8vFHXbdbR0iRMQJvDAVyxw", "8vFHX/dbR0iRMQJvDAVy/w"])
def test_positions_are_read_whatever_the_topic_id_is(tmp_path: Path, topic_id: str) -> None:
    pipeline, _ = load(ROOT / "examples" / "orders-to-delta.yaml")
    job = jobspec(plan(pipeline), master="local[2]", secrets="/secrets")
    sink = replace(job.sink_of(DeltaSink), path=str(tmp_path))
    names, lanes = store.Names(job.group), [Lane(job.source.topics[0], n) for n in range(2)]
    moved = {lane: Position(7 + lane.partition, topic_id, 1) for lane in lanes}
    numbers = {**store.settled(names, moved), **store.recorded(names, moved, lanes), **store.moved(names, moved)}
    (tmp_path / "_delta_log").mkdir()
    actions = [json.dumps({"txn": {"appId": name, "version": number}}) for name, number in numbers.items()]
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("\n".join(actions))
    assert LogPositions(job, sink).read() == {0: 7, 1: 8}
