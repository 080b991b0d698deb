"""An embedded cluster removes only its own leftovers from its directory. A stub replaces Kafka's storage tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwright.errors import AckwrightError
from ackwright.local.kafka import Broker, EmbeddedKafka

NODES = ["data-1", "data-2", "data-3"]


@pytest.fixture(autouse=True)
def _without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedKafka, "_prepare_java", lambda _: None)
    monkeypatch.setattr(EmbeddedKafka, "_wait_until_usable", lambda _: None)
    monkeypatch.setattr(EmbeddedKafka, "_run_storage_tool", storage_tool)
    monkeypatch.setattr(Broker, "start", lambda *_, **__: None)


def storage_tool(cluster: EmbeddedKafka, cluster_id: str) -> None:
    data = cluster.directory / "data-1"
    data.mkdir()  # fails if it exists, like the tool
    (data / "meta.properties").write_text(f"cluster.id={cluster_id}\nnode.id=1\ndirectory.id=first\n")


def interrupted_storage_tool(cluster: EmbeddedKafka, cluster_id: str) -> None:
    storage_tool(cluster, cluster_id)
    raise KeyboardInterrupt


def data_directories(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("data-*"))


def test_data_of_another_program_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "data-2019" / "thesis.txt"
    file.parent.mkdir()
    file.write_text("years of work")
    with pytest.raises(
        AckwrightError,
        match=rf"{tmp_path} contains data-2019, which no embedded cluster has created.* another directory",
    ):
        EmbeddedKafka(tmp_path).start()
    assert file.read_text() == "years of work"
    with pytest.raises(AckwrightError, match="contains data-2019"):  # the first attempt has not marked the directory
        EmbeddedKafka(tmp_path).start()
    assert data_directories(tmp_path) == ["data-2019"]


def test_data_directories_of_an_interrupted_set_up_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedKafka, "_run_storage_tool", interrupted_storage_tool)
        with pytest.raises(KeyboardInterrupt):
            EmbeddedKafka(tmp_path).start()
    assert data_directories(tmp_path) == ["data-1"]
    with EmbeddedKafka(tmp_path):
        assert data_directories(tmp_path) == NODES
    metas = [(tmp_path / name / "meta.properties").read_text() for name in NODES]
    assert [meta.splitlines()[1] for meta in metas] == ["node.id=1", "node.id=2", "node.id=3"]


def test_a_second_cluster_in_a_kept_directory_uses_its_data(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path):
        (tmp_path / "data-1" / "record").touch()
    with EmbeddedKafka(tmp_path):
        assert (tmp_path / "data-1" / "record").exists()


def test_data_without_a_cluster_file_is_kept(tmp_path: Path) -> None:
    """Without cluster.json it is unknown whether the data is still needed."""
    with EmbeddedKafka(tmp_path):
        pass
    (tmp_path / "cluster.json").unlink()
    with pytest.raises(AckwrightError, match="contains data-1, data-2, data-3"):
        EmbeddedKafka(tmp_path).start()
    assert data_directories(tmp_path) == NODES
