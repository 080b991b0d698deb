"""What an embedded cluster removes where it is set up: its own leftovers, and nothing else. A stub stands for Kafka's storage tool."""

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
    data.mkdir()  # fails if it is there, as the tool does
    (data / "meta.properties").write_text(f"cluster.id={cluster_id}\nnode.id=1\ndirectory.id=first\n")


def interrupted(cluster: EmbeddedKafka, cluster_id: str) -> None:
    storage_tool(cluster, cluster_id)
    raise KeyboardInterrupt


def directories(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("data-*"))


def test_data_of_somebody_else_is_refused_and_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "data-2019" / "thesis.txt"
    theirs.parent.mkdir()
    theirs.write_text("years of work")
    with pytest.raises(
        AckwrightError, match=rf"{tmp_path} holds data-2019, which no embedded cluster has made.* another directory"
    ):
        EmbeddedKafka(tmp_path).start()
    assert theirs.read_text() == "years of work"
    with pytest.raises(
        AckwrightError, match="holds data-2019"
    ):  # the refused one has not marked the directory as its own
        EmbeddedKafka(tmp_path).start()
    assert directories(tmp_path) == ["data-2019"]


def test_what_an_interrupted_set_up_left_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedKafka, "_run_storage_tool", interrupted)
        with pytest.raises(KeyboardInterrupt):
            EmbeddedKafka(tmp_path).start()
    assert directories(tmp_path) == ["data-1"]
    with EmbeddedKafka(tmp_path):
        assert directories(tmp_path) == NODES
    metas = [(tmp_path / name / "meta.properties").read_text() for name in NODES]
    assert [meta.splitlines()[1] for meta in metas] == ["node.id=1", "node.id=2", "node.id=3"]


def test_a_cluster_that_was_kept_goes_on_with_its_data(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path):
        (tmp_path / "data-1" / "record").touch()
    with EmbeddedKafka(tmp_path):
        assert (tmp_path / "data-1" / "record").exists()


def test_data_without_its_cluster_is_no_leftover(tmp_path: Path) -> None:
    """The file that makes it one was lost: whether anybody needs the data is not known here."""
    with EmbeddedKafka(tmp_path):
        pass
    (tmp_path / "cluster.json").unlink()
    with pytest.raises(AckwrightError, match="holds data-1, data-2, data-3"):
        EmbeddedKafka(tmp_path).start()
    assert directories(tmp_path) == NODES
