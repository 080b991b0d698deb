"""What GitOps tools make of a pipeline in each state: Argo CD's script, run as it is. For Flux see tests/chart/test_kstatus.py."""

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
    """Health and message, by Lua 5.1, with nothing but the language, as Argo CD runs it."""
    lua = lupa.lua51.LuaRuntime(register_eval=False, register_builtins=False)
    for library in ("os", "io", "package", "require", "debug", "python", "string"):
        lua.globals()[library] = None
    lua.globals().obj = lua.table_from(resource, recursive=True)
    found = lua.execute((ARGO / "health.lua").read_text())
    return found.status, found.message


@pytest.mark.parametrize("name", STATES)
def test_argo_cd_says_how_it_is(name: str) -> None:
    health, message = argo(STATES[name])
    assert health == EXPECTED[name][0]
    assert message, "a health without a reason helps nobody"


def test_the_fixtures_are_what_the_operator_writes_today() -> None:
    there = {file.stem: yaml.safe_load(file.read_text()) for file in TESTDATA.glob("*.yaml")}
    assert there == json.loads(json.dumps(STATES)), "run tests/unit/gitops/states.py"


def test_the_table_in_argo_cds_own_form_is_true() -> None:
    """Argo CD's repository runs these files by the same rules: https://argo-cd.readthedocs.io/en/stable/operator-manual/health/"""
    cases = yaml.safe_load((ARGO / "health_test.yaml").read_text())["tests"]
    assert {case["inputPath"] for case in cases} == {f"testdata/{name}.yaml" for name in STATES}
    for case in cases:
        health, message = argo(yaml.safe_load((ARGO / case["inputPath"]).read_text()))
        assert {"status": health, "message": message} == case["healthStatus"], case["inputPath"]


@pytest.mark.parametrize("kind", ["Ready", "GuaranteeMet", "TopicsReady", "JobRunning", "Reconciling", "Stalled"])
def test_a_condition_that_is_missing_does_not_make_a_script_fail_or_a_pipeline_healthy(kind: str) -> None:
    resource = json.loads(json.dumps(STATES["starting"]))
    resource["status"]["conditions"] = [c for c in resource["status"]["conditions"] if c["type"] != kind]
    assert argo(resource)[0] == "Progressing"


def test_the_config_map_of_argo_cd_holds_the_script() -> None:
    found = yaml.safe_load((ARGO / "argocd-cm.yaml").read_text())
    assert found["data"] == {
        "resource.customizations.health.ackwright.io_DeliveryPipeline": (ARGO / "health.lua").read_text()
    }
