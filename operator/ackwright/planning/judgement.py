"""What is certain of a valid pipeline before Spark and the brokers see it: errors and warnings. Pure.

`ackwright plan`, `explain` and `check` report all of it. The operator refuses a new transform or schema for the errors
of `of_texts` (planning/declared.py); of what is uncertain the job has the last word.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from ackwright.api.job_fields import Executor
from ackwright.api.resource import DeliveryPipeline
from ackwright.api.violations import Problem, path_of
from ackwright.errors import Violation
from ackwright.planning.schema_ddl import METADATA, Schema, TextProblem, read, unquoted
from ackwright.planning.state import IN_DRIVER, has_executors
from ackwright.sinks.base import OutputColumn
from ackwright_stream.jobspec import S3A_SCHEME, Format
from ackwright_stream.reasons import Reason

_SQL = "spec.transform.sql"
_SCHEMA = "spec.source.schema"
_EVENT_TIME = "spec.source.eventTime.column"
_TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ")
_ANSI = "spark.sql.ansi.enabled"
_INSTALL = "install ackwright with the extra operator: pip install 'ackwright[operator]'"


@dataclass(frozen=True)
class Findings:
    """What is known before a pipeline runs."""

    # What Spark or the job refuses.
    errors: tuple[Violation, ...] = ()
    # What is probably a mistake.
    warnings: tuple[Violation, ...] = ()


@dataclass(frozen=True)
class TextFindings:
    """What is known of a pipeline's transform and schema."""

    # In the texts themselves.
    errors: tuple[Violation, ...] = ()
    # In the columns that the sink gets.
    output_errors: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()
    routes: bool | None = None  # whether the transform's output has a column topic; None: not known


def judge(pipeline: DeliveryPipeline) -> Findings:
    """What is certain of a pipeline whose fields are valid."""
    texts = of_texts(pipeline)
    errors, warnings = _topics(pipeline, texts.routes)
    warnings = (*texts.warnings, *warnings, *_conf(pipeline), *_executors(pipeline))
    return Findings((*texts.errors, *texts.output_errors, *errors), warnings)


def of_texts(pipeline: DeliveryPipeline) -> TextFindings:
    """What Spark and the job certainly refuse in source.schema and transform.sql, and in the transform's output."""
    ddl = pipeline.spec.source.schema_ddl
    schema = read(ddl) if ddl else Schema(None)
    of_schema = tuple(
        Problem(_SCHEMA, ddl, p.problem, p.remedy, reason=p.reason, offset=p.offset) for p in schema.problems
    )
    transform = _transform(pipeline, schema)
    return replace(transform, errors=(*of_schema, *_event_time(pipeline, schema), *transform.errors))


def texts_of(pipeline: DeliveryPipeline) -> tuple[object, ...]:
    """What the errors of `of_texts` depend on: equal for two pipelines with the same ones."""
    spec = pipeline.spec
    return spec.transform, spec.source.format, spec.source.schema_ddl, spec.state, spec.source.event_time


def text_at(pipeline: DeliveryPipeline, field: str) -> str | None:
    """The text in which the offset of a finding counts."""
    return {_SQL: pipeline.spec.transform.sql, _SCHEMA: pipeline.spec.source.schema_ddl}.get(field)


# ------------------------------------------------ the transform


def _view(pipeline: DeliveryPipeline, schema: Schema) -> dict[str, str] | None:
    """The columns of the view `source` with their types; None if they are not known."""
    format = pipeline.spec.source.format
    match format:
        case Format.BINARY:
            return {"key": "BINARY", "value": "BINARY", METADATA: ""}
        case Format.STRING:
            return {"key": "STRING", "value": "STRING", METADATA: ""}
        case Format.AVRO | Format.JSON_SCHEMA | Format.PROTOBUF:
            return None  # the columns are in the registry
        case Format.JSON:
            return None if schema.columns is None else {**schema.columns, METADATA: ""}
        case _:
            assert_never(format)


def _event_time(pipeline: DeliveryPipeline, schema: Schema) -> Iterator[Violation]:
    """What is wrong with source.eventTime.column."""
    declared, view = pipeline.spec.source.event_time, _view(pipeline, schema)
    if declared is None or view is None or pipeline.spec.state is None:
        return
    written = declared.column
    name = unquoted(written)
    types = {column.lower(): kind for column, kind in view.items()}
    kind = types.get(name.lower())
    if name.lower() == METADATA:
        problem = f"the column {METADATA} is the record's metadata, and an event time must be TIMESTAMP"
        yield Problem(_EVENT_TIME, written, problem, "name a column of source.schema")
    elif kind is None and "." not in name:
        nearest = difflib.get_close_matches(name.lower(), types, n=1, cutoff=0.6)
        problem, remedy = f"there is no column {name} in the view source", f"columns: {', '.join(sorted(types))}"
        if pipeline.spec.source.schema_ddl is None:
            problem = f"{problem}; with format {pipeline.spec.source.format} it has no time"
            remedy = "choose a format with columns, such as json with source.schema"
        yield Problem(_EVENT_TIME, written, problem, f"did you mean {nearest[0]}?" if nearest else remedy)
    elif kind and kind not in _TIMES:
        problem = f"the column {name} is {kind}, and an event time must be TIMESTAMP"
        yield Problem(_EVENT_TIME, written, problem, f"declare it as {name} TIMESTAMP in source.schema")


