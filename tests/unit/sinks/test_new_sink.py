"""A new sink is one module per package and its registration: nothing else in operator, job and audit names it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ackwright.api.crd import crd
from ackwright.api.fields import ChangeClass
from ackwright.api.spec import examine
from ackwright.api.status import Status
from ackwright.cli.plan import described, sections
from ackwright.planning.acls import Kind, Operation
from ackwright.planning.chain import chain
from ackwright.planning.changes import changes
from ackwright.planning.clusters import needed_topics
from ackwright.planning.guarantees import values
from ackwright.planning.judgement import judge
from ackwright.planning.permissions import Role, needs
from ackwright.planning.plan import DeliveryPlan, plan
from ackwright.planning.validation import check, validations
from ackwright.render.jobspec import jobspec
from ackwright.sinks.registry import SinkSpec
from ackwright_stream.jobspec import Reason, from_json, to_json
from sqlite.jobspec import SqliteSpec
from sqlite.operator import PipelineWithSqlite, SinkSpecWithSqlite, SqliteSink

ROOT = Path(__file__).parents[3]
OPERATOR, JOB = ROOT / "operator" / "ackwright", ROOT / "spark_app" / "ackwright_stream"


def document(
    guarantee: str = "exactly-once",
    sink: dict[str, Any] | None = None,
    sql: str = "SELECT key, value FROM source",
    **spec: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "p"},
        "spec": {
            "guarantee": guarantee,
            "kafka": {"bootstrapServers": "k:9092"},
            "source": {"topics": ["in"]},
            "transform": {"sql": sql},
            "sink": {"sqlite": {"path": "rows.db"}} if sink is None else sink,
            **spec,
        },
    }


def pipeline(guarantee: str = "exactly-once", sink: dict[str, Any] | None = None, **more: Any) -> PipelineWithSqlite:
    parsed, violations = examine(document(guarantee, sink, **more), PipelineWithSqlite)
    assert not violations
    assert isinstance(parsed, PipelineWithSqlite)
    return parsed


@pytest.fixture
def delivery_plan() -> DeliveryPlan:
    return plan(pipeline())


def test_a_sink_that_takes_no_decisions_is_refused_with_state() -> None:
    spec: dict[str, Any] = {"state": {}, "checkpoint": {"volume": {"size": "1Gi"}}}
    counts = pipeline(sql="SELECT key, count(*) FROM source GROUP BY key", **spec)
    (problem,) = check(counts)
    assert (problem.field, problem.problem.partition(",")[0]) == ("spec.state", "is built for sink.kafka")


def test_the_model_is_part_of_the_spec() -> None:
    assert pipeline().spec.sink.declared == SqliteSink(path="rows.db")
    _, violations = examine(document(sink={"sqlite": {"pat": "rows.db"}}), PipelineWithSqlite)
    assert [str(v) for v in violations] == ["spec.sink.sqlite.pat = 'rows.db': unknown field; did you mean path?"]
    _, violations = examine(document(sink={"sqlite": {"path": "rows.db"}, "kafka": {}}), PipelineWithSqlite)
    assert "must have exactly one of kafka, postgres, delta, iceberg, files, sqlite, and has kafka and sqlite" in str(
        violations[0]
    )


def test_the_crd_has_its_schema_and_its_checks() -> None:
    generated = crd(PipelineWithSqlite, Status, validations(SinkSpecWithSqlite))
    spec = generated["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    sqlite = spec["properties"]["sink"]["properties"]["sqlite"]
    assert sqlite["description"] == "A SQLite database."
    assert sqlite["properties"]["path"] == {
        "type": "string",
        "description": "The file of the database.",
        "maxLength": 1024,
        "pattern": r"\S",
    }
    assert sqlite["required"] == ["path"]
    assert "has(self.sqlite)" in spec["properties"]["sink"]["x-kubernetes-validations"][0]["rule"]
    (entry,) = (entry for entry in spec["x-kubernetes-validations"] if entry.get("fieldPath") == ".sink.sqlite.path")
    assert entry["message"] == "a database in memory is lost with its process; name a file, or declare at-most-once"


def test_its_validations_run_with_the_others() -> None:
    in_memory = {"sqlite": {"path": ":memory:"}}
    assert check(pipeline()) == ()
    (violation,) = check(pipeline(sink=in_memory))
    assert str(violation) == (
        "spec.sink.sqlite.path: a database in memory is lost with its process, and :memory: is one; "
        "name a file, or declare at-most-once"
    )
    assert check(pipeline("at-most-once", in_memory)) == ()
    assert check(pipeline(sink={"kafka": {"topic": "out"}})) == (), "validations of other sinks do not run"


def test_what_it_refuses_in_the_output_is_known_before_the_job_runs() -> None:
    assert judge(pipeline()).errors == ()
    (violation,) = judge(pipeline(sql="SELECT key, value, 1 AS more FROM source")).errors
    assert str(violation) == "spec.transform.sql: returns the column more; select key and value"
    assert violation.reason is Reason.INVALID_TRANSFORM


def test_a_standby_needs_a_sink_in_kafka() -> None:
    (violation,) = check(pipeline(standby=True))
    assert "which only sink.kafka uses" in str(violation)
    generated = crd(PipelineWithSqlite, Status, validations(SinkSpecWithSqlite))
    spec = generated["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert "!self.standby || has(self.sink.kafka)" in [e["rule"] for e in spec["x-kubernetes-validations"]]


def test_the_plan_shows_its_settings(delivery_plan: DeliveryPlan) -> None:
    titles = dict(sections(delivery_plan))
    assert values(titles["Transactions in SQLite"]) == {"synchronous": "full"}
    assert values(titles["Source, transform and sink"])["sink.path"] == "rows.db"
    assert described(delivery_plan)["sink"] == {"path": "rows.db", "compare": True, "kind": "sqlite"}
    assert delivery_plan.producer == ()


def test_explain_has_its_link_and_no_topic_of_the_sink(delivery_plan: DeliveryPlan) -> None:
    links = chain(delivery_plan)
    assert [link.name for link in links.links] == [
        "upstream producer",
        "source topic",
        "Spark source",
        "transform",
        "database",
        "commit",
        "downstream reader",
    ]
    assert links.weakest.subject == "rows.db"


def test_its_permissions_are_those_of_the_job(delivery_plan: DeliveryPlan) -> None:
    of_job = needs(delivery_plan)[Role.JOB]
    assert [need.why for need in of_job if Operation.IDEMPOTENT_WRITE in need.operations] == ["needs it for the test"]
    assert needed_topics(plan(pipeline())) == ("in",)


def test_nothing_of_kafkas_positions_is_planned(delivery_plan: DeliveryPlan) -> None:
    assert not delivery_plan.sink.in_kafka
    assert "table positions" in values(delivery_plan.commit).values()
    assert [topic for topic in delivery_plan.topics if topic.internal] == []
    kinds = {need.resource.kind for need in needs(delivery_plan)[Role.JOB]}
    assert Kind.TRANSACTIONAL_ID not in kinds


def test_the_job_gets_its_part(delivery_plan: DeliveryPlan) -> None:
    job = jobspec(delivery_plan, master="local[2]", secrets=None)
    assert job.sink == SqliteSpec("rows.db")
    assert from_json(to_json(job)) == job, "the job reads what the operator writes"
    assert job.sink_options == {"synchronous": "full"}


def test_a_change_of_it_has_a_class() -> None:
    (edit,) = changes(pipeline(), pipeline(sink={"sqlite": {"path": "other.db"}}))
    assert (edit.field, edit.change) == ("spec.sink.sqlite.path", ChangeClass.RESTART)


def test_control_the_operators_own_spec_does_not_know_it() -> None:
    _, violations = examine(document())
    assert str(violations[0]).startswith("spec.sink.sqlite: unknown field")
    assert "sqlite" not in SinkSpec.kinds()


_KINDS = "|".join(SinkSpec.kinds())
_CLASSES = "|".join(sink.__name__ for sink in SinkSpec.kinds().values())
NAMES_A_SINK = re.compile(rf"\bsink\.(?:{_KINDS})\b|\b(?:{_CLASSES})\b")


def naming(package: Path, *known: str) -> set[str]:
    """The modules of a package that name a sink, but for the folders and modules that may."""
    modules = {path.relative_to(package) for path in package.rglob("*.py")}
    others = {path for path in modules if not any(path.is_relative_to(name) for name in known)}
    return {str(path) for path in others if NAMES_A_SINK.search((package / path).read_text())}


def test_no_other_module_names_a_sink() -> None:
    """Planning, rendering and the command line ask the sink; the job and the audit ask the registries.

    The demo declares its pipelines itself. The modules of the job that are listed are clients of one store, which sink
    and audit share.
    """
    assert naming(OPERATOR, "sinks", "local/demo") == set()
    assert (
        naming(
            JOB,
            *("sinks", "audit_sinks", "jobspec.py", "jobspec_sinks.py", "audit_kafka.py"),
            *("postgres_connection.py", "storage_location.py", "iceberg_catalog.py", "iceberg_logins.py"),
        )
        == set()
    )


@pytest.mark.parametrize(
    "text",
    [
        "if pipeline.spec.sink.kafka is None:",
        "sink = pipeline.spec.sink.kafka",
        'Cel("!self.standby || has(self.sink.kafka)")',
        '"use sink.postgres"',
        "isinstance(job.sink, PostgresSink)",
    ],
)
def test_control_each_way_to_name_a_sink_is_recognised(text: str) -> None:
    assert NAMES_A_SINK.search(text)


def test_no_module_compares_with_one_format() -> None:
    """Every decision is a match with assert_never, so that mypy reports each place that a new format changes."""
    comparisons = re.compile(r"(?:\bis(?: not)?|[!=]=|\bin) \(?Format\.")
    files = [path for package in (OPERATOR, JOB) for path in package.rglob("*.py")]
    assert [str(path) for path in files if comparisons.search(path.read_text())] == []
    assert comparisons.search("if format is Format.JSON:")
    for path in files:
        text = path.read_text()
        if "case Format." in text:
            assert len(re.findall(r"case _:\n\s+assert_never\(", text)) == text.count("case _:"), path
