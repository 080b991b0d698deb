"""The files that describe a processor's state: they name each other by whole paths, which each start corrects."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ackwright_stream.state_types import correct_types, missing_types
from unit.stream.decided import DECISION
from unit.stream.memory_files import Memory

LAST = replace(DECISION, batch=7, directory="d1", state={0: (("a",),), 1: (("b",),)})
TYPES = "d1/state/1/_stateSchema/default/0_x"
METADATA = "d1/state/1/_metadata/v2"


def described(path: str) -> str:
    """The text as Spark 4.1.1 writes it."""
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1, "stateSchemaFilePaths": [path]}
    content = {"operatorInfo": {"operatorId": 1}, "stateStoreInfo": [store], "operatorPropertiesJson": "{}"}
    return f"v2\n{json.dumps(content, separators=(',', ':'))}"


@pytest.fixture
def files() -> Memory:
    """Of a driver that began with batch 5, and of a later one whose first batch was not decided."""
    paths = {5: f"file:/old/{TYPES}", 8: f"file:/old/{TYPES}", 10: f"file:/old/{TYPES}"}
    of_drivers = {f"{METADATA}/{batch}": described(path) for batch, path in paths.items()}
    return Memory({TYPES: "v3", "d1/state/0/_metadata/metadata": "v1", **of_drivers})


@pytest.mark.parametrize("root", ["/old", "s3a://bucket/prefix"])
def test_in_their_place_nothing_is_written(files: Memory, root: str) -> None:
    files.texts[f"{METADATA}/5"] = described(f"{'file:' if root == '/old' else ''}{root}/{TYPES}")
    correct_types(files, root, LAST)
    assert files.written == []
    assert missing_types(files, LAST, required=True) is None


@pytest.mark.parametrize("root", ["/new", "/old/old", "s3a://bucket/prefix"])
def test_after_a_move_the_decided_one_names_the_new_place(files: Memory, root: str) -> None:
    correct_types(files, root, LAST)
    assert files.written == [f"{METADATA}/5"]
    assert files.texts[f"{METADATA}/5"] == described(f"{root}/{TYPES}")
    correct_types(files, root, LAST)
    assert len(files.written) == 1


@pytest.mark.parametrize("file", [TYPES, f"{METADATA}/5"])
def test_what_is_missing_is_named(files: Memory, file: str) -> None:
    del files.texts[file]
    assert file.rpartition("/")[0].removeprefix("d1/state/1/") in (missing_types(files, LAST, required=True) or "")


@pytest.mark.parametrize("text", ["", "v2\n{", "v2\n{}", "v2\n[]"])
def test_what_cannot_be_read_is_missing(files: Memory, text: str) -> None:
    files.texts[f"{METADATA}/5"] = text
    assert "cannot be read" in (missing_types(files, LAST, required=True) or "")


def test_state_without_a_processor_needs_none() -> None:
    files = Memory({"d1/state/0/_metadata/metadata": "v1"})
    assert missing_types(files, LAST, required=False) is None
    correct_types(files, "/new", LAST)
    assert files.written == []
