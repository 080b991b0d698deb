"""The progress of a driver, as the job serves it, and answers of drivers that mean no good."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ackwright.observe import progress as observe
from ackwright.observe.progress import ProgressReader
from ackwright_stream import progress as job_progress
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane
from ackwright_stream.reports import Failure, ProgressReport, State
from minimal_job import minimal_job
from unit.world import RUNNING

JOB = minimal_job()
REPORT = json.dumps(RUNNING.as_json()).encode()


def progress(address: str, timeout: float = 20.0) -> ProgressReport | None:
    async def read() -> ProgressReport | None:
        reader = ProgressReader(timeout)
        try:
            return await reader.read(address)
        finally:
            await reader.close()

    return asyncio.run(read())


@pytest.fixture
def job() -> Iterator[tuple[job_progress.Progress, str]]:
    reporter = job_progress.Progress(JOB)
    server = job_progress.serve(reporter, "127.0.0.1", 0)
    yield reporter, f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.shutdown).start()  # shutdown blocks for half a second


def test_what_the_job_serves_is_what_the_operator_reads(
    job: tuple[job_progress.Progress, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # requests to pods ignore the proxy
    reporter, address = job
    before = progress(address)
    assert before is not None
    assert (before.state, before.batch_id, before.lag, before.last_error) == (State.STARTING, -1, 0, None)
    lane = Lane("in", 0)
    reporter.owns(3, {lane: 5})
    reporter.ends({lane: 9})
    reporter.batch(7, {lane: 6}, records=1, seconds=0.1)
    reporter.count(abandoned_records=1, expired_records=2, malformed_records=3)
    reporter.failed(JobError(Reason.BROKERS_UNREACHABLE, "gone"))
    then = progress(address)
    assert then is not None
    assert (then.state, then.driver, then.batch_id, then.lag) == (State.RUNNING, 3, 7, 3)
    assert (then.abandoned_records, then.expired_records, then.malformed_records) == (1, 2, 3)
    assert then.last_error == Failure(Reason.BROKERS_UNREACHABLE, "gone")
    assert (before.positions, then.positions) == ({}, {"in": {"0": 6}})


@contextmanager
def answering(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def dripping(answer: bytes, every: float) -> Iterator[str]:
    """A driver that sends its answer byte by byte, and never ends it."""
    stopped = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            sent = 0
            while not stopped.wait(every):
                try:
                    connection.sendall(answer[sent : sent + 1] or b" ")
                except OSError:
                    return
                sent += 1

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopped.set()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"x", 200),
        (b"[]", 200),
        (b"{}", 200),
        (b"null", 200),
        (json.dumps({"lastError": 7}).encode(), 200),
        (json.dumps(RUNNING.as_json() | {"state": "new"}).encode(), 200),
        (json.dumps(RUNNING.as_json() | {"startSeconds": [1]}).encode(), 200),
        (json.dumps(RUNNING.as_json() | {"startSeconds": {"new": 1}}).encode(), 200),
        (b"[" * 100_000, 200),
        (REPORT, 503),
    ],
)
def test_an_invalid_answer_counts_as_no_progress(body: bytes, status: int) -> None:
    with answering(body, status) as address:
        assert progress(address) is None


def test_an_answer_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(REPORT) as address:
        assert progress(address) == RUNNING
        monkeypatch.setattr(observe, "PROGRESS_MAX", len(REPORT) - 1)
        assert progress(address) is None


def test_an_answer_is_not_decompressed() -> None:
    with answering(REPORT, headers={"Content-Encoding": "gzip"}) as address:
        assert progress(address) == RUNNING


def test_a_redirect_is_not_followed() -> None:
    """It would make the operator send requests to an address of the author's choice."""
    with (
        answering(REPORT) as other,
        answering(b"", 302, {"Location": f"http://{other}/progress"}) as address,
    ):
        assert progress(address) is None
        with urllib.request.urlopen(f"http://{address}/progress") as followed:
            assert followed.read() == REPORT, "the control: the target answers to a client that follows"


def test_a_driver_that_does_not_answer_has_no_progress() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert progress(address, timeout=0.05) is None
    assert progress(address) is None


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nX-Header: " + b"x" * 10_000, b"HTTP/1.1 200 OK\r\n\r\n{"])
def test_a_driver_that_drips_bytes_has_no_progress_when_the_whole_time_is_over(answer: bytes) -> None:
    with dripping(answer, every=0.02) as address:
        started = time.monotonic()
        assert progress(address, timeout=1.0) is None
        assert time.monotonic() - started < 10


def test_control_a_time_out_of_each_read_never_ends_with_a_driver_that_drips_bytes() -> None:
    """The control of the test above: each read ends in time, and all of them together do not."""
    with dripping(b"HTTP/1.1 200 OK\r\n\r\n{", every=0.02) as address:
        ended = threading.Event()

        def read() -> None:
            with urllib.request.urlopen(f"http://{address}/progress", timeout=5.0) as answer:
                answer.read()
            ended.set()

        threading.Thread(target=read, daemon=True).start()
        assert not ended.wait(2.0)


def test_slow_drivers_delay_other_slow_drivers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "_REQUESTS_OF_SLOW", 1)

    async def read() -> None:
        reader = ProgressReader(0.1)
        with answering(REPORT) as prompt, socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            assert await reader.read(address) is None
            reader._timeout = 60.0
            waiting = [asyncio.create_task(reader.read(address)) for _ in range(100)]
            await asyncio.sleep(0)
            assert await reader.read(prompt) == RUNNING
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        await reader.close()

    asyncio.run(read())
