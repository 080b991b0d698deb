"""The state of a running driver, and its HTTP server: /progress (JSON), /metrics (Prometheus), /healthz and /ready.

/owner/<member id> is for the standby driver: the answer lasts for as long as this driver is that member of the group.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypedDict, Unpack

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.memory_use import MemoryUse
from ackwright_stream.positions import Lane
from ackwright_stream.reports import Failure, ProgressReport, StartPart, State
from ackwright_stream.start_times import StartTimes

_WINDOW_S = 10.0  # of records per second
_BEAT_S = 0.2  # between two signs of life for the standby driver


class Counts(TypedDict, total=False):
    """Increments of ProgressReport's counters, apart from records and batches."""

    restarts: int
    abandoned_records: int
    expired_records: int
    malformed_records: int
    dead_letters: int
    late_rows: int
    skipped_lanes: int


@dataclass(frozen=True)
class Load:
    """What a driver has to deliver."""

    ends: int  # the sum of the ends of the driver's lanes
    lag: int  # offsets
    lanes: int


class Progress:
    """The current state of the driver, which writes it from its threads, and which any thread may read."""

    def __init__(self, job: JobSpec, launched: float | None = None) -> None:
        self.job = job
        self._lock = threading.Lock()
        self._state = State.STARTING
        self._driver = 0
        self._batch = -1
        self._batch_seconds = 0.0
        self._positions: dict[Lane, int] = {}
        self._ends: Mapping[Lane, int] = {}
        self._counts: Counter[str] = Counter()
        self._recent: deque[tuple[float, int]] = deque()  # when, and records written then
        self._failure: Failure | None = None
        self._failing = False  # no batch has been delivered since
        self._last_batch_at: float | None = None
        self._watermark_ms = 0
        self._replay: tuple[int, int] | None = None  # the batch that runs again, and the last that has to
        self.event_log_error: str | None = None  # as of ProgressReport
        self.memory: MemoryUse | None = None  # of Spark's JVMs; None: not known
        self.executors_requested: int | None = None  # with autoscaling
        self._executors: int | None = None  # that are connected
        self._missing_since: float | None = None  # since when fewer executors than requested are connected
        self.start = StartTimes(time.monotonic() if launched is None else launched)
        self.address: str | None = None  # host:port at which other drivers reach the server; None: it is not served
        self.member: Callable[[], str | None] = lambda: None  # the id under which this driver owns the pipeline

    def state(self, state: State) -> None:
        """Sets what the driver is doing."""
        with self._lock:
            self._state = state

    def owns(self, driver: int, positions: Mapping[Lane, int]) -> None:
        """Sets the driver's number and the positions of all its lanes."""
        with self._lock:
            self._driver = driver
            self._positions = dict(positions)
        self.start.ended(StartPart.OWNERSHIP)

    def stands_by(self) -> None:
        """Sets that another driver owns the pipeline: this one has no positions, and so no lag."""
        with self._lock:
            self._state = State.STANDBY
            self._driver, self._positions, self._ends, self._failure, self._failing = 0, {}, {}, None, False
            self._watermark_ms = 0
        self.start.interrupt()

    def watermark(self, milliseconds: int) -> None:
        """Sets the watermark with which the next batch begins, milliseconds since 1970; 0: none."""
        with self._lock:
            self._watermark_ms = milliseconds

    def replays(self, batch: int, last: int) -> None:
        """Sets that a batch of a stateful pipeline runs again; `last` is the last that has to."""
        with self._lock:
            self._state, self._replay = State.REPLAYING, (batch, last)

    def ends(self, ends: Mapping[Lane, int]) -> None:
        """Sets the ends of the source's partitions."""
        with self._lock:
            self._ends = ends

    def count_executors(self, connected: int) -> None:
        """Sets how many executors are connected to the driver."""
        with self._lock:
            self._executors = connected
            if connected >= (self.executors_requested or 0):
                self._missing_since = None
            elif self._missing_since is None:
                self._missing_since = time.monotonic()

    def load(self) -> Load | None:
        """What the driver has to deliver; None as long as the source's ends are not known."""
        with self._lock:
            ends = {lane: end for lane, end in self._ends.items() if lane in self._positions}
            return Load(sum(ends.values()), self._lag(), len(ends)) if ends else None

    def _lag(self) -> int:
        return sum(max(0, end - self._positions[lane]) for lane, end in self._ends.items() if lane in self._positions)

    def lanes(self) -> tuple[Lane, ...]:
        """The driver's lanes."""
        with self._lock:
            return tuple(self._positions)

    def count(self, **increments: Unpack[Counts]) -> None:
        """Adds to counters."""
        with self._lock:
            self._counts.update(increments)

    def ends_unknown(self, error: JobError) -> None:
        """Sets the last error: the source's ends could not be read. The query may deliver meanwhile."""
        with self._lock:
            self._failure = error.failure

    def failed(self, error: JobError) -> None:
        """Sets the last error, with which an attempt to deliver has failed."""
        with self._lock:
            self._failure, self._failing = error.failure, True

    def batch(self, number: int, positions: Mapping[Lane, int], records: int, seconds: float) -> None:
        """Adds a delivered batch, its new positions and its duration."""
        with self._lock:
            self._batch, self._batch_seconds, self._last_batch_at = number, seconds, time.time()
            self._positions.update(positions)
            self._counts["records"] += records
            self._counts["batches"] += 1
            self._add_recent(records)
            self._state, self._failing = State.RUNNING, False
        self.start.ended(StartPart.BATCH)

    def delivered(self, records: int) -> None:
        """Adds records that were counted apart from their batch."""
        with self._lock:
            self._counts["records"] += records
            self._add_recent(records)

    def _add_recent(self, records: int) -> None:
        """Also removes what is outside of the window, so that a driver whose report nobody reads keeps no more."""
        self._recent.append((time.monotonic(), records))
        self._forget_old()

    def _forget_old(self) -> None:
        while self._recent and self._recent[0][0] < time.monotonic() - _WINDOW_S:
            self._recent.popleft()

    @property
    def last_error(self) -> str:
        return str(self._failure) if self._failure else "none"

    def snapshot(self) -> ProgressReport:
        """The state at this moment."""
        with self._lock:
            self._forget_old()
            counts, replay = self._counts, self._replay if self._state is State.REPLAYING else None
            return ProgressReport(
                pipeline=f"{self.job.namespace}/{self.job.name}",
                guarantee=self.job.guarantee.value,
                state=self._state,
                driver=self._driver,
                batch_id=self._batch,
                batch_seconds=round(self._batch_seconds, 3),
                last_batch_at=self._last_batch_at,
                positions=_by_topic(self._positions),
                lag=self._lag(),
                records=counts["records"],
                batches=counts["batches"],
                restarts=counts["restarts"],
                abandoned_records=counts["abandoned_records"],
                expired_records=counts["expired_records"],
                malformed_records=counts["malformed_records"],
                dead_letters=counts["dead_letters"],
                late_rows=counts["late_rows"],
                watermark=self._watermark_ms / 1000 if self._watermark_ms else None,
                replay_batch=replay[0] if replay else None,
                replay_last=replay[1] if replay else None,
                skipped_lanes=counts["skipped_lanes"],
                records_per_second=round(sum(n for _, n in self._recent) / _WINDOW_S, 1),
                last_error=self._failure,
                start_seconds={part: round(seconds, 3) for part, seconds in self.start.seconds.items()},
                event_log_error=self.event_log_error,
                executors=self._executors,
                executors_requested=self.executors_requested,
                executors_missing_s=(
                    0 if self._missing_since is None else round(time.monotonic() - self._missing_since, 1)
                ),
                failing=self._failing,
                ends=_by_topic({lane: end for lane, end in self._ends.items() if lane in self._positions}),
            )


