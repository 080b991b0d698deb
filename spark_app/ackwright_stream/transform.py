"""From the view `source` to what the sink writes: runs the user's SQL or Python, checks that it is stateless, and shapes the result.

Used by the job on a stream and by the audit on a batch, so that both mean the same by "the transform".
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from ackwright_stream import source
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Format, JobSpec, KafkaSink, Reason, Transform

VIEW = "source"
SPECIAL = ("key", "topic", "headers")
_ABSENT = "ackwright.absent"  # metadata of a column that the transform does not give
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"

# One row in, any number of rows out, each on its own and in order: all that a lane can do. Nodes without children are what is read.
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
        "PythonMapInArrow",
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
    "GlobalLimit": "LIMIT",
    "Intersect": "INTERSECT",
    "Join": "JOIN",
    "LateralJoin": "LATERAL with a subquery",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Pivot": "PIVOT",
    "Repartition": "repartition or coalesce",
    "RepartitionByExpression": "DISTRIBUTE BY, CLUSTER BY or repartition",
    "Sample": "TABLESAMPLE",
    "ScriptTransformation": "TRANSFORM … USING",
    "Sort": "ORDER BY or SORT BY",
    "Union": "UNION",
    "Window": "a window function (OVER)",
}
# Spark counts these as deterministic because they are fixed once per query; a query of the audit is another one.
_TIME = frozenset({"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentBatchTimestamp"})


def transformed(spark: SparkSession, raw: DataFrame, job: JobSpec) -> DataFrame:
    """What the sink writes, from the columns of Spark's Kafka source: key BINARY, value BINARY, topic STRING (the sink's topic where the
    transform gives none), headers ARRAY<STRUCT<key: STRING, value: BINARY>>. raw may be a stream or a batch.
    Raises JobError: INVALID_TRANSFORM, NOT_STATELESS, INVALID_SPEC (the schema)."""
    return shaped(output(spark, source.parse(raw, job.source), job.transform), job.sink)


def output(spark: SparkSession, records: DataFrame, transform: Transform) -> DataFrame:
    """The frame that the user's transform makes of the view `source`, checked to be stateless. Raises JobError."""
    # PySpark logs every analysis error as one line of JSON with two stack traces; the user gets one sentence, and the cause is chained.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    made = _sql(spark, records, transform.sql) if transform.sql is not None else _python(records, transform)
    if made.isStreaming != records.isStreaming:
        raise JobError(Reason.INVALID_TRANSFORM, f"the transform does not read the view {VIEW!r}; select FROM {VIEW}")
    check_stateless(made)
    return made


def _sql(spark: SparkSession, records: DataFrame, sql: str) -> DataFrame:
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
        # spark.sql() runs a command at once, a DROP TABLE too: so look before.
        classes = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement", f"{_LOGICAL}.CompoundBody")
        if any(is_instance_of(spark.sparkContext._gateway, plan, name) for name in classes):
            raise JobError(
                Reason.INVALID_TRANSFORM,
                f"transform.sql is not a query but a command ({_name(plan)}); write one SELECT",
            )
        records.createOrReplaceTempView(VIEW)
        try:
            return spark.sql(sql)
        finally:
            spark.catalog.dropTempView(VIEW)
    except PySparkException as e:
        raise _invalid("transform.sql", e) from e


def _python(records: DataFrame, transform: Transform) -> DataFrame:
    where = f"transform.python {transform.module}.{transform.function}"
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
            Reason.INVALID_TRANSFORM, f"{where} cannot be imported: {type(e).__name__}: {_line(str(e))}; {remedy}"
        ) from e
    function = getattr(module, transform.function, None)
    if not callable(function):
        have = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        raise JobError(
            Reason.INVALID_TRANSFORM, f"{where} is not a function of that module; it has {', '.join(have) or 'none'}"
        )
    try:
        made = function(records)
    except PySparkException as e:
        raise _invalid(where, e) from e
    except Exception as e:
        raise JobError(
            Reason.INVALID_TRANSFORM, f"{where} failed: {type(e).__name__}: {_line(str(e))}; correct the function"
        ) from e
    if not isinstance(made, DataFrame):
        raise JobError(Reason.INVALID_TRANSFORM, f"{where} returned {type(made).__name__}; return a DataFrame")
    return made


