"""What pods tell: as the API server has them in each state, and what a driver says of itself, as the job serves it."""

from __future__ import annotations

import copy
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ackwright.observe.workload import driver_pod, progress, sentence, workload
from ackwright.planning.observed import DriverPod, EndedExecutor
from ackwright_stream import progress as job_progress
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane
from minimal_job import minimal_job

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
    node="node-1",
    config="p-job-0123456789",
    revision="p-5c7d",
    address="10.1.2.3:8090",
)
LOG = "26/11/21 WARN something\nackwright: PositionLost: lane in-0 has no position; set one\nlate output\n"
ENDED = {
    "exitCode": 3,
    "reason": "Error",
    "message": LOG,
    "finishedAt": "2026-11-21T12:01:00Z",
    "startedAt": "2026-11-21T12:00:00Z",
}
SAID = "PositionLost: lane in-0 has no position; set one"


def pod(*, container: Any = None, conditions: Any = None, status: Any = None, **meta: Any) -> dict[str, Any]:
    found = copy.deepcopy(POD)
    found["metadata"] |= meta
    if conditions is not None:
        found["status"]["conditions"] = conditions
    if container is not None:
        found["status"]["containerStatuses"] = [
            {"name": "driver", "restartCount": 0, "state": {}, "lastState": {}} | container
        ]
    found["status"] |= status or {}
    return found


def test_a_pod_that_runs() -> None:
    assert driver_pod(POD) == RUNNING


def test_a_pod_that_was_just_made() -> None:
    bare = {"metadata": {"name": "p-0", "uid": "pod-uid"}}
    assert driver_pod(bare) == DriverPod("p-0", "pod-uid")


def test_a_crash_loop_tells_how_it_ended() -> None:
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    found = driver_pod(
        pod(
            container={"restartCount": 4, "state": {"waiting": waiting}, "lastState": {"terminated": ENDED}},
            conditions=[],
        )
    )
    assert found == replace(
        RUNNING,
        ready=False,
        restarts=4,
        waiting="CrashLoopBackOff",
        waiting_message=waiting["message"],
        exit_code=3,
        error=SAID,
        ended_at="2026-11-21T12:01:00Z",
    )


def test_a_container_that_has_just_ended_counts_before_the_one_before_it() -> None:
    earlier = ENDED | {"exitCode": 137, "message": "", "finishedAt": "2026-11-21T11:00:00Z"}
    found = driver_pod(
        pod(container={"restartCount": 1, "state": {"terminated": ENDED}, "lastState": {"terminated": earlier}})
    )
    assert (found.exit_code, found.error, found.ended_at, found.waiting) == (3, SAID, "2026-11-21T12:01:00Z", None)


def test_one_that_ended_well_has_no_error() -> None:
    found = driver_pod(pod(container={"state": {"terminated": ENDED | {"exitCode": 0}}}, status={"phase": "Succeeded"}))
    assert (found.exit_code, found.error, found.phase) == (0, None, "Succeeded")


def test_one_that_the_kernel_killed_and_that_said_nothing() -> None:
    found = driver_pod(pod(container={"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}))
    assert found.exit_code == 137
    assert found.error is not None
    assert "raise spec.spark.driver.memory" in found.error


@pytest.mark.parametrize(
    ("reason", "lost"),
    [("DeletionByTaintManager", True), ("EvictionByEvictionAPI", False), ("PreemptionByScheduler", False)],
)
def test_a_pod_on_its_way_out_and_one_on_a_lost_node(reason: str, *, lost: bool) -> None:
    conditions = [
        {"type": "DisruptionTarget", "status": "True", "reason": reason},
        {"type": "Ready", "status": "False"},
    ]
    found = driver_pod(
        pod(conditions=conditions, deletionTimestamp="2026-11-21T12:02:00Z", deletionGracePeriodSeconds=60)
    )
    assert (found.deleting, found.node_lost, found.ready) == (True, lost, False)


def test_a_pod_that_finds_no_node() -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    ]
    pending = pod(conditions=conditions, status={"phase": "Pending", "podIP": None, "containerStatuses": []})
    del pending["spec"]["nodeName"]
    found = driver_pod(pending)
    assert (found.unschedulable, found.node, found.address, found.phase) == (
        "0/3 nodes are available",
        None,
        None,
        "Pending",
    )


def test_an_image_that_cannot_be_had() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'}
    found = driver_pod(pod(container={"state": {"waiting": waiting}}, status={"phase": "Pending"}))
    assert (found.waiting, found.waiting_message, found.exit_code) == (
        "ImagePullBackOff",
        'Back-off pulling image "i"',
        None,
    )


def test_an_ipv6_address() -> None:
    assert driver_pod(pod(status={"podIP": "fd00::7"})).address == "[fd00::7]:8090"


def test_the_driver_is_told_from_what_a_mesh_adds() -> None:
    found = copy.deepcopy(POD)
    mesh = {
        "name": "a-mesh",
        "restartCount": 9,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ENDED},
    }
    found["status"]["containerStatuses"].insert(0, mesh)
    assert driver_pod(found) == RUNNING


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", None),
        ("\n \n", None),
        ("one\ntwo\n", "two"),
        (LOG, SAID),
        ("ackwright: first\nackwright: second\n", "second"),
        ("x ackwright: not at the beginning\nlast", "last"),
    ],
)
def test_the_sentence_that_a_job_ends_with(log: str, said: str | None) -> None:
    assert sentence(log) == said


