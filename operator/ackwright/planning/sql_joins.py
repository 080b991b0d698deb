"""Judges the join of a stateful pipeline's SQL: what the job certainly refuses of it. Pure.

A join of which the condition is not simple (OR, functions of the event time, subqueries) is left to the job
(ackwright_stream/joins.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from ackwright.planning.schema_ddl import TextProblem
from ackwright.planning.sql_columns import VIEW, offset_of
from ackwright_stream.reasons import Reason

_RIGHT_RANGE = "{right}.{at} BETWEEN {left}.{at} AND {left}.{at} + INTERVAL 1 HOUR"
_OTHER_PIPELINE = "let another pipeline read the output of this one"
# Of the difference between the event time of the left side and that of the right side.
_UPPER, _LOWER = "upper", "lower"
_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
# Of a column that is null they are null, so that WHERE drops the row.
_NULL_OF_NULL = (*_COMPARISONS, exp.NEQ, exp.Like)
_OUTER = ("LEFT", "RIGHT", "FULL")
_BUILT = (*_OUTER, "LEFT SEMI", "SEMI")
_METADATA = "kafka"
_FILTERED = "(SELECT * FROM source WHERE kafka.topic = 'TOPIC') {table}"


@dataclass(frozen=True)
class StateTerms:
    """What a stateful pipeline declares beside its SQL."""

    event_time: str | None  # the column of source.eventTime
    append: bool  # whether state.outputMode is append


@dataclass(frozen=True)
class Construct:
    """What a query does to several records."""

    name: str  # in the words of SQL
    offset: int


def is_join(node: exp.Expr) -> bool:
    """Whether a node joins records with records; a function may be applied to each record."""
    if not isinstance(node, exp.Join):
        return False
    return isinstance(node.this, exp.Subquery) or (
        isinstance(node.this, exp.Table) and isinstance(node.this.this, exp.Identifier)
    )


def join_problems(
    tree: exp.Expr, tokens: Sequence[Token], terms: StateTerms, others: Sequence[Construct]
) -> Iterator[TextProblem]:
    """What the job refuses of the joins of a query; nothing for a query without one.

    others: what else keeps state in the query.
    """
    joins = [node for node in tree.find_all(exp.Join) if is_join(node)]
    if not joins:
        return
    words = [t.start for t in tokens if t.text.upper() == "JOIN"] or [tokens[0].start]
    if others:
        yield _problem(others[0].offset, f"uses {others[0].name} together with JOIN", _OTHER_PIPELINE)
    if len(joins) > 1:
        yield _problem(
            words[min(1, len(words) - 1)], f"has {len(joins)} joins", "join the view source with itself once"
        )
    crossed = any(t.text.upper().split(" ")[0] == "CROSS" for t in tokens)  # sqlglot takes a comma for CROSS JOIN
    for join in joins:
        kind = _kind(join)
        if kind is not None and kind not in _BUILT and (crossed or kind != "CROSS"):
            remedy = "write LEFT JOIN, and keep the rows whose right side IS NULL" if "ANTI" in kind else "write JOIN"
            yield _problem(words[0], f"uses {kind} JOIN, which is not built for stateful pipelines", remedy)
            return
    if terms.event_time is None:
        without = "uses JOIN without a watermark, so its state would grow forever"
        yield _problem(words[0], without, "declare source.eventTime")
    elif not terms.append:
        yield _problem(words[0], "uses JOIN with state.outputMode update", "write append")
    elif len(joins) == 1:
        misplaced = list(_filters(joins[0], tokens))
        yield from misplaced or _condition(joins[0], terms.event_time, words[0])


def _problem(offset: int, problem: str, remedy: str) -> TextProblem:
    return TextProblem(offset, problem, remedy, Reason.INVALID_TRANSFORM)


def _kind(join: exp.Join) -> str | None:
    """The words before JOIN, if it is no inner join."""
    words = [str(join.args.get(part) or "").upper() for part in ("side", "kind")]
    named = " ".join(word for word in words if word not in ("", "INNER", "OUTER"))
    return named or None


def _filters(join: exp.Join, tokens: Sequence[Token]) -> Iterator[TextProblem]:
    """The conditions of an outer join that have to stand before it."""
    select, kind = join.parent, _kind(join)
    from_ = select.args.get("from_") if isinstance(select, exp.Select) else None
    if from_ is None or kind not in _OUTER:
        return
    names = {"LEFT": from_.this.alias_or_name.lower(), "RIGHT": join.this.alias_or_name.lower()}
    preserved = [name for side, name in names.items() if kind in (side, "FULL")]
    nullable = [name for side, name in names.items() if kind != side]  # null in a row without a match
    where = select.args.get("where") if select else None
    for part in _parts(where.this if where else None):
        operands = (part.this, part.args.get("expression"), part.args.get("low"), part.args.get("high"))
        tables = {_table(_unshifted(operand)) for operand in operands if operand}
        compared = [name for name in nullable if name in tables]
        if isinstance(part, _NULL_OF_NULL) and compared:
            yield _problem(
                _offset(part, tokens),
                f"has a {kind} JOIN and a WHERE on {compared[0]}, which drops the rows without a match",
                _before(compared[0]),
            )
    for part in _parts(join.args.get("on")):
        tables = {_table(column) for column in part.find_all(exp.Column)}
        of_metadata = any(_METADATA in [p.name.lower() for p in c.parts[1:]] for c in part.find_all(exp.Column))
        alone = [name for name in preserved if tables == {name}]
        if alone and of_metadata:
            yield _problem(
                _offset(part, tokens),
                f"has a {kind} JOIN with a condition on {alone[0]}.{_METADATA} alone, so that the other records of "
                f"{alone[0]} are rows without a match",
                _before(alone[0]),
            )


def _before(table: str) -> str:
    return f"filter {table} before the join, such as {_FILTERED.format(table=table)}"


def _table(node: exp.Expr) -> str | None:
    """The table of a column, in lower case; None for what is no column of a table."""
    if isinstance(node, exp.Column) and len(node.parts) > 1:
        return str(node.parts[0].name).lower()
    return None


def _offset(part: exp.Expr, tokens: Sequence[Token]) -> int:
    """Where a condition begins."""
    names = (offset for node in part.walk() if (offset := offset_of(node)) is not None)
    return min(names, default=tokens[0].start)


def _condition(join: exp.Join, event_time: str, offset: int) -> Iterator[TextProblem]:
    select = join.parent
    from_ = select.args.get("from_") if isinstance(select, exp.Select) else None
    if from_ is None or not _is_view(from_.this) or not _is_view(join.this):
        return  # the event time may have another name there
    if join.args.get("using") or join.args.get("method"):  # which columns are compared depends on the view
        return
    left, right = from_.this.alias_or_name, join.this.alias_or_name
    outer = _kind(join) in _OUTER  # WHERE is behind it, and bounds nothing
    where = select.args.get("where") if select and not outer else None
    parts = [*_parts(join.args.get("on")), *_parts(where.this if where else None)]
    # What is no comparison bounds nothing, unless a comparison of the event time is in it.
    if any(not isinstance(part, _COMPARISONS) and (_names(part, event_time) or part.find(exp.EQ)) for part in parts):
        return
    if not any(isinstance(part, exp.EQ) for part in parts):
        equality = f"add one to its condition, such as {left}.id = {right}.id"
        yield _problem(offset, "has a JOIN without an equality", equality)
        return
    bounds = _bounds(parts, event_time, left.lower(), right.lower())
    if bounds is None or {_UPPER, _LOWER} <= bounds:
        return
    endless = [name for name, bound in ((left, _LOWER), (right, _UPPER)) if bound not in bounds]
    range_ = _RIGHT_RANGE.format(left=left, right=right, at=event_time)
    yield _problem(
        offset,
        f"has a JOIN that keeps the records of {' and '.join(endless)} forever, because its condition does not limit "
        f"how far apart {event_time} of {left} and {right} may be",
        f"add a range to the condition, such as {range_}",
    )


def _is_view(node: exp.Expr) -> bool:
    return isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and node.name.lower() == VIEW


def _parts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """The conditions that are all required."""
    if isinstance(condition, exp.Paren):
        yield from _parts(condition.this)
    elif isinstance(condition, exp.And):
        yield from _parts(condition.left)
        yield from _parts(condition.right)
    elif condition is not None:
        yield condition


def _names(node: exp.Expr, column: str) -> bool:
    return any(named.name.lower() == column.lower() for named in node.find_all(exp.Column))


def _bounds(parts: Sequence[exp.Expr], event_time: str, left: str, right: str) -> set[str] | None:
    """Which bounds there are on the time between the two sides; None: not known."""
    bounds: set[str] = set()
    for part in parts:
        if not isinstance(part, _COMPARISONS) or not _names(part, event_time):
            continue
        for lesser, greater, equal in _pairs(part):
            sides = (_side(lesser, event_time), _side(greater, event_time))
            if None in sides:
                if _is_constant(lesser) or _is_constant(greater):
                    continue  # a bound on one side alone
                return None
            if sides == (left, right):
                bounds |= {_UPPER, _LOWER} if equal else {_UPPER}
            elif sides == (right, left):
                bounds |= {_UPPER, _LOWER} if equal else {_LOWER}
            elif set(sides) - {left, right}:
                return None
    return bounds


def _pairs(part: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr, bool]]:
    """(lesser, greater, whether they are equal) of a comparison."""
    if isinstance(part, exp.Between):
        yield part.args["low"], part.this, False
        yield part.this, part.args["high"], False
    elif isinstance(part, exp.GT | exp.GTE):
        yield part.expression, part.this, False
    else:
        yield part.this, part.expression, isinstance(part, exp.EQ)


def _side(node: exp.Expr, event_time: str) -> str | None:
    """The table of which an expression is the event time, give or take an interval; None: it is something else."""
    node = _unshifted(node)
    if isinstance(node, exp.Column) and node.name.lower() == event_time.lower() and len(node.parts) == 2:
        return str(node.table).lower()
    return None


def _unshifted(node: exp.Expr) -> exp.Expr:
    """An expression without the intervals that are added to it."""
    while isinstance(node, exp.Paren) or (
        isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval)
    ):
        node = node.this
    return node


def _is_constant(node: exp.Expr) -> bool:
    return node.find(exp.Column) is None
