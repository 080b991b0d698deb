"""A chain of decisions, and the files of the state that they name."""

from __future__ import annotations

from dataclasses import replace

from ackwright_stream.decisions import Decision, StateIds, offsets_with, state_lost
from unit.stream.decided import DECISION, FIRST, OFFSETS, SECOND
from unit.stream.memory_files import Memory

LOST = state_lost("d1 has no file of the state", "abc")
FIRST_OFFSETS = {FIRST: 0, SECOND: 0}
HEAD = "\n".join(OFFSETS.splitlines()[:2])


def state(batch: int) -> StateIds:
    return {0: ((f"a{batch}",), (f"b{batch}",))}


def decision(batch: int, **changes: object) -> Decision:
    """One of a chain in which each batch has two records of the first lane."""
    in_chain = replace(
        DECISION,
        batch=batch,
        state=state(batch),
        starts={FIRST: 2 * batch, SECOND: 9},
        positions={FIRST: 2 * batch + 2, SECOND: 9},
        offsets_before=text_behind(batch - 1) if batch else None,
        offsets=text_behind(batch),
    )
    return replace(in_chain, **changes)  # type: ignore[arg-type]


def text_behind(batch: int) -> str:
    return offsets_with(f"{HEAD}\n{{}}", {FIRST: 2 * batch + 2, SECOND: 9})


def files_with(*batches: int, ids: StateIds | None = None) -> Memory:
    """Files of the state of these batches."""
    files = Memory()
    for batch in batches:
        for partition, stores in enumerate((ids or state(batch))[0]):
            files.texts[f"d1/state/0/{partition}/{batch + 1}_{stores[0]}.changelog"] = ""
    return files


def earlier(*batches: int) -> list[str]:
    """Their decisions, newest first."""
    return [decision(batch).to_json() for batch in reversed(batches)]