def _by_topic(offsets: Mapping[Lane, int]) -> dict[str, dict[str, int]]:
    """Offsets by topic and partition."""
    topics: dict[str, dict[str, int]] = {}
    for lane, offset in sorted(offsets.items()):
        topics.setdefault(lane.topic, {})[str(lane.partition)] = offset
    return topics


# Attributes of ProgressReport, and the help of their metrics.
_GAUGES = {
    "lag": "Offsets between the positions and the ends of the source",
    "batch_id": "Number of the last batch of the current query",
    "batch_seconds": "Duration of the last batch in seconds",
    "records_per_second": "Records written per second, over the last ten seconds",
    "driver": "Number of the driver that owns the pipeline",
}
_COUNTERS = {
    "records": "Records written to the sink and acknowledged as the guarantee requires",
    "batches": "Batches delivered",
    "restarts": "Restarts of the query within this process",
    "abandoned_records": "Source offsets of abandoned batches, some of them perhaps processed (at-most-once)",
    "expired_records": "Source offsets that retention removed before they were read (at-most-once)",
    "malformed_records": "Malformed records left out",
    "dead_letters": "Malformed records written as dead letters",
    "late_rows": "Rows that state has left out as late; with GROUP BY one for the records of a group in a task",
    "skipped_lanes": "Ranges that an earlier attempt had committed",
}


