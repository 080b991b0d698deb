"""Several operators that divide the namespaces, on a real API server, with the permissions of the chart.

Nothing runs in a cluster (test_teams.py).
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ackwright.shards import Shard
from e2e.api_server import ApiServer
from e2e.operator_process import OperatorProcess
from e2e.teams import CRD, SYSTEM, Teams
from lab import binaries
from lab.cluster import print_progress
from waiting import wait_until

SHARDS = (Shard(1, 2), Shard(2, 2))
TAKEOVER_S = 15.0


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer(binaries.api_server(print_progress)) as server:
        server.install(CRD)
        yield server


def namespaces(prefix: str, shard: Shard) -> list[str]:
    """Two namespaces of a shard."""
    return [n for i in range(99) if shard.owns(n := f"{prefix}-{i}")][:2]


def started(stack: ExitStack, teams: Teams, **settings: str) -> OperatorProcess:
    operator = stack.enter_context(teams.new_replica(**settings))
    wait_until(lambda: operator.answers("/readyz") == 200, "the operator is ready")
    return operator


def observed_namespaces(operator: OperatorProcess) -> set[str]:
    """The namespaces of the pipelines whose conditions this operator exports."""
    samples = operator.metric("ackwright_pipeline_condition")
    return {match[1] for labels in samples if (match := re.search(r'namespace="([^"]*)"', labels))}


def release_all(api: ApiServer) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
    for lease in api.request("GET", path)[1]["items"]:
        api.request("DELETE", f"{path}/{lease['metadata']['name']}")


def test_each_shard_reconciles_its_own_namespaces_and_outlives_the_other(api: ApiServer) -> None:
    ours, theirs = (namespaces("side", shard) for shard in SHARDS)
    teams = Teams(api, [*ours, *theirs])
    with ExitStack() as stack:
        first, second = (
            started(stack, teams, ACKWRIGHT_SHARD=str(shard), ACKWRIGHT_ALLOW_ANY_GROUP="true") for shard in SHARDS
        )
        for operator in (first, second):
            wait_until(operator.leads, "both lead")
        for namespace in teams.teams:
            teams.declare(namespace, "p")
        for namespace in teams.teams:
            wait_until(lambda n=namespace: teams.is_reconciled(n, "p"), f"{namespace}/p is reconciled")  # type: ignore[misc]
        wait_until(lambda: observed_namespaces(first) == set(ours), "the first shard has its own")
        wait_until(lambda: observed_namespaces(second) == set(theirs), "the second shard has its own")
        assert first.metric("ackwright_operator_shards") == second.metric("ackwright_operator_shards") == {"": 2.0}

        # The group of the older one, which the other shard has.
        topics = [f"{ours[0]}.p"]
        teams.declare(theirs[0], "younger", source={"topics": ["in"], "groupId": topics[0]})
        wait_until(lambda: "GroupInUse" in str(teams.conditions(theirs[0], "younger")), "its group is in use")

        first.send_signal(signal.SIGKILL)
        teams.reconcile_edit(theirs[0], "p", 2)
        edited = teams.edit(ours[0], "p", 2)
        teams.reconcile_edit(theirs[1], "p", 2)
        assert teams.generation(ours[0], "p") < edited, "the other shard has not taken it over"
        first.start()
        wait_until(lambda: teams.generation(ours[0], "p") == edited, "its own next leader does")
    release_all(api)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSTOP], ids=["stopped", "suspended"])
def test_shards_wait_for_the_operator_that_had_all_namespaces(api: ApiServer, number: signal.Signals) -> None:
    prefix = number.name.lower()
    places = [namespaces(prefix, shard)[0] for shard in SHARDS]
    teams = Teams(api, places)
    with ExitStack() as stack:
        only = started(stack, teams)
        wait_until(only.leads, "it leads")
        shards = [started(stack, teams, ACKWRIGHT_SHARD=str(shard)) for shard in SHARDS]
        # The first shard waits for the Lease that the operator holds, the second one for its holder.
        wait_until(lambda: "waits for" in shards[1].log.read_text() or shards[1].leads(), "the shard has tried")
        assert not any(s.leads() for s in shards)
        for namespace in places:
            teams.declare(namespace, "p")
            wait_until(lambda n=namespace: teams.is_reconciled(n, "p"), f"{namespace}/p is reconciled")  # type: ignore[misc]
        only.send_signal(number)
        ended = time.monotonic()
        for shard in shards:
            wait_until(shard.leads, "the shard leads", 60, pause=0.02)
        duration = time.monotonic() - ended
        print(f"takeover {duration:.1f} s after {number.name}")
        assert duration <= TAKEOVER_S
        if number is signal.SIGSTOP:
            only.send_signal(signal.SIGCONT)
            wait_until(lambda: not only.leads(), "it leads no more")
        for namespace in places:
            teams.reconcile_edit(namespace, "p", 2)
        assert all(s.leads() for s in shards)
    release_all(api)
