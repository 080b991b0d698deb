"""spec.sink.postgres: what is refused, what the job gets, and what the plan and explain show."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from ackwright.api.fields import ChangeClass
from ackwright.api.spec import examine, parse
from ackwright.cli.plan import sections
from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe.cluster import job_premises
from ackwright.planning.acls import Operation
from ackwright.planning.chain import chain
from ackwright.planning.changes import changes
from ackwright.planning.durability import INTERNAL, broken
from ackwright.planning.guarantees import values
from ackwright.planning.permissions import Role, needs
from ackwright.planning.plan import plan
from ackwright.planning.readiness import Observed, Verdict, checks
from ackwright.planning.suitability import unsuitable
from ackwright.planning.summary import summary
from ackwright.planning.validation import check
from ackwright.render.jobspec import jobspec
from ackwright.render.pods import secret_names
from ackwright_stream.broker_requirements import OtherMembers
from ackwright_stream.jobspec import PostgresSink, from_json, to_json
from unit.fake_kafka import FakeKafka
from unit.planning.durable_topics import part, topic
from unit.planning.good_brokers import GOOD, RACKS

SINK: dict[str, Any] = {
    "host": "db.example.com",
    "database": "shop",
    "credentialsSecret": {"name": "db-login"},
    "tls": {"caSecret": {"name": "db-ca"}},
    "table": "orders",
}
EXAMPLES = Path(__file__).parents[3] / "examples"
UPSERT: dict[str, Any] = {"mode": "upsert", "key": ["id"]}


def document(guarantee: str = "exactly-once", **sink: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "p"},
        "spec": {
            "guarantee": guarantee,
            "kafka": {"bootstrapServers": "k:9092"},
            "source": {"topics": ["in"]},
            "transform": {"sql": "SELECT 1 AS id FROM source"},
            "sink": {"postgres": {**copy.deepcopy(SINK), **sink}},
        },
    }


@pytest.mark.parametrize(
    ("guarantee", "sink", "words"),
    [
        ("exactly-once", {"mode": "upsert"}, "mode upsert needs a key"),
        ("exactly-once", {"key": ["id"]}, "mode append has none"),
        ("exactly-once", {"versionColumn": "v"}, "belong to mode upsert"),
        ("exactly-once", {**UPSERT, "versionColumn": "v", "deletedColumn": "d"}, "at most one of versionColumn"),
        ("exactly-once", {**UPSERT, "versionColumn": "id"}, "must name each column once"),
        ("exactly-once", {"mode": "upsert", "key": ["id", "id"]}, "must name each column once"),
        ("at-least-once", UPSERT, "spec.sink.postgres.versionColumn: must be set for mode upsert"),
        ("at-most-once", {**UPSERT, "deletedColumn": "d"}, "spec.sink.postgres.versionColumn: must be set"),
        ("exactly-once", {"mode": "upsert", "key": ["a\nb"]}, "must be a name without control characters"),
        ("exactly-once", {"mode": "upsert", "key": ["ü" * 32]}, "must have at most 63 bytes in UTF-8"),
        ("exactly-once", {**UPSERT, "versionColumn": "ü" * 32}, "PostgreSQL cuts longer names off, not 64"),
        ("exactly-once", {"table": "orders; DROP"}, "must be a name of at most 63"),
        ("exactly-once", {"host": "a b"}, "must be the name or the address of a host"),
        ("exactly-once", {"port": 0}, "spec.sink.postgres.port"),
        ("exactly-once", {"pasword": "x"}, "unknown field"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(guarantee: str, sink: dict[str, Any], words: str) -> None:
    pipeline, violations = examine(document(guarantee, **sink))
    of_validation = check(pipeline, violations) if pipeline else ()
    (message,) = map(str, (*violations, *of_validation))
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["größe", "日付", "1st", "Order Id", 'q"x', "b`t", "a.b", "%s", "{}", "ü" * 31 + "x"])
def test_a_key_has_the_names_that_postgresql_takes(name: str) -> None:
    assert check(parse(document(mode="upsert", key=[name], versionColumn=f"{name[:20]}2"))) == ()


def test_two_sinks_are_refused_by_name() -> None:
    two = document()
    two["spec"]["sink"]["kafka"] = {"topic": "out"}
    _, (violation,) = examine(two)
    assert "and has kafka and postgres" in str(violation)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_each_guarantee_is_accepted(guarantee: str) -> None:
    assert check(parse(document(guarantee))) == ()
    assert check(parse(document(guarantee, **UPSERT, versionColumn="v"))) == ()


def test_the_job_gets_the_paths_of_the_secrets() -> None:
    pipeline = parse(document())
    job = jobspec(plan(pipeline), master="local[2]", secrets="/secrets")
    sink = job.sink_of(PostgresSink)
    assert (sink.host, sink.port, sink.database) == ("db.example.com", 5432, "shop")
    assert (sink.credentials, sink.tls, sink.ca) == ("/secrets/db-login", True, "/secrets/db-ca/ca.crt")
    assert (sink.schema, sink.table, sink.upsert, sink.key) == ("public", "orders", False, ())
    assert (sink.version_column, sink.deleted_column, sink.create_table) == (None, None, False)
    assert from_json(to_json(job)) == job
    assert secret_names(pipeline) == ("db-login", "db-ca")
    with pytest.raises(AckwrightError, match="names the Secret db-login"):
        jobspec(plan(pipeline), master="local[2]", secrets=None)


def test_the_plan_and_explain_show_the_database() -> None:
    shown = plan(parse(document()))
    titles = dict(sections(shown))
    session = values(titles["Transactions in PostgreSQL"])
    assert (session["synchronous_commit"], session["statement_timeout"]) == ("on", "0")
    assert values(shown.commit)["positions"] == "ackwright.positions"
    links = {link.name: link for link in chain(shown).links}
    assert links["sink table"].subject == "public.orders of database shop"
    assert links["downstream reader"].subject == "application that reads the table"
    unversioned = chain(plan(parse(document(**UPSERT))))
    assert "must be in one partition" in str({link.name: link for link in unversioned.links}["sink table"].caveat)


def test_the_job_needs_nothing_in_kafka_but_its_source() -> None:
    delivery_plan = plan(parse(document()))
    assert delivery_plan.topics == ()
    assert [(need.resource.name, need.operations) for need in needs(delivery_plan)[Role.JOB]] == [
        ("in", (Operation.READ, Operation.DESCRIBE)),
        ("default.p", (Operation.READ, Operation.DESCRIBE)),
    ]


def test_a_pipeline_keeps_its_table() -> None:
    """Its positions, or the rows that they stand for, would stay behind."""
    kafka = document()
    kafka["spec"]["sink"] = {"kafka": {"topic": "out"}}
    edits = changes(parse(kafka), parse(document()))
    assert any(edit.change is ChangeClass.IMMUTABLE for edit in edits)
    for field in ("database", "schema", "table"):
        (edit,) = changes(parse(document()), parse(document(**{field: "other"})))
        assert (edit.field, edit.change) == (f"spec.sink.postgres.{field}", ChangeClass.IMMUTABLE)
    for other in (document(host="other.example.com"), document(port=5433), document(createTable=True)):
        (edit,) = changes(parse(document()), parse(other))
        assert edit.change is ChangeClass.RESTART


def test_internal_topics_and_transactions_of_kafka_do_not_matter() -> None:
    delivery_plan = plan(parse(document()))
    weak = {name: topic(name, config={}, first=part(leader=None)) for name in INTERNAL}
    assert broken(delivery_plan, weak, RACKS) == ()
    of_positions = {"transaction.partition.verification.enable": "false", "offsets.retention.minutes": "1"}
    brokers = {n: {**GOOD, **of_positions, "transaction.max.timeout.ms": "1"} for n in RACKS}
    results = checks(Observed(RACKS, brokers, topics=weak, others=OtherMembers(("another",), False)), delivery_plan, ())
    assert {check.verdict for check in results} == {Verdict.OK}
    kafka = FakeKafka()
    kafka.brokers_settings["1"] = {"transaction.max.timeout.ms": "1"}
    kafka.join("another")
    assert unsuitable(delivery_plan, job_premises(cast(Kafka, kafka), delivery_plan)) is None


def test_the_summary_says_what_is_so_of_a_table() -> None:
    example = yaml.safe_load((EXAMPLES / "orders-to-postgres.yaml").read_text())
    shown = summary(plan(parse(example)))
    assert shown.flow == "orders → table public.orders of database shop"
    assert shown.reader == "nothing"
    assert shown.costs[0].startswith("one transaction of the database per task and micro-batch; a row is visible")
    repeated = summary(plan(parse(document("at-least-once"))))
    assert repeated.reader == "deduplicate"
    assert "acknowledges" not in str(repeated.costs)
