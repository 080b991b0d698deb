"""`python -m bench.operator`: measures how many pipelines one operator can manage, with pods faked by a controller.

start        from applying the first of many pipelines until all are Ready
single       from applying one pipeline to its StatefulSet, one at a time, while all others exist
restart      from restarting the operator until it has reconciled every pipeline
idle         CPU and API requests of an operator whose pipelines do not change, until each status was renewed once
memory       peak memory of the operator's processes, before the restart and at the end

With --fleet: thousands of pipelines in 200 namespaces, 25 of them with brokers that never answer and 100 with drivers
that never answer (bench/operator/fleet.py). It measures how long an edit takes to its StatefulSet beside them, memory
and CPU; with --shards of each of several operators.

Exit code 1 if a figure missed its target. Run nothing else on the machine meanwhile. The first run needs Go to build
the API server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ackwright.clients.kubernetes import connect
from ackwright.conditions.staleness import RENEWED_EVERY_S
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch
from bench import report
from bench.figures import Figure, percentiles
from bench.operator import fleet
from bench.operator.installation import NAMESPACE, Operator, audit_flags, create_topics, wait_for_reconciles, watch
from e2e.api_server import ApiServer
from e2e.pods import PIPELINE, Pods, follow, progress
from lab import binaries

Events = Iterator[Mapping[str, Any]]

CRD = Path(__file__).parents[2] / "crds" / "deliverypipelines.ackwright.io.yaml"
PIPELINES = f"/apis/ackwright.io/v1alpha1/namespaces/{NAMESPACE}/deliverypipelines"
STATEFUL_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
RATE, SINGLE_P99_S, MEMORY_MIB, IDLE_PERCENT = 10.0, 1.0, 400.0, 10.0  # targets on two cores
_POD_THREADS = 2
_MIN_TIMEOUT = 300.0  # seconds; generous, for busy machines


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.operator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pipelines", type=int, help="number of pipelines; default: 1000, with --fleet 10000")
    parser.add_argument("--fleet", action="store_true", help="10,000 pipelines of 200 teams, some of them broken")
    parser.add_argument("--shards", type=int, default=1, help="with --fleet: operators that divide the namespaces")
    parser.add_argument("--quick", action="store_true", help="100 pipelines, fewer single ones, and idle for a minute")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(argv)


@dataclass(frozen=True)
class Usage:
    """What an operator has used since the bench began."""

    requests: Counter[tuple[str, str]]  # by verb and resource
    reconciles: int
    cpu: float  # seconds

    @staticmethod
    def of(operator: Operator) -> Usage:
        return Usage(operator.requests(), operator.reconciles(), operator.cpu())

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.requests - other.requests, self.reconciles - other.reconciles, self.cpu - other.cpu)


class Bench:
    """Applies pipelines, fakes their pods, and records when each gets its StatefulSet and when each is Ready first."""

    def __init__(self, api: ApiServer, bootstrap: str, address: str) -> None:
        self._api, self._bootstrap = api, bootstrap
        self._kubernetes = connect(str(api.kubeconfig))
        self._pods = Pods(self._kubernetes, NAMESPACE, address)
        # Times by name of the pipeline, in seconds.
        self.applied: dict[str, float] = {}
        self.created: dict[str, float] = {}
        self.ready: dict[str, float] = {}

    def begin(self) -> None:
        """Starts the watches and the controller of the pods."""
        pod_events: SimpleQueue[Any] = SimpleQueue()
        stateful_sets, pipelines = watch(self._api, STATEFUL_SETS), watch(self._api, PIPELINES)
        threads = [threading.Thread(target=self._record_created, args=(stateful_sets, pod_events), daemon=True)]
        threads.append(threading.Thread(target=self._record_ready, args=(pipelines,), daemon=True))
        threads += [
            threading.Thread(target=follow, args=(self._pods, iter(pod_events.get, None)), daemon=True)
            for _ in range(_POD_THREADS)
        ]
        for thread in threads:
            thread.start()

    def apply(self, name: str) -> None:
        meta = {"name": name, "namespace": NAMESPACE}
        spec = {
            "guarantee": "exactly-once",
            "tolerate": {"brokerFailures": 0},
            "kafka": {"bootstrapServers": self._bootstrap},
            "source": {"topics": ["in"]},
            "transform": {"sql": "SELECT key, value FROM source"},
            "sink": {"kafka": {"topic": "out"}},
        }
        self.applied[name] = time.monotonic()
        self._kubernetes.create({"apiVersion": PIPELINE[0], "kind": PIPELINE[1], "metadata": meta, "spec": spec})

    def wait_until_created(self, names: Sequence[str]) -> list[float]:
        """Waits until every pipeline has its StatefulSet; returns the seconds that each took."""
        timeout = _MIN_TIMEOUT + 2 * len(names)
        wait_for(lambda: all(n in self.created for n in names), "all StatefulSets exist", timeout)
        return [self.created[n] - self.applied[n] for n in names]

    def _record_created(self, events: Events, pod_events: SimpleQueue[Any]) -> None:
        for event in events:
            if event["type"] == "ADDED":
                self.created[event["object"]["metadata"]["name"]] = time.monotonic()
                pod_events.put(event)

    def _record_ready(self, events: Events) -> None:
        for event in events:
            conditions = event["object"].get("status", {}).get("conditions", ())
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                self.ready.setdefault(event["object"]["metadata"]["name"], time.monotonic())


def start(bench: Bench, operator: Operator, count: int) -> list[Figure]:
    """Applies all pipelines at once and waits until they are Ready."""
    names = [f"p-{i:04}" for i in range(count)]
    before = Usage.of(operator)
    for name in names:
        bench.apply(name)
    p50, p99 = percentiles(bench.wait_until_created(names))
    wait_for(lambda: len(bench.ready) >= count, f"all {count} pipelines are Ready", _MIN_TIMEOUT + 2 * count)
    seconds = max(bench.ready.values()) - bench.applied[names[0]]
    used = Usage.of(operator) - before
    return [
        Figure(
            "pipelines from applied to Ready",
            round(count / seconds, 1),
            "1/s",
            RATE,
            note=f"{count} at once, in {seconds:.0f} s",
        ),
        Figure("time to the StatefulSet, all at once, median", round(p50, 2), "s"),
        Figure("time to the StatefulSet, all at once, p99", round(p99, 2), "s"),
        Figure(
            "API requests per started pipeline",
            round(_count(used.requests) / count, 1),
            "",
            note=_most_frequent(used.requests),
        ),
        Figure(
            "reconciles per started pipeline",
            round(used.reconciles / count, 1),
            "",
            note="including those of pipelines that wait for others",
        ),
        Figure(
            "operator CPU per started pipeline",
            round(used.cpu / count * 1000),
            "ms",
            note="including all reconciles and watches",
        ),
    ]


def single(bench: Bench, count: int) -> list[Figure]:
    """Applies pipelines one after the other."""
    seconds: list[float] = []
    for i in range(count):
        bench.apply(f"s-{i:04}")
        seconds += bench.wait_until_created([f"s-{i:04}"])
    p50, p99 = percentiles(seconds)
    return [
        Figure("time to the StatefulSet, one at a time, median", round(p50, 3), "s"),
        Figure(
            "time to the StatefulSet, one at a time, p99",
            round(p99, 3),
            "s",
            SINGLE_P99_S,
            at_least=False,
            note=f"{count} pipelines",
        ),
    ]


def idle(operator: Operator, seconds: float) -> list[Figure]:
    """Measures an operator whose pipelines do not change, for so many seconds."""
    before, started_at = Usage.of(operator), time.monotonic()
    threading.Event().wait(seconds)
    seconds = time.monotonic() - started_at
    used = Usage.of(operator) - before
    return [
        Figure(
            "CPU of an idle operator", round(used.cpu / seconds * 100, 1), "% of a core", IDLE_PERCENT, at_least=False
        ),
        Figure(
            "reconciles per second",
            round(used.reconciles / seconds, 1),
            "1/s",
            note=f"{used.cpu / max(1, used.reconciles) * 1000:.1f} ms of CPU each",
        ),
        Figure(
            "API requests per reconcile",
            round(_count(used.requests) / max(1, used.reconciles), 3),
            "",
            note=_most_frequent(used.requests),
        ),
    ]


def restart(operator: Operator, count: int) -> list[Figure]:
    """Restarts the operator and waits until it has reconciled every pipeline."""
    operator.stop()
    before, started_at = operator.requests(), time.monotonic()
    operator.start()
    wait_for_reconciles(operator, count, _MIN_TIMEOUT + count)
    seconds, requests = time.monotonic() - started_at, operator.requests() - before
    writes = Counter({k: n for k, n in requests.items() if k[0] not in ("get", "list", "watch") and k[1] != "leases"})
    return [
        Figure("from the restart to all reconciled", round(seconds, 1), "s", note=f"{count} pipelines"),
        Figure("writes after the restart", writes.total(), "", 0, at_least=False, note=_most_frequent(writes)),
    ]


def memory(operator: Operator, name: str) -> list[Figure]:
    """The peak since the operator's start."""
    now, peak = operator.memory()
    return [Figure(name, round(peak), "MiB", MEMORY_MIB, at_least=False, note=f"{now:.0f} MiB then")]


