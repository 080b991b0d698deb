"""The operator against a real API server and a real broker, killed before and after each of its writes, and refused each of them.

What it ends in must be what an undisturbed run ends in, with as many objects made and removed. The looks are taken one by one, not by
kopf, so that every run writes the same in the same order; a group of pipelines goes through them side by side, for the lists' sake.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from ackwright import sentinel, watches
from ackwright.clients.connections import Connections
from ackwright.clients.kubernetes import ApiError, Kubernetes, connect
from ackwright.controller import Controller
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.ports import free_ports
from ackwright.reconcile import Reconciler
from ackwright.render.names import PIPELINE_LABEL
from ackwright.settings import OperatorSettings
from e2e.api_server import ApiServer
from e2e.pods import PIPELINE, Pods, progress
from e2e.recorder import AFTER, BEFORE, LOST, Killed, RecordedConnections, RecordedKubernetes, Writes
from lab import binaries

Object = dict[str, Any]
Spec = Mapping[str, Any]

CRD = Path(__file__).parents[2] / "crds" / "deliverypipelines.ackwright.io.yaml"
NAMESPACE = "faults"
SETTINGS = OperatorSettings()
_PATH = f"/apis/ackwright.io/v1alpha1/namespaces/{NAMESPACE}/deliverypipelines"
_LOOK_EVERY_S = 5.0
_MOST_LOOKS = 25
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
BAD = {**EDITED, "transform": {"sql": "\u00a0"}}  # the API server does not see that it is empty, the operator does
GONE = None
# A pipeline's life: each step's name, and the spec that it leads to.
LIFE: tuple[tuple[str, Spec | None], ...] = (
    ("create", SPEC),
    ("edit", EDITED),
    ("guarantee", {**EDITED, "guarantee": "at-least-once"}),
    ("suspend", {**EDITED, "suspend": True}),
    ("resume", EDITED),
    ("spoil", BAD),
    ("mend", SPEC),
    ("bounded", {**SPEC, "trigger": {"availableNow": True}}),
    ("delete", GONE),
)
# To the operator these say the same: not now. One of them at each write will do.
_NOT_NOW = ("409", "410", "429", "500")


@dataclass
class Run:
    """One step of a pipeline, and the operators that look at it one after the other. awaits: the last of them said that it will look
    again soon; quiet: nothing is to be expected any more."""

    name: str
    writes: Writes = field(default_factory=Writes)
    operator: Reconciler | None = None
    awaits: bool = True
    quiet: bool = False


class Stage:
    """The API server with its pods, and the broker. seconds: how far the operators' clock is ahead; ahead: and how far their time of day,
    which is compared with the API server's."""

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
        """As a user would; every pipeline has topics of its own, that go with it."""
        if spec is GONE:
            assert self.api.request("DELETE", f"{_PATH}/{name}")[0] in (200, 202)
            return
        source, sink = f"{name}-in", f"{name}-out"
        meta: Object = {"name": name, "namespace": NAMESPACE}
        wanted = {
            **spec,
            "kafka": {"bootstrapServers": self._bootstrap},
            "source": {"topics": [source]},
            "sink": {"kafka": {"topic": sink}},
            "topics": [
                {"name": t, "partitions": 1, "replicationFactor": 1, "deletionPolicy": "Delete"} for t in (source, sink)
            ],
        }
        code, known = self.api.request("GET", f"{_PATH}/{name}")
        if code == 200:
            meta["resourceVersion"] = known["metadata"]["resourceVersion"]
        where = ("PUT", f"{_PATH}/{name}") if code == 200 else ("POST", _PATH)
        code, answer = self.api.request(
            *where, {"apiVersion": PIPELINE[0], "kind": PIPELINE[1], "metadata": meta, "spec": wanted}
        )
        assert code in (200, 201), answer

    def settle(self, runs: Sequence[Run]) -> None:
        """Looks at each until neither its operator nor the controllers change anything any more."""
        for run in runs:
            run.quiet = False
        for _ in range(_MOST_LOOKS):
            self.look(runs)
            if all(run.quiet for run in runs):
                return
        raise AssertionError(f"never settled: { {r.name: r.writes.made[-5:] for r in runs if not r.quiet} }")

    def look(self, runs: Sequence[Run]) -> None:
        """One look at each that is not quiet; then the controllers act, and time goes by."""
        children = self.children()
        resources = {p["metadata"]["name"]: p for p in self.pods.pipelines()}
        before = {run.name: len(run.writes.made) for run in runs}
        for run in runs:
            if not run.quiet:
                run.awaits = run.name in resources and self._awaits(
                    run, resources[run.name], children.get(run.name, [])
                )
        changed = self.pods.act()
        for run in runs:
            run.quiet = not run.awaits and len(run.writes.made) == before[run.name] and run.name not in changed
        self.seconds += _LOOK_EVERY_S

    def _awaits(self, run: Run, resource: Object, children: list[Object]) -> bool:
        """One look; whether the next one is to be soon."""
        if run.operator is None:
            run.operator = self.operator(run.writes)
        try:
            again = run.operator.reconcile(resource, children)
        except Killed:
            run.operator = None
            return True
        except ApiError:
            if not run.writes.struck:
                raise
            return True  # it is looked at again, as the worklist would have it
        return again is not None and again < SETTINGS.progress_every

    def children(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for child in self.pods.children():
            found.setdefault(child["metadata"]["labels"][PIPELINE_LABEL], []).append(child)
        return found

    def end_states(self, runs: Sequence[Run]) -> dict[str, Any]:
        """What counts in the end, by run: neither times nor what the API server numbers, nor the pipeline's name."""
        children = self.children()
        resources = {p["metadata"]["name"]: p for p in self.pods.pipelines()}
        return {r.name: _same_named([resources.get(r.name), *children.get(r.name, [])], r.name) for r in runs}


def _same_named(objects: Sequence[Object | None], name: str) -> Any:
    text = json.dumps([_lasting(o) for o in objects], sort_keys=True).replace(name, "NAME")
    text = re.sub(r"\b[0-9a-f]{10}\b", "DIGEST", text)  # of what holds the pipeline's name and uid
    return sorted(json.loads(text), key=lambda o: (o["kind"], o["metadata"]["name"]) if o else ("", ""))


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _lasting(v) for k, v in value.items() if k not in _VOLATILE}
    return [_lasting(v) for v in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    programs = binaries.directory(lambda line: print(line, file=sys.stderr))
    with ApiServer(programs) as api, EmbeddedKafka(brokers=1) as kafka, progress() as address:
        api.install(CRD)
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        connection = connect(str(api.kubeconfig))
        pods = Pods(connection, NAMESPACE, address)
        found = Stage(api, kafka.bootstrap_servers, pods, connection, tmp_path_factory.mktemp("credentials"))
        first = Run("first")  # makes the topic that all share
        found.declare(first.name, SPEC)
        found.settle([first])
        yield found


def cases(writes: int) -> list[tuple[int, str]]:
    """What is to befall which write. Before a write is after the one before it, for in between the operator only reads."""
    every = [(n, fault) for n in range(writes) for fault in (AFTER, LOST, "422", _NOT_NOW[n % len(_NOT_NOW)])]
    return [(0, BEFORE), *every]


def test_killed_or_refused_at_any_write_it_ends_the_same(stage: Stage) -> None:
    undisturbed, names = Run("undisturbed"), [f"p-{i:03}" for i in range(200)]
    for step, spec in LIFE:
        one = Run(undisturbed.name)
        stage.pods.made.clear()
        stage.declare(one.name, spec)
        stage.settle([one])
        what = cases(len(one.writes.made))
        runs = [Run(name, Writes(n, fault)) for name, (n, fault) in zip(names, what, strict=False)]
        assert step != "create" or len(runs) == len(what), "more pipelines are needed"
        names = [run.name for run in runs]
        for run in runs:
            stage.declare(run.name, spec)
        stage.settle(runs)
        states = stage.end_states([one, *runs])
        for run, (n, fault) in zip(runs, what, strict=False):
            told = f"{step}: {fault} at write {n}, {one.writes.made[n]}; all: {run.writes.made}"
            assert run.writes.struck, told
            assert states[run.name] == states[one.name], told
            assert run.writes.created == one.writes.created, told
            assert run.writes.deleted == one.writes.deleted, told
            assert stage.pods.made[run.name] == stage.pods.made[one.name], told
            assert stage.pods.at_once[run.name] <= 1, told


def test_what_has_converged_is_left_alone_for_ten_minutes(stage: Stage) -> None:
    ways = {
        "running": SPEC,
        "suspended": {**SPEC, "suspend": True},
        "bounded-run": {**SPEC, "trigger": {"availableNow": True}},
        "bad": BAD,
    }
    for name, spec in ways.items():
        stage.declare(name, spec)
    stage.settle([Run(name) for name in ways])
    resources, children = stage.pods.pipelines(), stage.children()
    begun, writes = stage.seconds, Writes()
    operator = stage.operator(writes)
    while stage.seconds < begun + 600:
        for resource in resources:
            if resource["metadata"]["name"] in ways:
                again = operator.reconcile(resource, children.get(resource["metadata"]["name"], []))
                assert again is not None
                assert again >= SETTINGS.progress_every
        stage.seconds += SETTINGS.progress_every
        stage.ahead += SETTINGS.progress_every
        if stage.seconds == begun + 300:
            operator = stage.operator(writes)
    stage.ahead = 0.0
    assert writes.made == []
    assert (stage.pods.pipelines(), stage.children()) == (resources, children)


def test_a_watch_that_has_fallen_silent_is_made_good_for_and_told_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without kopf, who brings the Lease, and with watches that bring nothing: only lists tell what is gone."""

    def silent(*_: object, seconds: float, **__: object) -> Iterator[tuple[str, Object]]:
        time.sleep(min(seconds, 0.1))
        return iter(())

    monkeypatch.setattr(stage.connection, "watch", silent)
    monkeypatch.setattr(watches, "RELIST_EVERY_S", 0.2)
    monkeypatch.setattr(sentinel, "_BLIND_S", 1.0)
    port = free_ports(1)[0]
    lost = f"/api/v1/namespaces/{NAMESPACE}/configmaps/first-clients"

    def healthz() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            return e.code

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(holds):
                await asyncio.sleep(0.1)

    async def work() -> None:
        settings = OperatorSettings(namespaces=(NAMESPACE,), own_namespace=NAMESPACE, metrics_port=port)
        blind = Controller(stage.connection, settings)
        await blind.start()
        try:
            before = stage.api.request("GET", lost)[1]["metadata"]["uid"]
            assert stage.api.request("DELETE", lost)[0] == 200
            await until(lambda: stage.api.request("GET", lost)[1]["metadata"].get("uid", before) != before)
            await until(lambda: healthz() == 503)
        finally:
            await blind.stop()

    asyncio.run(work())
