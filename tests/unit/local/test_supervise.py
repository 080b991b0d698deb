"""The job as a process: its progress, the signal to stop, and its failure. A stub replaces the job."""

from __future__ import annotations

import importlib.util
import json
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.errors import AckwrightError
from ackwright.local import jars
from ackwright.local.supervise import Job, s3a_classes, spark_settings
from ackwright.local.wait import wait_for
from ackwright.local.watch import Watch
from ackwright_stream.jobspec import Reason, StateSettings, from_json
from ackwright_stream.reports import Ending, Failure
from minimal_job import minimal_job, minimal_report

SPEC = minimal_job()
REPORT = minimal_report(positions={"in": {"0": 7}}, records=7, batch_seconds=0.5)
FAILURE = Failure(Reason.DATA_EXPIRED, "gone")
SERVES = f"""
import http.server, pathlib, signal, sys, threading
REPORT, ENDING = {json.dumps(REPORT.as_json())!r}, {Ending(3, FAILURE).to_json()!r}
"""
SERVES += """
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(REPORT.encode())
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *a: stop.set())
threading.Thread(target=s.serve_forever, daemon=True).start()
print(f"progress http://127.0.0.1:{s.server_port}/progress", flush=True)
stop.wait()
pathlib.Path(sys.argv[sys.argv.index("--ending") + 1]).write_text(ENDING)
print("ackwright: Superseded: what the log says is no reason", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def watch() -> Iterator[Watch]:
    with Watch() as watch:
        yield watch


def test_without_pyspark_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the packages that a cluster needs, and no others."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(AckwrightError, match=r"pip install '\.\[operator,spark\]'"):
        spark_settings(tmp_path)


def test_only_a_job_with_state_in_a_bucket_has_the_classes_of_s3a(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "directory", lambda kind: tmp_path / kind)
    state = StateSettings(1, "s3a://lake/p", "append", None, None, 1000)
    assert s3a_classes(state) == {"SPARK_DIST_CLASSPATH": f"{tmp_path}/s3/*"}
    assert s3a_classes(replace(state, checkpoint="/state")) == s3a_classes(None) == {}


def test_progress_is_read_and_a_drain_ends_with_the_jobs_code_and_sentence(tmp_path: Path, watch: Watch) -> None:
    job = Job(SPEC, tmp_path / "job", watch, command=[sys.executable, "-c", SERVES])
    wait_for(lambda: job.progress() is not None, "progress is served", 30)
    assert job.progress() == REPORT
    assert job.poll() is None
    job.drain()
    assert job.wait(30) == 3
    assert job.failure() == FAILURE
    assert from_json((tmp_path / "job" / "job.json").read_text()) == SPEC


def test_progress_is_not_asked_of_a_proxy(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """To which 127.0.0.1 is itself."""
    monkeypatch.setattr(urllib.request, "_opener", None)  # it may have been made by an earlier test
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    job = Job(SPEC, tmp_path / "job", watch, command=[sys.executable, "-c", SERVES])
    wait_for(lambda: job.address is not None, "progress is served", 30)
    assert job.progress() == REPORT


def test_an_ending_of_an_earlier_job_in_the_directory_is_not_this_ones(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "ending.json").write_text(Ending(3, FAILURE).to_json())
    job = Job(SPEC, tmp_path, watch, command=[sys.executable, "-c", "import sys; sys.exit(1)"])
    assert job.wait(30) == 1
    assert job.failure() is None


def test_the_final_progress_is_that_of_the_jobs_output(tmp_path: Path, watch: Watch) -> None:
    line = f"final {json.dumps(REPORT.as_json())}"
    job = Job(SPEC, tmp_path, watch, command=[sys.executable, "-c", f"print({line!r})"])
    assert job.wait(30) == 0
    assert job.final() == REPORT


def test_a_killed_job_has_the_code_of_shells_and_no_failure(tmp_path: Path, watch: Watch) -> None:
    job = Job(SPEC, tmp_path, watch, command=[sys.executable, "-c", SERVES])
    wait_for(lambda: job.address is not None, "progress is served", 30)
    job.kill()
    assert job.poll() == 137
    assert job.failure() is None
    assert job.progress() is None


def test_the_log_has_what_the_job_prints(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "job.log").write_text("of an earlier job")
    lines = f"final {json.dumps(REPORT.as_json())}\nof a transform\n"
    # One write: print() would write the end of the line apart, and the other line could come between.
    program = f"import sys; print({lines!r}, end='', flush=True); sys.stderr.write('an error\\n')"
    job = Job(SPEC, tmp_path, watch, command=[sys.executable, "-c", program])
    assert job.wait(30) == 0
    assert job.final() == REPORT
    assert sorted((tmp_path / "job.log").read_text().splitlines()) == ["an error", "of a transform"]


def test_much_output_does_not_block_the_job(tmp_path: Path, watch: Watch) -> None:
    job = Job(SPEC, tmp_path, watch, command=[sys.executable, "-c", "print('x' * 1_000_000)"])
    assert job.wait(30) == 0
