"""Thousands of pipelines in many namespaces, some of them broken: does an edit of another team still take effect soon?

A few pipelines have brokers whose connections are accepted and that never answer, and some have drivers like that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ackwright.clients.kubernetes import ApiError, connect
from ackwright.local.wait import wait_for
from bench.figures import Figure, percentiles
from bench.operator.installation import Operator, create_topics, watch
from e2e.api_server import ApiServer
from e2e.pods import PIPELINE, Pods, silent_address
from e2e.teams import CRD, dead_brokers

NAMESPACES, DEAD_BROKERS, SILENT_DRIVERS, EDITS = 200, 25, 100, 100
EDIT_P99_S, MEMORY_MIB = 2.0, 1024.0  # targets on two cores
_IDLE_SECONDS = 60.0
_POD_THREADS = 3
_MIN_TIMEOUT = 600.0  # seconds; generous, for busy machines

Events = Iterator[Mapping[str, Any]]


class Fleet:
    """Applies pipelines, fakes their pods, and records when StatefulSets change and when pipelines are Ready first."""

    def __init__(self, api: ApiServer, answering: str, silent: str) -> None:
        """answering, silent: addresses of the pods of drivers that answer, and of those that never do."""
        self._api = api
        self._kubernetes = connect(str(api.kubeconfig))
        self._answering, self._silent = (Pods(self._kubernetes, "", address) for address in (answering, silent))
        self._silent_names: frozenset[str] = frozenset()
        self.generations: dict[str, int] = {}  # of the StatefulSets, by name of the pipeline
        self.ready: set[str] = set()

    def begin(self, silent_names: frozenset[str]) -> None:
        """Starts the watches and the controllers of the pods. silent_names: pipelines whose drivers never answer."""
        self._silent_names = silent_names
        created: SimpleQueue[Any] = SimpleQueue()
        stateful_sets = watch(self._api, "/apis/apps/v1/statefulsets")
        pipelines = watch(self._api, "/apis/ackwright.io/v1alpha1/deliverypipelines")
        targets: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (self._record_stateful_sets, (stateful_sets, created)),
            (self._record_ready, (pipelines,)),
            *[(self._create_pods, (created,))] * _POD_THREADS,
        ]
        for function, arguments in targets:
            threading.Thread(target=function, args=arguments, daemon=True).start()

    def apply(self, namespace: str, name: str, servers: str) -> None:
        spec = {
            "guarantee": "exactly-once",
            "tolerate": {"brokerFailures": 0},
            "kafka": {"bootstrapServers": servers},
            "source": {"topics": ["in"]},
            "transform": {"sql": "SELECT key, value FROM source"},
            "sink": {"kafka": {"topic": "out"}},
        }
        meta = {"name": name, "namespace": namespace}
        self._kubernetes.create({"apiVersion": PIPELINE[0], "kind": PIPELINE[1], "metadata": meta, "spec": spec})

    def edit(self, namespace: str, name: str) -> float:
        """Changes the trigger; returns the seconds until the StatefulSet has changed."""
        before, start = self.generations[name], time.monotonic()
        self._kubernetes.merge(*PIPELINE, namespace, name, {"metadata": {}, "spec": {"trigger": {"interval": "2s"}}})
        wait_for(lambda: self.generations[name] > before, f"the StatefulSet of {name} has changed", _MIN_TIMEOUT)
        return time.monotonic() - start

    def _record_stateful_sets(self, events: Events, created: SimpleQueue[Any]) -> None:
        for event in events:
            meta = event["object"]["metadata"]
            self.generations[meta["name"]] = meta["generation"]
            if event["type"] == "ADDED":
                created.put(event["object"])

    def _record_ready(self, events: Events) -> None:
        for event in events:
            conditions = event["object"].get("status", {}).get("conditions", ())
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                self.ready.add(event["object"]["metadata"]["name"])

    def _create_pods(self, created: SimpleQueue[Any]) -> None:
        while True:
            owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", **created.get()}
            pods = self._silent if owner["metadata"]["name"] in self._silent_names else self._answering
            with suppress(ApiError):  # changed or deleted after the event
                pods.control(owner, [])


def measure(
    api: ApiServer,
    bootstrap: str,
    address: str,
    directory: Path,
    *,
    count: int,
    shards: int,
    report: Callable[[str], None],
) -> list[Figure]:
    """address: at which the drivers answer. report: prints a line."""
    create_topics(bootstrap)
    api.install(CRD)
    namespaces = [f"team-{i:03}" for i in range(NAMESPACES)]
    for namespace in namespaces:
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    names = [f"p-{i:05}" for i in range(count)]
    dead, silent = names[:DEAD_BROKERS], frozenset(names[DEAD_BROKERS : DEAD_BROKERS + SILENT_DRIVERS])
    healthy = [n for n in names[DEAD_BROKERS:] if n not in silent]
    place = {name: namespaces[i % NAMESPACES] for i, name in enumerate(names)}
    with ExitStack() as stack:
        listeners = stack.enter_context(dead_brokers(DEAD_BROKERS))
        silent_at = stack.enter_context(silent_address(backlog=4 * SILENT_DRIVERS))
        fleet = Fleet(api, address, silent_at)
        fleet.begin(silent)
        operators = [
            stack.enter_context(
                Operator(api, directory, ("operator", "--all-namespaces"), {"ACKWRIGHT_SHARD": f"{n}/{shards}"})
            )
            for n in range(1, shards + 1)
        ]
        fleet.apply(place[healthy[0]], healthy[0], bootstrap)  # creates the topic of the lanes
        wait_for(lambda: bool(fleet.ready), "the first pipeline is Ready", _MIN_TIMEOUT)
        start = time.monotonic()
        servers = dict(zip(dead, (f"127.0.0.1:{s.getsockname()[1]}" for s in listeners), strict=True))
        for name in names:
            if name != healthy[0]:
                fleet.apply(place[name], name, servers.get(name, bootstrap))
        report(f"applied {count} pipelines in {time.monotonic() - start:.0f} s")
        _wait_for_ready(fleet, healthy, report)
        seconds = time.monotonic() - start
        edited = [fleet.edit(place[n], n) for n in healthy[:: max(1, len(healthy) // EDITS)][:EDITS]]
        cpu, at = [o.cpu() for o in operators], time.monotonic()
        threading.Event().wait(_IDLE_SECONDS)
        used = [(o.cpu() - before) / (time.monotonic() - at) * 100 for o, before in zip(operators, cpu, strict=True)]
        return _figures(count, seconds, edited, used, [o.memory()[1] for o in operators])


def _wait_for_ready(fleet: Fleet, names: Sequence[str], report: Callable[[str], None]) -> None:
    reported = 0

    def is_ready() -> bool:
        nonlocal reported
        ready = len(fleet.ready)
        if ready >= reported + 500:
            reported = ready
            report(f"{ready} are Ready")
        return fleet.ready.issuperset(names)

    wait_for(is_ready, f"all {len(names)} pipelines are Ready", _MIN_TIMEOUT + 2 * len(names))


def _figures(
    count: int, seconds: float, edits: list[float], cpu: Sequence[float], memory: Sequence[float]
) -> list[Figure]:
    p50, p99 = percentiles(edits)
    broken = f"beside {DEAD_BROKERS} dead brokers and {SILENT_DRIVERS} silent drivers"
    figures = [
        Figure("pipelines from applied to Ready", round(count / seconds, 1), "1/s", note=f"{count} at once"),
        Figure("from an edit to its StatefulSet, median", round(p50, 2), "s", note=broken),
        Figure("from an edit to its StatefulSet, p99", round(p99, 2), "s", EDIT_P99_S, at_least=False, note=broken),
    ]
    for number, (percent, mib) in enumerate(zip(cpu, memory, strict=True), 1):
        shard = f"shard {number} of {len(cpu)}"
        figures += [
            Figure(f"peak memory, {shard}", round(mib), "MiB", MEMORY_MIB, at_least=False),
            Figure(f"CPU of an idle operator, {shard}", round(percent, 1), "% of a core"),
        ]
    return figures
