"""The files with which Spark describes the state of a processor: without them it does not load the state.

    state/<operator>/_stateSchema/default/<batch>_<id>   the types of its variables; written once
    state/<operator>/_metadata/v2/<batch>                names that file by its whole path; one of each driver

Spark reads the newest one of the latter in front of the batch with which it begins. The path in it is wrong once the
state was copied to another place, so each start corrects it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from ackwright_stream.decisions import Decision

_METADATA, _TYPES = "_metadata/v2", "_stateSchema/default"
_STORES, _PATHS = "stateStoreInfo", "stateSchemaFilePaths"


class Files(Protocol):
    """Files below one directory."""

    def names(self, directory: str) -> list[str]: ...
    def read(self, file: str) -> str | None: ...
    def write(self, file: str, text: str) -> None: ...


@dataclass(frozen=True)
class _Description:
    """What Spark reads of one operator."""

    file: str  # that names the file of types
    head: str  # its first line, with its version
    content: dict[str, Any]
    types: str  # directory of the files of types

    @property
    def named(self) -> list[str]:
        """The names of the files of types. They are not text."""
        return [path.rpartition("/")[2] for store in self.content[_STORES] for path in store[_PATHS]]

    def at(self, root: str) -> str | None:
        """The text of the file for the state in a directory; None if it needs no other one."""
        stores = []
        for store in self.content[_STORES]:
            correct = [f"{root}/{self.types}/{path.rpartition('/')[2]}" for path in store[_PATHS]]
            same = all(path in (to, f"file:{to}") for path, to in zip(store[_PATHS], correct, strict=True))
            stores.append(store if same else {**store, _PATHS: correct})
        if stores == self.content[_STORES]:
            return None
        return f"{self.head}\n{json.dumps({**self.content, _STORES: stores}, separators=(',', ':'))}"


def missing_types(files: Files, last: Decision, *, required: bool) -> str | None:
    """What is missing of the description of the decided state; None if nothing is.

    required: whether one of the operators is a processor that has one.
    """
    try:
        descriptions = _descriptions(files, last)
        absent = [f"{d.types}/{name}" for d in descriptions for name in {*d.named} - {*files.names(d.types)}]
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        return f"the description of the state of a processor in {last.directory} cannot be read ({e!r})"
    if required and not descriptions:
        return f"{last.directory}/state below the checkpoint lacks {_METADATA} of the processor"
    return f"{absent[0]} below the checkpoint, with the types of a processor's state, is missing" if absent else None


def correct_types(files: Files, root: str, last: Decision) -> None:
    """Lets the description of the decided state name files in the directory `root`, where they are."""
    for description in _descriptions(files, last):
        if (text := description.at(root)) is not None:
            files.write(description.file, text)


def _descriptions(files: Files, last: Decision) -> list[_Description]:
    descriptions = []
    for operator in last.state:
        directory = f"{last.directory}/state/{operator}"
        batches = [int(name) for name in files.names(f"{directory}/{_METADATA}") if name.isdigit()]
        newest = max((batch for batch in batches if batch <= last.batch), default=None)
        if newest is None:
            continue
        file = f"{directory}/{_METADATA}/{newest}"
        head, _, content = (files.read(file) or "").partition("\n")
        descriptions.append(_Description(file, head, json.loads(content), f"{directory}/{_TYPES}"))
    return descriptions
