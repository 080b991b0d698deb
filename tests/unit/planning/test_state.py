"""Stateful pipelines: what the spec refuses, what the plan contains, and which edits need new state."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from ackwright.api.fields import ChangeClass
from ackwright.api.spec import DeliveryPipeline, parse
from ackwright.errors import InvalidSpec
from ackwright.planning.chain import chain
from ackwright.planning.changes import changes, largest_effect
from ackwright.planning.clusters import ClusterRole, parts
from ackwright.planning.guarantees import values
from ackwright.planning.judgement import judge
from ackwright.planning.permissions import Role, needs
from ackwright.planning.plan import plan
from ackwright.planning.summary import summary
from ackwright.planning.topics import DECISIONS_TOPIC, LANES_TOPIC
from ackwright.render.executors import TEMPLATE_KEY
from ackwright.render.jobspec import jobspec
from ackwright.render.workload import job_config, objects
from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import Guarantee, JobSpec, KafkaSink, StateSettings, from_json, to_json
from ackwright_stream.sinks.kafka import sink
from sql_texts import NOT_BUILT

SQL = """
    SELECT CAST(window.start AS STRING) AS key, CAST(count(*) AS STRING) AS value
    FROM source GROUP BY window(at, '1 minute')
"""
DOCUMENT: dict[str, Any] = {
    "apiVersion": "ackwright.io/v1alpha1",
    "kind": "DeliveryPipeline",
    "metadata": {"name": "p", "namespace": "ops"},
    "spec": {
        "guarantee": "exactly-once",
        "kafka": {"bootstrapServers": "k:9092"},
        "source": {
            "topics": ["in"],
            "format": "json",
            "schema": "at TIMESTAMP",
            "eventTime": {"column": "at", "watermark": "10s"},
        },
        "transform": {"sql": SQL},
        "state": {"partitions": 3},
        "sink": {"kafka": {"topic": "out"}},
        "checkpoint": {"volume": {"size": "1Gi"}},
    },
}


def pipeline(**spec: Any) -> DeliveryPipeline:
    """A stateful pipeline with other fields of the spec; None removes a field."""
    document = copy.deepcopy(DOCUMENT)
    merged = {**document["spec"], **spec}
    document["spec"] = {name: value for name, value in merged.items() if value is not None}
    return parse(document)


DELTA = {"delta": {"path": "/table"}}
ICEBERG = {"iceberg": {"table": "ns.t", "catalog": {"uri": "http://catalog:8181"}}}
FILES = {"files": {"path": "/rows"}}


def table(**fields: Any) -> dict[str, Any]:
    """spec.sink of a pipeline into PostgreSQL."""
    return {"postgres": {"host": "db", "database": "d", "table": "t", "credentialsSecret": {"name": "s"}, **fields}}


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


def test_the_plan_has_state_and_what_spark_needs_for_it() -> None:
    compiled = plan(pipeline(spark={"driver": {"cores": 2}, "conf": {"spark.sql.shuffle.partitions": "7"}}))
    assert compiled.state == StateSettings(3, "", "append", "at", "10000 milliseconds", 64 * 1024 * 1024)
    spark = values(compiled.spark)
    assert spark["spark.sql.shuffle.partitions"] == "3"
    assert spark["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
    assert compiled.slots == 2  # the driver's processors
    assert compiled.stream_options == ()


def test_the_jobspec_keeps_state_in_the_directory_of_its_place() -> None:
    job = jobspec(plan(pipeline()), master="local[2]", secrets=None, checkpoint="/volume")
    assert job.state is not None
    assert job.state.checkpoint == "/volume"
    assert job.sink_of(KafkaSink).positions.decisions_topic == DECISIONS_TOPIC


def test_in_a_cluster_the_driver_runs_the_tasks_with_the_volume() -> None:
    declared = pipeline(spark={"driver": {"cores": 2}})
    config = job_config(declared, plan(declared), "uid", OperatorSettings())
    job = from_json(config["data"]["job.json"])
    assert job.spark["spark.master"] == "local[2,4]"
    assert job.state is not None
    [claim] = [o for o in objects(declared, plan(declared), "uid", OperatorSettings()) if "Claim" in o["kind"]]
    driver = objects(declared, plan(declared), "uid", OperatorSettings())[-1]["spec"]["template"]["spec"]
    mounted = {mount["name"]: mount["mountPath"] for mount in driver["containers"][0]["volumeMounts"]}
    volumes = {
        v["persistentVolumeClaim"]["claimName"]: v["name"] for v in driver["volumes"] if "persistentVolumeClaim" in v
    }
    assert job.state.checkpoint == mounted[volumes[claim["metadata"]["name"]]]


S3A = {
    "uri": "s3a://lake/state/p",
    "s3": {"endpoint": "http://minio:9000", "region": "eu", "credentialsSecret": {"name": "keys"}},
}


def test_state_in_a_bucket_has_its_settings_in_the_plan() -> None:
    compiled = plan(pipeline(checkpoint=S3A))
    assert compiled.state is not None
    assert (compiled.state.checkpoint, compiled.state.bucket) == ("s3a://lake/state/p", "lake")
    spark, of_bucket = values(compiled.spark), "spark.hadoop.fs.s3a.bucket.lake"
    assert spark["spark.sql.streaming.checkpointFileManagerClass"].endswith("AbortableStreamBasedCheckpointFileManager")
    assert spark[f"{of_bucket}.endpoint"] == "http://minio:9000"
    assert spark[f"{of_bucket}.endpoint.region"] == "eu"
    assert spark[f"{of_bucket}.path.style.access"] == "true"
    assert spark[f"{of_bucket}.aws.credentials.provider"].endswith("SimpleAWSCredentialsProvider")
    printed = values(compiled.data)
    assert printed["state.uri"] == "s3a://lake/state/p"
    assert printed["state.s3.endpoint"] == "http://minio:9000"
    assert printed["state.s3.credentialsSecret"] == "keys"
    [state] = [link for link in chain(compiled).links if link.name == "state"]
    assert state.subject == "s3a://lake/state/p"
    assert "objects" in (state.caveat or "")


def test_a_server_without_a_region_has_the_one_of_the_jobs_own_client() -> None:
    spark = values(plan(pipeline(checkpoint={**S3A, "s3": {"endpoint": "http://minio:9000"}})).spark)
    assert spark["spark.hadoop.fs.s3a.bucket.lake.endpoint.region"] == "us-east-1"


def test_s3_belongs_to_a_bucket() -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.checkpoint\.s3 .*s3 belongs to a uri that begins with s3a://"):
        pipeline(checkpoint={"volume": {"size": "1Gi"}, "s3": S3A["s3"]})


def test_state_in_a_bucket_of_aws_has_the_identity_of_the_pod() -> None:
    spark = values(plan(pipeline(checkpoint={"uri": "s3a://lake/p"})).spark)
    of_bucket = {name.removeprefix("spark.hadoop.fs.s3a.bucket.lake.") for name in spark if ".s3a." in name}
    assert "aws.credentials.provider" in of_bucket
    assert of_bucket.isdisjoint({"endpoint", "endpoint.region", "path.style.access"})
    assert spark["spark.hadoop.fs.s3a.bucket.lake.aws.credentials.provider"].endswith("DefaultCredentialsProvider")


def test_in_a_cluster_the_driver_of_state_in_a_bucket_has_its_secret_its_classes_and_no_volume() -> None:
    declared = pipeline(checkpoint=S3A)
    rendered = objects(declared, plan(declared), "uid", OperatorSettings())
    assert not [o for o in rendered if "Claim" in o["kind"]]
    pod = rendered[-1]["spec"]["template"]["spec"]
    [secret] = [v["name"] for v in pod["volumes"] if v.get("secret", {}).get("secretName") == "keys"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    job = from_json(job_config(declared, plan(declared), "uid", OperatorSettings())["data"]["job.json"])
    assert job.state is not None
    assert (job.state.checkpoint, job.state.credentials) == ("s3a://lake/state/p", mounts[secret])
    assert job.checkpoint is None
    environment = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
    assert environment["SPARK_DIST_CLASSPATH"] == "/opt/ackwright/s3/*"


def rendered_job(declared: DeliveryPipeline) -> tuple[JobSpec, dict[str, Any]]:
    """The jobspec of a pipeline in a cluster, and the pod template of its executors."""
    data = job_config(declared, plan(declared), "uid", OperatorSettings())["data"]
    return from_json(data["job.json"]), yaml.safe_load(data[TEMPLATE_KEY])


def memory_of_driver(declared: DeliveryPipeline) -> str:
    driver = objects(declared, plan(declared), "uid", OperatorSettings())[-1]["spec"]["template"]["spec"]
    return str(driver["containers"][0]["resources"]["limits"]["memory"])


EXECUTORS = {"driver": {"cores": 5}, "executor": {"instances": 3, "cores": 2}}


def test_executors_run_the_tasks_with_state_in_a_bucket() -> None:
    declared = pipeline(checkpoint=S3A, spark=EXECUTORS)
    job, template = rendered_job(declared)
    assert job.spark["spark.master"].startswith("k8s://")
    assert job.slots == plan(declared).slots == 3 * 2
    assert (job.spark["spark.executor.instances"], job.spark["spark.executor.cores"]) == ("3", "2")
    assert "executors" in {s.name: s.reason for s in plan(declared).commit}["slots"]
    [container] = template["spec"]["containers"]
    assert {v["name"]: v["value"] for v in container["env"]} == {"SPARK_DIST_CLASSPATH": "/opt/ackwright/s3/*"}
    names = {volume.get("secret", {}).get("secretName"): volume["name"] for volume in template["spec"]["volumes"]}
    assert names["keys"] in {mount["name"] for mount in container["volumeMounts"]}
    assert not [volume for volume in template["spec"]["volumes"] if "persistentVolumeClaim" in volume]


def test_control_the_driver_runs_the_tasks_with_state_on_a_volume() -> None:
    declared = pipeline(spark=EXECUTORS)
    job, template = rendered_job(declared)
    assert job.spark["spark.master"] == "local[5,4]"
    assert job.slots == plan(declared).slots == 5
    assert "volume" in {s.name: s.reason for s in plan(declared).commit}["slots"]
    assert "env" not in template["spec"]["containers"][0]
    pod = objects(declared, plan(declared), "uid", OperatorSettings())[-1]["spec"]["template"]["spec"]
    assert "SPARK_DIST_CLASSPATH" not in {variable["name"] for variable in pod["containers"][0]["env"]}


def test_executors_that_a_volume_leaves_unused_are_a_warning() -> None:
    [warning] = judge(pipeline(spark=EXECUTORS)).warnings
    assert str(warning).startswith("spec.spark.executor: is not used: the driver runs the tasks itself, because one ")
    assert "checkpoint.uri: s3a://bucket/prefix" in str(warning)
    assert judge(pipeline(checkpoint=S3A, spark=EXECUTORS)).warnings == ()
    assert judge(pipeline(spark={"driver": {"cores": 5}})).warnings == ()


def test_the_pods_that_run_the_tasks_have_room_for_the_memory_of_rocksdb() -> None:
    limit = int(values(plan(pipeline()).spark)["spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"])
    overhead = "spark.executor.memoryOverhead"
    on_executors, in_driver = pipeline(checkpoint=S3A), pipeline()
    assert rendered_job(on_executors)[0].spark[overhead] == f"{409 + limit}m"
    assert memory_of_driver(on_executors) == f"{1024 + 409}Mi"
    assert rendered_job(in_driver)[0].spark[overhead] == "409m"
    assert memory_of_driver(in_driver) == f"{1024 + 409 + limit}Mi"
    chosen = pipeline(checkpoint=S3A, spark={"conf": {overhead: "700m"}})
    assert rendered_job(chosen)[0].spark[overhead] == "700m"


def test_a_login_that_executors_get_in_a_broadcast_is_encrypted_on_their_disks() -> None:
    encrypted = "spark.io.encryption.enabled"
    assert values(plan(pipeline(checkpoint=S3A)).spark)[encrypted] == "true"
    assert encrypted not in values(plan(pipeline(checkpoint={"uri": "s3a://lake/p"})).spark)  # without a login
    assert encrypted not in values(plan(pipeline()).spark)


def test_the_topic_of_decisions_is_created_and_may_be_used() -> None:
    compiled = plan(pipeline())
    [decisions] = [topic for topic in compiled.topics if topic.name == DECISIONS_TOPIC]
    assert decisions.internal
    assert values(decisions.config)["cleanup.policy"] == "compact"
    for role in Role:
        assert DECISIONS_TOPIC in {need.resource.name for need in needs(compiled)[role]}


def test_control_a_stateless_pipeline_has_no_decisions() -> None:
    source = {"topics": ["in"]}
    sql = {"sql": "SELECT key, value FROM source"}
    compiled = plan(pipeline(state=None, checkpoint=None, source=source, transform=sql))
    assert compiled.state is None
    assert DECISIONS_TOPIC not in {topic.name for topic in compiled.topics}
    for role in (Role.JOB, Role.AUDIT):
        assert DECISIONS_TOPIC not in {need.resource.name for need in needs(compiled)[role]}


ELSEWHERE = {"kafka": {"topic": "out", "bootstrapServers": "other:9092"}}


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_positions_and_decisions_are_on_the_cluster_of_the_output(guarantee: Guarantee) -> None:
    """The job creates markers there; at the source it reads, and copies positions for lag tools."""
    topics = [{"name": "in", "partitions": 3}, {"name": "out", "partitions": 3}]
    compiled = plan(pipeline(guarantee=guarantee, sink=ELSEWHERE, topics=topics))
    at = parts(compiled)
    source, sink = at[ClusterRole.SOURCE], at[ClusterRole.SINK]
    assert [(t.name, t.feeds_state) for t in source.topics] == [("in", True)]
    assert [t.name for t in sink.topics] == ["out", LANES_TOPIC, DECISIONS_TOPIC]
    for role in Role:
        assert DECISIONS_TOPIC not in {need.resource.name for need in needs(source)[role]}
        assert DECISIONS_TOPIC in {need.resource.name for need in needs(sink)[role]}
    assert "ackwright." in {need.resource.name for need in needs(sink)[Role.JOB]}
    [where] = [s.reason for s in compiled.commit if s.name == "decisions topic"]
    assert where == "in the transaction of the positions, on the sink's cluster"
    job = jobspec(compiled, master="local[2]", secrets=None, checkpoint="/volume")
    to = from_json(to_json(job)).sink_of(KafkaSink)
    assert to.cluster is not None
    assert to.cluster.bootstrap_servers == "other:9092"
    assert (to.positions.decisions_topic, to.positions.marker_prefix) == (DECISIONS_TOPIC, "ackwright.")


def test_control_with_one_cluster_there_are_no_markers() -> None:
    compiled = plan(pipeline())
    assert "ackwright." not in {need.resource.name for need in needs(compiled)[Role.JOB]}
    [where] = [s.reason for s in compiled.commit if s.name == "decisions topic"]
    assert where == "in the transaction of the positions"


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


def test_summary_and_chain_say_that_a_micro_batch_is_one_transaction_of_the_driver() -> None:
    stateful = plan(pipeline())
    assert stateful.promise.after_a_crash.startswith("the micro-batch that was not committed runs again")
    costs = summary(stateful).costs
    assert costs[0].startswith("one transaction of the driver per micro-batch")
    assert not any("at a time" in cost for cost in costs)
    links = {link.name: link for link in chain(stateful).links}
    assert links["sink producer"].subject == "producer of the driver"
    assert "if it is lost, the pipeline halts" in str(links["state"].caveat)
    source = {"topics": ["in"]}
    stateless = plan(pipeline(source=source, state=None, transform={"sql": "SELECT value FROM source"}))
    assert "state" not in {link.name for link in chain(stateless).links}


@pytest.mark.parametrize(
    ("sink", "cost", "commit"),
    [
        (table(), "one transaction of the database per micro-batch; its rows become visible together", "transaction"),
        (DELTA, "one commit to the table and one file beside the state per micro-batch; its rows", "commit"),
        (ICEBERG, "one snapshot of the table and one file beside the state per micro-batch; its rows", "snapshot"),
        (FILES, "one file per micro-batch, also without rows; its rows become visible together", "file"),
    ],
    ids=["postgres", "delta", "iceberg", "files"],
)
@pytest.mark.parametrize("guarantee", Guarantee)
def test_the_cost_is_that_of_the_commit_of_the_sink(
    sink: dict[str, Any], cost: str, commit: str, guarantee: Guarantee
) -> None:
    compiled = plan(pipeline(sink=sink, guarantee=guarantee.value))
    assert summary(compiled).costs[0].startswith(cost)
    position = f"in the same {commit} as the output and the decision of the micro-batch"
    assert compiled.promise.position == position
    stateless = plan(
        pipeline(sink=sink, state=None, source={"topics": ["in"]}, transform={"sql": "SELECT value FROM source"})
    )
    assert stateless.promise.position == f"in the same {commit} as the output"


def test_a_declared_source_feeds_the_state() -> None:
    topics = [{"name": "in", "partitions": 3}, {"name": "out", "partitions": 3}]
    feeding = {t.name for t in plan(pipeline(topics=topics)).topics if t.feeds_state}
    assert feeding == {"in"}
    stateless = {"topics": ["in"], "format": "binary"}
    copy_ = pipeline(topics=topics, state=None, source=stateless, transform={"sql": "SELECT value FROM source"})
    assert not any(t.feeds_state for t in plan(copy_).topics)


@pytest.mark.parametrize(
    ("sink", "mode"),
    [
        (table(), "append"),
        (table(mode="upsert", key=["k"]), "append"),
        (table(mode="upsert", key=["k"], versionColumn="v"), "append"),
        (table(mode="upsert", key=["k"]), "update"),
    ],
)
def test_output_in_postgresql_needs_no_topic_of_decisions(sink: dict[str, Any], mode: str) -> None:
    topics = [{"name": "in", "partitions": 3}]
    compiled = plan(pipeline(sink=sink, state={"outputMode": mode}, topics=topics))
    assert [(topic.name, topic.feeds_state) for topic in compiled.topics] == [("in", True)]
    for role in Role:
        assert DECISIONS_TOPIC not in {need.resource.name for need in needs(compiled)[role]}
    assert values(compiled.commit)["decisions"] == "ackwright.decisions"


SINKS = {
    "kafka": {"kafka": {"topic": "out"}},
    "postgres": table(mode="upsert", key=["k"]),
    "delta": DELTA,
    "files": FILES,
    "iceberg": {"iceberg": {"catalog": {"uri": "https://catalog"}, "table": "sales.counts"}},
}


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_output_in_kafka_is_written_before_or_behind_the_decision(guarantee: str) -> None:
    compiled = plan(pipeline(guarantee=guarantee))
    order = {"at-least-once": "after", "at-most-once": "before"}[guarantee]
    assert values(compiled.commit)["advance"] == order
    assert "the state counts each record once" in compiled.promise.after_a_crash
    producer = values(compiled.producer)
    assert "transaction.timeout.ms" not in producer
    acks = {"at-least-once": ("all", "true", "2147483647"), "at-most-once": ("0", "false", "0")}[guarantee]
    assert (producer["acks"], producer["enable.idempotence"], producer["retries"]) == acks
    assert compiled.sink_options == ()
    links = {link.name: link for link in chain(compiled).links}
    assert links["sink producer"].subject == "producer of the driver"
    assert "an older row behind a newer one" in str(links["downstream consumer"].caveat)


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("sink", SINKS)
def test_the_state_counts_each_record_under_every_guarantee(guarantee: str, sink: str) -> None:
    strict, weaker = (plan(pipeline(guarantee=g, sink=SINKS[sink])) for g in ("exactly-once", guarantee))
    assert values(weaker.consumer)["failOnDataLoss"] == "true"
    assert values(weaker.spark)["spark.task.maxFailures"] == "4"
    assert weaker.promise.expiry is None
    assert weaker.source == strict.source  # its limits too: a batch is one transaction


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("sink", [name for name in SINKS if name != "kafka"])
def test_a_table_keeps_more_than_is_declared_and_says_so(guarantee: str, sink: str) -> None:
    strict, weaker = (plan(pipeline(guarantee=g, sink=SINKS[sink])) for g in ("exactly-once", guarantee))
    [order] = [setting for setting in weaker.commit if setting.name == "advance"]
    assert order.value == "together"
    assert "two commits would be more work" in order.reason
    assert "nothing is lost or repeated" in summary(weaker).guarantee
    assert summary(weaker).guarantee.startswith(guarantee)
    assert (weaker.sink.link, weaker.sink.reader, weaker.promise.reader) == (
        strict.sink.link,
        strict.sink.reader,
        strict.promise.reader,
    )


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_transactions_of_the_driver_have_settings_for_rows_if_they_carry_rows(guarantee: Guarantee) -> None:
    job = jobspec(plan(pipeline(guarantee=guarantee)), master="local[2]", secrets=None, checkpoint="/volume")
    assert sink.for_driver(job, None).transactions_carry_rows is (guarantee is Guarantee.EXACTLY_ONCE)


@pytest.mark.parametrize("guarantee", list(Guarantee))
@pytest.mark.parametrize(("largest", "kbytes"), [(1_000_000, 65_536), (100_000_000, 195_312)])
def test_the_producer_of_the_driver_has_little_memory_and_room_for_a_record(
    guarantee: Guarantee, largest: int, kbytes: int
) -> None:
    topic = {"name": "out", "partitions": 1, "replicationFactor": 3, "config": {"max.message.bytes": str(largest)}}
    compiled = plan(pipeline(guarantee=guarantee, topics=[topic]))
    assert values(compiled.producer)["queue.buffering.max.kbytes"] == str(kbytes)


def test_fewer_acknowledgements_are_without_idempotence() -> None:
    sink = {"kafka": {"topic": "out", "acks": "1"}}
    producer = values(plan(pipeline(guarantee="at-least-once", sink=sink)).producer)
    assert (producer["acks"], producer["enable.idempotence"], producer["max.in.flight"]) == ("1", "false", "1")


def test_control_a_stateless_upsert_needs_a_version_under_a_weaker_guarantee() -> None:
    sql = {"sql": "SELECT key AS k, value FROM source"}
    stateless = pipeline(
        guarantee="at-least-once",
        state=None,
        checkpoint=None,
        source={"topics": ["in"]},
        transform=sql,
        sink=SINKS["postgres"],
    )
    with pytest.raises(InvalidSpec) as caught:
        plan(stateless)
    assert "spec.sink.postgres.versionColumn" in caught.value.message


def test_a_key_of_several_rows_is_the_caveat_of_a_table_with_state() -> None:
    upserting = plan(pipeline(sink=table(mode="upsert", key=["k"]), state={"outputMode": "update"}))
    links = {link.name: link for link in chain(upserting).links}
    assert str(links["sink table"].caveat).startswith("the key must identify a row")
    appending = {link.name: link for link in chain(plan(pipeline(sink=table()))).links}
    assert appending["sink table"].caveat is None


def test_control_a_stateless_pipeline_into_postgresql_has_no_decisions() -> None:
    sql = {"sql": "SELECT key, value FROM source"}
    compiled = plan(pipeline(state=None, checkpoint=None, source={"topics": ["in"]}, transform=sql, sink=table()))
    assert "decisions" not in values(compiled.commit)
