"""The values: the schema contains exactly the chart's values, and refuses wrong ones with a message that names them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from ackwright.settings import OperatorSettings
from chart.rendered import ALL, CHART, refusal, run, text

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
_SET_BY_THE_CHART = {
    "NAMESPACES",
    "SHARD",
    "OWN_NAMESPACE",
    "SPARK_IMAGE",
    "IMAGE_PULL_POLICY",
    "IMAGE_PULL_SECRETS",
    "METRICS_PORT",
}
_USER_KEYS = {"labels", "alertLabels", "podLabels", "podAnnotations", "nodeSelector", "settings"}  # maps with any keys


def keys(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        yield (*path, name)
        if isinstance(value, dict) and name not in _USER_KEYS:
            yield from keys(value, (*path, name))


def objects_in(schema: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for part in schema.values():
            yield from objects_in(part)


def test_every_value_is_in_the_schema() -> None:
    paths = [k for k in keys(VALUES) if k[0] != "resources"]
    assert len(paths) > 30
    for path in paths:
        schema = SCHEMA
        for name in path:
            assert name in schema["properties"], path
            schema = schema["properties"][name]
    assert set(SCHEMA["properties"]) - set(VALUES) == {"global"}


def test_no_object_of_the_schema_accepts_unknown_keys() -> None:
    schemas = list(objects_in(SCHEMA))
    assert len(schemas) > 10
    assert [s for s in schemas if s.get("additionalProperties") is not False] == []


def test_the_settings_are_those_of_the_operator() -> None:
    assert (
        set(SCHEMA["properties"]["settings"]["properties"])
        == {n.upper() for n in vars(OperatorSettings())} - _SET_BY_THE_CHART
    )


DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"watchNamespace": ["ops"]}, "watchNamespace"),
        ({"image": {"tag": "1"}}, "tag"),
        ({"image": {"operator": "x@sha256:abc"}}, "operator"),
        ({"image": {"operator": ""}}, "operator"),
        ({"image": {"sparkPullSecrets": ["registry"]}}, "sparkPullSecrets"),
        ({"image": {"sparkPullSecrets": [{"name": "a,b"}]}}, "sparkPullSecrets"),
        ({"watchNamespaces": ["Ops"]}, "watchNamespaces"),
        ({"watchNamespaces": "ops"}, "watchNamespaces"),
        ({"settings": {"STUK": "300"}}, "STUK"),
        ({"settings": {"STUCK": "soon"}}, "STUCK"),
        ({"settings": {"WORKERS": 0}}, "WORKERS"),
        ({"prometheusRule": {"lagFor": "soon"}}, "lagFor"),
        ({"podMonitor": {"enable": True}}, "enable"),
        ({"resources": {"request": {}}}, "request"),
        ({"networkPolicy": {"metricsFrom": [{"podSelectors": {}}]}}, "podSelectors"),
        ({"crds": {"keep": False}}, "keep"),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    assert named in refusal(values)


@pytest.mark.parametrize(
    "values",
    [
        {"image": {"operator": f"registry.example:5000/a/b:1@{DIGEST}", "spark": f"x@{DIGEST}"}},
        {"settings": {"STUCK": "300", "RESYNC": 7.5, "WORKERS": 4}},
        {
            "watchNamespaces": ["ops", "b-1"],
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        },
        {"global": {"anything": 1}},
        ALL,
    ],
)
def test_valid_values_are_accepted(values: dict[str, Any]) -> None:
    text(values)


@pytest.mark.parametrize("values", [{}, ALL])
def test_helm_lint_passes(values: dict[str, Any]) -> None:
    completed = run("lint", "--strict", CHART, "--kube-version", "1.34.0", values=values)
    assert completed.returncode == 0, completed.stdout
