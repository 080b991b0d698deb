"""The directory of a stateful pipeline's state, and Spark's logs in it, which each start rebuilds from the decision.

    <checkpoint>/owner.json             which pipeline the directory belongs to
    <checkpoint>/written.json           at-least-once: the entry of offsets/ of the batch whose output was written last
    <checkpoint>/<name>/state/          Spark's state files: each has a unique name and is written once (state_types.py
                                        names the exceptions)
    <checkpoint>/<name>/offsets/N       Spark's logs: caches of the decision, from which they are rebuilt
    <checkpoint>/<name>/commits/N
    <checkpoint>/<name>/replayed.json   the state of a decided batch that has run again (state_replay.py)

A driver that finds no decision takes a new name. Nothing here deletes state, so a driver that was replaced cannot
remove what its successor has decided.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ackwright_stream.decisions import Decision, continues, loss_of, offsets_of_next, offsets_with, state_lost
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.positions import Lane
from ackwright_stream.spark_internals.processor_steps import Processor
from ackwright_stream.state_types import correct_types, missing_types

_OWNER = "owner.json"
_WRITTEN = "written.json"
_LOGS = ("offsets", "commits")
_QUERY_ID = "metadata"  # Spark's id of the query, which state does not depend on; damaged, it would fail each start


class Files(Protocol):
    """Files below one directory. spark_internals.state.CheckpointFiles is one."""

    def names(self, directory: str) -> list[str]: ...
    def read(self, file: str) -> str | None: ...
    def write(self, file: str, text: str) -> None: ...
    def delete(self, file: str) -> None: ...


@dataclass(frozen=True)
class StateDirectory:
    """The directory of one query's state."""

    files: Files
    name: str  # below the directory of all state of the pipeline

    def offsets(self, batch: int) -> str | None:
        """The text of Spark's log of offsets for a batch; None if there is none."""
        return self.files.read(f"{self.name}/offsets/{batch}")

    def record_written(self, batch: int, offsets: str) -> None:
        """Records the range of a batch whose output is about to be written, before the batch is decided.

        If it runs again, it has the same records. So a deterministic transform writes the same output again.
        """
        # Not in the directory: until the first batch is decided, each start has a new one.
        self.files.write(_WRITTEN, json.dumps({"directory": self.name, "batch": batch, "offsets": offsets}))


@dataclass
class StateChain:
    """The decisions of one query, of which each is made behind the one before."""

    directory: StateDirectory
    query: str  # as Decision.query
    last: Decision | None  # None: the state is empty
    accepted_loss: str | None  # as Decision.accepted_loss, of the next decision
    positions: Mapping[Lane, int]  # of all lanes, as the query knows them now


def open_directory(
    job: JobSpec,
    files: Files,
    query: str,
    last: Decision | None,
    positions: Mapping[Lane, int],
    *,
    now_ms: int,
    unread: str | None = None,
    processor: Processor | None = None,
    recover: Callable[[JobError], Decision] | None = None,
) -> StateDirectory:
    """The directory behind the last decision, with rebuilt logs; a new one if nothing was decided yet, or if the
    state is lost and its loss accepted.

    query: fingerprint() of what computes the state. positions: of all lanes, also of those that were added since the
    last decision. now_ms: milliseconds since 1970. unread: loss_of() state that Spark could not load before.
    processor: of the query; None if it has none. recover: returns the last decision with state that is there, in place
    of state that is missing, or raises its argument.

    Raises JobError: INVALID_SPEC if the directory belongs to another pipeline, INVALID_TRANSFORM if another query has
    computed the state, STATE_LOST if a last file of it is missing. Spark reads the files, and reports what is damaged,
    or missing before the last file, when it loads the state.
    """
    # Also before the state is missed: a loss that is accepted would begin new state in the directory of the other one.
    _require_own(job, files)
    if last is None:
        return _empty_state(job, files, positions)
    if last.query != query:
        raise JobError(
            Reason.INVALID_TRANSFORM,
            f"the state behind batch {last.batch} is of another query: the transform, the source's format or schema, "
            "the settings of the state, or the time zone have changed; undo the change, or create a pipeline with "
            "another source.groupId and another checkpoint",
        )
    loss = loss_of(last.to_json(), last.positions)
    problem = missing_state(files, last) or missing_types(files, last, required=processor is not None)
    if (problem or unread == loss) and loss == job.accepted_state_loss:
        return _empty_state(job, files, positions)
    if problem:
        if recover is None:
            raise state_lost(problem, loss)
        last = recover(state_lost(problem, loss))
    correct_types(files, job.state.checkpoint if job.state else "", last)
    # Timers that follow the clock are due although neither records nor the watermark say so.
    _rebuild(files, last, positions, now_ms, always_due=processor is not None and processor.by_clock)
    return StateDirectory(files, last.directory)


