"""The decision of a batch of a stateful pipeline: which evaluation counts, with its positions and its state.

Pure. A decision is committed in the transaction of the batch's output and positions. It has everything that the next
driver needs to continue behind the batch: Spark's own logs are rebuilt from it (state_log.py), and what they had
before is not believed. See docs/protocol.md#stateful-pipelines.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DEFAULT_TIME_ZONE, TIME_ZONE, JobSpec, Reason, StateSettings
from ackwright_stream.positions import Lane, Position
from ackwright_stream.reasons import REASONS
from ackwright_stream.spark_internals.state import StateEntry

VERSION = 1  # of a decision's JSON

# By stateful operator, the ids of the stores of each partition, in the order of the partitions.
StateIds = Mapping[int, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class Decision:
    """One batch as it counts."""

    batch: int  # Spark's number of it; each decision's is that of the one before plus 1
    driver: int  # number of the driver that decided
    directory: str  # of the state, below that of the settings
    query: str  # fingerprint() of what computes the state
    starts: Mapping[Lane, int]  # where each lane was before the batch
    positions: Mapping[Lane, int]  # and where it is behind it
    watermark_ms: int  # of the next batch, milliseconds since 1970; 0: none
    state: StateIds
    records: int  # of the output
    digest: str  # of the output, as encoded_output.digest()
    offsets_before: str | None  # text of Spark's log of offsets for the batch before; None if this is the first one
    offsets: str  # text of Spark's log of offsets for this batch
    # loss_of() the state in place of which this one began empty, as a person has accepted; None: of none
    accepted_loss: str | None = None

    def to_json(self) -> str:
        """The decision as JSON text."""
        names = {
            **{k: v for k, v in vars(self).items() if k not in ("starts", "positions", "state", "accepted_loss")},
            "starts": {str(lane): offset for lane, offset in sorted(self.starts.items())},
            "positions": {str(lane): offset for lane, offset in sorted(self.positions.items())},
            "state": {str(operator): ids for operator, ids in self.state.items()},
            **({"accepted_loss": self.accepted_loss} if self.accepted_loss else {}),
        }
        return json.dumps({"version": VERSION, **names}, sort_keys=True)

    @classmethod
    def of_json(cls, text: str) -> Self:
        """What to_json() returned. Raises JobError(STATE_LOST) for anything else."""
        try:
            data: dict[str, Any] = json.loads(text)
            version = data.pop("version")
            if version != VERSION:
                raise state_lost(f"the last decision has version {version}, and this release reads {VERSION}")
            return cls(
                **{
                    **data,
                    "starts": _lanes(data["starts"]),
                    "positions": _lanes(data["positions"]),
                    "state": {int(operator): _ids(ids) for operator, ids in data["state"].items()},
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise state_lost(f"the last decision cannot be read ({e!r})") from e

    @property
    def commit(self) -> str:
        """The text of Spark's log of commits for this batch, in its version 2."""
        ids = {str(operator): [list(stores) for stores in partitions] for operator, partitions in self.state.items()}
        values = {"nextBatchWatermarkMs": self.watermark_ms, "stateUniqueIds": ids}
        return "v2\n" + json.dumps(values, separators=(",", ":"))


def last_decision(
    text: str | None, committed: Mapping[Lane, Position | None], restarts: Mapping[Lane, int] | None = None
) -> Decision | None:
    """The decision behind which a driver continues; None if none was ever made.

    text: of the last decision in the sink. committed: the positions of the source. restarts: where the lanes of
    recreated topics begin, which have no position until this driver settles it. All were read after this driver has
    joined, so no other driver can move them. Raises JobError: STATE_LOST if they are not of the same batch: then one of
    them is lost or was moved, and it is not known which state belongs to the positions; INVALID_TRANSFORM if the source
    lacks a topic whose records the state has.
    """
    decided = {lane: position for lane, position in committed.items() if position and position.batch is not None}
    # Of every lane: the next driver names the batch in each position before it decides one itself.
    offsets = {lane: position.offset for lane, position in committed.items() if position}
    loss = loss_of(text or "", {**(restarts or {}), **offsets})
    if text is None:
        if decided:
            lane, batch = min((lane, position.batch) for lane, position in decided.items())
            raise state_lost(f"lane {lane} is behind batch {batch}, and there is no decision of a batch", loss)
        return None
    last = Decision.of_json(text)
    removed = {lane.topic for lane in last.positions} - {lane.topic for lane in committed}
    if removed:
        raise JobError(
            Reason.INVALID_TRANSFORM,
            f"the state has records of {', '.join(sorted(removed))}, which source.topics does not name any more; undo "
            "the change, or create a pipeline with another source.groupId and another checkpoint",
        )
    for lane, offset in last.positions.items():
        position = committed.get(lane)
        if position is None or (position.offset, position.batch) != (offset, last.batch):
            where = "has no position" if position is None else f"is at {position.offset}, behind batch {position.batch}"
            raise state_lost(
                f"lane {lane} {where}, and the last decision has {offset}, behind batch {last.batch}", loss
            )
    return last