def test_a_workload_is_told_from_what_an_earlier_pipeline_of_the_name_left() -> None:
    def child(kind: str, name: str, owner: str) -> dict[str, Any]:
        return {"kind": kind, "metadata": {"name": name, "uid": name, "ownerReferences": [{"uid": owner}]}}

    def executor(name: str, phase: str, **meta: Any) -> dict[str, Any]:
        labels = {"ackwright.io/role": "executor"}
        return {
            "kind": "Pod",
            "metadata": {"name": name, "uid": name, "labels": labels, **meta},
            "status": {"phase": phase},
        }

    found = workload(
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
    assert set(found.children) == {("StatefulSet", "p")}
    assert found.in_the_way == {("ConfigMap", "c"), ("Role", "orphan")}
    assert found.ended == (EndedExecutor("e-1", "e-1"), EndedExecutor("e-3", "e-3"))
    assert [d.name for d in found.drivers] == ["p-0", "q-0"]
    assert found.driver == RUNNING, "the one that is not on its way out"
    assert workload([], "mine").driver is None


def test_a_bounded_run_is_complete_when_its_job_says_so() -> None:
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


# -- what a driver tells ---------------------------------------------------------------------------------------------------------

JOB = minimal_job()


@pytest.fixture
def job() -> Iterator[tuple[job_progress.Progress, str]]:
    told = job_progress.Progress(JOB)
    server = job_progress.serve(told, "127.0.0.1", 0)
    yield told, f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.shutdown).start()  # it takes half a second


def test_what_the_job_serves_is_what_the_operator_reads(
    job: tuple[job_progress.Progress, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # it is not for pods
    told, address = job
    found = progress(address)
    assert found is not None
    assert (found.state, found.batch, found.lag, found.last_error) == ("starting", -1, 0, None)
    lane = Lane("in", 0)
    told.owns(3, {lane: 5})
    told.ends({lane: 9})
    told.batch(7, {lane: 6}, records=1, seconds=0.1)
    told.count(abandoned_records=1, expired_records=2, malformed_records=3)
    told.failed(JobError(Reason.BROKERS_UNREACHABLE, "gone"))
    then = progress(address)
    assert then is not None
    assert (then.state, then.driver, then.batch, then.lag) == ("running", 3, 7, 3)
    assert (then.abandoned, then.expired, then.malformed) == (1, 2, 3)
    assert then.last_error == "BrokersUnreachable: gone"
    assert then.positions != found.positions
    again = progress(address)
    assert again is not None
    assert again.positions == then.positions, "it changes when a position moves, and else not"


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"x", 200),
        (b"[]", 200),
        (b"{}", 200),
        (b"null", 200),
        (json.dumps({"lastError": 7}).encode(), 200),
        (b"{}", 503),
    ],
)
def test_an_answer_that_is_none(body: bytes, status: int) -> None:
    with answering(body, status) as address:
        assert progress(address) is None


def test_who_does_not_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert progress(address, timeout=0.05) is None
    assert progress(address) is None
