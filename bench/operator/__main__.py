"""`python -m bench.operator`: how many pipelines one operator takes, with pods that a simple controller fakes.

start        from the first of so many pipelines being applied to all being Ready
single       from one being applied to its StatefulSet, one at a time, while all the others are there
idle         CPU and requests of an operator that has nothing to do but to look
restart      from starting the operator anew to each pipeline having been looked at
memory       of the operator's process, at most

Exit code 1 if a figure that was to be reached was missed. Nothing else should run on the machine meanwhile. Needs Go once, to build the
API server.
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
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from confluent_kafka.admin import NewTopic

from ackwright.clients.kubernetes import connect
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch
from ackwright_stream.admin_client import AdminClient
from bench import report
from bench.figures import Figure, percentiles
from bench.operator.installation import NAMESPACE, Operator, audit_flags, wait_for_looks, watch
from e2e.api_server import ApiServer
from e2e.pods import PIPELINE, Pods, follow, progress
from lab import binaries

Events = Iterator[Mapping[str, Any]]

CRD = Path(__file__).parents[2] / "crds" / "deliverypipelines.ackwright.io.yaml"
PIPELINES = f"/apis/ackwright.io/v1alpha1/namespaces/{NAMESPACE}/deliverypipelines"
STATEFUL_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
RATE, SINGLE_P99_S, MEMORY_MIB = 10.0, 1.0, 400.0  # to be reached on two cores
_IDLE_S = 20.0
_POD_MAKERS = 2
_AT_LEAST_S = 300.0  # patience with a machine that has other things to do


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.operator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pipelines", type=int, help="how many; 1000 if not given")
    parser.add_argument("--quick", action="store_true", help="100 pipelines, and fewer single ones")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(given)


class Bench:
    """What is watched, beside the operator: when each pipeline's StatefulSet was made, and when each pipeline was Ready first."""

    def __init__(self, api: ApiServer, bootstrap: str, address: str) -> None:
        self._api, self._bootstrap = api, bootstrap
        self._kubernetes = connect(str(api.kubeconfig))
        self._pods = Pods(self._kubernetes, NAMESPACE, address)
        self.applied: dict[str, float] = {}
        self.made: dict[str, float] = {}
        self.ready: dict[str, float] = {}

    def begin(self) -> None:
        """Starts watching, and making pods."""
        to_control: SimpleQueue[Any] = SimpleQueue()
        stateful_sets, pipelines = watch(self._api, STATEFUL_SETS), watch(self._api, PIPELINES)
        threads = [threading.Thread(target=self._see_stateful_sets, args=(stateful_sets, to_control), daemon=True)]
        threads.append(threading.Thread(target=self._see_pipelines, args=(pipelines,), daemon=True))
        threads += [
            threading.Thread(target=follow, args=(self._pods, iter(to_control.get, None)), daemon=True)
            for _ in range(_POD_MAKERS)
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
            "transform": {"sql": "SELECT * FROM source"},
            "sink": {"kafka": {"topic": "out"}},
        }
        self.applied[name] = time.monotonic()
        self._kubernetes.create({"apiVersion": PIPELINE[0], "kind": PIPELINE[1], "metadata": meta, "spec": spec})

    def until_made(self, names: Sequence[str]) -> list[float]:
        """Seconds from being applied to the StatefulSet, for each, once all are there."""
        wait_for(lambda: all(n in self.made for n in names), "all StatefulSets are made", _AT_LEAST_S + 2 * len(names))
        return [self.made[n] - self.applied[n] for n in names]

    def _see_stateful_sets(self, events: Events, to_control: SimpleQueue[Any]) -> None:
        for event in events:
            if event["type"] == "ADDED":
                self.made[event["object"]["metadata"]["name"]] = time.monotonic()
                to_control.put(event)

    def _see_pipelines(self, events: Events) -> None:
        for event in events:
            conditions = event["object"].get("status", {}).get("conditions", ())
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                self.ready.setdefault(event["object"]["metadata"]["name"], time.monotonic())


def start(bench: Bench, operator: Operator, count: int) -> list[Figure]:
    names = [f"p-{i:04}" for i in range(count)]
    requests, looks, cpu = operator.requests(), operator.looks(), operator.cpu()
    for name in names:
        bench.apply(name)
    took = bench.until_made(names)
    wait_for(lambda: len(bench.ready) >= count, f"all {count} pipelines are Ready", _AT_LEAST_S + 2 * count)
    seconds = max(bench.ready.values()) - bench.applied[names[0]]
    middle, high = percentiles(took)
    asked, looked, used = operator.requests() - requests, operator.looks() - looks, operator.cpu() - cpu
    return [
        Figure(
            "pipelines from applied to Ready",
            round(count / seconds, 1),
            "1/s",
            RATE,
            note=f"{count} at once, in {seconds:.0f} s",
        ),
        Figure("to its StatefulSet, all at once, median", round(middle, 2), "s"),
        Figure("to its StatefulSet, all at once, p99", round(high, 2), "s"),
        Figure("API requests for a pipeline's start", round(_asked(asked) / count, 1), "", note=_most(asked)),
        Figure(
            "looks for a pipeline's start",
            round(looked / count, 1),
            "",
            note="further ones of those that wait for the others included",
        ),
        Figure(
            "CPU for a pipeline's start",
            round(used / count * 1000),
            "ms",
            note="of the operator, these looks and the watches included",
        ),
    ]


