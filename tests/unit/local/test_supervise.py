"""The job as a process: its progress, its end, and its failure. A stub replaces the job."""

from __future__ import annotations

import importlib.util
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwright.errors import AckwrightError
from ackwright.local.supervise import Job, spark_settings
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch
from ackwright_stream.jobspec import Cluster, Guarantee, JobSpec, KafkaSink, Source, Transform, from_json

SPEC = JobSpec(
    name="n",
    namespace="ns",
    guarantee=Guarantee.EXACTLY_ONCE,
    group="ns.n",
    cluster=Cluster("127.0.0.1:1"),
    source=Source(("in",)),
    transform=Transform(sql="SELECT * FROM source"),
    sink=KafkaSink("out"),
    lanes_topic="lanes",
)
STUB_JOB = """
import http.server, signal, sys, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"records": 7}')
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *a: stop.set())
threading.Thread(target=s.serve_forever, daemon=True).start()
print(f"progress http://127.0.0.1:{s.server_port}/progress", flush=True)
stop.wait()
print("ackwright: DataExpired: gone", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def watch() -> Iterator[Watch]:
    with Watch() as watch:
        yield watch


def test_without_pyspark_the_message_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra `operator` installs everything for a cluster, but not pyspark."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(AckwrightError, match=r"pip install '\.\[operator,spark\]'"):
        spark_settings(tmp_path)


def test_progress_is_read_and_a_drain_ends_with_the_jobs_exit_code_and_message(tmp_path: Path, watch: Watch) -> None:
    job = Job(SPEC, tmp_path / "job", watch, command=[sys.executable, "-c", STUB_JOB])
    wait_for(lambda: job.progress() is not None, "progress is served", 30)
    assert job.progress() == {"records": 7}
    assert job.poll() is None
    job.drain()
    assert job.wait(30) == 3
    assert job.failure() == "DataExpired: gone"
    assert from_json((tmp_path / "job" / "job.json").read_text()) == SPEC


def test_progress_is_read_without_a_proxy(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a proxy, 127.0.0.1 is the proxy's own machine."""
    monkeypatch.setattr(urllib.request, "_opener", None)  # an earlier test may have created the global opener
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    job = Job(SPEC, tmp_path / "job", watch, command=[sys.executable, "-c", STUB_JOB])
    wait_for(lambda: job.address is not None, "progress is served", 30)
    assert job.progress() == {"records": 7}


def test_a_killed_job_has_exit_code_137_and_no_message(tmp_path: Path, watch: Watch) -> None:
    job = Job(SPEC, tmp_path, watch, command=[sys.executable, "-c", STUB_JOB])
    wait_for(lambda: job.address is not None, "progress is served", 30)
    job.kill()
    assert job.poll() == 137
    assert job.failure() is None
    assert job.progress() is None


def test_large_output_does_not_block_the_job(tmp_path: Path, watch: Watch) -> None:
    job = Job(SPEC, tmp_path, watch, command=[sys.executable, "-c", "print('x' * 1_000_000)"])
    assert job.wait(30) == 0