def _invalid(where: str, error: PySparkException) -> JobError:
    condition = error.getCondition() or ""
    if condition.startswith("INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY"):
        return _stateful("a subquery")
    said = _line(error.getMessage() or str(error)).removeprefix(f"[{condition}] ").split(" SQLSTATE:")[0]
    return JobError(
        Reason.INVALID_TRANSFORM, f"{where} is refused by Spark: {said} ({condition or type(error).__name__})"
    )


def _line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:500]


# --- stateless, deterministic ---------------------------------------------------------------------------------------------------------


def check_stateless(df: DataFrame) -> None:
    """Raises JobError(NOT_STATELESS) unless the analysed plan holds nothing but steps that treat every record on its own.

    The plan is looked at instead of its shuffles: with one source partition Spark needs no shuffle for a GROUP BY.
    """
    for node in _nodes(df._jdf.queryExecution().analyzed()):
        if _children(node.subqueries()):
            raise _stateful("a subquery")
        name = _name(node)
        if _children(node.children()) and name not in _STATELESS:
            raise _stateful(_SQL_WORDS.get(name, name))


def _stateful(what: str) -> JobError:
    return JobError(
        Reason.NOT_STATELESS,
        f"the transform uses {what}, which relates records to one another; stateful pipelines are not built yet, so each record has to be "
        "transformed on its own (SELECT, WHERE, explode, Python functions)",
    )


def deterministic(df: DataFrame) -> bool:
    """Whether the transform gives the same output for the same records on every evaluation, as far as Spark can know: not with rand(),
    uuid() and their like, nor with now() and its. A Python function is taken at its word (UserDefinedFunction.asNondeterministic)."""
    for node in _nodes(df._jdf.queryExecution().analyzed()):
        if _name(node) == "CollectMetrics":
            continue
        expressions = list(_children(node.expressions()))
        while expressions:
            e = expressions.pop()
            if not e.deterministic() or _name(e) in _TIME:
                return False
            expressions.extend(_children(e.children()))
    return True


def needs_headers(df: DataFrame) -> bool:
    """Whether the frame, made of a source.read_stream(), has anything from the records' headers, as Spark's optimizer sees it: it takes
    what nobody uses out of the view's struct."""
    optimizer = df.sparkSession._jsparkSession.sessionState().optimizer()
    *steps, read = _nodes(optimizer.execute(df._jdf.queryExecution().analyzed()))  # stateless, so one after the other
    headers = [column for column in _children(read.output()) if column.name() == "headers"]
    return any(step.references().contains(column) for column in headers for step in steps)


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _children(seq: Any) -> list[Any]:
    return [seq.apply(i) for i in range(seq.size())]


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _children(plan.children()):
        yield from _nodes(child)


# --- the shape that the sink writes ---------------------------------------------------------------------------------------------------


def shaped(out: DataFrame, sink: KafkaSink) -> DataFrame:
    """The transform's columns as a record's key, value, topic and headers.

    binary, string: `value`, and if given `key`, `topic`, `headers`; nothing else. json: all columns but key, topic and headers are the
    fields of the value, a null as an explicit null (a consumer can tell it from a field that is not there). If the only one of them is
    called `value` and is a struct or a map, it is the value itself; if that is null, the record is a tombstone.
    Raises JobError(INVALID_TRANSFORM) with everything that is wrong.
    """
    fields = {f.name.lower(): f for f in out.schema.fields}
    problems = [f"column {n!r} appears twice" for n in sorted(_twice([f.name.lower() for f in out.schema.fields]))]
    rest = [f for name, f in fields.items() if name not in SPECIAL]
    if sink.format is Format.JSON:
        if not rest:
            problems.append(
                "the transform lacks columns for the value; select at least one besides key, topic and headers"
            )
    else:
        if "value" not in fields:
            problems.append(
                f"the transform lacks the column value; it has {', '.join(f.name for f in out.schema.fields)}"
            )
        problems += [
            f"column {f.name!r} cannot be written with sink format {sink.format}, which takes value, key, topic and headers; leave it out, "
            "or choose format json"
            for f in rest
            if f.name.lower() != "value"
        ]
        problems += _text("value", fields.get("value"), (StringType, BinaryType))
    problems += _text("key", fields.get("key"), (StringType, BinaryType))
    problems += _text("topic", fields.get("topic"), (StringType,))
    problems += _headers(fields.get("headers"))
    if "topic" not in fields and sink.topic is None:
        problems.append("there is neither sink.kafka.topic nor a column topic; give one of them")
    if problems:
        raise JobError(Reason.INVALID_TRANSFORM, "; ".join(problems))
    null = F.lit(None)
    absent = {name: {_ABSENT: True} if name not in fields else {} for name in SPECIAL}
    return out.select(
        (_column(fields["key"]) if "key" in fields else null).cast("binary").alias("key", metadata=absent["key"]),
        _value(rest, sink).cast("binary").alias("value"),
        _topic(fields.get("topic"), sink).alias("topic", metadata=absent["topic"]),
        (_column(fields["headers"]) if "headers" in fields else null)
        .cast(source.HEADERS)
        .alias("headers", metadata=absent["headers"]),
    )


