"""Which batches run again, without their output, from an older copy of the state, and the state that they have left.

    replayed.json   {"batch": N, "of": <hash of the decision of batch N>, "state": <ids>}

A batch that has run again with the output of its decision has left state that is as good as the lost one. replayed.json
says that the state with these ids is such state, which is true for every driver. A replay that was interrupted
continues behind it, and the next decision is made behind it. See docs/protocol.md#replay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ackwright_stream.decisions import Decision, StateIds, loss_of, state_lost
from ackwright_stream.errors import JobError
from ackwright_stream.positions import Lane
from ackwright_stream.state_log import Files, missing_state, rebuild_logs
from ackwright_stream.state_types import correct_types, missing_types

_REPLAYED = "replayed.json"


@dataclass(frozen=True)
class Replay:
    """Batches whose state is lost."""

    base: Decision  # of the batch before them, with state that is there
    decisions: tuple[str, ...]  # of each batch, in their order


def plan(
    files: Files,
    last: Decision,
    earlier: Iterable[str],
    first_offsets: Mapping[Lane, int],
    lost: JobError,
    *,
    is_processor: bool,
) -> Replay:
    """The fewest batches with which the state of the last decision is computed again.

    earlier: the decisions before the last one, newest first. first_offsets: the first that is left of each lane of the
    source. is_processor: whether the query has a processor, whose state has a description. Raises JobError(STATE_LOST),
    with what is missing for it, if there are no such batches. lost: the error for the state of the last decision.
    """
    listed, texts = _Listed(files), list[str]()
    replayed, remaining, decision = _replayed(files, last), iter(earlier), last
    while True:
        if (base := _with_state(listed, decision, replayed, is_processor=is_processor)) is not None:
            return Replay(base, tuple(reversed(texts)))
        texts.append(decision.to_json())
        for lane, start in decision.starts.items():
            first = first_offsets.get(lane, start)
            if first > start != decision.positions.get(lane):
                raise _impossible(
                    lost,
                    f"batch {decision.batch} cannot run again from older state, because records of {lane} from offset "
                    f"{start} on have expired: the first that is left is {first}",
                )
        if decision.batch == 0:
            raise _impossible(lost, "there is no complete state of an earlier batch, either")
        before = _before(next(remaining, None), decision)
        if before is None:
            raise _impossible(
                lost,
                f"there is no complete state of the batches from {decision.batch} on, and the decision of the batch "
                "before them is not stored any more",
            )
        decision = before


def prepare(files: Files, root: str, base: Decision, decision: Decision) -> None:
    """Makes Spark's logs so that it runs a decided batch again, from the state of the batch before.

    root: the directory of all state of the pipeline.
    """
    correct_types(files, root, base)
    rebuild_logs(files, base, decision.starts)
    files.write(f"{base.directory}/offsets/{decision.batch}", decision.offsets)


def record(files: Files, decision: Decision, state: StateIds) -> None:
    """Records the state of a batch that has run again, and had the output of its decision."""
    document = {"batch": decision.batch, "of": _hash(decision), "state": {str(o): ids for o, ids in state.items()}}
    files.write(f"{decision.directory}/{_REPLAYED}", json.dumps(document))


@dataclass(frozen=True)
class _Replayed:
    """What replayed.json has."""

    batch: int
    of: str
    state: StateIds


def _replayed(files: Files, last: Decision) -> _Replayed | None:
    try:
        document = json.loads(files.read(f"{last.directory}/{_REPLAYED}") or "")
        state = {int(o): tuple(tuple(map(str, stores)) for stores in ids) for o, ids in document["state"].items()}
        return _Replayed(int(document["batch"]), str(document["of"]), state)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # the batches run again


def _with_state(files: Files, decision: Decision, replayed: _Replayed | None, *, is_processor: bool) -> Decision | None:
    """The decision, or one with state that is as good as its own; None unless such state is there."""
    candidates = [decision]
    if replayed and replayed.batch == decision.batch and replayed.of == _hash(decision):
        candidates.append(replace(decision, state=replayed.state))
    for candidate in candidates:
        if not (missing_state(files, candidate) or missing_types(files, candidate, required=is_processor)):
            return candidate
    return None


def _before(text: str | None, decision: Decision) -> Decision | None:
    """The decision in the text if it is that of the batch before; else None."""
    if text is None:
        return None
    try:
        before = Decision.of_json(text)
    except JobError:
        return None
    follows = (
        before.batch + 1 == decision.batch
        and (before.directory, before.query) == (decision.directory, decision.query)
        and before.offsets == decision.offsets_before
        and all(decision.starts.get(lane) == offset for lane, offset in before.positions.items())
    )
    return before if follows else None


def _hash(decision: Decision) -> str:
    return loss_of(decision.to_json(), decision.positions)


def _impossible(lost: JobError, why: str) -> JobError:
    return state_lost(f"{lost.cause}, and {why}", lost.fingerprint)


@dataclass(frozen=True)
class _Listed:
    """Files of which each directory is listed once: many decisions may be compared with it."""

    files: Files
    known: dict[str, list[str]] = field(default_factory=dict)

    def names(self, directory: str) -> list[str]:
        if directory not in self.known:
            self.known[directory] = self.files.names(directory)
        return self.known[directory]

    def read(self, file: str) -> str | None:
        return self.files.read(file)

    def write(self, file: str, text: str) -> None:
        self.files.write(file, text)

    def delete(self, file: str) -> None:
        self.files.delete(file)
