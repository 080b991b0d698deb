"""The chart's release under pipelines that deliver: installed, tested, upgraded, uninstalled and installed again. What the API server makes
of it without nodes is shown in test_chart.py."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from e2e.pipelines import CHART, NAMESPACE, RELEASE, SYSTEM, Installation, Pipeline, pipeline, wait_until
from lab.processes import LabError

FLIGHTS = 5_000
CRD = "deliverypipelines.ackwright.io"
CHILDREN = "statefulsets,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets"
_UNINSTALLED_S = 60  # helm's own time-out is five minutes: something that hangs takes as long
_DELETED_S = 100  # a driver drains for 60 s at most


@pytest.fixture
def released(installed: Installation) -> Iterator[Installation]:
    """The release as the other tests have it; and again at the end."""
    yield installed
    installed.install()


def test_helm_test_passes(installed: Installation) -> None:
    told = installed.cluster.helm("test", RELEASE, "--namespace", SYSTEM, "--timeout", "3m")
    assert "Phase:          Succeeded" in told, told


def test_upgraded_uninstalled_and_installed_again_under_live_pipelines(released: Installation, tmp_path: Path) -> None:
    installed, cluster = released, released.cluster
    with pipeline(installed, "exactly-once") as once, pipeline(installed, "at-least-once") as least:
        both = (once, least)
        for p in both:
            p.wait_for("TopicsReady", "True")
            p.feed(FLIGHTS)
        for p in both:
            p.wait_for("Ready", "True", "Delivering")
        before = {p.name: lasting(p) for p in both}

        newer = f"{installed.operator.reference}-newer"
        cluster.tag(installed.operator, newer)
        old = installed.operator_pod()["metadata"]["uid"]
        # As docs/install.md says it.
        argv = (
            "upgrade",
            RELEASE,
            CHART,
            "--namespace",
            SYSTEM,
            "--reset-then-reuse-values",
            "--set",
            f"image.operator={newer}",
        )
        cluster.helm(*argv, "--set", "settings.STUCK=90", "--wait", "--timeout", "2m")
        upgraded = installed.operator_pod()
        assert upgraded["metadata"]["uid"] != old
        assert [c["image"] for c in upgraded["spec"]["containers"]] == [newer]
        delivers_and_tells(both, FLIGHTS)
        assert {p.name: lasting(p) for p in both} == before, "an upgrade of the operator restarts and rewrites nothing"

        began = time.monotonic()
        cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", timeout=_UNINSTALLED_S)
        print(f"uninstalled after {time.monotonic() - began:.0f} s")
        wait_until(lambda: not installed.get("pods", namespace=SYSTEM), "the operator is gone", 60)
        assert not installed.get("rolebindings", labels="app.kubernetes.io/instance=ackwright"), "with its rights"
        assert cluster.kubectl("get", "crd", CRD, "--output", "name"), "the definition is kept"
        delivers_on(both, 2 * FLIGHTS)
        assert {p.name: lasting(p) for p in both} == before, "pipelines outlive the release"
        for p in both:
            verdict = p.audit(tmp_path)
            assert verdict["exitCode"] == 0, verdict

        # Nobody is needed for the end of a pipeline that keeps its topics.
        installed.kubectl("delete", "deliverypipeline", least.name, f"--timeout={_DELETED_S}s", timeout=_DELETED_S + 10)
        wait_until(
            lambda: least.driver() is None and not children(least), "what it consisted of is collected", _DELETED_S
        )

        installed.helm("install")
        delivers_and_tells([once], 3 * FLIGHTS)
        assert lasting(once) == before[once.name], "the new release takes it over as it is"
        once.wait_for("Ready", "True", "Delivering")
        assert once.audit(tmp_path)["exitCode"] == 0


def test_a_second_operator_is_installed_as_documented(installed: Installation) -> None:
    """Beside the first; without what the page sets for it helm refuses, for the first has what is of the whole cluster."""
    page = (CHART.parents[1] / "docs" / "teams.md").read_text()
    command = re.search(r"^helm (install .*?[^\\])$", page, re.MULTILINE | re.DOTALL)
    assert command
    argv = shlex.split(command[1].replace("\\\n", " ").replace("charts/ackwright", str(CHART)))
    assert "payments-system" in installed.cluster.helm(*argv, "--dry-run=server")
    for setting in ("crds.enabled=false", "rbac.aggregateRoles=false"):
        with pytest.raises(LabError, match="invalid ownership metadata"):
            installed.cluster.helm(*(a.replace(setting, "priorityClassName=") for a in argv), "--dry-run=server")


def test_a_pipeline_whose_topics_go_with_it_is_let_go_without_an_operator(released: Installation) -> None:
    """By the command of docs/install.md; until then it waits, for its topics are still there."""
    cluster = released.cluster
    with pipeline(released, "exactly-once", create=False) as p:
        for topic in p.document["spec"]["topics"]:
            topic["deletionPolicy"] = "Delete"
        p.apply(suspend=True)
        p.wait_for("TopicsReady", "True")
        cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", timeout=_UNINSTALLED_S)
        with pytest.raises(LabError, match="timed out"):
            released.kubectl("delete", "deliverypipeline", p.name, "--timeout=5s")
        without = '{"metadata": {"finalizers": null}}'
        cluster.kubectl("patch", "deliverypipeline", p.name, "-n", NAMESPACE, "--type=merge", "-p", without)
        wait_until(lambda: p.name not in released.kubectl("get", "deliverypipelines"), "it is gone", 30)


def children(p: Pipeline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = p.installation.get(CHILDREN, labels=f"ackwright.io/pipeline={p.name}")
    return found


def lasting(p: Pipeline) -> object:
    """What stays the same as long as nobody restarts or rewrites it: the driver, its restarts, and the version of each child's spec."""
    driver = p.driver()
    assert driver is not None
    restarts = [c["restartCount"] for c in driver["status"]["containerStatuses"]]
    specs = sorted(
        (o["kind"], o["metadata"]["name"], o["metadata"]["uid"], o["metadata"].get("generation", 0))
        for o in children(p)
    )
    return driver["metadata"]["uid"], restarts, specs


def delivers_on(pipelines: Sequence[Pipeline], skip: int) -> None:
    for p in pipelines:
        p.feed(FLIGHTS, skip=skip)
    for p in pipelines:
        p.wait_until_delivered()


def delivers_and_tells(pipelines: Sequence[Pipeline], skip: int) -> None:
    """Returns when the operator has told of what was fed here: by then it has looked at each pipeline, and acted."""
    told = {p.name: p.status()["delivery"]["observedAt"] for p in pipelines}
    delivers_on(pipelines, skip)
    wait_until(
        lambda: all(p.status()["delivery"]["observedAt"] > told[p.name] for p in pipelines),
        "each has been looked at anew",
        120,
    )
