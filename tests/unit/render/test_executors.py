"""Executors: the pods that Spark creates from the template, and the settings that no spec can change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from ackwright.api.spark_conf import ALLOWED
from ackwright.api.spec import DeliveryPipeline
from ackwright.planning.plan import plan
from ackwright.render.executors import image, spark_settings, template
from ackwright.render.names import MANAGED_BY, PIPELINE_LABEL, ROLE_LABEL
from ackwright.settings import OperatorSettings
from unit.render.pipelines import EXAMPLES, MINIMAL, SETTINGS, declared, pipelines
from unit.render.pod_security import violations


def pod(pipeline: DeliveryPipeline, settings_: OperatorSettings = SETTINGS) -> dict[str, Any]:
    result: dict[str, Any] = yaml.safe_load(template(pipeline, settings_))
    return result


def spark(settings_: OperatorSettings = SETTINGS, **spec: Any) -> dict[str, str]:
    return spark_settings(declared(MINIMAL, **spec), settings_, template_file="/x/executor.yaml")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.metadata.name)
def test_executor_pods_of_examples_are_restricted_and_labelled(example: DeliveryPipeline) -> None:
    executor = pod(example)
    assert (executor["apiVersion"], executor["kind"]) == ("v1", "Pod")
    assert violations(executor["spec"]) == []
    assert not executor["spec"]["automountServiceAccountToken"]
    labels = executor["metadata"]["labels"]
    assert (labels[PIPELINE_LABEL], labels[ROLE_LABEL]) == (example.metadata.name, "executor")
    assert labels["app.kubernetes.io/managed-by"] == MANAGED_BY, "the operator's watch selects this label"
    (container,) = executor["spec"]["containers"]
    conf = spark_settings(example, SETTINGS, template_file="/x")
    assert container["name"] == conf["spark.kubernetes.executor.podTemplateContainerName"]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in executor["spec"]["volumes"]}
    assert not {"image", "command", "args", "env", "resources"} & set(container), "Spark fills them in"


@settings(max_examples=10)
@given(pipelines)
def test_equal_pipelines_have_equal_templates(pipeline: DeliveryPipeline) -> None:
    again = DeliveryPipeline.model_validate(pipeline.model_dump(by_alias=True, exclude_none=True))
    assert template(again, SETTINGS) == template(pipeline, SETTINGS)
    assert violations(pod(pipeline)["spec"]) == []


def test_executors_leave_a_lost_node_and_spread_over_the_others() -> None:
    spec = pod(declared(MINIMAL), OperatorSettings(node_lost=7))["spec"]
    assert {(t["key"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]} == {
        ("node.kubernetes.io/not-ready", "NoExecute", 7),
        ("node.kubernetes.io/unreachable", "NoExecute", 7),
    }
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway", "a cluster with one node is enough"
    assert spread["labelSelector"]["matchLabels"].items() <= pod(declared(MINIMAL))["metadata"]["labels"].items()


def test_spark_settings_have_namespace_image_account_and_encryption() -> None:
    conf = spark(OperatorSettings(image_pull_policy="Never"))
    assert conf["spark.kubernetes.namespace"] == "ops"
    assert conf["spark.kubernetes.executor.podTemplateFile"] == "/x/executor.yaml"
    assert conf["spark.kubernetes.container.image"] == OperatorSettings().spark_image
    assert conf["spark.kubernetes.container.image.pullPolicy"] == "Never"
    assert conf["spark.kubernetes.authenticate.executor.serviceAccountName"] == "p-driver"
    assert (conf["spark.authenticate"], conf["spark.network.crypto.enabled"]) == ("true", "true")


def test_pull_secrets_are_in_the_template_and_not_in_spark_settings() -> None:
    with_secrets = OperatorSettings(image_pull_secrets=("b", "a"))
    assert pod(declared(MINIMAL), with_secrets)["spec"]["imagePullSecrets"] == [{"name": "b"}, {"name": "a"}]
    assert "imagePullSecrets" not in pod(declared(MINIMAL))["spec"]
    assert spark(with_secrets) == spark()


def test_a_user_overrides_only_allowed_spark_settings() -> None:
    assert set(spark()) & ALLOWED == {"spark.network.timeout", "spark.executor.memoryOverhead"}
    chosen = spark(spark={"conf": {"spark.network.timeout": "300s", "spark.sql.caseSensitive": "true"}})
    assert set(spark()) - set(chosen) == {"spark.network.timeout"}, "the plan has the user's own value"


@pytest.mark.parametrize(
    ("executor", "cores", "overhead"),
    [
        ({}, "1", "409m"),
        ({"cores": 4}, "4", "409m"),
        ({"cores": 4, "cpuRequest": "500m"}, "500m", "409m"),
        ({"memory": "512m"}, "1", "384m"),
        ({"memory": "10g"}, "1", "4096m"),
    ],
)
def test_the_cores_and_memory_overhead_that_an_executor_requests(
    executor: dict[str, Any], cores: str, overhead: str
) -> None:
    conf = spark(spark={"executor": executor})
    assert conf["spark.kubernetes.executor.request.cores"] == cores
    assert conf["spark.executor.memoryOverhead"] == overhead


def test_the_image_is_the_pipelines_own_or_the_operators() -> None:
    assert image(declared(MINIMAL), OperatorSettings(spark_image="ours:1")) == "ours:1"
    assert image(declared(MINIMAL, spark={"image": "mine:2"}), OperatorSettings(spark_image="ours:1")) == "mine:2"


def test_the_operators_page_lists_the_spark_settings_that_no_plan_prints() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operator.md").read_text()
    section = page.split("## Spark settings of the cluster")[1].split("##")[0]
    rows = dict(row.split(" | ", 1) for row in re.findall(r"^\| (spark.*) \|$", section, re.MULTILINE))
    listed = [name for names in rows for name in names.split(", ")]
    used = spark_settings(declared(MINIMAL), SETTINGS, template_file="/x")
    assert sorted(listed) == sorted(used)
    printed = {s.name for s in plan(declared(MINIMAL)).spark}
    assert not printed & set(listed)
    for name in ("spark.network.timeout", "spark.driver.bindAddress"):
        assert rows[name].startswith(used[name])