def _transform(pipeline: DeliveryPipeline, schema: Schema) -> TextFindings:
    sql = pipeline.spec.transform.sql
    if sql is None:
        return TextFindings()
    try:
        from ackwright.planning import sql_joins, transform_sql
    except ModuleNotFoundError as e:
        if e.name != "sqlglot":
            raise
        problem = Problem.without_value(_SQL, "is not checked: sqlglot is not installed", _INSTALL)
        return TextFindings(warnings=(problem,))
    state, event_time = pipeline.spec.state, pipeline.spec.source.event_time
    terms = None
    if state is not None:
        terms = sql_joins.StateTerms(event_time.column if event_time else None, state.output_mode == "append")
    judgement = transform_sql.judge(sql, _view(pipeline, schema), terms)
    sink = pipeline.spec.sink.declared_if_valid
    of_output: list[TextProblem] = []
    routes = None
    if judgement.output is not None and sink is not None:
        offsets = [judgement.start if o.offset is None else o.offset for o in judgement.output]
        columns = [OutputColumn(o.name, o.type) for o in judgement.output]
        for p in sink.output_problems(columns):
            offset = judgement.start if p.column is None else offsets[p.column]
            of_output.append(TextProblem(offset, p.problem, p.remedy, Reason.INVALID_TRANSFORM))
        if sink.IN_KAFKA:
            routes = any(column.name == "topic" for column in columns)
        if routes and terms is not None:
            chooses = "returns the column topic, and a stateful transform cannot choose the topic of a record"
            of_output.append(TextProblem(judgement.start, chooses, "leave it out", Reason.INVALID_TRANSFORM))
    return TextFindings(
        errors=tuple(map(_violation, judgement.problems)),
        output_errors=tuple(map(_violation, of_output)),
        warnings=(_violation(judgement.unread),) if judgement.unread else (),
        routes=routes,
    )


def _violation(problem: TextProblem) -> Violation:
    without_value = Problem.without_value(_SQL, problem.problem, problem.remedy)
    return replace(without_value, offset=problem.offset, reason=problem.reason)


# ------------------------------------------------ Spark's settings


def _conf(pipeline: DeliveryPipeline) -> tuple[Violation, ...]:
    """Warnings for settings that are allowed, and hide errors of the transform."""
    value = pipeline.spec.spark.conf.get(_ANSI)
    if value is None or value.strip().lower() != "false":
        return ()
    hides = "an overflow, a bad cast or a division by zero writes a null instead of failing"
    remedy = "remove it, and use try_cast or nullif where a null is right"
    return (Problem(path_of(("spec", "spark", "conf", _ANSI)), value, hides, remedy),)


def _executors(pipeline: DeliveryPipeline) -> tuple[Violation, ...]:
    """Warnings for executors that nothing uses."""
    if has_executors(pipeline) or pipeline.spec.spark.executor == Executor():
        return ()
    remedy = f"choose driver.cores; with checkpoint.uri: {S3A_SCHEME}bucket/prefix executors run the tasks"
    return (Problem.without_value("spec.spark.executor", f"is not used: {IN_DRIVER}", remedy),)


# ------------------------------------------------ declared topics that are not used


def _topics(pipeline: DeliveryPipeline, routes: bool | None) -> tuple[tuple[Violation, ...], tuple[Violation, ...]]:
    """Errors and warnings for declared topics that the pipeline does not use. Nothing without a valid sink."""
    errors: list[Violation] = []
    warnings: list[Violation] = []
    for path, name, nearest in _unused(pipeline):
        if nearest is not None and not routes:
            problem = f"is no topic of this pipeline, and {nearest} is not declared"
            violation = Problem(path, name, problem, f"did you mean {nearest}?")
            # What a Python function routes to is not known.
            (warnings if routes is None else errors).append(violation)
        elif routes is False:
            problem = "is no topic of this pipeline: neither source nor sink"
            warnings.append(Problem(path, name, problem, "remove it, or correct its name"))
    return tuple(errors), tuple(warnings)


def _unused(pipeline: DeliveryPipeline) -> Iterator[tuple[str, str, str | None]]:
    """Topics that are declared and not used, each with the used one for which it was probably meant."""
    sink = pipeline.spec.sink.declared_if_valid
    if sink is None:
        return
    used = (*pipeline.spec.source.topics, *sink.topics())
    declared = [topic.name for topic in pipeline.spec.topics]
    undeclared = [name for name in used if name not in declared]
    for i, name in enumerate(declared):
        if name in used:
            continue
        # Numbers tell topics apart: orders-1, orders-2.
        candidates = [other for other in undeclared if _without_digits(other) != _without_digits(name)]
        nearest = difflib.get_close_matches(name, candidates, n=1, cutoff=0.85)
        yield f"spec.topics[{i}].name", name, nearest[0] if nearest else None


def _without_digits(name: str) -> str:
    return re.sub(r"[0-9]+", "", name)