def loss_of(text: str, positions: Mapping[Lane, int]) -> str:
    """Identifies the state behind a decision and its positions, so that its loss can be accepted, and of no later one.

    text: of the decision; "" if it is lost as well.
    """
    offsets = ",".join(f"{lane}={offset}" for lane, offset in sorted(positions.items()))
    return hashlib.sha256(f"{text}{offsets}".encode()).hexdigest()[:12]


def state_of(
    entries: Iterable[StateEntry], operators: Iterable[int], batch: int, partitions: int, before: Decision | None
) -> StateIds:
    """The ids of the state that one evaluation of a batch has stored.

    operators: the stateful ones of the query. before: the last decision. Raises JobError(POSITION_CONFLICT) unless each
    partition of each operator was stored exactly once, from the state of the last decision: Spark takes the first of
    two entries, and does not compare the base (docs/protocol.md#stateful-pipelines).
    """
    listed = sorted(entries, key=lambda e: (e.operator, e.partition))
    expected = {(operator, partition) for operator in operators for partition in range(partitions)}
    counts = Counter((e.operator, e.partition) for e in listed)
    for key in sorted(expected | counts.keys()):
        if counts[key] != 1 or key not in expected:
            raise _evaluation(
                batch, f"has {counts[key]} states of partition {key[1]} of operator {key[0]} in place of one"
            )
    for e in listed:
        base = () if before is None else before.state.get(e.operator, ((),) * partitions)[e.partition]
        if e.version != batch + 1 or not e.ids or e.base != base:
            raise _evaluation(
                batch,
                f"began partition {e.partition} of operator {e.operator} from the state {', '.join(e.base) or 'none'}, "
                f"and the last decision has {', '.join(base) or 'none'}",
            )
    return {operator: tuple(e.ids for e in listed if e.operator == operator) for operator in sorted({*operators})}


def require_same_offsets(batch: int, text: str | None, positions: Mapping[Lane, int]) -> str:
    """The text of Spark's log of offsets for a batch.

    Raises JobError(POSITION_CONFLICT) if its offsets are not these positions: partitions were added that this driver
    does not have yet, or another driver has written the file.
    """
    added = sorted(offsets_of(text).keys() - positions.keys()) if text is not None else []
    if added:
        raise _evaluation(
            batch, f"has new partitions ({', '.join(map(str, added[:5]))}), which this driver has to take"
        )
    if text is None or offsets_of(text) != positions:
        raise _evaluation(batch, "is not the one in Spark's log of offsets, which another driver has changed")
    return text


