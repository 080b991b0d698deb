"""The health that Argo CD's script returns for a pipeline in each state. For Flux see tests/chart/test_kstatus.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import lupa.lua51
import pytest
import yaml

from unit.gitops.expected_health import EXPECTED, STATES
from unit.gitops.states import TESTDATA

ARGO = TESTDATA.parent


def argo(resource: Mapping[str, Any]) -> tuple[str, str]:
    """Health and message, computed with Lua 5.1 without its libraries, as in Argo CD."""
    lua = lupa.lua51.LuaRuntime(register_eval=False, register_builtins=False)
    for library in ("os", "io", "package", "require", "debug", "python", "string"):
        lua.globals()[library] = None
    lua.globals().obj = lua.table_from(resource, recursive=True)
    result = lua.execute((ARGO / "health.lua").read_text())
    return result.status, result.message


@pytest.mark.parametrize("name", STATES)
def test_argo_cd_computes_the_expected_health(name: str) -> None:
    health, message = argo(STATES[name])
    assert health == EXPECTED[name][0]
    assert message, "every health has a message"


def test_the_committed_resources_are_current() -> None:
    committed = {file.stem: yaml.safe_load(file.read_text()) for file in TESTDATA.glob("*.yaml")}
    assert committed == json.loads(json.dumps(STATES)), "run tests/unit/gitops/states.py"


def test_the_cases_in_argo_cds_format_are_correct() -> None:
    """Argo CD's repository runs such files: https://argo-cd.readthedocs.io/en/stable/operator-manual/health/"""
    cases = yaml.safe_load((ARGO / "health_test.yaml").read_text())["tests"]
    assert {case["inputPath"] for case in cases} == {f"testdata/{name}.yaml" for name in STATES}
    for case in cases:
        health, message = argo(yaml.safe_load((ARGO / case["inputPath"]).read_text()))
        assert {"status": health, "message": message} == case["healthStatus"], case["inputPath"]


@pytest.mark.parametrize("kind", ["Ready", "GuaranteeMet", "TopicsReady", "JobRunning", "Reconciling", "Stalled"])
def test_without_a_condition_the_script_returns_progressing(kind: str) -> None:
    resource = json.loads(json.dumps(STATES["starting"]))
    resource["status"]["conditions"] = [c for c in resource["status"]["conditions"] if c["type"] != kind]
    assert argo(resource)[0] == "Progressing"


def test_the_config_map_for_argo_cd_contains_the_script() -> None:
    config_map = yaml.safe_load((ARGO / "argocd-cm.yaml").read_text())
    assert config_map["data"] == {
        "resource.customizations.health.ackwright.io_DeliveryPipeline": (ARGO / "health.lua").read_text()
    }
