"""Runs the user's transform, SQL or Python, on the view `source`, and checks that it treats every record on its own.

The job runs it on a stream and the audit on a batch, so both mean the same by "the transform".
"""

from __future__ import annotations

import importlib

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import joins, processors, source
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import REFUSED_FUNCTIONS, JobSpec, Reason, StateSettings, Transform
from ackwright_stream.spark_internals import logical_plan
from ackwright_stream.spark_internals.session import drop_functions, silence_analysis_log
from ackwright_stream.spark_internals.state_steps import PROCESSOR, state_steps

VIEW = "source"

# Steps that turn one row into any number of rows, each row on its own and in order, which is all that a lane can do.
# Steps without inputs read the source.
_STATELESS = frozenset(
    {
        "Project",
        "Filter",
        "Generate",  # explode, LATERAL VIEW
        "Expand",  # UNPIVOT; of grouping sets only under an Aggregate, which is refused
        "SubqueryAlias",
        "View",
        "WithCTE",
        "CTERelationDef",
        "PipeOperator",
        "ResolvedHint",
        "CollectMetrics",
        "MapInArrow",
        "MapInPandas",
        "ArrowEvalPython",
        "BatchEvalPython",
        "MapElements",
        "MapPartitions",
        "TypedFilter",
        "SerializeFromObject",
        "DeserializeToObject",
    }
)
_SQL_WORDS = {
    "Aggregate": "GROUP BY or an aggregate function",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "DISTINCT",
    "EventTimeWatermark": "a watermark",
    "Except": "EXCEPT",
    "FlatMapCoGroupsInArrow": "cogroup",
    "FlatMapCoGroupsInPandas": "cogroup",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "GlobalLimit": "LIMIT",
    "Intersect": "INTERSECT",
    "Join": "JOIN",
    "LateralJoin": "LATERAL with a subquery",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Pivot": "PIVOT",
    "RebalancePartitions": "a REBALANCE hint",
    "Repartition": "repartition or coalesce",
    "RepartitionByExpression": "DISTRIBUTE BY, CLUSTER BY or repartition",
    "Sample": "TABLESAMPLE",
    "ScriptTransformation": "TRANSFORM … USING",
    "Sort": "ORDER BY or SORT BY",
    "TransformWithStateInPySpark": "transformWithState",
    "Union": "UNION",
    "UpdateEventTimeWatermarkColumn": "transformWithState with eventTimeColumnName",
    "Window": "a window function (OVER)",
}
# Spark calls these deterministic because they are fixed once per query; the audit is another query.
_TIME = frozenset({"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentBatchTimestamp"})


_DEDUPLICATION = frozenset({"Deduplicate", "DeduplicateWithinWatermark", "Distinct"})
# Steps that keep state, and those that Spark needs for them.
_STATEFUL = _DEDUPLICATION | {"Aggregate", "EventTimeWatermark", "Join", PROCESSOR}


def apply_transform(spark: SparkSession, raw: DataFrame, job: JobSpec, keep: source.Keep | None = None) -> DataFrame:
    """The output of the job's transform, from the columns of Spark's Kafka source, as a stream or a batch.

    keep: as source.parse() takes it.

    The sink decides what its columns mean. Raises JobError: INVALID_SPEC (the schema), INVALID_TRANSFORM,
    NOT_STATELESS.
    """
    records = source.parse(raw, job.source, registry=job.schema_registry, keep=keep, sink=job.sink.kind)
    output = run_transform(spark, records, job.transform, job.state)
    if job.available_now and job.state is not None:
        processors.check_ends(output)
    return output


def run_transform(
    spark: SparkSession, records: DataFrame, transform: Transform, state: StateSettings | None = None
) -> DataFrame:
    """The output of a transform on the records of the view `source`. state: None if it has to be stateless.

    Raises JobError: INVALID_TRANSFORM, NOT_STATELESS.
    """
    if state is not None and state.event_time and state.watermark_delay:
        records = _with_watermark(records, state.event_time, state.watermark_delay)
    silence_analysis_log()  # the user gets one sentence, and the error itself is chained
    output = _sql(spark, records, transform.sql) if transform.sql is not None else _python(records, transform)
    if output.isStreaming != records.isStreaming:
        raise JobError(Reason.INVALID_TRANSFORM, f"the transform does not read the view {VIEW!r}; select FROM {VIEW}")
    if state is None:
        check_stateless(output)
    else:
        check_stateful(output, state)
    return output


