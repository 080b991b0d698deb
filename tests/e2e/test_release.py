"""The chart's release is installed, tested, upgraded, uninstalled and reinstalled while pipelines deliver.

test_chart.py tests the same release with an API server without nodes.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.pipelines import CHART, NAMESPACE, RELEASE, SYSTEM, Installation, pipeline, wait_until
from e2e.upgrades import (
    FLIGHTS,
    children,
    identity,
    produce_and_wait_until_delivered,
    wait_until_delivered_and_observed,
)
from lab.processes import LabError

CRD, OPERATOR = "deliverypipelines.ackwright.io", "ackwright-operator"
_UNINSTALL_TIMEOUT = 60  # seconds; helm's own timeout is five minutes
_DELETE_TIMEOUT = 100  # seconds; a driver drains for at most 60


@pytest.fixture
def released(installed: Installation) -> Iterator[Installation]:
    """The release of the other tests, which is restored at the end."""
    yield installed
    installed.install()


def test_helm_test_passes(installed: Installation) -> None:
    output = installed.cluster.helm("test", RELEASE, "--namespace", SYSTEM, "--timeout", "3m")
    assert "Phase:          Succeeded" in output, output


def test_upgrade_uninstall_and_reinstall_with_running_pipelines(released: Installation, tmp_path: Path) -> None:
    installed, cluster = released, released.cluster
    with pipeline(installed, "exactly-once") as once, pipeline(installed, "at-least-once") as least:
        both = (once, least)
        for p in both:
            p.wait_for("TopicsReady", "True")
            p.produce_flights(FLIGHTS)
        for p in both:
            p.wait_for("Ready", "True", "Delivering")
        before = {p.name: identity(p) for p in both}

        newer = f"{installed.operator.reference}-newer"
        cluster.tag(installed.operator, newer)
        old = installed.operator_pod()["metadata"]["uid"]
        # The command of docs/install.md.
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
        wait_until_delivered_and_observed(both, FLIGHTS)
        assert {p.name: identity(p) for p in both} == before, "an upgrade of the operator restarts and rewrites nothing"

        started_at = time.monotonic()
        cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", timeout=_UNINSTALL_TIMEOUT)
        print(f"uninstalled after {time.monotonic() - started_at:.0f} s")
        wait_until(lambda: not installed.get("pods", namespace=SYSTEM), "the operator has ended", 60)
        bindings = installed.get("rolebindings", labels="app.kubernetes.io/instance=ackwright")
        assert not bindings, "its permissions are removed"
        assert cluster.kubectl("get", "crd", CRD, "--output", "name"), "the CRD is kept"
        produce_and_wait_until_delivered(both, 2 * FLIGHTS)
        assert {p.name: identity(p) for p in both} == before, "pipelines outlive the release"
        for p in both:
            report = p.audit(tmp_path)
            assert report["exitCode"] == 0, report

        # A pipeline that keeps its topics can be deleted without an operator.
        installed.kubectl(
            "delete", "deliverypipeline", least.name, f"--timeout={_DELETE_TIMEOUT}s", timeout=_DELETE_TIMEOUT + 10
        )
        wait_until(
            lambda: least.driver() is None and not children(least), "its objects are garbage-collected", _DELETE_TIMEOUT
        )

        installed.helm("install")
        wait_until_delivered_and_observed([once], 3 * FLIGHTS)
        assert identity(once) == before[once.name], "the new release takes over the pipeline without a change"
        once.wait_for("Ready", "True", "Delivering")
        assert once.audit(tmp_path)["exitCode"] == 0


def test_the_number_of_shards_can_be_changed_while_a_pipeline_delivers(released: Installation, tmp_path: Path) -> None:
    with pipeline(released, "exactly-once") as p:
        p.wait_for("TopicsReady", "True")
        p.produce_flights(FLIGHTS)
        p.wait_for("Ready", "True", "Delivering")
        before = identity(p)
        for number, deployments in ((1, [f"{OPERATOR}-1", f"{OPERATOR}-2"]), (2, [OPERATOR])):
            released.install(shards=len(deployments))
            assert [o["metadata"]["name"] for o in released.get("deployments", namespace=SYSTEM)] == deployments
            wait_until_delivered_and_observed([p], number * FLIGHTS)
            assert identity(p) == before, "another number of shards restarts and rewrites nothing"
            p.apply(trigger={"interval": f"{number}s"})
            p.wait_for("Ready", "True", "Delivering")
            before = identity(p)
        p.wait_until_delivered_and_audit(tmp_path)


def test_a_second_operator_is_installed_as_documented(installed: Installation) -> None:
    """Without the page's settings helm refuses, because the first release owns the cluster-wide objects."""
    page = (CHART.parents[1] / "docs" / "teams.md").read_text()
    command = re.search(r"^helm (install .*?[^\\])$", page, re.MULTILINE | re.DOTALL)
    assert command
    argv = shlex.split(command[1].replace("\\\n", " ").replace("charts/ackwright", str(CHART)))
    assert "payments-system" in installed.cluster.helm(*argv, "--dry-run=server")
    for setting in ("crds.enabled=false", "rbac.aggregateRoles=false"):
        with pytest.raises(LabError, match="invalid ownership metadata"):
            installed.cluster.helm(*(a.replace(setting, "priorityClassName=") for a in argv), "--dry-run=server")


def test_a_pipeline_that_deletes_its_topics_can_be_released_without_an_operator(released: Installation) -> None:
    """The command of docs/install.md removes the finalizer; before it the deletion waits."""
    cluster = released.cluster
    with pipeline(released, "exactly-once", create=False) as p:
        for topic in p.document["spec"]["topics"]:
            topic["deletionPolicy"] = "Delete"
        p.apply(suspend=True)
        p.wait_for("TopicsReady", "True")
        cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", timeout=_UNINSTALL_TIMEOUT)
        with pytest.raises(LabError, match="timed out"):
            released.kubectl("delete", "deliverypipeline", p.name, "--timeout=5s")
        without = '{"metadata": {"finalizers": null}}'
        cluster.kubectl("patch", "deliverypipeline", p.name, "-n", NAMESPACE, "--type=merge", "-p", without)
        wait_until(lambda: p.name not in released.kubectl("get", "deliverypipelines"), "the pipeline is deleted", 30)