def measure(api: ApiServer, bootstrap: str, address: str, directory: Path, *, count: int, quick: bool) -> list[Figure]:
    create_topics(bootstrap)
    api.install(CRD)
    singles, idle_seconds = (30, 60.0) if quick else (100, RENEWED_EVERY_S)
    figures: list[Figure] = []
    with Operator(api, directory) as operator:
        bench = Bench(api, bootstrap, address)
        bench.begin()
        bench.apply("first")  # creates the topic of the lanes, and shows that the operator runs
        bench.wait_until_created(["first"])
        wait_for(lambda: bool(bench.ready), "the first pipeline is Ready", _MIN_TIMEOUT)
        bench.ready.clear()
        figures += _reported(start(bench, operator, count))
        figures += _reported(single(bench, singles))
        figures += _reported(memory(operator, "peak memory"))
        # Before the statuses are so old that they are renewed.
        figures += _reported(restart(operator, count + singles + 1))
        figures += _reported(idle(operator, idle_seconds))
        figures += _reported(memory(operator, "peak memory after the restart"))
    return figures


def main() -> int:
    options = arguments()
    count = options.pipelines or (1000 if options.quick else 10000 if options.fleet else 1000)
    if options.quick and not options.fleet and not options.pipelines:
        count = 100
    setting = {"processors": os.cpu_count(), "loadBefore": [round(n, 1) for n in os.getloadavg()], "pipelines": count}
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="ackwright-bench-"))
        stack.enter_context(Watch(remove=(directory,)))  # removes it even if this process is killed
        api = stack.enter_context(ApiServer(binaries.directory(_report), audit_flags(directory)))
        kafka, address = stack.enter_context(EmbeddedKafka(brokers=1)), stack.enter_context(progress())
        if options.fleet:
            figures = fleet.measure(
                api, kafka.bootstrap_servers, address, directory, count=count, shards=options.shards, report=_report
            )
        else:
            figures = measure(api, kafka.bootstrap_servers, address, directory, count=count, quick=options.quick)
    report.show(figures, options.output, setting)
    return 1 if any(f.meets_target is False for f in figures) else 0


def _count(requests: Counter[tuple[str, str]]) -> int:
    """The number of requests, without watches and without those for Leases."""
    return sum(n for (verb, resource), n in requests.items() if verb != "watch" and resource != "leases")


def _most_frequent(requests: Counter[tuple[str, str]]) -> str:
    return ", ".join(f"{verb} {resource}: {n}" for (verb, resource), n in requests.most_common(12) if verb != "watch")


def _reported(figures: list[Figure]) -> list[Figure]:
    """Prints the figures and returns them."""
    for f in figures:
        _report(f"{f.name}: {f.value:g} {f.unit} {f.note}")
    return figures


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
