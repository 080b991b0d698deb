"""Pipelines for tests of rendering: every example, and strategies for any accepted spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ackwright.api.spark_conf import ALLOWED
from ackwright.api.spec import DeliveryPipeline, parse
from ackwright.planning.plan import load, plan
from ackwright.render.names import Object
from ackwright.render.workload import objects
from ackwright.settings import OperatorSettings

UID = "0e5b5ab4-8a6c-4b43-8b2c-3f1f0c2d9a11"
NAMESPACE_UID = "b7a0c0de-2d0f-4f0e-9f43-6f1f2a9d7c22"
SETTINGS = OperatorSettings()
_ALL = [load(path)[0] for path in sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))]
EXAMPLES = [example for example in _ALL if example.spec.state is None]
MINIMAL: dict[str, Any] = {
    "guarantee": "exactly-once",
    "kafka": {"bootstrapServers": "k:9092"},
    "source": {"topics": ["in"]},
    "transform": {"sql": "SELECT * FROM source"},
    "sink": {"kafka": {"topic": "out"}},
}

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_hostile = st.sampled_from(
    ["-Dx=y", "$(POD_IP)", "x\nspark.master=local", "k8s://https://elsewhere", '"}', "{{x}}", "../../x", "secret"]
)
_values = _text | _hostile
_cores = st.sampled_from([1, 2, 1000, 4096, 2**31 - 1])
_cpu = st.sampled_from(["1", "500m", "2000m", "1500m", "999", "999999m"])
_memory = st.sampled_from(["512m", "1g", "1500m", "2048m", "3000m", "16g", "1024g"])
_object = st.from_regex(r"\A[a-z0-9]([a-z0-9.-]{0,12}[a-z0-9])?\Z") | st.just("s" * 253)
_kafka = st.fixed_dictionaries(
    {"bootstrapServers": st.sampled_from(["k:9092", "k-0:9092, k-1:9092", "[::1]:9092", "a:1,\nb:2"])},
    optional={
        "auth": _object.map(lambda name: {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": name}}),
        "tls": st.just({}) | _object.map(lambda name: {"caSecret": {"name": name, "key": "ca.crt"}}),
    },
)
_pod = {"cores": _cores, "cpuRequest": _cpu, "memory": _memory}
_spark = st.fixed_dictionaries(
    {},
    optional={
        "image": _values.map(lambda text: f"i{text}"),  # any non-empty image is accepted
        "driver": st.fixed_dictionaries({}, optional=_pod),
        "executor": st.fixed_dictionaries({}, optional=_pod | {"instances": st.sampled_from([1, 2, 100])}),
        "conf": st.dictionaries(st.sampled_from(sorted(ALLOWED)), _values, max_size=3)
        | _hostile.map(lambda v: dict.fromkeys(ALLOWED, v)),
    },
)
specs = st.fixed_dictionaries(
    {
        "guarantee": st.sampled_from(["at-most-once", "at-least-once", "exactly-once"]),
        "kafka": _kafka,
        "source": st.just({"topics": ["in"]}),
        "transform": _values.map(lambda text: {"sql": f"SELECT{text}"}),
        "sink": st.just({"kafka": {"topic": "out"}}),
    },
    optional={
        "spark": _spark,
        "checkpoint": st.sampled_from(["1Gi", "1024Mi", "2048Ki", "1024Ti", "1000Gi"]).map(
            lambda size: {"volume": {"size": size}}
        )
        | st.just({"uri": "/var/x"}),
        "trigger": st.sampled_from([{"availableNow": True}, {"interval": "5s"}]),
        "suspend": st.booleans(),
    },
)
metadata = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?\Z") | st.sampled_from(["a" * 52, "0" * 52]),
        "namespace": st.sampled_from(["ops", "n" * 63]),
    }
)


def declared(spec: dict[str, Any], name: str = "p", namespace: str = "ops", **more: Any) -> DeliveryPipeline:
    document = {
        "apiVersion": "ackwright.io/v1alpha1",
        "kind": "DeliveryPipeline",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**spec, **more},
    }
    return parse(document)


pipelines = st.builds(lambda spec, meta: declared(spec, **meta), specs, metadata)


def _name(kind: str, role: str) -> str:
    if kind == "ConfigMap":
        return role
    return "drivers" if (kind, role) == ("PodDisruptionBudget", "driver") else kind


def rendered(pipeline: DeliveryPipeline, settings: OperatorSettings = SETTINGS) -> dict[str, Object]:
    """The rendered objects by kind; the ConfigMap of the job is "job", that of the clients "clients", and the drivers'
    disruption budget "drivers"."""
    rendered_objects = objects(pipeline, plan(pipeline), UID, settings, identity=f"{NAMESPACE_UID}/{UID}")
    by_kind = {_name(o["kind"], o["metadata"]["labels"]["ackwright.io/role"]): o for o in rendered_objects}
    assert len(by_kind) == len(rendered_objects)
    return by_kind


def driver(by_kind: dict[str, Object]) -> Object:
    """The Job or StatefulSet that creates the driver's pod."""
    return by_kind["Job"] if "Job" in by_kind else by_kind["StatefulSet"]