class ProgressMetrics(Collector):
    """The snapshot as Prometheus metrics, ackwright_<attribute>."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        report = self._progress.snapshot()
        labels = ["pipeline", "guarantee"]
        values = [report.pipeline, report.guarantee]
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"ackwright_{name}", text, labels=labels)
            gauge.add_metric(values, float(getattr(report, name)))
            yield gauge
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"ackwright_{name}", text, labels=labels)
            counter.add_metric(values, float(getattr(report, name)))
            yield counter
        position = GaugeMetricFamily(
            "ackwright_position", "Offset of the next record to deliver", labels=[*labels, "topic", "partition"]
        )
        for topic, partitions in report.positions.items():
            for partition, offset in partitions.items():
                position.add_metric([*values, topic, partition], float(offset))
        yield position
        start = GaugeMetricFamily(
            "ackwright_start_seconds",
            "Seconds of each part of the driver's start, up to its first batch",
            labels=[*labels, "part"],
        )
        for part, seconds in report.start_seconds.items():
            start.add_metric([*values, part], seconds)
        yield start
        if report.watermark is not None:
            watermark = GaugeMetricFamily(
                "ackwright_watermark_timestamp_seconds",
                "Watermark with which the next batch begins, in seconds since the epoch (stateful pipelines)",
                labels=labels,
            )
            watermark.add_metric(values, report.watermark)
            yield watermark
        if report.executors_requested is not None:
            requested = GaugeMetricFamily(
                "ackwright_executors_requested", "Executors that the driver asks Spark for (autoscaling)", labels=labels
            )
            requested.add_metric(values, float(report.executors_requested))
            yield requested
        yield from _memory_metrics(self._progress.memory, dict(zip(labels, values, strict=True)))


# Attributes of ExecutorUse, and the name and help of their metrics.
_EXECUTOR_GAUGES = {
    "heap_peak_bytes": "Largest use of the heap by the executor, or the driver, at a heartbeat",
    "off_heap_peak_bytes": "Largest use of JVM memory outside of the heap at a heartbeat",
}
_EXECUTOR_COUNTERS = {
    "gc_seconds": "Time of garbage collections in the executor, or the driver",
    "failed_tasks": "Tasks that failed in the executor",
}


def _memory_metrics(use: MemoryUse | None, labels: Mapping[str, str]) -> Iterator[Metric]:
    """Nothing as long as Spark has not started."""
    if use is None:
        return
    for name, text, value in (
        ("jvm_heap_bytes", "Used heap of the driver's JVM", use.heap_bytes),
        ("jvm_heap_max_bytes", "Largest heap of the driver's JVM", use.heap_max_bytes),
        ("executors", "Executors that are connected to the driver", use.executor_count),
    ):
        gauge = GaugeMetricFamily(f"ackwright_{name}", text, labels=list(labels))
        gauge.add_metric(list(labels.values()), float(value))
        yield gauge
    for kind, metrics in ((GaugeMetricFamily, _EXECUTOR_GAUGES), (CounterMetricFamily, _EXECUTOR_COUNTERS)):
        for name, text in metrics.items():
            family = kind(f"ackwright_executor_{name}", text, labels=[*labels, "executor"])
            for executor in use.executors:
                family.add_metric([*labels.values(), executor.name], float(getattr(executor, name)))
            yield family


OWNER_PATH = "/owner/"
_READY = (State.RUNNING, State.STANDBY)


def _reachable_host(job: JobSpec, host: str) -> str:
    """The host at which Spark's executors reach this driver, and so its standby; in brackets if it is an IPv6 one."""
    reachable = job.spark.get("spark.driver.host", host)
    return f"[{reachable}]" if ":" in reachable else reachable


def serve(progress: Progress, host: str, port: int) -> ThreadingHTTPServer:
    """A server in the background, whose server_port is its port; close it with shutdown().

    Raises OSError if it cannot listen.
    """
    registry = CollectorRegistry()
    registry.register(ProgressMetrics(progress))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/progress":
                self._send("application/json", json.dumps(progress.snapshot().as_json()).encode())
            elif self.path == "/metrics":
                self._send("text/plain; version=0.0.4; charset=utf-8", generate_latest(registry))
            elif self.path == "/healthz":
                self._send("text/plain", b"ok\n")
            elif self.path == "/ready":
                state = progress.snapshot().state
                self._send("text/plain", f"{state}\n".encode(), 200 if state in _READY else 503)
            elif self.path.startswith(OWNER_PATH):
                self._stay_while_owner(self.path.removeprefix(OWNER_PATH))
            else:
                self.send_error(404)

        def _stay_while_owner(self, member: str) -> None:
            if progress.member() != member:
                self._send("text/plain", b"not the owner\n", 410)
                return
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # the standby has ended
                while progress.member() == member:
                    self.wfile.write(b".")
                    time.sleep(_BEAT_S)

        def _send(self, content_type: str, body: bytes, code: int = 200) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    progress.address = f"{_reachable_host(progress.job, host)}:{server.server_port}"
    threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()
    return server