def _with_watermark(records: DataFrame, column: str, delay: str) -> DataFrame:
    try:
        return records.withWatermark(column, delay)
    except PySparkException as e:
        raise _invalid("source.eventTime", e) from e


def _sql(spark: SparkSession, records: DataFrame, sql: str) -> DataFrame:
    try:
        # Before spark.sql(), which runs a command at once, a DROP TABLE too.
        command = logical_plan.command_name(spark, sql)
        if command is not None:
            raise JobError(
                Reason.INVALID_TRANSFORM, f"transform.sql is not a query but a command ({command}); write one SELECT"
            )
        drop_functions(spark, REFUSED_FUNCTIONS)  # before the analysis, which evaluates some arguments
        records.createOrReplaceTempView(VIEW)
        try:
            return spark.sql(sql)
        finally:
            spark.catalog.dropTempView(VIEW)
    except PySparkException as e:
        raise _invalid("transform.sql", e) from e


def _python(records: DataFrame, transform: Transform) -> DataFrame:
    path = f"transform.python {transform.module}.{transform.function}"
    if not transform.module or not transform.function:
        raise JobError(
            Reason.INVALID_TRANSFORM, "the transform has neither sql nor a Python module and function; give one of them"
        )
    try:
        module = importlib.import_module(transform.module)
    except Exception as e:
        missing = isinstance(e, ModuleNotFoundError) and e.name and (transform.module + ".").startswith(e.name + ".")
        remedy = "put it into the image, or on PYTHONPATH" if missing else "correct the module"
        raise JobError(
            Reason.INVALID_TRANSFORM, f"{path} cannot be imported: {type(e).__name__}: {_line(str(e))}; {remedy}"
        ) from e
    function = getattr(module, transform.function, None)
    if not callable(function):
        functions = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        raise JobError(
            Reason.INVALID_TRANSFORM,
            f"{path} is not a function of that module; it has {', '.join(functions) or 'none'}",
        )
    try:
        output = function(records)
    except PySparkException as e:
        raise _invalid(path, e) from e
    except Exception as e:
        raise JobError(
            Reason.INVALID_TRANSFORM, f"{path} failed: {type(e).__name__}: {_line(str(e))}; correct the function"
        ) from e
    if not isinstance(output, DataFrame):
        raise JobError(Reason.INVALID_TRANSFORM, f"{path} returned {type(output).__name__}; return a DataFrame")
    return output


def _invalid(path: str, error: PySparkException) -> JobError:
    condition = error.getCondition() or ""
    if condition.startswith("INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY"):
        return _stateful("a subquery")
    message = _line(error.getMessage() or str(error)).removeprefix(f"[{condition}] ").split(" SQLSTATE:")[0]
    return JobError(
        Reason.INVALID_TRANSFORM, f"{path} is refused by Spark: {message} ({condition or type(error).__name__})"
    )


def _line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:500]


def check_stateless(output: DataFrame) -> None:
    """Raises JobError(NOT_STATELESS) unless every step of the analysed plan treats each record on its own.

    Shuffles would not tell: with one source partition Spark needs none for a GROUP BY.
    """
    for step in logical_plan.steps(output):
        if step.has_subquery:
            raise _stateful("a subquery")
        if step.inputs and step.name not in _STATELESS:
            raise _stateful(_SQL_WORDS.get(step.name, step.name))


