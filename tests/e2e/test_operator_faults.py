"""The operator with a real API server and a real broker, killed before and after each of its writes, or refused each.

The end state must equal that of an undisturbed run, with the same numbers of created and deleted objects. The test
calls the reconciler directly, without kopf, so that every run writes the same in the same order. Many pipelines run
together, so that objects are listed once for all of them.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from ackwright import sentinel, watches
from ackwright.clients.connections import Connections
from ackwright.clients.event_streams import EventStreams
from ackwright.clients.kubernetes import ApiError, Kubernetes, connect
from ackwright.conditions.staleness import RENEWED_EVERY_S
from ackwright.controller import Controller
from ackwright.lease import Lease
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.ports import free_ports
from ackwright.reconcile import Reconciler
from ackwright.render.names import PIPELINE_LABEL
from ackwright.settings import OperatorSettings
from e2e.api_server import ApiServer
from e2e.pods import PIPELINE, Pods, progress, read_reports
from e2e.recorder import AFTER, BEFORE, LOST, Killed, RecordedConnections, RecordedKubernetes, Writes
from lab import binaries
from lab.cluster import print_progress

Object = dict[str, Any]
Spec = Mapping[str, Any]

CRD = Path(__file__).parents[2] / "crds" / "deliverypipelines.ackwright.io.yaml"
NAMESPACE = "faults"
SETTINGS = OperatorSettings()
_PATH = f"/apis/ackwright.io/v1alpha1/namespaces/{NAMESPACE}/deliverypipelines"
_RECONCILE_INTERVAL = 5.0  # seconds of the simulated clock
_MAX_RECONCILES = 25
_VOLATILE = frozenset(
    {
        *(
            "creationTimestamp",
            "generation",
            "id",
            "lastTransitionTime",
            "managedFields",
            "observedAt",
            "resourceVersion",
            "selfLink",
            "since",
        ),
        *("uid", "controller-uid", "batch.kubernetes.io/controller-uid"),
    }
)

SPEC: Spec = {
    "guarantee": "exactly-once",
    "tolerate": {"brokerFailures": 0},
    "transform": {"sql": "SELECT * FROM source"},
}
EDITED = {**SPEC, "transform": {"sql": "SELECT key, value FROM source"}}
INVALID = {**EDITED, "transform": {"sql": "\u00a0"}}  # the API server accepts it, the operator refuses it as empty
DELETED = None
# The steps of a pipeline's life: name, and the spec after the step.
LIFE: tuple[tuple[str, Spec | None], ...] = (
    ("create", SPEC),
    ("edit", EDITED),
    ("guarantee", {**EDITED, "guarantee": "at-least-once"}),
    ("suspend", {**EDITED, "suspend": True}),
    ("resume", EDITED),
    ("invalidate", INVALID),
    ("correct", SPEC),
    ("bounded", {**SPEC, "trigger": {"availableNow": True}}),
    ("delete", DELETED),
)
# The operator treats these alike, as "retry later"; each write gets one of them in turn.
_RETRY_LATER = ("409", "410", "429", "500")


@dataclass
class Run:
    """One step of a pipeline, and the current operator that reconciles it."""

    name: str
    writes: Writes = field(default_factory=Writes)
    operator: Reconciler | None = None
    requeued_soon: bool = True  # the last reconcile asked for another one soon
    settled: bool = False  # neither the operator nor the controllers change anything


class Stage:
    """The API server with fake pods, and the broker.

    seconds: how far the operators' monotonic clock is ahead. ahead: how far their time of day is ahead, which is
    compared with the API server's.
    """

    def __init__(self, api: ApiServer, bootstrap: str, pods: Pods, connection: Kubernetes, directory: Path) -> None:
        self.api, self._bootstrap, self.pods, self.connection = api, bootstrap, pods, connection
        self.seconds = self.ahead = 0.0
        self._connections = Connections(connection, directory, clock=self.clock)

    def clock(self) -> float:
        return time.monotonic() + self.seconds

    def operator(self, writes: Writes) -> Reconciler:
        return Reconciler(
            RecordedKubernetes(self.connection, writes),
            cast(Connections, RecordedConnections(self._connections, writes)),
            SETTINGS,
            now=lambda: datetime.now(UTC) + timedelta(seconds=self.ahead),
            clock=self.clock,
        )

    def declare(self, name: str, spec: Spec | None) -> None:
        """Creates, replaces or deletes a pipeline, as a user. Its topics are deleted with it."""
        if spec is DELETED:
            assert self.api.request("DELETE", f"{_PATH}/{name}")[0] in (200, 202)
            return
        source, sink = f"{name}-in", f"{name}-out"
        meta: Object = {"name": name, "namespace": NAMESPACE}
        complete_spec = {
            **spec,
            "kafka": {"bootstrapServers": self._bootstrap},
            "source": {"topics": [source]},
            "sink": {"kafka": {"topic": sink}},
            "topics": [
                {"name": t, "partitions": 1, "replicationFactor": 1, "deletionPolicy": "Delete"} for t in (source, sink)
            ],
        }
        code, existing = self.api.request("GET", f"{_PATH}/{name}")
        if code == 200:
            meta["resourceVersion"] = existing["metadata"]["resourceVersion"]
        where = ("PUT", f"{_PATH}/{name}") if code == 200 else ("POST", _PATH)
        code, answer = self.api.request(
            *where, {"apiVersion": PIPELINE[0], "kind": PIPELINE[1], "metadata": meta, "spec": complete_spec}
        )
        assert code in (200, 201), answer

    def settle(self, runs: Sequence[Run]) -> None:
        """Reconciles all runs until neither the operator nor the controllers change anything."""
        for run in runs:
            run.settled = False
        for _ in range(_MAX_RECONCILES):
            self.reconcile(runs)
            if all(run.settled for run in runs):
                return
        raise AssertionError(f"never settled: { {r.name: r.writes.log[-5:] for r in runs if not r.settled} }")

    def reconcile(self, runs: Sequence[Run]) -> None:
        """Reconciles each run that is not settled once; then runs the controllers and advances the clock."""
        children = self.children()
        resources = {p["metadata"]["name"]: p for p in self.pods.pipelines()}
        before = {run.name: len(run.writes.log) for run in runs}
        for run in runs:
            if not run.settled:
                run.requeued_soon = run.name in resources and self._reconcile_once(
                    run, resources[run.name], children.get(run.name, [])
                )
        changed = self.pods.act()
        for run in runs:
            run.settled = not run.requeued_soon and len(run.writes.log) == before[run.name] and run.name not in changed
        self.seconds += _RECONCILE_INTERVAL

    def _reconcile_once(self, run: Run, resource: Object, children: list[Object]) -> bool:
        """Reconciles one run; returns whether the next reconcile is due soon."""
        if run.operator is None:
            run.operator = self.operator(run.writes)
        try:
            delay = run.operator.reconcile(resource, children, read_reports(children))
        except Killed:
            run.operator = None
            return True
        except ApiError:
            if not run.writes.fault_injected:
                raise
            return True  # the worklist would retry
        return delay is not None and delay < SETTINGS.progress_every

    def children(self) -> dict[str, list[Object]]:
        """The objects of all pipelines, by pipeline."""
        by_pipeline: dict[str, list[Object]] = {}
        for child in self.pods.children():
            by_pipeline.setdefault(child["metadata"]["labels"][PIPELINE_LABEL], []).append(child)
        return by_pipeline

    def end_states(self, runs: Sequence[Run]) -> dict[str, Any]:
        """The end state by run, without times, server-generated values and the pipeline's name."""
        children = self.children()
        resources = {p["metadata"]["name"]: p for p in self.pods.pipelines()}
        return {r.name: _without_name(resources.get(r.name), children.get(r.name, []), r.name) for r in runs}


