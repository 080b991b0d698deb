"""No team can stop or starve another: a live operator with several namespaces, on a real API server.

Nothing runs in a cluster: etcd, kube-apiserver, and the operator as a process, with kopf and the permissions of the
chart. No controller creates pods: what matters here is which pipelines are reconciled, and when.
"""

from __future__ import annotations

import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ackwright.render.workload import PROGRESS_PORT
from e2e.api_server import ApiServer
from e2e.pods import free_address
from e2e.teams import CRD, NOBODY, OPERATOR, SYSTEM, Teams, connected, create_driver, dead_brokers, running
from hostile_brokers import broker_that_ends_its_client
from lab import binaries
from lab.cluster import print_progress
from waiting import wait_until

UNISOLATED = (sys.executable, str(Path(__file__).parent / "unisolated_operator.py"))


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.api_server(print_progress)) as server:
        server.install(CRD)
        yield server


def test_the_loss_of_namespaces_stops_no_other_team(api: ApiServer) -> None:
    """Of three namespaces one is deleted and one loses its Role. The operator is restarted in this state."""
    teams = Teams(api, ["healthy", "deleted", "unauthorized"])
    with running(teams):
        for namespace in teams.teams:
            teams.declare(namespace, "p")
        for namespace in teams.teams:
            wait_until(lambda n=namespace: teams.is_reconciled(n, "p"), f"{namespace}/p is reconciled")  # type: ignore[misc]
        teams.request("DELETE", teams.path("deleted", "p"))
        # No controller removes what is in the namespace: the Role is removed by hand, and then the namespace itself.
        for namespace in ("deleted", "unauthorized"):
            for plural in ("roles", "rolebindings"):
                path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}/{OPERATOR}"
                teams.request("DELETE", path)
        remove_namespace(teams, "deleted")

        expected = {'namespace="deleted"': 1.0, 'namespace="healthy"': 0.0, 'namespace="unauthorized"': 1.0}
        wait_until(lambda: teams.metric("ackwright_namespace_lost") == expected, "both are reported as lost")
        teams.reconcile_edit("healthy", "p", 2)
        assert set(events(teams, "NamespaceLost")) == {"deleted", "unauthorized"}
        assert "namespace unauthorized is lost" in teams.operator.log.read_text()

        teams.operator.stop()
        teams.operator.start()
        wait_until(lambda: teams.answers("/readyz") == 200, "a new operator is ready although namespaces are lost")
        teams.reconcile_edit("healthy", "p", 3)
        assert teams.answers("/healthz") == 200

        teams.edit("unauthorized", "p", 4)
        roles = [r for r in teams.roles if r["metadata"]["namespace"] == "unauthorized"]
        applied = api.kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": roles})
        assert applied.returncode == 0, applied.stderr
        back = {'namespace="deleted"': 1.0, 'namespace="healthy"': 0.0, 'namespace="unauthorized"': 0.0}
        wait_until(lambda: teams.metric("ackwright_namespace_lost") == back, "one is back")
        wait_until(lambda: teams.generation("unauthorized", "p") == 2, "the edit meanwhile is reconciled")


def test_a_team_cannot_take_the_group_of_another(api: ApiServer) -> None:
    """The older pipeline owns a group. One in another namespace, with the group of a team's next pipeline, does not."""
    teams = Teams(api, ["victim", "squatter"])
    with running(teams):
        teams.declare("squatter", "p", source={"topics": ["in"], "groupId": "victim.p"})
        wait_until(lambda: "InvalidSpec" in str(teams.conditions("squatter", "p")), "it is refused")
        refusal = " ".join(teams.conditions("squatter", "p").values())
        assert "spec.source.groupId = 'victim.p': must begin with squatter., the namespace and a dot" in refusal
        teams.declare("victim", "p")
        wait_until(lambda: "BrokersUnreachable" in str(teams.conditions("victim", "p")), "victim/p is reconciled")
        assert "GroupInUse" not in str(teams.conditions("victim", "p"))
    teams.operator.environment["ACKWRIGHT_ALLOW_ANY_GROUP"] = "true"
    with running(teams):  # the control: without the rule the older one owns the group
        wait_until(lambda: "GroupInUse" in str(teams.conditions("victim", "p")), "the group belongs to the older one")
        assert "squatter" not in str(teams.conditions("victim", "p"))