def single(bench: Bench, count: int) -> list[Figure]:
    took: list[float] = []
    for i in range(count):
        bench.apply(f"s-{i:04}")
        took += bench.until_made([f"s-{i:04}"])
    middle, high = percentiles(took)
    return [
        Figure("to its StatefulSet, one at a time, median", round(middle, 3), "s"),
        Figure(
            "to its StatefulSet, one at a time, p99",
            round(high, 3),
            "s",
            SINGLE_P99_S,
            at_least=False,
            note=f"{count} pipelines",
        ),
    ]


def idle(operator: Operator) -> list[Figure]:
    requests, looks, cpu, begun = operator.requests(), operator.looks(), operator.cpu(), time.monotonic()
    threading.Event().wait(_IDLE_S)
    seconds = time.monotonic() - begun
    asked, looked, used = operator.requests() - requests, operator.looks() - looks, operator.cpu() - cpu
    return [
        Figure("CPU of an operator with nothing to do", round(used / seconds * 100, 1), "% of a core"),
        Figure(
            "looks a second",
            round(looked / seconds, 1),
            "1/s",
            note=f"{used / max(1, looked) * 1000:.1f} ms of CPU each",
        ),
        Figure("API requests a look", round(_asked(asked) / max(1, looked), 3), "", note=_most(asked)),
    ]


def restart(operator: Operator, count: int) -> list[Figure]:
    operator.stop()
    requests, begun = operator.requests(), time.monotonic()
    operator.start()
    wait_for_looks(operator, count, _AT_LEAST_S + count)
    seconds, asked = time.monotonic() - begun, operator.requests() - requests
    writes = Counter({k: n for k, n in asked.items() if k[0] not in ("get", "list", "watch") and k[1] != "leases"})
    return [
        Figure("from starting anew to all looked at", round(seconds, 1), "s", note=f"{count} pipelines"),
        Figure("writes of the new one", writes.total(), "", 0, at_least=False, note=_most(writes)),
    ]


def measure(api: ApiServer, bootstrap: str, address: str, directory: Path, *, count: int, singles: int) -> list[Figure]:
    topics = [NewTopic(name, 1, 1) for name in ("in", "out")]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a name of its own: the futures end with it
    for future in admin.create_topics(topics).values():
        future.result(30)
    api.install(CRD)
    found: list[Figure] = []
    with Operator(api, directory) as operator:
        bench = Bench(api, bootstrap, address)
        bench.begin()
        bench.apply("first")  # makes the topic of the lanes; and from then on the operator runs
        bench.until_made(["first"])
        wait_for(lambda: bool(bench.ready), "the first pipeline is Ready", _AT_LEAST_S)
        bench.ready.clear()
        found += _said(start(bench, operator, count))
        found += _said(single(bench, singles))
        found += _said(idle(operator))
        now, most = operator.memory()
        found += _said(
            [Figure("memory, at most", round(most), "MiB", MEMORY_MIB, at_least=False, note=f"{now:.0f} MiB at last")]
        )
        found += _said(restart(operator, count + singles + 1))
        now, most = operator.memory()
        found += _said([Figure("memory of the new one, at most", round(most), "MiB", MEMORY_MIB, at_least=False)])
    return found


def main() -> int:
    given = arguments()
    count = given.pipelines or (100 if given.quick else 1000)
    setting = {"processors": os.cpu_count(), "loadBefore": [round(n, 1) for n in os.getloadavg()], "pipelines": count}
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="ackwright-bench-"))
        stack.enter_context(Watch(remove=(directory,)))  # also if this process is killed
        api = stack.enter_context(ApiServer(binaries.directory(_say), audit_flags(directory)))
        kafka, address = stack.enter_context(EmbeddedKafka(brokers=1)), stack.enter_context(progress())
        found = measure(
            api, kafka.bootstrap_servers, address, directory, count=count, singles=30 if given.quick else 100
        )
    report.show(found, given.output, setting)
    return 1 if any(f.reached is False for f in found) else 0


def _asked(requests: Counter[tuple[str, str]]) -> int:
    """Without the watches, and the Lease's."""
    return sum(n for (verb, resource), n in requests.items() if verb != "watch" and resource != "leases")


def _most(requests: Counter[tuple[str, str]]) -> str:
    return ", ".join(f"{verb} {resource}: {n}" for (verb, resource), n in requests.most_common(12) if verb != "watch")


def _said(figures: list[Figure]) -> list[Figure]:
    for f in figures:
        _say(f"{f.name}: {f.value:g} {f.unit} {f.note}")
    return figures


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
