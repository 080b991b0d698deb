"""The state of pods in each situation, as the API server has it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from ackwright.observe.workload import driver_pod, last_log_line, progress_addresses, workload
from ackwright.planning.observed import DriverPod, EndedExecutor, LastLogLine, OutOfMemory
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import Ending, Failure, LostTopic

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p-0",
        "namespace": "ops",
        "uid": "pod-uid",
        "labels": {
            "ackwright.io/pipeline": "p",
            "ackwright.io/role": "driver",
            "controller-revision-hash": "p-5c7d",
            "apps.kubernetes.io/pod-index": "0",
        },
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "p", "uid": "sts"}],
    },
    "spec": {
        "nodeName": "node-1",
        "terminationGracePeriodSeconds": 60,
        "containers": [{"name": "driver", "image": "i"}],
        "volumes": [
            {"name": "mesh-ca", "configMap": {"name": "mesh-ca-root"}},
            {"name": "job", "configMap": {"name": "p-job-0123456789", "defaultMode": 420}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "kube-api-access-x", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
        ],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "driver",
                "ready": True,
                "restartCount": 0,
                "lastState": {},
                "state": {"running": {"startedAt": "2026-11-21T12:00:00Z"}},
            },
        ],
    },
}
RUNNING = DriverPod(
    name="p-0",
    uid="pod-uid",
    phase="Running",
    ready=True,
    drain_s=60,
    node="node-1",
    config="p-job-0123456789",
    revision="p-5c7d",
    address="10.1.2.3:8090",
)
LOST = Failure(Reason.POSITION_LOST, "lane in-0 has no position; set one")
LOG = f"26/11/21 WARN something\nackwright: {LOST}\nlate output\n"
CUT_OFF = Ending(3, LOST).to_json()[:40]
UNKNOWN = '{"exitCode": 3, "failure": {"reason": "no reason", "message": "x"}}'
ENDED = {
    "exitCode": 3,
    "reason": "Error",
    "message": Ending(3, LOST).to_json(),
    "finishedAt": "2026-11-21T12:01:00Z",
    "startedAt": "2026-11-21T12:00:00Z",
}


def pod(*, container: Any = None, conditions: Any = None, status: Any = None, **meta: Any) -> dict[str, Any]:
    driver = copy.deepcopy(POD)
    driver["metadata"] |= meta
    if conditions is not None:
        driver["status"]["conditions"] = conditions
    if container is not None:
        driver["status"]["containerStatuses"] = [
            {"name": "driver", "restartCount": 0, "state": {}, "lastState": {}} | container
        ]
    driver["status"] |= status or {}
    return driver


def test_a_running_pod() -> None:
    assert driver_pod(POD) == RUNNING


def test_a_pod_without_spec_and_status() -> None:
    bare = {"metadata": {"name": "p-0", "uid": "pod-uid"}}
    assert driver_pod(bare) == DriverPod("p-0", "pod-uid")


def test_a_crash_loop_reports_how_the_container_ended() -> None:
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    driver = driver_pod(
        pod(
            container={"restartCount": 4, "state": {"waiting": waiting}, "lastState": {"terminated": ENDED}},
            conditions=[],
        )
    )
    assert driver == replace(
        RUNNING,
        ready=False,
        restarts=4,
        waiting="CrashLoopBackOff",
        waiting_message=waiting["message"],
        exit_code=3,
        error=LOST,
        ended_at="2026-11-21T12:01:00Z",
    )


def test_the_current_termination_takes_precedence_over_the_last_one() -> None:
    earlier = ENDED | {"exitCode": 137, "message": "", "finishedAt": "2026-11-21T11:00:00Z"}
    driver = driver_pod(
        pod(container={"restartCount": 1, "state": {"terminated": ENDED}, "lastState": {"terminated": earlier}})
    )
    assert (driver.exit_code, driver.error, driver.ended_at, driver.waiting) == (3, LOST, "2026-11-21T12:01:00Z", None)


def test_a_container_with_exit_code_zero_has_no_error() -> None:
    driver = driver_pod(
        pod(container={"state": {"terminated": ENDED | {"exitCode": 0}}}, status={"phase": "Succeeded"})
    )
    assert (driver.exit_code, driver.error, driver.phase) == (0, None, "Succeeded")


@pytest.mark.parametrize("message", [{}, {"message": LOG}], ids=["no message", "a log"])
def test_a_container_killed_for_its_memory_names_the_remedy(message: dict[str, str]) -> None:
    terminated = {"exitCode": 137, "reason": "OOMKilled", **message}
    driver = driver_pod(pod(container={"state": {"terminated": terminated}}))
    assert (driver.exit_code, driver.error) == (137, OutOfMemory())
    assert "raise spec.spark.driver.memory" in str(driver.error)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (LOG, LastLogLine(str(LOST))),
        ("Traceback …\nSegmentation fault\n", LastLogLine("Segmentation fault")),
        (CUT_OFF, LastLogLine(CUT_OFF)),
        (UNKNOWN, LastLogLine(UNKNOWN)),
        (Ending(1).to_json(), None),
        ("", None),
    ],
    ids=["of an older image", "a crash", "cut off", "without a reason", "without a failure", "empty"],
)
def test_a_message_that_reports_no_failure_is_text_without_a_reason(message: str, error: LastLogLine | None) -> None:
    driver = driver_pod(pod(container={"state": {"terminated": ENDED | {"message": message}}}))
    assert driver.error == error


@pytest.mark.parametrize(
    "failure",
    [
        Failure(Reason.POSITIONS_MOVED, "moved", fingerprint="0123456789ab"),
        Failure(Reason.TOPIC_REPLACED, "recreated", lost_topic=LostTopic("in", "old", "now")),
    ],
)
def test_a_message_names_what_a_person_may_accept(failure: Failure) -> None:
    terminated = ENDED | {"message": Ending(3, failure).to_json()}
    assert driver_pod(pod(container={"state": {"terminated": terminated}})).error == failure


@pytest.mark.parametrize(
    ("reason", "lost"),
    [("DeletionByTaintManager", True), ("EvictionByEvictionAPI", False), ("PreemptionByScheduler", False)],
)
def test_a_pod_that_is_being_deleted_and_one_on_a_lost_node(reason: str, *, lost: bool) -> None:
    conditions = [
        {"type": "DisruptionTarget", "status": "True", "reason": reason},
        {"type": "Ready", "status": "False"},
    ]
    driver = driver_pod(
        pod(conditions=conditions, deletionTimestamp="2026-11-21T12:02:00Z", deletionGracePeriodSeconds=60)
    )
    assert (driver.deleting, driver.node_lost, driver.ready) == (True, lost, False)


def test_an_unschedulable_pod() -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    ]
    pending = pod(conditions=conditions, status={"phase": "Pending", "podIP": None, "containerStatuses": []})
    del pending["spec"]["nodeName"]
    driver = driver_pod(pending)
    assert (driver.unschedulable, driver.node, driver.address, driver.phase) == (
        "0/3 nodes are available",
        None,
        None,
        "Pending",
    )


def test_an_image_that_cannot_be_pulled() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'}
    driver = driver_pod(pod(container={"state": {"waiting": waiting}}, status={"phase": "Pending"}))
    assert (driver.waiting, driver.waiting_message, driver.exit_code) == (
        "ImagePullBackOff",
        'Back-off pulling image "i"',
        None,
    )


def test_an_ipv6_address_is_in_brackets() -> None:
    assert driver_pod(pod(status={"podIP": "fd00::7"})).address == "[fd00::7]:8090"


def test_the_driver_is_distinguished_from_a_sidecar() -> None:
    driver = copy.deepcopy(POD)
    mesh = {
        "name": "a-mesh",
        "restartCount": 9,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ENDED},
    }
    driver["status"]["containerStatuses"].insert(0, mesh)
    assert driver_pod(driver) == RUNNING


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", None),
        ("\n \n", None),
        ("one\ntwo\n", "two"),
        (LOG, str(LOST)),
        ("ackwright: first\nackwright: second\n", "second"),
        ("x ackwright: not at the beginning\nlast", "last"),
    ],
)
def test_the_last_log_line_of_the_job_or_else_of_any_program(log: str, line: str | None) -> None:
    assert last_log_line(log) == line


def test_objects_of_an_earlier_pipeline_of_the_same_name_are_not_children() -> None:
    def child(kind: str, name: str, owner: str) -> dict[str, Any]:
        return {"kind": kind, "metadata": {"name": name, "uid": name, "ownerReferences": [{"uid": owner}]}}

    def executor(name: str, phase: str, **meta: Any) -> dict[str, Any]:
        labels = {"ackwright.io/role": "executor"}
        return {
            "kind": "Pod",
            "metadata": {"name": name, "uid": name, "labels": labels, **meta},
            "status": {"phase": phase},
        }

    observed = workload(
        [
            child("StatefulSet", "p", "mine"),
            child("ConfigMap", "c", "other"),
            {"kind": "Role", "metadata": {"name": "orphan"}},
            pod(name="q-0", deletionTimestamp="2026-11-21T12:02:00Z"),
            POD,
            executor("e-3", "Failed"),
            executor("e-1", "Succeeded"),
            executor("e-2", "Running"),
            executor("e-4", "Failed", deletionTimestamp="2026-11-21T12:02:00Z"),
        ],
        "mine",
    )
    assert set(observed.children) == {("StatefulSet", "p")}
    assert observed.in_the_way == {("ConfigMap", "c"), ("Role", "orphan")}
    assert observed.ended == (EndedExecutor("e-1", "e-1"), EndedExecutor("e-3", "e-3"))
    assert [d.name for d in observed.drivers] == ["p-0", "q-0"]
    assert observed.driver == RUNNING, "the one that is not being deleted"
    assert workload([], "mine").driver is None


def test_a_bounded_run_is_complete_if_its_job_has_the_condition() -> None:
    job = {"kind": "Job", "metadata": {"name": "p", "ownerReferences": [{"uid": "mine"}]}}
    for status, complete in (
        ({}, False),
        ({"conditions": [{"type": "Complete", "status": "False"}]}, False),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, False),
        (
            {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]},
            True,
        ),
    ):
        assert workload([job | {"status": status}], "mine").complete is complete


def test_of_pods_with_the_labels_of_drivers_only_a_few_are_asked() -> None:
    """An author can create pods with these labels."""
    names = [f"p-{i}" for i in range(1000)]
    pods = [DriverPod(n, n, "Running", address=f"{n}:8090") for n in reversed(names)]
    assert progress_addresses(pods) == ("p-0:8090", "p-1:8090", "p-10:8090", "p-100:8090")
    assert progress_addresses([DriverPod("p-0", "u", "Pending", address="a:1"), DriverPod("p-1", "v", "Running")]) == ()