def _empty_state(job: JobSpec, files: Files, positions: Mapping[Lane, int]) -> StateDirectory:
    """A new directory. If output of a first batch was written, that batch is planned again, with the same records.

    Not once the loss of a source topic was accepted: the offsets may be of the old topic, and not be in the new one.
    """
    directory = StateDirectory(files, secrets.token_hex(8))
    recorded = _recorded(files)
    recreated = any(lane.topic in job.accepted_losses for lane in positions)
    if recorded and recorded.batch == 0 and not recreated and continues(recorded.offsets, 0, positions):
        files.write(f"{directory.name}/offsets/0", recorded.offsets)
    return directory


def _rebuild(
    files: Files, last: Decision, positions: Mapping[Lane, int], now_ms: int, *, always_due: bool = False
) -> None:
    """Makes Spark's logs end with the last decision, and with the positions of lanes that were added since.

    Behind it, a batch whose output was written is planned again, with the same records; otherwise one without records
    if the watermark has moved, or if one is always due.
    """
    offsets = rebuild_logs(files, last, positions)
    if (written := _written(files, last, positions)) is not None:
        files.write(f"{last.directory}/offsets/{last.batch + 1}", written)
        return
    # Spark plans it only in the process that ran the batch before, so the next one would wait for records to output
    # what that batch has ended.
    if (behind := offsets_of_next(offsets, last.watermark_ms, now_ms, always_due=always_due)) is not None:
        files.write(f"{last.directory}/offsets/{last.batch + 1}", behind)


def rebuild_logs(files: Files, last: Decision, positions: Mapping[Lane, int]) -> str:
    """Makes Spark's logs end with a decision, and with the positions of lanes that were added since; returns the text
    of their last entry of offsets."""
    for log in _LOGS:
        for name in files.names(f"{last.directory}/{log}"):
            if _number(name) > last.batch:
                files.delete(f"{last.directory}/{log}/{name}")
    files.delete(f"{last.directory}/{_QUERY_ID}")
    # Spark reads the entry before the last one as well, and requires that it is there.
    if last.offsets_before is not None:
        files.write(f"{last.directory}/offsets/{last.batch - 1}", last.offsets_before)
    # Spark would begin a lane that is not in its log at its first offset, and fail unless that is 0.
    added = {lane: offset for lane, offset in positions.items() if lane not in last.positions}
    offsets = offsets_with(last.offsets, added)
    files.write(f"{last.directory}/offsets/{last.batch}", offsets)
    files.write(f"{last.directory}/commits/{last.batch}", last.commit)
    return offsets


def _written(files: Files, last: Decision, positions: Mapping[Lane, int]) -> str | None:
    """The range that record_written() has recorded behind the last decision; None if there is none.

    It has no records of lanes that were added since.
    """
    recorded = _recorded(files)
    if recorded is None or (recorded.directory, recorded.batch) != (last.directory, last.batch + 1):
        return None
    added = {lane: offset for lane, offset in positions.items() if lane not in last.positions}
    if not continues(recorded.offsets, last.watermark_ms, {x: positions[x] for x in positions if x not in added}):
        return None
    return offsets_with(recorded.offsets, added)


@dataclass(frozen=True)
class _Recorded:
    """What written.json has.

    It is believed only so far as it is a range that a driver might choose itself: no guarantee rests on it.
    """

    directory: str
    batch: int
    offsets: str


def _recorded(files: Files) -> _Recorded | None:
    try:
        recorded = json.loads(files.read(_WRITTEN) or "{}")
        return _Recorded(recorded["directory"], recorded["batch"], str(recorded["offsets"]))
    except (KeyError, TypeError, ValueError):
        return None


def _require_own(job: JobSpec, files: Files) -> None:
    owner = {"namespace": job.namespace, "name": job.name, "group": job.group}
    recorded = files.read(_OWNER)
    if recorded is None:
        files.write(_OWNER, json.dumps(owner))
        return
    try:
        other = json.loads(recorded)
    except ValueError:
        raise JobError(
            Reason.INVALID_SPEC,
            f"the file {_OWNER} in the directory of the state is damaged; if the directory is of this pipeline, write "
            f"{json.dumps(owner)} to it",
        ) from None
    if other != owner:
        raise JobError(
            Reason.INVALID_SPEC,
            f"the directory of the state is of another pipeline, {recorded}; name the directory of this one in "
            "spec.checkpoint, or, if a copy was restored to the wrong place, restore the copy of this pipeline",
        )


def missing_state(files: Files, last: Decision) -> str | None:
    """What is missing, unless the last file of each store is there; then None."""
    for operator, partitions in last.state.items():
        for partition, stores in enumerate(partitions):
            directory = f"{last.directory}/state/{operator}/{partition}"
            names = _store_files(files, directory)
            missing = [store for store in stores if not any(f"{last.batch + 1}_{store}." in name for name in names)]
            if missing:
                return (
                    f"{directory} below the checkpoint has no file of the state {missing[0]}, behind which batch "
                    f"{last.batch + 1} has to begin"
                )
    return None


def _store_files(files: Files, directory: str) -> list[str]:
    """The names of the files of all stores of a partition: the default store's are in its own directory."""
    names = files.names(directory)
    return names + [file for name in names if "." not in name for file in files.names(f"{directory}/{name}")]


def _number(name: str) -> int:
    """The batch of an entry of a log; -1 for another file."""
    return int(name) if name.isdigit() else -1
