"""State on a volume and in a bucket: the plan, the job, and the pods that run the tasks."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ackwright.api.spec import DeliveryPipeline
from ackwright.errors import InvalidSpec
from ackwright.planning.chain import chain
from ackwright.planning.guarantees import values
from ackwright.planning.judgement import judge
from ackwright.planning.plan import plan
from ackwright.planning.topics import DECISIONS_TOPIC
from ackwright.render.executors import TEMPLATE_KEY
from ackwright.render.jobspec import jobspec
from ackwright.render.workload import job_config, objects
from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import JobSpec, KafkaSink, StateSettings, from_json
from unit.planning.stateful_pipelines import pipeline


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
    config = job_config(declared, plan(declared), "uid", OperatorSettings(), identity="uid")
    job = from_json(config["data"]["job.json"])
    assert job.spark["spark.master"] == "local[2,4]"
    assert job.state is not None
    [claim] = [
        o for o in objects(declared, plan(declared), "uid", OperatorSettings(), identity="uid") if "Claim" in o["kind"]
    ]
    driver = objects(declared, plan(declared), "uid", OperatorSettings(), identity="uid")[-1]["spec"]["template"][
        "spec"
    ]
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
    rendered = objects(declared, plan(declared), "uid", OperatorSettings(), identity="uid")
    assert not [o for o in rendered if "Claim" in o["kind"]]
    pod = rendered[-1]["spec"]["template"]["spec"]
    [secret] = [v["name"] for v in pod["volumes"] if v.get("secret", {}).get("secretName") == "keys"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    job = from_json(job_config(declared, plan(declared), "uid", OperatorSettings(), identity="uid")["data"]["job.json"])
    assert job.state is not None
    assert (job.state.checkpoint, job.state.credentials) == ("s3a://lake/state/p", mounts[secret])
    assert job.checkpoint is None
    environment = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
    assert environment["SPARK_DIST_CLASSPATH"] == "/opt/ackwright/s3/*"


def rendered_job(declared: DeliveryPipeline) -> tuple[JobSpec, dict[str, Any]]:
    """The jobspec of a pipeline in a cluster, and the pod template of its executors."""
    data = job_config(declared, plan(declared), "uid", OperatorSettings(), identity="uid")["data"]
    return from_json(data["job.json"]), yaml.safe_load(data[TEMPLATE_KEY])


def memory_of_driver(declared: DeliveryPipeline) -> str:
    driver = objects(declared, plan(declared), "uid", OperatorSettings(), identity="uid")[-1]["spec"]["template"][
        "spec"
    ]
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
    pod = objects(declared, plan(declared), "uid", OperatorSettings(), identity="uid")[-1]["spec"]["template"]["spec"]
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