def lean(shaped: DataFrame) -> DataFrame:
    """What has to go to a Python worker of the columns that shaped() made: those that the transform gives, and no null headers.

    Spark asks for the size of an Arrow batch after each of its rows (BatchedPythonArrowInput), and of a list column arrow-java then goes
    through all nulls since the last list (ListVector.setValueCount). Over 10,000 null headers that took most of a batch's time. No headers
    and empty headers are the same record.
    """
    found = given(shaped)
    empty = F.array().cast(source.HEADERS)
    return found.select(
        *(F.coalesce("headers", empty).alias("headers") if name == "headers" else name for name in found.columns)
    )


def given(shaped: DataFrame) -> DataFrame:
    """The columns that shaped() made, without those that the transform does not give: they are null in every row."""
    return shaped.select(*(f.name for f in shaped.schema.fields if not f.metadata.get(_ABSENT)))


def routes(out: DataFrame) -> bool:
    """Whether the transform chooses the topic of a record itself."""
    return any(name.lower() == "topic" for name in out.columns)


# Spark reads them, and by default writes milliseconds. No brackets, as Spark's own patterns have: timeParserPolicy LEGACY would write them.
_MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def _value(rest: list[StructField], sink: KafkaSink) -> Column:
    if sink.format is not Format.JSON:
        return _column(rest[0])
    itself = len(rest) == 1 and rest[0].name.lower() == "value" and isinstance(rest[0].dataType, StructType | MapType)
    value = _column(rest[0]) if itself else F.struct(*(_column(f) for f in rest))
    return F.to_json(value, {"ignoreNullFields": "false", **_MICROSECONDS})


def _topic(field: StructField | None, sink: KafkaSink) -> Column:
    if field is None:
        return F.lit(sink.topic)
    missing = "MalformedRecord: the transform gives a record whose topic is null, and there is no sink.kafka.topic; set one of them"
    default = F.raise_error(F.lit(missing)).cast("string") if sink.topic is None else F.lit(sink.topic)
    return F.coalesce(_column(field).cast("string"), default)


def _column(field: StructField) -> Column:
    return F.col("`" + field.name.replace("`", "``") + "`")


def _twice(names: list[str]) -> set[str]:
    return {n for n in names if names.count(n) > 1}


def _text(name: str, field: StructField | None, allowed: tuple[type[DataType], ...]) -> list[str]:
    if field is None or isinstance(field.dataType, (*allowed, NullType)):
        return []
    words = " or ".join(t().simpleString().upper() for t in allowed)
    how = (
        f"write to_json({field.name}) AS {name}" if isinstance(field.dataType, StructType | MapType | ArrayType) else ""
    )
    how = how or f"write CAST({field.name} AS STRING) AS {name}"
    return [f"column {name!r} is {field.dataType.simpleString().upper()}, not {words}; {how}"]


def _headers(field: StructField | None) -> list[str]:
    if field is None or isinstance(field.dataType, NullType):
        return []
    kind = field.dataType
    entry = kind.elementType if isinstance(kind, ArrayType) else None
    if (
        isinstance(entry, StructType)
        and [n.lower() for n in entry.names] == ["key", "value"]
        and isinstance(entry.fields[0].dataType, StringType)
        and isinstance(entry.fields[1].dataType, StringType | BinaryType)
    ):
        return []
    return [
        f"column 'headers' is {kind.simpleString()}, not array<struct<key: string, value: binary>>; write "
        "array(named_struct('key', 'name', 'value', CAST(x AS BINARY))) AS headers"
    ]
