"""spec.sink.files: what is refused, what the job gets, and what the plan and explain show."""

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
from ackwright_stream.jobspec import FilesSink, from_json, to_json

EXAMPLES = Path(__file__).parents[3] / "examples"
LOGIN: dict[str, Any] = {"region": "eu-central-1", "credentialsSecret": {"name": "lake-login"}}


def document(guarantee: str = "exactly-once", topic: str = "in", **sink: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": "p"},
        "spec": {
            "guarantee": guarantee,
            "kafka": {"bootstrapServers": "k:9092"},
            "source": {"topics": [topic]},
            "transform": {"sql": "SELECT 1 AS id FROM source"},
            "sink": {"files": {"path": "s3://lake/orders", **sink}},
        },
    }


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ({"path": "orders"}, "must be an absolute directory or s3://bucket/prefix"),
        ({"path": "gs://lake/orders"}, "must be an absolute directory"),
        ({"path": "/orders", "s3": LOGIN}, "s3 belongs to a path that begins with s3://"),
        ({"s3": {"endpoint": "minio:9000"}}, "must be http:// or https://"),
        ({"partitionColumns": ["day"]}, "unknown field"),
        ({"topic": "_in"}, "readers of Parquet ignore names that begin with '_' or '.'"),
        ({"topic": ".in"}, "readers of Parquet ignore names that begin with '_' or '.'"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(sink: dict[str, Any], words: str) -> None:
    pipeline, violations = examine(document(**sink))
    of_validation = check(pipeline, violations) if pipeline else ()
    (message,) = map(str, (*violations, *of_validation))
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
@pytest.mark.parametrize("path", ["/data/orders", "file:///data/orders", "s3://lake", "s3://lake/a/b=c"])
def test_each_guarantee_is_accepted(guarantee: str, path: str) -> None:
    assert check(parse(document(guarantee, path=path))) == ()


def test_the_job_gets_the_place_of_the_files_and_the_path_of_its_secret() -> None:
    pipeline = parse(document(s3=LOGIN))
    job = jobspec(plan(pipeline), master="local[2]", secrets="/secrets")
    sink = job.sink_of(FilesSink)
    assert (sink.path, sink.endpoint, sink.region) == ("s3://lake/orders", None, "eu-central-1")
    assert sink.credentials == "/secrets/lake-login"
    assert sink.transaction_timeout_ms == 60_000
    assert from_json(to_json(job)) == job
    assert secret_names(pipeline) == ("lake-login",)
    with pytest.raises(AckwrightError, match="names the Secret lake-login"):
        jobspec(plan(pipeline), master="local[2]", secrets=None)


def test_a_directory_needs_no_secret() -> None:
    pipeline = parse(document(path="file:///data/orders"))
    sink = jobspec(plan(pipeline), master="local[2]", secrets=None).sink_of(FilesSink)
    assert (sink.path, sink.credentials) == ("/data/orders", None)
    assert secret_names(pipeline) == ()


def test_the_plan_and_explain_show_the_files() -> None:
    shown = plan(parse(document()))
    titles = dict(sections(shown))
    assert values(titles["Creation of files"])["timeout.ms"] == "60000"
    assert values(shown.commit)["compare-and-set"] == "created if absent"
    assert described(shown)["sink"]["kind"] == "files"
    links = {link.name: link for link in chain(shown).links}
    assert (links["sink files"].subject, links["sink files"].caveat) == ("s3://lake/orders", None)
    repeated = chain(plan(parse(document("at-least-once"))))
    assert {link.name: link for link in repeated.links}["sink files"].caveat == "a row may be there twice"
    directory = chain(plan(parse(document(path="/data"))))
    assert "one copy" in str({link.name: link for link in directory.links}["sink files"].caveat)


def test_the_plan_shows_the_files_of_the_batches_of_a_stateful_pipeline() -> None:
    stateful = document()
    stateful["spec"] |= {"state": {"outputMode": "append"}, "checkpoint": {"volume": {"size": "1Gi"}}}
    commit = values(plan(parse(stateful)).commit)
    assert commit["positions"] == commit["decisions"] == "batches/<number>.parquet"
    assert values(plan(parse(document())).commit)["positions"] == "<topic>-<partition>.<topic id>/<from>.parquet"


def test_the_job_needs_nothing_in_kafka_but_its_source() -> None:
    delivery_plan = plan(parse(document()))
    assert delivery_plan.topics == ()
    assert [(need.resource.name, need.operations) for need in needs(delivery_plan)[Role.JOB]] == [
        ("in", (Operation.READ, Operation.DESCRIBE)),
        ("default.p", (Operation.READ, Operation.DESCRIBE)),
    ]


def test_a_pipeline_keeps_its_path() -> None:
    """Its positions would stay behind."""
    kafka = document()
    kafka["spec"]["sink"] = {"kafka": {"topic": "out"}}
    for other in (kafka, document(path="s3://lake/other")):
        edits = changes(parse(document()), parse(other))
        assert any(edit.change is ChangeClass.IMMUTABLE for edit in edits)
    (edit,) = changes(parse(document()), parse(document(s3={"region": "eu-central-1"})))
    assert edit.change is ChangeClass.RESTART


def test_the_summary_says_what_is_so_of_files() -> None:
    example = yaml.safe_load((EXAMPLES / "orders-to-files.yaml").read_text())
    shown = summary(plan(parse(example)))
    assert shown.flow == "orders → Parquet files in s3://lake/orders-files"
    assert shown.reader == "nothing"
    assert shown.costs[0].startswith("a file per partition and micro-batch")
    assert summary(plan(parse(document("at-least-once")))).reader == "deduplicate"