def test_rules_of_the_platform_are_enforced(api: ApiServer) -> None:
    """Pipelines in the operator's namespace, and connections to clusters that the platform does not list."""
    with socket.create_server(("127.0.0.1", 0)) as forbidden:
        forbidden.settimeout(0.1)
        address = f"127.0.0.1:{forbidden.getsockname()[1]}"
        settings = {"settings": {"ALLOWED_SERVERS": NOBODY}}
        teams = Teams(api, ["listed"], {"watchNamespaces": ["listed", SYSTEM], **settings})
        with running(teams):
            teams.declare("listed", "elsewhere", address)
            teams.declare("listed", "allowed")
            teams.declare(SYSTEM, "p")
            for namespace, name, part in (
                ("listed", "elsewhere", f"{address} is not among the clusters that the platform allows"),
                (SYSTEM, "p", "is the operator's own namespace"),
            ):
                wait_until(lambda p=part, n=namespace, m=name: p in str(teams.conditions(n, m)), part)  # type: ignore[misc]
            wait_until(lambda: "BrokersUnreachable" in str(teams.conditions("listed", "allowed")), "one is allowed")
            with pytest.raises(TimeoutError):
                forbidden.accept()
        teams.operator.environment["ACKWRIGHT_ALLOWED_SERVERS"] = ""
        forbidden.settimeout(120)
        with running(teams):
            forbidden.accept()[0].close()  # the control: without the rule the operator connects


def test_dead_brokers_of_one_team_do_not_delay_the_edits_of_another(api: ApiServer) -> None:
    """Forty brokers accept connections and never answer, which each take a worker for 8 s.

    The operator connects to two of them at a time, because one namespace has a quarter of the workers.
    """
    teams = Teams(api, ["busy", "calm"])
    with dead_brokers(40) as brokers, running(teams):
        teams.declare("calm", "p")
        wait_until(lambda: teams.is_reconciled("calm", "p"), "calm/p is reconciled")
        for i, broker in enumerate(brokers):
            teams.declare("busy", f"p-{i}", f"127.0.0.1:{broker.getsockname()[1]}")
        wait_until(lambda: connected(brokers) >= 8, "the operator waits for the brokers")
        seconds = []
        for interval in range(2, 7):
            started = time.monotonic()
            teams.reconcile_edit("calm", "p", interval)
            seconds.append(time.monotonic() - started)
        print(f"edits beside 40 dead brokers: {', '.join(f'{s:.1f}' for s in seconds)} s")
        assert teams.answers("/healthz") == 200
        assert max(seconds) < 30, "a dead broker takes 8 s of a worker, and forty of them 40 s of eight workers"


def test_drivers_that_never_end_their_answer_do_not_delay_the_edits_of_another_team(api: ApiServer) -> None:
    """Sixty pipelines whose drivers send an endless answer, byte by byte."""
    teams = Teams(api, ["hostile", "quiet"])
    with dripping_drivers() as address, running(teams):
        teams.declare("quiet", "p")
        wait_until(lambda: teams.is_reconciled("quiet", "p"), "quiet/p is reconciled")
        for i in range(60):
            teams.declare("hostile", f"p-{i}")
            create_driver(teams, "hostile", f"p-{i}", address)
        wait_until(lambda: teams.metric("ackwright_worklist")[""] > 8, "more drivers are read than there are workers")
        seconds = []
        for interval in range(2, 7):
            started = time.monotonic()
            teams.reconcile_edit("quiet", "p", interval)
            seconds.append(time.monotonic() - started)
        print(f"edits beside 60 drivers that drip: {', '.join(f'{s:.1f}' for s in seconds)} s")
        assert teams.answers("/healthz") == 200
        assert max(seconds) < 30


