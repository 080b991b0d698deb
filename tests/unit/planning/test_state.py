"""Stateful pipelines: what the spec refuses, and which edits need new state."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.api.fields import ChangeClass
from ackwright.errors import InvalidSpec
from ackwright.planning.chain import chain
from ackwright.planning.changes import changes, largest_effect
from ackwright.planning.judgement import judge
from ackwright.planning.plan import plan
from ackwright.render.jobspec import jobspec
from ackwright_stream.jobspec import Guarantee
from sql_texts import NOT_BUILT
from unit.planning.stateful_pipelines import DELTA, DOCUMENT, FILES, ICEBERG, SQL, pipeline, table


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"checkpoint": None}, "spec.state: needs checkpoint.volume"),
        ({"checkpoint": {"uri": "file:///state"}}, "spec.state: needs checkpoint.volume"),
        *(
            ({"checkpoint": {"uri": uri}}, f"spec.checkpoint.uri = '{uri}': must be s3a://bucket/prefix")
            for uri in ("s3a://lake", "s3a://lake/", "s3a://KEY:SECRET@lake/x", "s3a://lake/../x", "s3a://Lake/x")
        ),
        ({"checkpoint": {"uri": "s3a://lake/p"}, "standby": True}, "spec.standby: is not built for stateful"),
        (
            {"sink": FILES, "state": {"outputMode": "update"}},
            "spec.state.outputMode = 'update': must be append with sink.files",
        ),
        (
            {"sink": DELTA, "state": {"outputMode": "update"}},
            "spec.state.outputMode = 'update': must be append with sink.delta",
        ),
        ({"sink": table(), "state": {"outputMode": "update"}}, "spec.sink.postgres.mode: must be upsert with state"),
        (
            {"sink": table(mode="upsert", key=["k"], versionColumn="v"), "state": {"outputMode": "update"}},
            "spec.sink.postgres.versionColumn: cannot be set with state",
        ),
        ({"sink": {"kafka": {"topic": "out", "preservePartition": True}}}, "spec.sink.kafka.preservePartition"),
        ({"sink": {"kafka": {}}}, "spec.sink.kafka.topic: is required with state"),
        ({"state": None}, "spec.source.eventTime: is for stateful pipelines"),
        ({"standby": True}, "spec.standby"),
        (
            {"spark": {"executor": {"autoscaling": {"maxInstances": 2}}}},
            "spec.spark.executor.autoscaling: the driver runs the tasks itself, because one node at a time can mount "
            "the volume with the state; remove autoscaling and choose driver.cores; with checkpoint.uri: s3a://",
        ),
        (
            {"spark": {"executor": {"autoscaling": {"maxInstances": 2}}}, "checkpoint": {"uri": "s3a://lake/p"}},
            "spec.spark.executor.autoscaling: the number of executors is fixed for a stateful pipeline: each has a "
            "part of the state",
        ),
    ],
)
def test_what_is_not_built_is_refused_by_name(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        plan(pipeline(**spec))
    assert problem in caught.value.message


def test_a_standby_of_a_stateful_pipeline_is_not_advised_to_do_without_its_volume() -> None:
    with pytest.raises(InvalidSpec) as caught:
        plan(pipeline(standby=True))
    [violation] = caught.value.violations
    assert (violation.field, violation.remedy) == ("spec.standby", "remove standby")


@pytest.mark.parametrize("guarantee", Guarantee)
@pytest.mark.parametrize(
    ("sink", "place"),
    [
        ({"kafka": {"topic": "out", "deadLetter": {"topic": "bad"}}}, "topic bad"),
        ({"delta": {"path": "/table", "deadLetter": {"topic": "bad"}}}, "topic bad"),
        ({"files": {"path": "/rows", "deadLetter": {"topic": "bad"}}}, "topic bad"),
        (table(deadLetter={"table": "bad"}), "table bad"),
    ],
    ids=["kafka", "delta", "files", "postgres"],
)
def test_a_stateful_pipeline_has_dead_letters(sink: dict[str, Any], place: str, guarantee: Guarantee) -> None:
    source = {**DOCUMENT["spec"]["source"], "onMalformed": "deadLetter"}
    compiled = plan(pipeline(sink=sink, source=source, guarantee=guarantee.value))
    job = jobspec(compiled, master="local[2]", secrets="/secrets", checkpoint="/volume")
    assert (job.source.dead_letter_fraction, job.source.skip_malformed) == (0.05, False)
    assert any(f"malformed records go to the {place}" in (link.caveat or "") for link in chain(compiled).links)


def problems(sql: str, **spec: Any) -> list[str]:
    return [str(violation) for violation in judge(pipeline(transform={"sql": sql}, **spec)).errors]


def test_groups_and_distinct_are_accepted() -> None:
    assert problems(SQL) == []
    assert problems("SELECT DISTINCT CAST(at AS STRING) AS value FROM source", state={"outputMode": "update"}) == []


@pytest.mark.parametrize(
    ("column", "source", "problem"),
    [
        ("att", {}, "there is no column att in the view source; did you mean at?"),
        ("n", {}, "the column n is BIGINT, and an event time must be TIMESTAMP; declare it as"),
        ("kafka", {}, "the column kafka is the record's metadata"),
        ("at", {"format": "string", "schema": None}, "there is no column at in the view source; with format string"),
    ],
)
def test_the_event_time_is_a_timestamp_of_the_view(column: str, source: dict[str, Any], problem: str) -> None:
    of_source = {"schema": "at TIMESTAMP, n BIGINT", "eventTime": {"column": column, "watermark": "10s"}, **source}
    merged = {name: v for name, v in {**DOCUMENT["spec"]["source"], **of_source}.items() if v is not None}
    sql = "SELECT CAST(count(*) AS STRING) AS value FROM source GROUP BY kafka.topic"
    [refused] = problems(sql, source=merged, state={"outputMode": "update"})
    assert refused.startswith(f"spec.source.eventTime.column = '{column}': {problem}"), refused


@pytest.mark.parametrize("column", ["at", "AT", "`at`", "ntz", "nested"])
def test_an_event_time_that_may_be_one_is_not_refused(column: str) -> None:
    of_source = {
        **DOCUMENT["spec"]["source"],
        "schema": "at TIMESTAMP, ntz TIMESTAMP_NTZ, nested STRUCT<start: TIMESTAMP, end: TIMESTAMP>",
        "eventTime": {"column": column, "watermark": "10s"},
    }
    sql = "SELECT CAST(count(*) AS STRING) AS value FROM source GROUP BY kafka.topic"
    assert problems(sql, source=of_source, state={"outputMode": "update"}) == []


@pytest.mark.parametrize(
    ("sql", "sink", "problem"),
    [
        ("SELECT n AS key, count(*) FROM source GROUP BY n", {"kafka": {"topic": "out"}}, "no column value"),
        (
            "SELECT 'a' AS value, count(*) FROM source GROUP BY n",
            {"kafka": {"topic": "out"}},
            "returns a column without a name, and sink format binary writes value alone",
        ),
        (
            "SELECT n AS key, count(*) FROM source GROUP BY n",
            {"kafka": {"topic": "out", "format": "json"}},
            "the column key as INT",
        ),
        ("SELECT n, count(*) FROM source GROUP BY n", "upsert", "key names the column k, which the transform does not"),
        ("SELECT n AS k, max(n) FROM source GROUP BY n", "version", "versionColumn names the column v, which"),
        ("SELECT n, count(*) FROM source GROUP BY n, at", "delta", "partitionColumns names the column day, which"),
        ("SELECT n, count(*) FROM source GROUP BY n, at", "iceberg", "partitionColumns names the column day, which"),
    ],
)
def test_columns_that_the_sink_needs_are_missed_beside_columns_without_a_name(
    sql: str, sink: str | dict[str, Any], problem: str
) -> None:
    sinks: dict[str, dict[str, Any]] = {
        "upsert": table(mode="upsert", key=["k"]),
        "version": table(mode="upsert", key=["k"], versionColumn="v"),
        "delta": {"delta": {"path": "/table", "partitionColumns": ["day"]}},
        "iceberg": {"iceberg": {**ICEBERG["iceberg"], "partitionColumns": ["day"]}},
    }
    chosen = sinks[sink] if isinstance(sink, str) else sink
    appends = sink in ("delta", "iceberg", "version")
    mode = "append" if appends else "update"
    grouped = f"{sql}, at" if sink == "version" else sql
    source = {**DOCUMENT["spec"]["source"], "schema": "at TIMESTAMP, n INT"}
    errors = problems(grouped, sink=chosen, state={"outputMode": mode}, source=source)
    assert any(problem in text for text in errors), errors


@pytest.mark.parametrize(("sql", "problem"), NOT_BUILT)
def test_other_transforms_are_refused(sql: str, problem: str) -> None:
    assert any(problem in text for text in problems(sql)), problems(sql)


def test_a_stateless_pipeline_is_shown_how_to_group() -> None:
    source = {name: value for name, value in DOCUMENT["spec"]["source"].items() if name != "eventTime"}
    assert any("or declare spec.state" in text for text in problems(SQL, state=None, source=source))


@pytest.mark.parametrize(
    ("spec", "effect"),
    [
        ({"transform": {"sql": SQL.replace("1 minute", "2 minutes")}}, ChangeClass.NEW_STATE),
        ({"state": {"partitions": 4}}, ChangeClass.NEW_STATE),
        ({"state": {"partitions": 3, "outputMode": "update"}}, ChangeClass.NEW_STATE),
        ({"source": {**DOCUMENT["spec"]["source"], "schema": "at TIMESTAMP, n INT"}}, ChangeClass.NEW_STATE),
        (
            {"source": {**DOCUMENT["spec"]["source"], "eventTime": {"column": "other", "watermark": "10s"}}},
            ChangeClass.NEW_STATE,
        ),
        ({"source": {k: v for k, v in DOCUMENT["spec"]["source"].items() if k != "eventTime"}}, ChangeClass.NEW_STATE),
        (
            {"source": {**DOCUMENT["spec"]["source"], "eventTime": {"column": "at", "watermark": "1m"}}},
            ChangeClass.RESTART,
        ),
        ({"source": {**DOCUMENT["spec"]["source"], "topics": ["other"]}}, ChangeClass.NEW_STATE),
        ({"source": {**DOCUMENT["spec"]["source"], "topics": ["in", "other"]}}, ChangeClass.RESTART),
        ({"trigger": {"interval": "5s"}}, ChangeClass.RESTART),
        ({"sink": {"kafka": {"topic": "other"}}}, ChangeClass.RESTART),
    ],
)
def test_an_edit_of_what_computes_the_state_needs_new_state(spec: dict[str, Any], effect: ChangeClass) -> None:
    assert largest_effect(changes(pipeline(), pipeline(**spec))) is effect


ZONE = "spark.sql.session.timeZone"


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        ({}, {"conf": {ZONE: "Europe/Berlin"}}, ChangeClass.NEW_STATE),
        ({"conf": {ZONE: "Europe/Berlin"}}, {}, ChangeClass.NEW_STATE),
        ({"conf": {ZONE: "Europe/Berlin"}}, {"conf": {ZONE: "UTC"}}, ChangeClass.NEW_STATE),
        ({"conf": {"spark.ui.enabled": "true"}}, {"conf": {ZONE: "Europe/Berlin"}}, ChangeClass.NEW_STATE),
        ({}, {"conf": {ZONE: "UTC"}}, ChangeClass.RESTART),
        ({}, {"conf": {"spark.ui.enabled": "true"}}, ChangeClass.RESTART),
        (
            {"conf": {ZONE: "Europe/Berlin"}},
            {"conf": {ZONE: "Europe/Berlin", "spark.ui.enabled": "true"}},
            ChangeClass.RESTART,
        ),
    ],
)
def test_another_time_zone_needs_new_state(before: dict[str, Any], after: dict[str, Any], effect: ChangeClass) -> None:
    """Casts and windows of days depend on it, and groups in the state are of the former one."""
    edits = changes(pipeline(spark=before), pipeline(spark=after))
    assert largest_effect(edits) is effect
    if effect is ChangeClass.NEW_STATE:
        assert "the stored state is of another time zone" in [edit.why for edit in edits]


def test_control_the_time_zone_of_a_stateless_transform_may_change() -> None:
    stateless: dict[str, Any] = {"state": None, "checkpoint": None, "source": {"topics": ["in"]}}
    stateless["transform"] = {"sql": "SELECT value FROM source"}
    edits = changes(pipeline(**stateless), pipeline(**stateless, spark={"conf": {ZONE: "Europe/Berlin"}}))
    assert largest_effect(edits) is ChangeClass.RESTART


def test_control_a_stateless_transform_needs_none() -> None:
    source = {"topics": ["in"]}
    before = pipeline(state=None, checkpoint=None, source=source, transform={"sql": "SELECT value FROM source"})
    after = pipeline(state=None, checkpoint=None, source=source, transform={"sql": "SELECT key, value FROM source"})
    assert largest_effect(changes(before, after)) is ChangeClass.RESTART
