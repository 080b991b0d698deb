"""spec.sink.iceberg: what is refused, what the job gets, and what the plan and explain show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ackwright.api.fields import ChangeClass
from ackwright.api.spec import examine, parse
from ackwright.cli.plan import described, sections
from ackwright.errors import AckwrightError
from ackwright.planning.acls import Operation
from ackwright.planning.chain import chain
from ackwright.planning.changes import changes
from ackwright.planning.guarantees import values
from ackwright.planning.permissions import Role, needs
from ackwright.planning.plan import plan
from ackwright.planning.summary import summary
from ackwright.planning.validation import check
from ackwright.render.jobspec import jobspec
from ackwright.render.pods import secret_names
from ackwright_stream.jobspec import IcebergSink, from_json, to_json

EXAMPLES = Path(__file__).parents[3] / "examples"
REST: dict[str, Any] = {"uri": "https://catalog.example.com/v1", "warehouse": "lake"}
FILE: dict[str, Any] = {"uri": "sqlite:////data/catalog.db", "warehouse": "file:///data/warehouse"}
SIGV4: dict[str, Any] = {"service": "glue", "region": "eu-central-1"}
S3: dict[str, Any] = {"region": "eu-central-1", "credentialsSecret": {"name": "lake-login"}}


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
            "sink": {"iceberg": {"catalog": REST, "table": "shop.orders", **sink}},
        },
    }


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ({"table": "orders"}, "must be a namespace and a table with a dot between them"),
        ({"table": "shop.a b"}, "must be a namespace and a table"),
        ({"catalog": {"uri": "catalog:8181"}}, "must be http:// or https:// with a host, or sqlite:///"),
        ({"catalog": {"uri": "sqlite:///data/catalog.db"}}, "or sqlite:/// with an absolute path"),
        ({"catalog": {"uri": "https://user:secret@catalog"}}, "must be http:// or https:// with a host"),
        ({"catalog": {**REST, "warehouse": "a b"}}, "must be at most 512 characters without spaces"),
        ({"catalog": {**REST, "scope": "a  b"}}, "must be scopes of OAuth 2"),
        ({"catalog": {"uri": FILE["uri"]}}, "a catalog in a file needs a warehouse"),
        ({"catalog": {**FILE, "warehouse": "lake"}}, "a catalog in a file needs a warehouse"),
        ({"catalog": {**FILE, "scope": "a"}}, "a catalog in a file has no credentialsSecret"),
        ({"catalog": {**FILE, "sigv4": SIGV4}}, "a catalog in a file has no credentialsSecret, tokenSecret"),
        ({"catalog": {**FILE, "tokenSecret": {"name": "a"}}}, "a catalog in a file has no credentialsSecret"),
        ({"catalog": {**REST, "tokenSecret": {"name": "a"}, "scope": "b"}}, "tokenSecret has the token"),
        ({"catalog": {**REST, "tokenSecret": {"name": "a"}, "sigv4": SIGV4}}, "tokenSecret has the token"),
        ({"catalog": {**REST, "sigv4": SIGV4, "scope": "a"}}, "requests with sigv4 have no token of OAuth 2"),
        ({"catalog": {**REST, "sigv4": {**SIGV4, "service": "Glue"}}}, "must be the name of a service"),
        ({"catalog": {"uri": "http://catalog", "tls": {}}}, "tls is for an address that begins with https://"),
        ({"partitionColumns": ["day", "day"]}, "must name each column once"),
        ({"partitionColumns": ["a.day"]}, "must be a name of at most 255 characters, without a dot"),
        ({"partitionColumns": ["a\tday"]}, "and control characters"),
        ({"s3": {"endpoint": "minio:9000"}}, "must be http:// or https://"),
        ({"s3": {"region": "EU"}}, "must be the name of a region"),
        ({"mode": "upsert"}, "unknown field"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(sink: dict[str, Any], words: str) -> None:
    pipeline, violations = examine(document(**sink))
    of_validation = check(pipeline, violations) if pipeline else ()
    (message,) = map(str, (*violations, *of_validation))
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
@pytest.mark.parametrize("catalog", [REST, FILE, {"uri": "http://[::1]:8181/iceberg/"}])
def test_each_guarantee_is_accepted(guarantee: str, catalog: dict[str, Any]) -> None:
    assert check(parse(document(guarantee, catalog=catalog))) == ()


def test_the_job_gets_the_place_of_the_table_and_the_paths_of_its_secrets() -> None:
    catalog = {
        **REST,
        "credentialsSecret": {"name": "catalog-login"},
        "tokenUri": "https://login.example.com/token",
        "scope": "PRINCIPAL_ROLE:ALL",
        "tls": {"caSecret": {"name": "catalog-ca", "key": "root.pem"}},
    }
    pipeline = parse(document(catalog=catalog, s3=S3, partitionColumns=["day"], createTable=True))
    job = jobspec(plan(pipeline), master="local[2]", secrets="/secrets")
    sink = job.sink_of(IcebergSink)
    assert (sink.catalog, sink.uri, sink.warehouse) == ("rest", REST["uri"], "lake")
    assert (sink.token_uri, sink.scope) == ("https://login.example.com/token", "PRINCIPAL_ROLE:ALL")
    assert (sink.table, sink.partition_columns, sink.create_table) == ("shop.orders", ("day",), True)
    assert (sink.endpoint, sink.region) == (None, "eu-central-1")
    assert (sink.catalog_credentials, sink.credentials) == ("/secrets/catalog-login", "/secrets/lake-login")
    assert sink.ca == "/secrets/catalog-ca/root.pem"
    assert sink.transaction_timeout_ms == 60_000
    assert from_json(to_json(job)) == job
    assert secret_names(pipeline) == ("catalog-login", "lake-login", "catalog-ca")
    with pytest.raises(AckwrightError, match="names the Secret catalog-login"):
        jobspec(plan(pipeline), master="local[2]", secrets=None)


def test_a_token_and_signatures_in_place_of_oauth() -> None:
    by_token = parse(document(catalog={**REST, "tokenSecret": {"name": "catalog-token"}}))
    sink = jobspec(plan(by_token), master="local[2]", secrets="/secrets").sink_of(IcebergSink)
    assert (sink.token, sink.catalog_credentials) == ("/secrets/catalog-token/token", None)
    assert secret_names(by_token) == ("catalog-token",)
    signed = parse(document(catalog={**REST, "sigv4": SIGV4, "credentialsSecret": {"name": "key"}}))
    sink = jobspec(plan(signed), master="local[2]", secrets="/secrets").sink_of(IcebergSink)
    assert (sink.signing_service, sink.signing_region) == ("glue", "eu-central-1")
    assert (sink.token, sink.catalog_credentials) == (None, "/secrets/key")
    assert values(dict(sections(plan(signed)))["Source, transform and sink"])["sink.catalog.sigv4.service"] == "glue"


def test_a_catalog_in_a_file_needs_no_secret() -> None:
    pipeline = parse(document(catalog=FILE))
    sink = jobspec(plan(pipeline), master="local[2]", secrets=None).sink_of(IcebergSink)
    assert (sink.catalog, sink.uri, sink.warehouse) == ("sql", "sqlite:////data/catalog.db", "/data/warehouse")
    assert secret_names(pipeline) == ()


def test_the_plan_and_explain_show_the_table() -> None:
    shown = plan(parse(document(partitionColumns=["day"])))
    titles = dict(sections(shown))
    assert values(titles["Commits to the Iceberg table"])["timeout.ms"] == "60000"
    assert values(titles["Source, transform and sink"])["sink.partitionColumns"] == "day"
    assert values(shown.commit)["generation"] == "ackwright/default.p/generation"
    assert described(shown)["sink"]["kind"] == "iceberg"
    links = {link.name: link for link in chain(shown).links}
    assert links["sink table"].subject == "shop.orders in https://catalog.example.com/v1"
    assert links["sink table"].caveat is None
    repeated = chain(plan(parse(document("at-least-once"))))
    assert {link.name: link for link in repeated.links}["sink table"].caveat == "a row may be there twice"


def test_the_job_needs_nothing_in_kafka_but_its_source() -> None:
    delivery_plan = plan(parse(document()))
    assert delivery_plan.topics == ()
    assert [(need.resource.name, need.operations) for need in needs(delivery_plan)[Role.JOB]] == [
        ("in", (Operation.READ, Operation.DESCRIBE)),
        ("default.p", (Operation.READ, Operation.DESCRIBE)),
    ]


def test_a_pipeline_keeps_its_table() -> None:
    """Its positions would stay behind."""
    kafka = document()
    kafka["spec"]["sink"] = {"kafka": {"topic": "out"}}
    moved = {**REST, "warehouse": "other"}
    for other in (kafka, document(table="shop.other"), document(catalog=moved)):
        edits = changes(parse(document()), parse(other))
        assert any(edit.change is ChangeClass.IMMUTABLE for edit in edits)
    elsewhere = {**REST, "uri": "https://other.example.com"}
    for other in (document(createTable=True), document(catalog=elsewhere)):
        (edit,) = changes(parse(document()), parse(other))
        assert edit.change is ChangeClass.RESTART


def test_the_summary_says_what_is_so_of_a_table() -> None:
    example = yaml.safe_load((EXAMPLES / "orders-to-iceberg.yaml").read_text())
    shown = summary(plan(parse(example)))
    assert shown.flow == "orders → Iceberg table shop.orders"
    assert shown.reader == "nothing"
    assert shown.costs[0].startswith("one snapshot of the table per micro-batch")
    assert summary(plan(parse(document("at-least-once")))).reader == "deduplicate"