def check_stateful(output: DataFrame, state: StateSettings) -> None:
    """Raises JobError(INVALID_TRANSFORM) unless the steps are those of a stateful pipeline, with one at least."""
    steps = [step for step in logical_plan.steps(output) if step.inputs]
    for step in steps:
        if step.has_subquery or step.name not in _STATELESS | _STATEFUL:
            construct = "a subquery" if step.has_subquery else _SQL_WORDS.get(step.name, step.name)
            raise JobError(
                Reason.INVALID_TRANSFORM,
                f"the transform uses {construct}, which is not built for stateful pipelines; they take GROUP BY, "
                "dropDuplicates, JOIN, transformWithState and what treats each record on its own",
            )
    if any(step.in_one_group for step in steps):
        raise JobError(Reason.INVALID_TRANSFORM, "the transform aggregates all records in one group; add GROUP BY")
    keeping = [step.name for step in steps if step.name in _STATEFUL - {"EventTimeWatermark"}]
    if not keeping:
        raise JobError(Reason.INVALID_TRANSFORM, "the transform keeps no state, although state is set; remove state")
    if "Join" in keeping:
        joins.check_join(output, state, {_SQL_WORDS[name] for name in keeping if name != "Join"})
    if of_processors := [i for i, name in enumerate(keeping) if name == PROCESSOR]:
        behind, before = keeping[: of_processors[0]], keeping[of_processors[-1] + 1 :]  # a step precedes its inputs
        others = {*behind, *before} - (_DEDUPLICATION - {*behind})
        processors.check_processor(output, state, {_SQL_WORDS[name] for name in others})
    if output.isStreaming:
        _require_groups_beside_sessions(output, state.output_mode)
        if state.output_mode == "append":
            _require_groups_that_end(output)


def _require_groups_that_end(output: DataFrame) -> None:
    """Raises JobError(INVALID_TRANSFORM) for groups that no watermark ends: in append mode nothing would be written.

    Spark itself refuses them only when the query starts.
    """
    for step in state_steps(output):
        if step.kind in ("Aggregate", "Distinct") and not any(key.timed for key in step.keys):
            construct = "GROUP BY" if step.kind == "Aggregate" else "DISTINCT"
            raise JobError(
                Reason.INVALID_TRANSFORM,
                f"the transform uses {construct} with state.outputMode append, and no watermark ends its groups, so "
                "none would ever be written; declare source.eventTime and have it or a window of it among the "
                f"columns of {construct}, or write state.outputMode: update, if the sink takes it",
            )


def _require_groups_beside_sessions(output: DataFrame, output_mode: str) -> None:
    """Raises JobError(INVALID_TRANSFORM) for session windows as Spark does not have them in a stream.

    Spark itself refuses them only when the query starts, and without a further column in its first micro-batch.
    """
    for step in state_steps(output):
        if step.kind != "Aggregate" or not any(key.session for key in step.keys):
            continue
        if output_mode == "update":
            raise JobError(
                Reason.INVALID_TRANSFORM,
                "the transform uses session_window with state.outputMode update, which Spark refuses; write append",
            )
        if all(key.session for key in step.keys):
            raise JobError(
                Reason.INVALID_TRANSFORM,
                "the transform groups by session_window alone, which Spark refuses; add a column, such as "
                "GROUP BY kafka.topic, session_window(…)",
            )


def _stateful(construct: str) -> JobError:
    return JobError(
        Reason.NOT_STATELESS,
        f"the transform uses {construct}, which relates records to one another, and the pipeline has no spec.state; "
        "declare it, or transform each record on its own (SELECT, WHERE, explode, Python functions)",
    )


def is_deterministic(output: DataFrame) -> bool:
    """Whether the transform returns the same output for the same records on every evaluation, as far as Spark can know.

    It does not with rand(), uuid(), now() and the like. Spark takes a Python function to be deterministic unless it is
    declared otherwise (UserDefinedFunction.asNondeterministic).
    """
    return all(
        expression.deterministic and expression.name not in _TIME
        for step in logical_plan.steps(output)
        if step.name != "CollectMetrics"
        for expression in step.expressions()
    )


def needs_headers(output: DataFrame) -> bool:
    """Whether the output of a transform of source.read_stream() depends on the records' headers."""
    return logical_plan.uses_source_column(output, "headers")
