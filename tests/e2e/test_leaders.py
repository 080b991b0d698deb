"""Two replicas of the operator on a real API server: one leads, and the other takes over when it is gone.

Nothing runs in a cluster (test_teams.py). The audit log of the API server shows which replica writes what, and when.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ackwright.lease import LEASE_S
from command import ACKWRIGHT
from e2e.api_server import ApiServer
from e2e.operator_process import OperatorProcess
from e2e.teams import CRD, SYSTEM, Teams, connected, dead_brokers
from lab import binaries
from lab.cluster import print_progress
from waiting import wait_until

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/ackwright-operator"
UNFENCED = (sys.executable, str(Path(__file__).parent / "unfenced_operator.py"))
TAKEOVER_S = 15.0
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": ["create", "update", "patch", "delete"]}, {"level": "None"}],
}


@dataclass(frozen=True)
class Cluster:
    api: ApiServer
    audit: Path

    def holder(self) -> str:
        """The replica that holds the Lease; empty: none."""
        code, lease = self.api.request("GET", LEASE)
        return str(lease["spec"].get("holderIdentity") or "") if code == 200 else ""

    def writes(self, identity: str, since: datetime) -> list[str]:
        """The requests by which a replica wrote after this time, except for those of the election."""
        events = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [
            f"{e['requestReceivedTimestamp']} {e['verb']} {e['requestURI']}: {e['responseStatus']['code']}"
            for e in events
            if e["userAgent"] == f"ackwright-operator/{identity}"
            and e["objectRef"]["resource"] != "leases"
            and datetime.fromisoformat(e["requestReceivedTimestamp"]) > since
        ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("audit")
    (directory / "policy.json").write_text(json.dumps(POLICY))
    audit = directory / "audit.log"
    flags = (
        f"--audit-policy-file={directory / 'policy.json'}",
        f"--audit-log-path={audit}",
        "--audit-log-mode=blocking",
    )
    with ApiServer(binaries.api_server(print_progress), flags) as server:
        server.install(CRD)
        yield Cluster(server, audit)


def started(
    stack: ExitStack, cluster: Cluster, teams: Teams, program: Sequence[str] = ACKWRIGHT
) -> list[OperatorProcess]:
    """Two replicas that are ready: the first one leads."""
    code, _ = cluster.api.request("DELETE", LEASE)
    assert code in (200, 404)
    replicas = []
    for _ in range(2):
        replica = stack.enter_context(teams.new_replica(program))
        replicas.append(replica)
        wait_until(lambda r=replica: r.answers("/readyz") == 200, "the replica is ready")  # type: ignore[misc]
        wait_until(replicas[0].leads, "the first replica leads")
    assert [r.leads() for r in replicas] == [True, False]
    return replicas


def test_the_other_replica_takes_over_when_the_leader_is_killed(cluster: Cluster) -> None:
    teams = Teams(cluster.api, ["killed"])
    with ExitStack() as stack:
        first, second = started(stack, cluster, teams)
        teams.declare("killed", "p")
        wait_until(lambda: teams.is_reconciled("killed", "p"), "killed/p is reconciled")
        before = cluster.holder()
        first.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        wait_until(second.leads, "the second replica leads", 60, pause=0.02)
        duration = time.monotonic() - killed
        print(f"takeover {duration:.1f} s after SIGKILL")
        assert duration <= TAKEOVER_S
        assert cluster.holder() not in ("", before)
        teams.reconcile_edit("killed", "p", 2)
        assert second.answers("/healthz") == 200


def test_a_leader_that_is_stopped_leaves_no_gap(cluster: Cluster) -> None:
    """As by `kubectl drain`: the leader gets SIGTERM."""
    teams = Teams(cluster.api, ["drained"])
    with ExitStack() as stack:
        first, second = started(stack, cluster, teams)
        teams.declare("drained", "p")
        wait_until(lambda: teams.is_reconciled("drained", "p"), "drained/p is reconciled")
        first.send_signal(signal.SIGTERM)
        stopped = time.monotonic()
        wait_until(second.leads, "the second replica leads", 60, pause=0.02)
        duration = time.monotonic() - stopped
        print(f"takeover {duration:.1f} s after SIGTERM")
        assert duration < LEASE_S, "without a release it would wait for the end of the Lease"
        teams.reconcile_edit("drained", "p", 2)


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "control"])
def test_a_suspended_leader_writes_nothing_after_it_was_overtaken(cluster: Cluster, fenced: bool) -> None:
    """It is suspended amid reconciles, which wait for brokers that never answer, and then write a status."""
    places = [f"{'fenced' if fenced else 'control'}-{number}" for number in range(4)]
    teams = Teams(cluster.api, places)
    with dead_brokers(8) as brokers, ExitStack() as stack:
        first, second = started(stack, cluster, teams, ACKWRIGHT if fenced else UNFENCED)
        identity = cluster.holder()
        for number, broker in enumerate(brokers):
            teams.declare(places[number % 4], f"p-{number}", f"127.0.0.1:{broker.getsockname()[1]}")
        wait_until(lambda: connected(brokers) >= 2, "reconciles of the leader wait", pause=0.01)
        first.send_signal(signal.SIGSTOP)
        wait_until(second.leads, "the second replica leads", 60)
        overtaken = datetime.now(UTC)
        assert cluster.writes(identity, overtaken) == []
        first.send_signal(signal.SIGCONT)
        wait_until(lambda: not first.leads(), "the first replica leads no more", 60)
        wait_until(lambda: first.metric("ackwright_worklist")[""] == 0, "its reconciles have ended", 120)
        writes = cluster.writes(identity, overtaken)
        print(f"writes of the overtaken leader: {writes}")
        assert (writes == []) is fenced
        assert identity != cluster.holder()
