"""What the driver tells about itself, over HTTP: /progress (JSON), /metrics (Prometheus), /healthz: it answers, /ready: it delivers."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.positions import Lane

_WINDOW_S = 10.0


class Progress:
    """The present state, changed by the driver, read by anybody. Counters count since this process began."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._state = "starting"
        self._driver = 0
        self._batch = -1
        self._batch_seconds = 0.0
        self._positions: dict[Lane, int] = {}
        self._ends: Mapping[Lane, int] = {}
        self._counts = {
            "records": 0,
            "batches": 0,
            "restarts": 0,
            "abandonedRecords": 0,
            "expiredRecords": 0,
            "malformedRecords": 0,
            "skippedLanes": 0,
        }
        self._recent: deque[tuple[float, int]] = deque()
        self._error: dict[str, str] | None = None
        self._last_batch_at: float | None = None

    def state(self, state: str) -> None:
        with self._lock:
            self._state = state

    def owns(self, driver: int, positions: Mapping[Lane, int]) -> None:
        with self._lock:
            self._driver = driver
            self._positions = dict(positions)

    def ends(self, ends: Mapping[Lane, int]) -> None:
        with self._lock:
            self._ends = ends

    def lanes(self) -> tuple[Lane, ...]:
        with self._lock:
            return tuple(self._positions)

    def count(self, **more: int) -> None:
        with self._lock:
            for name, n in more.items():
                self._counts[name] += n

    def failed(self, error: JobError) -> None:
        with self._lock:
            self._error = {"reason": error.reason.value, "message": error.message}

    def batch(self, number: int, positions: Mapping[Lane, int], records: int, seconds: float) -> None:
        with self._lock:
            now = time.monotonic()
            self._batch, self._batch_seconds, self._last_batch_at = number, seconds, time.time()
            self._positions.update(positions)
            self._counts["records"] += records
            self._counts["batches"] += 1
            self._recent.append((now, records))
            self._state = "running"

    @property
    def last_error(self) -> str:
        return "{reason}: {message}".format(**self._error) if self._error else "none"

    def delivered(self, records: int) -> None:
        """Records that were counted apart from their batch."""
        with self._lock:
            self._counts["records"] += records
            self._recent.append((time.monotonic(), records))

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; lag and positions in offsets, which bound records but do not count them."""
        with self._lock:
            now = time.monotonic()
            while self._recent and self._recent[0][0] < now - _WINDOW_S:
                self._recent.popleft()
            positions: dict[str, dict[str, int]] = {}
            for lane, offset in sorted(self._positions.items()):
                positions.setdefault(lane.topic, {})[str(lane.partition)] = offset
            lag = sum(
                max(0, end - self._positions[lane]) for lane, end in self._ends.items() if lane in self._positions
            )
            return {
                "pipeline": f"{self._job.namespace}/{self._job.name}",
                "guarantee": self._job.guarantee.value,
                "state": self._state,
                "driver": self._driver,
                "batchId": self._batch,
                "batchSeconds": round(self._batch_seconds, 3),
                "lastBatchAt": self._last_batch_at,
                "positions": positions,
                "lag": lag,
                **self._counts,
                "recordsPerSecond": round(sum(n for _, n in self._recent) / _WINDOW_S, 1),
                "lastError": self._error,
            }


class ProgressMetrics(Collector):
    """What /metrics tells."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        now = self._progress.snapshot()
        labels = ["pipeline", "guarantee"]
        values = [now["pipeline"], now["guarantee"]]
        for name, text in (
            ("lag", "Offsets between the positions and the ends of the source"),
            ("batchId", "Number of the last batch of the present query"),
            ("batchSeconds", "Duration of the last batch in seconds"),
            ("recordsPerSecond", "Records written per second, over the last ten seconds"),
            ("driver", "Number of the driver that owns the pipeline"),
        ):
            gauge = GaugeMetricFamily(_snake(name), text, labels=labels)
            gauge.add_metric(values, float(now[name]))
            yield gauge
        for name, text in (
            ("records", "Records handed to the sink and acknowledged as the guarantee asks for"),
            ("batches", "Batches delivered"),
            ("restarts", "Restarts of the query inside of this process"),
            (
                "abandonedRecords",
                "Source offsets given up with their batch, some of them perhaps processed (at-most-once)",
            ),
            ("expiredRecords", "Source offsets that were gone before they were read (at-most-once)"),
            ("malformedRecords", "Malformed records left out"),
            ("skippedLanes", "Ranges that had been committed before"),
        ):
            counter = CounterMetricFamily(_snake(name), text, labels=labels)
            counter.add_metric(values, float(now[name]))
            yield counter
        position = GaugeMetricFamily(
            "ackwright_position", "Offset of the next record to deliver", labels=[*labels, "topic", "partition"]
        )
        for topic, partitions in now["positions"].items():
            for partition, offset in partitions.items():
                position.add_metric([*values, topic, partition], float(offset))
        yield position


def _snake(name: str) -> str:
    return "ackwright_" + "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def serve(progress: Progress, host: str, port: int) -> ThreadingHTTPServer:
    """Serves in the background; the server's address tells the port. Close with shutdown()."""
    registry = CollectorRegistry()
    registry.register(ProgressMetrics(progress))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/progress":
                self._answer("application/json", json.dumps(progress.snapshot()).encode())
            elif self.path == "/metrics":
                self._answer("text/plain; version=0.0.4; charset=utf-8", generate_latest(registry))
            elif self.path == "/healthz":
                self._answer("text/plain", b"ok\n")
            elif self.path == "/ready":
                state = progress.snapshot()["state"]
                self._answer("text/plain", f"{state}\n".encode(), 200 if state == "running" else 503)
            else:
                self.send_error(404)

        def _answer(self, kind: str, body: bytes, code: int = 200) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()
    return server
