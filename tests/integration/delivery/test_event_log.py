"""Spark's event log of a driver: a history server reads it, and delivery does not depend on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyspark

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.ports import free_ports
from ackwright_stream.jobspec import JobSpec
from integration.support.pipelines import create_topics, document, feed, job_of, read, running
from waiting import WAIT, wait_until

JARS = Path(pyspark.__file__).parent / "jars"


def logged(servers: str, name: str, directory: Path, events: Path) -> JobSpec:
    """A bounded run of 40 records, whose event log is in that directory."""
    create_topics(servers, f"{name}-in", f"{name}-out", partitions=2)
    feed(servers, f"{name}-in", 2, 0, 20)
    bounded = document(servers, name, "exactly-once", f"{name}-in", f"{name}-out", trigger={"availableNow": True})
    job = job_of(bounded, directory)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.compress": "true",
    }
    return replace(job, spark={**job.spark, **settings})


@contextmanager
def history_server(events: Path, directory: Path) -> Iterator[str]:
    """Spark's history server of a directory of event logs, and its address."""
    [port] = free_ports(1)
    options = {
        "spark.history.fs.logDirectory": events.as_uri(),
        "spark.history.ui.port": str(port),
        "spark.history.fs.update.interval": "1s",
    }
    argv = ["java", "-Xmx512m", *(f"-D{name}={value}" for name, value in options.items())]
    argv += ["-cp", f"{JARS}/*", "org.apache.spark.deploy.history.HistoryServer"]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (directory / "history.log").open("w") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
        try:
            yield f"http://127.0.0.1:{port}/api/v1"
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(WAIT)


def written(file: Path) -> str:
    """The text of a compressed file of events."""
    with pyarrow.input_stream(file, compression="zstd") as stream:
        return bytes(stream.read()).decode()


def answer(address: str) -> Any:
    """The JSON at an address; None while there is none."""
    try:
        with urllib.request.urlopen(address, timeout=30) as response:  # noqa: S310 (http, on this machine)
            return json.load(response)
    except OSError:
        return None


def test_a_history_server_reads_the_event_log_and_finds_no_login_in_it(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    servers, name = kafka.bootstrap_servers, f"job-{uuid.uuid4().hex[:8]}"
    events = tmp_path / "events"
    events.mkdir()
    job = logged(servers, name, tmp_path / "job", events)
    job = replace(job, spark={**job.spark, "spark.hadoop.some.password": "do-not-write"})
    with running(job, tmp_path / "job") as run:
        assert run.job.wait(WAIT) == 0
    [log] = events.iterdir()
    files = sorted(file.name for file in log.iterdir())
    assert any(file.startswith("events_1_") for file in files), files  # rolled, not one file
    text = "".join(written(file) for file in log.glob("events_*"))
    assert '"spark.hadoop.some.password":"*********(redacted)"' in text, "the setting has reached Spark"
    assert "do-not-write" not in text
    with history_server(events, tmp_path) as address:
        [application] = wait_until(lambda: answer(f"{address}/applications"), "the history server", WAIT)
        assert application["name"] == f"test.{name}"
        assert application["attempts"][0]["completed"]
        shown = answer(f"{address}/applications/{application['id']}/environment")
    assert dict(shown["sparkProperties"])["spark.eventLog.dir"] == events.as_uri()


def test_a_pipeline_delivers_without_a_directory_for_its_event_log(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    servers, name = kafka.bootstrap_servers, f"job-{uuid.uuid4().hex[:8]}"
    job = logged(servers, name, tmp_path / "job", tmp_path / "missing")
    with running(job, tmp_path / "job") as run:
        assert run.job.wait(WAIT) == 0
        report = run.job.final()
    assert len(read(servers, f"{name}-out")) == 40
    assert report is not None
    assert "missing" in str(report.event_log_error)
    assert not (tmp_path / "missing").exists()
