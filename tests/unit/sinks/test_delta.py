"""spec.sink.delta: what is refused, what the job gets, and what the plan and explain show."""

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
from ackwright_stream.jobspec import DeltaSink, from_json, to_json

EXAMPLES = Path(__file__).parents[3] / "examples"
LOGIN: dict[str, Any] = {"region": "eu-central-1", "credentialsSecret": {"name": "lake-login"}}


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
            "sink": {"delta": {"path": "s3://lake/orders", **sink}},
        },
    }


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ({"path": "orders"}, "must be an absolute directory or s3://bucket/prefix"),
        ({"path": "/a b"}, "must be an absolute directory"),
        ({"path": "gs://lake/orders"}, "must be an absolute directory"),
        ({"path": "/orders", "s3": LOGIN}, "s3 belongs to a path that begins with s3://"),
        ({"partitionColumns": ["day", "day"]}, "must name each column once"),
        ({"partitionColumns": ["a day"]}, "must be a name of at most 255 characters, without a space"),
        ({"partitionColumns": ["a\tday"]}, "and control characters"),
        ({"partitionColumns": [""]}, "must be a name of at most 255"),
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


@pytest.mark.parametrize("name", ["größe", "日付", "1st", "a.b", "a-b", 'q"x', "b`t", "😀" * 255])
def test_partition_columns_have_the_names_that_delta_takes(name: str) -> None:
    assert check(parse(document(partitionColumns=[name]))) == ()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
@pytest.mark.parametrize("path", ["/data/orders", "file:///data/orders", "s3://lake", "s3://lake/a/b=c"])
def test_each_guarantee_is_accepted(guarantee: str, path: str) -> None:
    assert check(parse(document(guarantee, path=path))) == ()


def test_the_job_gets_the_place_of_the_table_and_the_path_of_its_secret() -> None:
    pipeline = parse(document(s3=LOGIN, partitionColumns=["day"], createTable=True))
    job = jobspec(plan(pipeline), master="local[2]", secrets="/secrets")
    sink = job.sink_of(DeltaSink)
    assert (sink.path, sink.partition_columns, sink.create_table) == ("s3://lake/orders", ("day",), True)
    assert (sink.endpoint, sink.region, sink.credentials) == (None, "eu-central-1", "/secrets/lake-login")
    assert sink.transaction_timeout_ms == 60_000
    assert from_json(to_json(job)) == job
    assert secret_names(pipeline) == ("lake-login",)
    with pytest.raises(AckwrightError, match="names the Secret lake-login"):
        jobspec(plan(pipeline), master="local[2]", secrets=None)


def test_a_directory_needs_no_secret() -> None:
    pipeline = parse(document(path="file:///data/orders"))
    sink = jobspec(plan(pipeline), master="local[2]", secrets=None).sink_of(DeltaSink)
    assert (sink.path, sink.credentials) == ("/data/orders", None)
    assert secret_names(pipeline) == ()


def test_the_plan_and_explain_show_the_table() -> None:
    shown = plan(parse(document(partitionColumns=["day"])))
    titles = dict(sections(shown))
    assert values(titles["Commits to the Delta table"])["checkpoint.interval"] == "100"
    assert values(titles["Source, transform and sink"])["sink.partitionColumns"] == "day"
    assert values(shown.commit)["generation"] == "ackwright/default.p/generation"
    assert described(shown)["sink"]["kind"] == "delta"
    links = {link.name: link for link in chain(shown).links}
    assert links["sink table"].subject == "s3://lake/orders"
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
    for other in (kafka, document(path="s3://lake/other")):
        edits = changes(parse(document()), parse(other))
        assert any(edit.change is ChangeClass.IMMUTABLE for edit in edits)
    (edit,) = changes(parse(document()), parse(document(createTable=True)))
    assert edit.change is ChangeClass.RESTART


def test_the_summary_says_what_is_so_of_a_table() -> None:
    example = yaml.safe_load((EXAMPLES / "orders-to-delta.yaml").read_text())
    shown = summary(plan(parse(example)))
    assert shown.flow == "orders → Delta table s3://lake/orders"
    assert shown.reader == "nothing"
    assert shown.costs[0].startswith("one commit to the table per micro-batch")
    assert summary(plan(parse(document("at-least-once")))).reader == "deduplicate"
