"""`ackwright run` as a user runs it: its process, output and exit code, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.ports import free_ports
from ackwright_stream.admin_client import AdminClient
from integration.support.processes import naming
from integration.support.produce import produce_pairs
from integration.support.run_cli import COMMAND, committed, events, pipeline, run, write_document
from waiting import ANSWER, WAIT, wait_until


def test_a_bounded_run_creates_its_topics_delivers_and_ends(
    kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path, topic: Callable[..., str]
) -> None:
    document = pipeline(kafka.bootstrap_servers, trigger={"availableNow": True})
    source = topic(partitions=2, name="run-source")
    document["spec"]["source"]["topics"] = [source]
    produce_pairs(kafka.bootstrap_servers, source, ((b"%d" % i, b"v%d" % i) for i in range(20)))
    done = run(write_document(tmp_path, document), "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    sink = document["spec"]["sink"]["kafka"]["topic"]
    assert sink in events(done.stdout, "topics")[0]["created"]
    assert events(done.stdout, "end") == [{"event": "end", "exitCode": 0, "error": None, "failure": None}]
    assert committed(kafka.bootstrap_servers, sink) == sorted(f"V{i}" for i in range(20))


def test_sigterm_drains_and_the_exit_code_is_0(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    file = write_document(tmp_path, pipeline(kafka.bootstrap_servers))
    output = tmp_path / "output"
    with output.open("w") as out:
        process = subprocess.Popen([*COMMAND, "-f", str(file), "-o", "json"], stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: '"state": "running"' in output.read_text(), "the job runs", WAIT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
        assert events(output.read_text(), "stopping")[0]["how"] == "drain"
    finally:
        process.kill()
        process.wait(ANSWER)


def test_a_job_failure_is_one_line_on_stderr_and_its_exit_code_is_returned(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    done = run(
        write_document(
            tmp_path,
            pipeline(
                kafka.bootstrap_servers,
                transform={"sql": "SELECT CAST(array_size(value) AS STRING) AS value FROM source"},
            ),
        )
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("InvalidTransform: ")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stdout + done.stderr


def test_no_such_topic(kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path) -> None:
    document = pipeline(kafka.bootstrap_servers)
    missing = document["spec"]["topics"].pop(0)["name"]
    done = run(write_document(tmp_path, document))
    assert done.returncode == 4
    assert done.stderr.startswith("TopicMissing: no such topic at ")
    assert missing in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert document["spec"]["topics"][0]["name"] not in admin.list_topics(timeout=ANSWER).topics


def test_brokers_out_of_reach(tmp_path: Path) -> None:
    """As text and as JSON, at the same time: each command tries for 15 seconds."""
    file = write_document(tmp_path, pipeline(f"127.0.0.1:{free_ports(1)[0]}"))
    with ThreadPoolExecutor() as pool:
        text, in_json = pool.map(lambda options: run(file, *options), ((), ("-o", "json")))
    assert text.returncode == 4
    assert text.stderr.startswith("BrokersUnreachable: connecting to 127.0.0.1:")
    assert text.stderr.endswith("; --embedded starts brokers on this machine\n")
    assert len(text.stderr.splitlines()) == 1
    assert text.stdout == ""
    assert (in_json.returncode, in_json.stderr) == (4, "")
    (event,) = events(in_json.stdout, "errors")
    assert [error["reason"] for error in event["errors"]] == ["BrokersUnreachable"]


def test_fewer_brokers_than_replicas(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    done = run(write_document(tmp_path, pipeline(kafka.bootstrap_servers, tolerate={"brokerFailures": 2})))
    assert done.returncode == 4
    assert done.stderr.startswith("BrokersTooFew: ")
    assert "need 5 brokers" in done.stderr
    assert "only 3 are up" in done.stderr


def test_embedded_brokers_are_reported_and_die_with_a_killed_command(tmp_path: Path) -> None:
    file, output = write_document(tmp_path, pipeline("nowhere.invalid:9092")), tmp_path / "output"
    with output.open("w") as out:
        process = subprocess.Popen(
            [*COMMAND, "-f", str(file), "--embedded", "-o", "json"], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: '"event": "topics"' in output.read_text(), "the topics are there", WAIT)
        brokers = events(output.read_text(), "brokers")[0]
        AdminClient({"bootstrap.servers": brokers["bootstrapServers"]}).list_topics(timeout=ANSWER)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(ANSWER)
    directory = Path(brokers["directory"]).parent
    wait_until(lambda: not directory.exists() and not naming(directory), "brokers, job and files are gone")


def test_with_a_standby_a_killed_driver_is_replaced_and_the_command_delivers_on(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    document, directory = pipeline(kafka.bootstrap_servers), tmp_path / "files"
    source, sink = (topic["name"] for topic in document["spec"]["topics"])
    file, output = write_document(tmp_path, document), tmp_path / "output"

    def deliver(*values: str) -> None:
        produce_pairs(kafka.bootstrap_servers, source, ((None, value.encode()) for value in values))
        wait_until(
            lambda: set(committed(kafka.bootstrap_servers, sink)) >= {v.upper() for v in values}, str(values), WAIT
        )

    with output.open("w") as out:
        options = ["--standby", "--dir", str(directory), "-o", "json"]
        process = subprocess.Popen([*COMMAND, "-f", str(file), *options], stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: '"event": "topics"' in output.read_text(), "the topics are there", WAIT)
        deliver("a", "b")
        log = directory / "job-2" / "job.log"
        wait_until(lambda: log.exists() and "warmed up" in log.read_text(), "the standby is ready", WAIT)
        for pid in naming(directory / "job" / "tmp"):
            os.kill(pid, signal.SIGKILL)
        deliver("c", "d")
        assert committed(kafka.bootstrap_servers, sink) == ["A", "B", "C", "D"]
        assert events(output.read_text(), "takeover") == [{"event": "takeover", "exitCode": 128 + signal.SIGKILL}]
        wait_until((directory / "job-3" / "job.log").exists, "another standby is started", WAIT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
        assert naming(directory) == []
    finally:
        process.kill()
        process.wait(ANSWER)