def _without_name(resource: Object | None, children: Sequence[Object], name: str) -> Any:
    text = json.dumps([_stable_fields(o) for o in (resource, *children)], sort_keys=True).replace(name, "NAME")
    if resource is not None:  # the jobspec has the uid, too
        text = text.replace(resource["metadata"]["uid"], "UID")
    text = re.sub(r"\b[0-9a-f]{10}\b", "DIGEST", text)  # digests of content with the pipeline's name and uid
    return sorted(json.loads(text), key=lambda o: (o["kind"], o["metadata"]["name"]) if o else ("", ""))


def _stable_fields(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _stable_fields(v) for k, v in value.items() if k not in _VOLATILE}
    return [_stable_fields(v) for v in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    programs = binaries.directory(print_progress)
    with ApiServer(programs) as api, EmbeddedKafka(brokers=1) as kafka, progress() as address:
        api.install(CRD)
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        connection = connect(str(api.kubeconfig))
        pods = Pods(connection, NAMESPACE, address)
        prepared = Stage(api, kafka.bootstrap_servers, pods, connection, tmp_path_factory.mktemp("credentials"))
        first = Run("first")  # creates the topic that all pipelines share
        prepared.declare(first.name, SPEC)
        prepared.settle([first])
        yield prepared


def cases(writes: int) -> list[tuple[int, str]]:
    """Every fault of every write. BEFORE a write equals AFTER the previous one: in between the operator only reads."""
    faults = [(n, fault) for n in range(writes) for fault in (AFTER, LOST, "422", _RETRY_LATER[n % len(_RETRY_LATER)])]
    return [(0, BEFORE), *faults]


def test_a_fault_at_any_write_leads_to_the_same_end_state(stage: Stage) -> None:
    names = [f"p-{i:03}" for i in range(200)]
    for step, spec in LIFE:
        undisturbed = Run("undisturbed")
        stage.pods.created.clear()
        stage.declare(undisturbed.name, spec)
        stage.settle([undisturbed])
        faults = cases(len(undisturbed.writes.log))
        runs = [Run(name, Writes(n, fault)) for name, (n, fault) in zip(names, faults, strict=False)]
        assert step != "create" or len(runs) == len(faults), "more pipelines are needed"
        names = [run.name for run in runs]
        for run in runs:
            stage.declare(run.name, spec)
        stage.settle(runs)
        states = stage.end_states([undisturbed, *runs])
        for run, (n, fault) in zip(runs, faults, strict=False):
            case = f"{step}: {fault} at write {n}, {undisturbed.writes.log[n]}; all: {run.writes.log}"
            assert run.writes.fault_injected, case
            assert states[run.name] == states[undisturbed.name], case
            assert run.writes.created == undisturbed.writes.created, case
            assert run.writes.deleted == undisturbed.writes.deleted, case
            assert stage.pods.created[run.name] == stage.pods.created[undisturbed.name], case
            assert stage.pods.concurrent_drivers[run.name] <= 1, case


def test_after_convergence_the_operator_only_says_every_five_minutes_that_it_observes(stage: Stage) -> None:
    specs = {
        "running": SPEC,
        "suspended": {**SPEC, "suspend": True},
        "bounded-run": {**SPEC, "trigger": {"availableNow": True}},
        "invalid": INVALID,
    }
    for name, spec in specs.items():
        stage.declare(name, spec)
    stage.settle([Run(name) for name in specs])
    resources, children = stage.pods.pipelines(), stage.children()
    started_at, writes = stage.seconds, Writes()
    operator = stage.operator(writes)
    while stage.seconds < started_at + 2 * RENEWED_EVERY_S:
        for resource in stage.pods.pipelines():
            if resource["metadata"]["name"] in specs:
                own = children.get(resource["metadata"]["name"], [])
                delay = operator.reconcile(resource, own, read_reports(own))
                assert delay is not None
                assert delay >= SETTINGS.progress_every
        stage.seconds += SETTINGS.progress_every
        stage.ahead += SETTINGS.progress_every
        if stage.seconds == started_at + RENEWED_EVERY_S:
            operator = stage.operator(writes)
    stage.ahead = 0.0
    written = Counter(writes.log)
    assert set(written) == {f"PUT {_PATH}/{name}/status" for name in specs}
    assert max(written.values()) <= 2, "once in five minutes"
    assert stage.children() == children
    assert _stable_fields(stage.pods.pipelines()) == _stable_fields(resources)


def test_silent_watches_are_compensated_by_lists_and_reported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kopf, which delivers the Lease, and with watches without events, only lists show deleted objects.

    A renewal of the Lease is noted as the election would note it.
    """

    no_events: tuple[tuple[str, Object], ...] = ()

    async def silent(*_: object, seconds: float, **__: object) -> AsyncGenerator[tuple[str, Object], None]:
        await asyncio.sleep(min(seconds, 0.1))
        for event in no_events:
            yield event

    monkeypatch.setattr(EventStreams, "events", silent)
    monkeypatch.setattr(watches, "RELIST_EVERY_S", 0.2)
    monkeypatch.setattr(sentinel, "_BLIND_S", 1.0)
    port = free_ports(1)[0]
    deleted = f"/api/v1/namespaces/{NAMESPACE}/configmaps/first-clients"

    def healthz() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            return e.code

    async def wait_until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(condition):
                await asyncio.sleep(0.1)

    async def run() -> None:
        settings = OperatorSettings(
            namespaces=(NAMESPACE,), own_namespace=NAMESPACE, allow_own_namespace=True, metrics_port=port
        )
        blind = Controller(stage.connection, settings)
        await blind.start()
        blind.sentinel.expect(Lease("this", 12.0, 0, "2026-11-25T12:00:00.000000Z", "1"))
        try:
            before = stage.api.request("GET", deleted)[1]["metadata"]["uid"]
            assert stage.api.request("DELETE", deleted)[0] == 200
            await wait_until(lambda: stage.api.request("GET", deleted)[1]["metadata"].get("uid", before) != before)
            await wait_until(lambda: healthz() == 503)
        finally:
            await blind.stop()

    asyncio.run(run())
