"""A pipeline with its state in a bucket, by the commands: `ackwright check -f` and `ackwright run -f`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackwright.cli import main
from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode
from integration.support.pipelines import create_topics, feed, read
from integration.support.run_cli import pipeline, run, write_document
from integration.support.s3_server import BUCKET, S3Server
from integration.support.state_buckets import login

SQL = "SELECT key, CAST(count(*) AS STRING) AS value FROM source GROUP BY key"
WRONG = "wrong-horse"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with S3Server(tmp_path / "s3") as started:
        yield started


@pytest.fixture
def document(kafka: EmbeddedKafka, server: S3Server, tmp_path: Path) -> dict[str, Any]:
    """Counts by key, in bounded runs."""
    login(tmp_path / "secrets" / "state-keys")
    s3 = {"endpoint": server.endpoint, "region": "us-east-1", "credentialsSecret": {"name": "state-keys"}}
    created = pipeline(
        kafka.bootstrap_servers,
        transform={"sql": SQL},
        state={"partitions": 2, "outputMode": "update"},
        checkpoint={"uri": f"s3a://{BUCKET}/counts", "s3": s3},
        trigger={"availableNow": True},
    )
    create_topics(kafka.bootstrap_servers, *created["spec"]["source"]["topics"], partitions=2)
    return created


def test_counts_of_two_runs_without_a_directory(kafka: EmbeddedKafka, document: dict[str, Any], tmp_path: Path) -> None:
    file, name = write_document(tmp_path, document), document["metadata"]["name"]
    for begin in (0, 50):
        feed(kafka.bootstrap_servers, f"{name}-in", 2, begin, 50)
        done = run(file, "--secrets", str(tmp_path / "secrets"))
        assert done.returncode == ExitCode.OK, done.stderr
    last = {record.key: record.value for record in read(kafka.bootstrap_servers, f"{name}-out")}
    assert last == {b"p0": b"100", b"p1": b"100"}


def test_the_check_names_the_bucket(
    document: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_document(tmp_path, document)

    def state() -> dict[str, str]:
        """What the check says of the state."""
        capsys.readouterr()
        main.invoke(["check", "-f", str(file), "--secrets", str(tmp_path / "secrets"), "-o", "json"])
        out = capsys.readouterr().out
        assert WRONG not in out
        (check,) = [c for c in json.loads(out) if c["name"] == "state"]
        return dict(check)

    assert state()["verdict"] == "ok"
    login(tmp_path / "secrets" / "state-keys", secret=WRONG)
    failed = state()
    assert failed["verdict"] == "failed"
    assert failed["found"].startswith(f"StateUnreachable: s3a://{BUCKET}/counts")
    assert "SignatureDoesNotMatch" in failed["remedy"]
