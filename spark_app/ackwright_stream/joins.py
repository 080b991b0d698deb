"""Which joins a stateful pipeline can have: of the view `source` with itself, with state that the watermark ends.

See docs/stateful.md#join.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StateSettings
from ackwright_stream.spark_internals import join_steps

_RANGE = "p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR"
_SIDE = "(SELECT * FROM source WHERE kafka.topic = 'TOPIC') o"
_KINDS = frozenset({"INNER", "LEFT OUTER", "RIGHT OUTER", "FULL OUTER", "LEFT SEMI"})  # what Spark runs on streams


def check_join(output: DataFrame, state: StateSettings, others: Collection[str]) -> None:
    """Raises JobError(INVALID_TRANSFORM) unless the transform's join is one that a stateful pipeline can have.

    output: of a transform with a join, as a stream or a batch. What depends on the watermark is judged of a stream
    alone, because Spark gives a batch none. others: what else keeps state in the transform, in the words of SQL.
    """
    joins = join_steps.joins(output)
    if others:
        what = ", ".join(sorted(others))
        raise _refused(f"uses JOIN together with {what}", "let another pipeline read the output of this one")
    if len(joins) > 1:
        raise _refused(f"has {len(joins)} joins", "join the view source with itself once")
    [join] = joins
    if join.kind not in _KINDS:
        remedy = "write LEFT JOIN, and keep the rows whose right side IS NULL" if "ANTI" in join.kind else "write JOIN"
        raise _refused(f"uses {join.kind} JOIN, which is not built for stateful pipelines", remedy)
    if state.event_time is None:
        raise _refused("uses JOIN without a watermark, so its state would grow forever", "declare source.eventTime")
    if state.output_mode != "append":
        raise _refused(f"uses JOIN with state.outputMode {state.output_mode}", "write append")
    if not output.isStreaming:
        return
    if not join.of_streams:
        raise _refused("joins records with what is no record of the source", "join the view source with itself")
    if join_steps.watermarks(output) != 1:
        raise _refused("sets a watermark itself", "declare source.eventTime instead")
    if join_steps.sources(output) != 1:
        # Spark would ask Kafka twice for the ends of a batch, and records may arrive in between.
        raise _refused("reads the source in several ways", "join the view source with itself")
    of_join = join_steps.join_state(output)
    if of_join is None:
        raise _refused("has a JOIN whose condition is never true", "correct the condition")
    _check_filters(join, of_join)
    _check_state(of_join, state.event_time)


def _check_filters(join: join_steps.Join, of_join: join_steps.JoinState) -> None:
    """Raises JobError if a filter is on the wrong side of an outer join."""
    if of_join.kind != join.kind:
        raise _refused(
            f"has a {join.kind} JOIN and a WHERE that drops its records without a match",
            f"filter each side before the join, such as {_SIDE}",
        )
    preserved = {"LEFT OUTER": ("left",), "RIGHT OUTER": ("right",), "FULL OUTER": ("left", "right")}.get(join.kind, ())
    of_metadata = {"left": join.left_metadata, "right": join.right_metadata}
    for side in preserved:
        if of_metadata[side]:
            raise _refused(
                f"has a {join.kind} JOIN with a condition on kafka of its {side} side alone, so that the other records "
                "of that side are records without a match",
                f"filter that side before the join, such as {_SIDE}",
            )


def _check_state(of_join: join_steps.JoinState, event_time: str) -> None:
    if of_join.by_window:
        raise _refused("joins by windows of the event time", f"compare {event_time} itself, such as {_RANGE}")
    if not of_join.by_equality:
        raise _refused("has a JOIN without an equality", "add one to its condition, such as o.id = p.id")
    if of_join.nulls is not None:
        raise _refused(
            f"has a JOIN by {of_join.nulls}, which may be null on both sides, and Spark matches null with null",
            "add to its condition that one of the two values is not null, such as o.id IS NOT NULL or "
            "TRY_CAST(o.id AS BIGINT) IS NOT NULL",
        )
    endless = [side for side, end in (("left", of_join.left_end), ("right", of_join.right_end)) if end is None]
    if endless:
        raise _refused(
            f"has a JOIN that keeps the records of its {' and '.join(endless)} side forever, because its condition "
            f"does not limit how far apart {event_time} of the two sides may be",
            f"add a range to the condition, such as {_RANGE}",
        )


def _refused(problem: str, remedy: str) -> JobError:
    return JobError(Reason.INVALID_TRANSFORM, f"the transform {problem}; {remedy}")
