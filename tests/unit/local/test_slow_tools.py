"""Tools that set up embedded servers, on a machine that is too slow for them. Programs that sleep replace them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwright.errors import AckwrightError
from ackwright.local import kafka, postgres
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.postgres import EmbeddedPostgres
from ackwright_stream.jobspec import Reason

REMEDY = "end other programs that use the processors or the disk, and start again"


def sleeping(directory: Path, name: str) -> None:
    """A program that does not end by itself."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_text("#!/bin/sh\nexec /bin/sleep 1000\n")
    (directory / name).chmod(0o755)


def test_a_slow_storage_tool_is_reported_with_its_directory_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping(tmp_path / "bin", "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(EmbeddedKafka, "_prepare_java", lambda _: None)
    monkeypatch.setattr(kafka, "_FORMAT_TIMEOUT", 0.1)
    with pytest.raises(AckwrightError) as caught:
        EmbeddedKafka(tmp_path / "cluster").start()
    assert (caught.value.reason, caught.value.remedy) == (Reason.BROKERS_UNREACHABLE, REMEDY)
    assert f"has not formatted {tmp_path}/cluster within 0.1 s" in caught.value.message
    assert not (tmp_path / "cluster" / "cluster.json").exists(), "the next start formats it again"


def test_a_slow_initdb_is_reported_with_its_directory_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping(tmp_path, "initdb")
    monkeypatch.setattr(postgres, "installed_programs", lambda: tmp_path)
    monkeypatch.setattr(postgres, "unprivileged_account", lambda: None)
    monkeypatch.setattr(postgres, "_TIMEOUT", 0.1)
    server = EmbeddedPostgres()
    with pytest.raises(AckwrightError) as caught, server:
        pass
    assert (caught.value.reason, caught.value.remedy) == (Reason.SINK_UNREACHABLE, REMEDY)
    assert f"has not created {server.directory}/data within 0.1 s" in caught.value.message