def test_brokers_that_end_their_client_stop_neither_the_operator_nor_another_team(api: ApiServer) -> None:
    teams = Teams(api, ["harmful", "harmless"])
    with broker_that_ends_its_client() as address, running(teams):
        teams.declare("harmless", "p")
        wait_until(lambda: teams.is_reconciled("harmless", "p"), "harmless/p is reconciled")
        teams.declare("harmful", "p", address)
        wait_until(lambda: "for 60 s" in str(teams.conditions("harmful", "p")), "the harmful namespace is refused")
        refusal = " ".join(teams.conditions("harmful", "p").values())
        assert f"was ended by SIGABRT during a request to {address}" in refusal
        assert teams.metric("ackwright_kafka_process_ends_total")[""] >= 2
        for interval in range(2, 5):
            teams.reconcile_edit("harmless", "p", interval)
        assert teams.answers("/healthz") == 200
        assert "SIGABRT" not in str(teams.conditions("harmless", "p"))
    teams.operator = teams.new_replica(UNISOLATED)
    with broker_that_ends_its_client() as address, teams.operator:  # the control
        teams.declare("harmful", "q", address)
        wait_until(lambda: not teams.operator.running(), "the operator has ended")
        assert teams.operator.exit_code() == -signal.SIGABRT


def test_two_hundred_listed_namespaces_take_neither_threads_nor_much_memory(api: ApiServer) -> None:
    """They are 2,000 watches. The control is the number of threads of an operator with one namespace."""
    few, many = Teams(api, ["alone"]), Teams(api, [f"team-{n:03}" for n in range(200)])
    with running(few):
        few.declare("alone", "p")
        wait_until(lambda: few.is_reconciled("alone", "p"), "the pipeline is reconciled")
        before = process_status(few)
    with running(many):
        for namespace in many.teams[::100]:
            many.declare(namespace, "p")
        for namespace in many.teams[::100]:
            wait_until(lambda n=namespace: many.is_reconciled(n, "p"), f"{namespace}/p is reconciled")  # type: ignore[misc]
        after = process_status(many)
    for name in ("Threads", "VmRSS"):
        print(f"{name}: {before[name]} with one namespace, {after[name]} with 200")
    assert after["Threads"] < before["Threads"] + 50
    assert after["VmRSS"] < before["VmRSS"] + 300_000, "KiB; 2,000 connections with TLS"


def process_status(teams: Teams) -> dict[str, int]:
    """The numbers in /proc/PID/status of the operator; of memory in KiB."""
    text = Path("/proc", str(teams.operator.pid), "status").read_text()
    return {m[1]: int(m[2]) for m in re.finditer(r"^(\w+):\s+(\d+)", text, re.MULTILINE)}


@contextmanager
def dripping_drivers() -> Iterator[str]:
    """An IP address at which each request for the progress gets one byte after the other, forever."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not ended.wait(0.5):
                    self.wfile.write(b" ")

        def log_message(self, format: str, *args: Any) -> None:
            return

    address = free_address()
    server = ThreadingHTTPServer((address, PROGRESS_PORT), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield address
    finally:
        ended.set()
        server.shutdown()
        server.server_close()


def remove_namespace(teams: Teams, name: str) -> None:
    """Deletes a namespace as its controller would: it is empty, so only its finalizer is left."""
    teams.request("DELETE", f"/api/v1/namespaces/{name}")
    namespace = teams.request("GET", f"/api/v1/namespaces/{name}")
    namespace["spec"]["finalizers"] = []
    teams.request("PUT", f"/api/v1/namespaces/{name}/finalize", namespace)


def events(teams: Teams, reason: str) -> list[str]:
    """The namespaces that the operator's own Events with this reason name."""
    items = teams.request("GET", f"/api/v1/namespaces/{SYSTEM}/events")["items"]
    return [m[1] for e in items if e["reason"] == reason and (m := re.match(r"namespace (\S+)", e["message"]))]