def offsets_of(text: str) -> Mapping[Lane, int]:
    """The offsets in the text of an entry of Spark's log of offsets: a version, metadata, and a line for each source.

    Every use of the one source of a pipeline is the same line. Raises ValueError if they differ.
    """
    sources = [json.loads(line) for line in text.splitlines()[2:] if line != "-"]
    if any(source != sources[0] for source in sources):
        raise ValueError("the log of offsets has several sources")
    topics: Mapping[str, Mapping[str, int]] = sources[0] if sources else {}
    return {
        Lane(topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def offsets_with(text: str, added: Mapping[Lane, int]) -> str:
    """The text of an entry of Spark's log of offsets with further lanes, as Spark would write it."""
    if not added:
        return text
    topics: dict[str, dict[str, int]] = {}
    for lane, offset in sorted({**offsets_of(text), **added}.items()):
        topics.setdefault(lane.topic, {})[str(lane.partition)] = offset
    head, sources = text.splitlines()[:2], text.splitlines()[2:]
    line = json.dumps(topics, separators=(",", ":"))
    return "\n".join([*head, *(line for _ in sources)])


def offsets_of_next(text: str, watermark_ms: int, now_ms: int, *, always_due: bool = False) -> str | None:
    """The text of an entry of Spark's log of offsets that plans a batch without records behind this one; None unless
    the watermark has moved, or one is always due.

    watermark_ms: of the next batch. now_ms: what current_timestamp() returns in it, milliseconds since 1970.
    """
    version, head, *sources = text.splitlines()
    metadata = json.loads(head)
    if metadata["batchWatermarkMs"] >= watermark_ms and not always_due:
        return None
    next_watermark_ms = max(metadata["batchWatermarkMs"], watermark_ms)
    next_metadata = {**metadata, "batchWatermarkMs": next_watermark_ms, "batchTimestampMs": now_ms}
    return "\n".join([version, json.dumps(next_metadata, separators=(",", ":")), *sources])


def continues(text: str, watermark_ms: int, positions: Mapping[Lane, int]) -> bool:
    """Whether an entry of Spark's log of offsets may be that of the batch that begins at these positions.

    watermark_ms: of that batch, milliseconds since 1970; 0: none.
    """
    try:
        ends, metadata = offsets_of(text), json.loads(text.splitlines()[1])
        same_watermark = metadata["batchWatermarkMs"] == watermark_ms
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return False
    return same_watermark and ends.keys() == positions.keys() and all(ends[x] >= positions[x] for x in positions)


def fingerprint(job: JobSpec, settings: StateSettings) -> str:
    """Identifies what computes the state: state of one query means nothing to another one.

    A Python function is identified by its name, and a schema in a registry by its subject. The delay of the watermark
    is left out: stored state does not depend on it, and a decision has the watermark itself. The time zone is part of
    it, because casts and dates depend on it.
    """
    source = [job.source.format.value, job.source.subject or job.source.schema]
    query = [asdict(job.transform), settings.partitions, settings.output_mode, settings.event_time]
    time_zone = job.spark.get(TIME_ZONE, DEFAULT_TIME_ZONE)
    text = json.dumps([source, query] if time_zone == DEFAULT_TIME_ZONE else [source, query, time_zone])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def state_lost(cause: str, loss: str | None = None, remedy: str = "") -> JobError:
    """The error for state that is not there, or that cannot belong to the positions.

    loss: loss_of() it; None if its loss cannot be accepted. remedy: in place of that of the reason.
    """
    if loss is None:
        return JobError(Reason.STATE_LOST, cause, "use the release of the driver that wrote it")
    remedy = f"{remedy or REASONS[Reason.STATE_LOST].remedy} (fingerprint {loss})"
    return JobError(Reason.STATE_LOST, cause, remedy, fingerprint=loss)


def state_unread(error: JobError, last: Decision | None, before: str | None) -> tuple[JobError, str | None]:
    """The error with which a query has ended, and loss_of() the state if it could not be loaded.

    Such an error has the reason STATE_LOST and no loss yet. The state is lost if it cannot be loaded twice, because an
    error of the storage may have passed by then. last: the decision behind which the state is. before: loss_of() state
    that an earlier query could not load.
    """
    if error.reason is not Reason.STATE_LOST or error.fingerprint is not None:
        return error, None
    if last is None:
        return JobError(Reason.BATCH_FAILED, error.cause), None
    loss = loss_of(last.to_json(), last.positions)
    problem = f"the state behind batch {last.batch}, in the directory {last.directory}, cannot be read: {error.cause}"
    if loss == before:
        return state_lost(problem, loss, error.explanation), loss
    return JobError(Reason.BATCH_FAILED, problem, "it is read once more"), loss


def _evaluation(batch: int, problem: str) -> JobError:
    return JobError(
        Reason.POSITION_CONFLICT,
        f"the evaluation of batch {batch} {problem}; nothing of it is committed, and this driver restarts from the "
        "last decision",
    )


def _lanes(offsets: Mapping[str, int]) -> dict[Lane, int]:
    named = {name.rpartition("-"): offset for name, offset in offsets.items()}
    return {Lane(topic, int(partition)): int(offset) for (topic, _, partition), offset in named.items()}


def _ids(partitions: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(str, stores)) for stores in partitions)
