"""A new sink is one module and its registration: nothing else in the operator names it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ackwright.api.crd import crd
from ackwright.api.fields import ChangeClass
from ackwright.api.spec import examine
from ackwright.api.status import Status
from ackwright.cli.plan import described, sections
from ackwright.planning.acls import Operation
from ackwright.planning.chain import chain
from ackwright.planning.changes import changes
from ackwright.planning.declared import needed_topics
from ackwright.planning.guarantees import values
from ackwright.planning.permissions import Role, needs
from ackwright.planning.plan import DeliveryPlan, plan
from ackwright.planning.validation import check, validations
from ackwright.render.jobspec import jobspec
from ackwright.sinks.registry import SinkSpec
from ackwright_stream.jobspec import to_json
from unit.sinks.table_sink import PipelineWithTable, SinkSpecWithTable, TableSink

OPERATOR = Path(__file__).parents[3] / "operator" / "ackwright"


def document(guarantee: str = "exactly-once", sink: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "p"},
        "spec": {
            "guarantee": guarantee,
            "kafka": {"bootstrapServers": "k:9092"},
            "source": {"topics": ["in"]},
            "transform": {"sql": "SELECT key, value FROM source"},
            "sink": {"table": {"name": "rows"}} if sink is None else sink,
        },
    }


def pipeline(guarantee: str = "exactly-once", sink: dict[str, Any] | None = None) -> PipelineWithTable:
    parsed, violations = examine(document(guarantee, sink), PipelineWithTable)
    assert not violations
    assert isinstance(parsed, PipelineWithTable)
    return parsed


@pytest.fixture
def delivery_plan() -> DeliveryPlan:
    return plan(pipeline())


def test_the_model_is_part_of_the_spec() -> None:
    assert pipeline().spec.sink.declared == TableSink(name="rows")
    _, violations = examine(document(sink={"table": {"nam": "rows"}}), PipelineWithTable)
    assert [str(v) for v in violations] == ["spec.sink.table.nam = 'rows': unknown field; did you mean name?"]
    _, violations = examine(document(sink={"table": {"name": "rows"}, "kafka": {}}), PipelineWithTable)
    assert "must have exactly one of kafka, postgres, delta, iceberg, files, table, and has kafka and table" in str(
        violations[0]
    )


def test_the_crd_has_its_schema_and_its_checks() -> None:
    generated = crd(PipelineWithTable, Status, validations(SinkSpecWithTable))
    spec = generated["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    table = spec["properties"]["sink"]["properties"]["table"]
    assert table["description"] == "A table."
    assert table["properties"]["name"] == {
        "type": "string",
        "description": "The name of the table.",
        "maxLength": 1024,
        "pattern": r"\S",
    }
    assert table["required"] == ["name"]
    assert "has(self.table)" in spec["properties"]["sink"]["x-kubernetes-validations"][0]["rule"]
    (entry,) = (entry for entry in spec["x-kubernetes-validations"] if entry.get("fieldPath") == ".sink.table")
    assert entry["message"] == "a table cannot deliver at most once; declare another guarantee"


def test_its_validations_run_with_the_others() -> None:
    assert check(pipeline()) == ()
    (violation,) = check(pipeline("at-most-once"))
    assert str(violation) == (
        "spec.sink.table: a table cannot deliver at most once, and rows is one; declare another guarantee"
    )
    assert check(pipeline("at-most-once", {"kafka": {"topic": "out"}})) == (), "validations of other sinks do not run"


def test_the_plan_shows_its_settings(delivery_plan: DeliveryPlan) -> None:
    titles = dict(sections(delivery_plan))
    assert values(titles["Connection of each task (table)"]) == {"synchronous": "full"}
    assert values(titles["Source, transform and sink"])["sink.table"] == "rows"
    assert described(delivery_plan)["sink"] == {"table": "rows", "kind": "table"}
    assert delivery_plan.producer == ()


def test_explain_has_its_link_and_no_topic_of_the_sink(delivery_plan: DeliveryPlan) -> None:
    links = chain(delivery_plan)
    assert [link.name for link in links.links] == [
        "upstream producer",
        "source topic",
        "Spark source",
        "transform",
        "table",
        "commit",
        "downstream consumer",
    ]
    assert links.weakest.subject == "rows"


def test_its_permissions_are_those_of_the_job(delivery_plan: DeliveryPlan) -> None:
    of_job = needs(delivery_plan)[Role.JOB]
    assert [need.why for need in of_job if Operation.IDEMPOTENT_WRITE in need.operations] == ["needs it for the test"]
    assert needed_topics(pipeline()) == ("in",)


def test_the_job_gets_its_part(delivery_plan: DeliveryPlan) -> None:
    job = jobspec(delivery_plan, master="local[2]", secrets=None)
    assert json.loads(to_json(job))["sink"] == {"table": "rows", "kind": "table"}
    assert job.sink_options == {"synchronous": "full"}


def test_a_change_of_it_has_a_class() -> None:
    (edit,) = changes(pipeline(), pipeline(sink={"table": {"name": "other"}}))
    assert (edit.field, edit.change) == ("spec.sink.table.name", ChangeClass.RESTART)


def test_control_the_operators_own_spec_does_not_know_it() -> None:
    _, violations = examine(document())
    assert str(violations[0]).startswith("spec.sink.table: unknown field")
    assert "table" not in SinkSpec.built()


def test_no_other_module_names_a_sink() -> None:
    """Planning and rendering call the sink; the command line only replaces addresses of Kafka."""
    allowed = {"cli/brokers.py"}
    naming = {
        str(path.relative_to(OPERATOR))
        for path in OPERATOR.rglob("*.py")
        if path.parent.name != "sinks" and re.search(r"spec\.sink\.kafka(\.| if\b)|\bKafkaSink\b", path.read_text())
    }
    assert naming <= allowed
