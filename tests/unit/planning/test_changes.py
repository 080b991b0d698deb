"""The class of a change agrees with its effect on the rendered job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ackwright.api.fields import ChangeClass
from ackwright.api.spec import DeliveryPipeline, parse
from ackwright.planning.changes import changes
from ackwright.planning.plan import plan
from ackwright.render.workload import objects
from ackwright.settings import OperatorSettings

EXAMPLE = Path(__file__).parents[3] / "examples" / "delayed-flights-exactly-once.yaml"

EDITS: dict[str, tuple[str, Any]] = {
    "spec.guarantee": ("guarantee", "at-least-once"),
    "spec.tolerate.brokerFailures": ("tolerate", {"brokerFailures": 0}),
    "spec.kafka.bootstrapServers": ("kafka", {"bootstrapServers": "other:9092"}),
    "spec.source.maxOffsetsPerTrigger": ("source", {"maxOffsetsPerTrigger": 7}),
    "spec.transform.sql": ("transform", {"sql": "SELECT tailnum AS key, origin FROM source"}),
    "spec.sink.kafka.topic": ("sink", {"kafka": {"topic": "elsewhere", "format": "json"}}),
    "spec.trigger.interval": ("trigger", {"interval": "7s"}),
    "spec.spark.executor.instances": ("spark", {"executor": {"instances": 3}}),
    "spec.suspend": ("suspend", True),
}


def edited(field: str, value: Any) -> DeliveryPipeline:
    document = yaml.safe_load(EXAMPLE.read_text())
    present = document["spec"].get(field)
    document["spec"][field] = {**present, **value} if isinstance(present, dict) and field != "sink" else value
    return parse(document)


def pod(pipeline: DeliveryPipeline) -> Any:
    """The pod template of the driver."""
    return objects(pipeline, plan(pipeline), "uid", OperatorSettings(), identity="uid")[-1]["spec"]["template"]


@pytest.mark.parametrize("field", EDITS)
def test_a_change_restarts_the_job_exactly_if_its_class_says_so(field: str) -> None:
    before, after = parse(yaml.safe_load(EXAMPLE.read_text())), edited(*EDITS[field])
    edits = changes(before, after)
    assert field in {edit.field for edit in edits}
    restarts = any(edit.change is ChangeClass.RESTART for edit in edits)
    assert restarts == (pod(before) != pod(after))


def test_equal_specs_have_no_changes() -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    assert changes(parse(document), parse(document)) == ()


def test_changing_the_group_or_removing_partitions_is_immutable() -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    before = parse(document)
    document["spec"]["source"]["groupId"] = "another"
    document["spec"]["topics"][0]["partitions"] -= 1
    classes = {edit.field: edit.change for edit in changes(before, parse(document))}
    name = document["spec"]["topics"][0]["name"]
    assert classes == {
        "spec.source.groupId": ChangeClass.IMMUTABLE,
        f"spec.topics.{name}.partitions": ChangeClass.IMMUTABLE,
    }


def with_volume(**volume: str) -> DeliveryPipeline:
    return edited("checkpoint", {"volume": volume})


def test_a_volume_may_grow_while_the_job_runs() -> None:
    before, after = with_volume(size="1024Mi"), with_volume(size="2Gi")
    assert [(c.field, c.change) for c in changes(before, after)] == [("spec.checkpoint.volume.size", ChangeClass.LIVE)]
    assert pod(before) == pod(after)


@pytest.mark.parametrize(("size", "storage"), [("1023Mi", {}), ("1Gi", {"storageClassName": "other"})])
def test_a_volume_neither_shrinks_nor_changes_its_class(size: str, storage: dict[str, str]) -> None:
    edits = changes(with_volume(size="1Gi"), with_volume(size=size, **storage))
    assert [edit.change for edit in edits] == [ChangeClass.IMMUTABLE]
