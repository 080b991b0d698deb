"""`python -m bench.cluster`: how long a pipeline in a cluster pauses when its driver is killed.

It creates the lab's cluster with the operator, or uses the one of `make cluster`. A kill is a SIGKILL for all processes
of the driver's container. Each driver is killed once: after that a new pod takes its place, because the kubelet delays
the restarts of one container more and more. With --standby the other driver takes over.

As root, on a machine with Go. Exit code 1 if a figure missed its target. Run nothing else on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.figures import Figure, median, percentiles
from bench.load import Load
from bench.resume import Pause, resumed
from bench.runs import EXACTLY_ONCE, GUARANTEES
from e2e import pipelines
from e2e.pipelines import Installation, Pipeline
from lab.cluster import Cluster, print_progress

PARTITIONS, RATE = 4, 200  # of the source; records per second
TARGET_S, STANDBY_TARGET_S = 10.0, 3.0  # p99
KILLS, QUICK_KILLS = 10, 2
_BEFORE_S = 3.0  # seconds of load before a kill
_TIMEOUT = 400.0  # seconds


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--standby", action="store_true", help="with a standby driver")
    parser.add_argument("--kills", type=int, default=KILLS, help=f"number of kills; default: {KILLS}")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_KILLS} kills, to try it")
    parser.add_argument("--guarantee", choices=GUARANTEES, default=EXACTLY_ONCE)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(argv)


@contextlib.contextmanager
def copying(installed: Installation, guarantee: str, *, standby: bool) -> Iterator[tuple[Pipeline, Load]]:
    """A pipeline that copies a topic without a transform, and its load, which is paused."""
    with pipelines.pipeline(installed, guarantee, create=False) as p:
        source, sink = p.source, p.sink
        p.apply(
            source={"topics": [source], "format": "binary"},
            transform={"sql": "SELECT key, value FROM source"},
            sink={"kafka": {"topic": sink, "format": "binary"}},
            topics=[{"name": name, "partitions": PARTITIONS} for name in (source, sink)],
            trigger={"interval": "1s"},
            standby=standby,
        )
        p.wait_for("JobRunning", "True", "Running")
        with Load(installed.kafka, source, sink, PARTITIONS, RATE) as load:
            yield p, load


def measure(installed: Installation, guarantee: str, kills: int, *, standby: bool) -> list[Figure]:
    """Seconds from the SIGKILL until a record of every partition that was sent after it is delivered."""
    pauses = []
    with copying(installed, guarantee, standby=standby) as (p, load):
        for number in range(kills):
            load.resume()
            pipelines.wait_until(lambda: bool(load.deliveries()), "the pipeline delivers", _TIMEOUT)
            pauses.append(pause := _kill(p, load))
            print_progress(f"kill {number + 1}: {pause.first:.1f} s, {pause.complete:.1f} s")
            load.pause()
            pipelines.wait_until(lambda: load.caught_up, "everything is delivered", _TIMEOUT)
            load.take()
            _replace_restarted(p)
            p.wait_for("JobRunning", "True", "Running")
    return summary(guarantee, [pause.complete for pause in pauses], standby=standby)


def _kill(p: Pipeline, load: Load) -> Pause:
    """Kills the driver at any point of a batch, and waits until every partition advances again."""
    time.sleep(_BEFORE_S + random.random())
    pod = _active_pod(p)
    killed_at = time.time()
    for pid in processes(str(pod["metadata"]["uid"])):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pipelines.wait_until(
        lambda: len(resumed(load, killed_at)) == PARTITIONS, "the pipeline advances every partition", _TIMEOUT
    )
    times = resumed(load, killed_at).values()
    return Pause(min(times) - killed_at, max(times) - killed_at)


def _active_pod(p: Pipeline) -> Mapping[str, Any]:
    pod: Mapping[str, Any] = p.installation.get("pods", p.status()["driver"]["pod"])
    return pod


def _replace_restarted(p: Pipeline) -> None:
    """Replaces pods whose container has been restarted."""
    for pod in p.installation.get("pods", labels=f"ackwright.io/pipeline={p.name},ackwright.io/role=driver"):
        if any(status["restartCount"] for status in pod["status"].get("containerStatuses", ())):
            p.installation.kubectl("delete", "pod", pod["metadata"]["name"], "--timeout=120s", timeout=130)


def processes(pod_uid: str) -> list[int]:
    """The processes of a pod's containers on this machine, whose kernel all nodes of the lab share."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            group, command = (entry / "cgroup").read_text(), (entry / "comm").read_text().strip()
            if (pod_uid in group or pod_uid.replace("-", "_") in group) and command != "pause":
                pids.append(int(entry.name))
    return pids


def summary(guarantee: str, seconds: Sequence[float], *, standby: bool) -> list[Figure]:
    """Median and p99, beside the target."""
    how, target = ("with a standby", STANDBY_TARGET_S) if standby else ("without standby", TARGET_S)
    title = f"in the cluster, from SIGKILL of the driver until all {PARTITIONS} partitions advance, {how}: {guarantee}"
    note = f"{len(seconds)} kills"
    p99 = round(percentiles(seconds)[1], 2)
    return [
        median(f"{title}, median", seconds, "s", note=note),
        Figure(f"{title}, p99", p99, "s", target, at_least=False, note=note),
    ]


def main() -> int:
    options = arguments()
    setting = report.setting(os.cpu_count(), 2, os.getloadavg(), quick=options.quick)
    with Cluster.up() as cluster, pipelines.installation(cluster) as installed:
        kills = QUICK_KILLS if options.quick else options.kills
        figures = measure(installed, options.guarantee, kills, standby=options.standby)
    report.show(figures, options.output, setting)
    return 1 if any(f.meets_target is False for f in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
