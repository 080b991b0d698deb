"""What the audit compares of the groups of a stateful pipeline, whose last digits, values and rows may depend on more
than the records.

Aggregate functions may depend on the order of the records, by rounding or by what they return. A condition behind them
(HAVING) may drop a group whose earlier record stays in the sink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import audit_apart, audit_fractions
from ackwright_stream.audit_apart import Leeway
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks.base import DecidingReader, Output
from ackwright_stream.column_names import named
from ackwright_stream.spark_internals import aggregates, rounding


def without_order(
    spark: SparkSession, sink: DecidingReader, output: DataFrame, required: Output
) -> tuple[Output, list[Doubt], list[Doubt]]:
    """The output without what depends on the order of the records; a doubt about that; or one about all of it."""
    dependent = aggregates.of_order(spark, output)
    if not dependent.columns and not dependent.rows:
        return required, [], []
    names = ", ".join(sorted(dependent.columns))
    reason = "the result of an aggregate function depends on the order of the records (first, collect_list, max_by of "
    records = None if dependent.rows else sink.without(required.records, dependent.columns)
    if records is None:
        return required, [], [Doubt(f"{reason}equal values), and keys or conditions use it")]
    left_out = f"{reason}equal values); the audit does not judge {names}, and compares the other columns"
    return replace(required, records=records, left_out=dependent.columns), [Doubt(left_out)], []


def with_tolerances(
    spark: SparkSession, sink: DecidingReader, output: DataFrame, required: Output
) -> tuple[Output, list[Doubt]]:
    """The output with the tolerances of its sums of fractions, or a doubt if they cannot be judged."""
    large = rounding.have_large_averages(spark, output)
    rounded = rounding.rounded_columns(output, large=large)
    if rounded == {}:  # none of them is in the output
        return required, []
    tolerances = None if rounded is None else sink.tolerances(output, rounded)
    problem = ""
    if rounded is None:
        problem = "a function or a condition of the transform uses them"
    elif tolerances is None:
        problem = "they are in a key, or within text or a struct of the output"
    elif not rounding.largest_difference(spark, output, large=large) <= rounding.TOLERANCE:
        problem = "the numbers of a group cancel out, are not finite, or are too many"
    elif audit_fractions.is_ambiguous(required.records, tolerances):
        problem = "some records of the output differ in them alone"
    if problem or tolerances is None:
        return required, [Doubt(f"sums of fractions depend on the order of the records, and {problem}")]
    return replace(required, tolerances=tolerances), []


@dataclass(frozen=True)
class Keys:
    """The keys of groups, which are compared with those in the sink."""

    of_groups: Output  # of all groups
    of_output: Output  # of those that no condition drops by the results of aggregate functions


def keys(
    spark: SparkSession,
    sink: DecidingReader,
    output: DataFrame,
    required: Output,
    *,
    comparison: Comparison,
    leeway: Leeway,
) -> Keys | None:
    """The keys of the groups. None: they do not matter.

    required: the output as it was compared; comparison: the result.
    """
    drops_groups = aggregates.of_results(output).rows
    if leeway.is_none and not (drops_groups and comparison.unexpected):
        return None
    of_output = _keys_of(sink, required, required.records)
    if not drops_groups:
        return Keys(of_output, of_output)
    every = sink.to_sink_columns(aggregates.without_conditions(spark, output))
    return Keys(_keys_of(sink, required, every), of_output)


def _keys_of(sink: DecidingReader, required: Output, records: DataFrame) -> Output:
    if not sink.writes_apart:
        records = records.select(*map(named, sink.key_columns(last_of_key=True)))
    lanes = [0] * records.rdd.getNumPartitions()
    return replace(
        required, records=records, lanes=lanes, keys_only=sink.writes_apart, tolerances={}, left_out=frozenset()
    )


def by_keys(
    comparison: Comparison, keys: Keys, leeway: Leeway, decided: int | None, compare: Callable[[Output], Comparison]
) -> tuple[Comparison, list[Doubt]]:
    """The comparison of last records with that of their keys. decided: as audit_apart.of_groups() takes it."""
    of_groups = compare(keys.of_groups)
    if not leeway.is_none:
        return audit_apart.of_groups(comparison, of_groups, decided), []
    # If nothing is lost, no record of a group in the output is another one than it should be.
    outside = compare(keys.of_output).unexpected if comparison.lost else comparison.unexpected
    return _with_dropped_groups(comparison, of_groups, max(0, outside - of_groups.unexpected))


def _with_dropped_groups(
    comparison: Comparison, of_groups: Comparison, of_dropped: int
) -> tuple[Comparison, list[Doubt]]:
    """Without the last records of groups that a condition drops, of which there are so many in the sink.

    What the sink has of such a group is of a batch at whose end the condition was true, and nothing replaces it.
    of_groups: of the keys of all groups.
    """
    foreign = tuple(o for o in of_groups.offending if o.kind == "unexpected")
    others = tuple(o for o in comparison.offending if o.kind != "unexpected")
    changed = replace(
        comparison,
        unexpected=comparison.unexpected - of_dropped,
        unjudged=comparison.unjudged + of_dropped,
        offending=(*others, *foreign),
    )
    if not of_dropped:
        return comparison, []
    reason = (
        "a condition (HAVING) drops groups for which it is not true any more, and their last records stay in the sink; "
        "the audit judges that these are of a group, and not what they say"
    )
    return changed, [Doubt(reason)]
