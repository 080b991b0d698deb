"""Which columns a query reads and returns, as far as that is certain without Spark. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from ackwright.planning.schema_ddl import TextProblem
from ackwright_stream.reasons import Reason

VIEW = "source"

# Functions that Spark calls without brackets, and words that name a unit of time in a function's arguments.
_NOT_COLUMNS_TEXT = (
    "current_catalog current_database current_date current_schema current_time current_timestamp current_timezone "
    "current_user localtimestamp session_user user now dayofweek dayofyear year years quarter month months week "
    "weeks day days hour hours minute minutes second seconds millisecond milliseconds microsecond microseconds"
)
_NOT_COLUMNS = frozenset(_NOT_COLUMNS_TEXT.split())
# More problems of one text, and suggestions for longer names, cost time and help nobody.
MAX_PROBLEMS = 10
MAX_NAME, _MAX_CANDIDATES, _MAX_LISTED = 100, 1_000, 50
# Of queries with more, the columns are not known. Each query may double them: SELECT *, * FROM …
_MAX_COLUMNS = 5_000
# Functions that name the columns that they return.
_GENERATORS = (exp.Explode, exp.ExplodeOuter, exp.Posexplode, exp.PosexplodeOuter, exp.Inline, exp.UDTF, exp.JSONTable)
# Expressions that Spark names by their text, such as count(1).
_PRINTED = (exp.AggFunc, exp.Literal, exp.Upper, exp.Lower, exp.Concat, exp.Case, exp.Coalesce, exp.If)


@dataclass(frozen=True)
class Output:
    """A column of a query's output."""

    # In lower case. None: an expression without a name, which gets one that is none of Ackwright's.
    name: str | None
    # Where it begins in the text.
    offset: int | None = None
    # As Spark prints it; "": not known.
    type: str = ""


def offset_of(node: exp.Expr) -> int | None:
    """The offset of a node's first character in the text, if sqlglot knows it."""
    start = node.meta.get("start")
    return int(start) if start is not None else None


class SelectColumns:
    """Finds columns that do not exist, and the columns of the output."""

    def __init__(self, view: Mapping[str, str] | None) -> None:
        self._view = (
            tuple(Output(name.lower(), None, kind) for name, kind in view.items()) if view is not None else None
        )
        self._common: dict[str, tuple[Output, ...] | None] = {}
        self.problems: list[TextProblem] = []

    def output(self, query: exp.Expr) -> tuple[Output, ...] | None:
        """The columns of a query's output; None if they are not certain. Adds to `problems`."""
        if isinstance(query, exp.Subquery):
            return self.output(query.this)
        if not isinstance(query, exp.Select):
            return None
        with_ = query.args.get("with_")
        if with_ is not None:
            for cte in with_.expressions:
                columns = None if with_.args.get("recursive") else self.output(cte.this)
                self._common[cte.alias.lower()] = _renamed(columns, cte)
        available, tables = self._available(query)
        if available is not None:
            self._check(query, available, tables)
        return _outputs(query, available, tables)

    def _available(self, select: exp.Select) -> tuple[tuple[Output, ...] | None, frozenset[str]]:
        """The columns that a SELECT can read, and the names by which they may be qualified."""
        from_ = select.args.get("from_")
        if from_ is None or select.args.get("laterals") or select.args.get("joins"):
            return None, frozenset()
        table = from_.this
        if table.args.get("pivots") or table.args.get("laterals") or table.args.get("joins"):
            return None, frozenset()
        if isinstance(table, exp.Subquery):
            return _renamed(self.output(table.this), table), frozenset({table.alias.lower()} - {""})
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or table.db:
            return None, frozenset()
        name = table.name.lower()
        columns = self._common.get(name, self._view if name == VIEW else None)
        return _renamed(columns, table), frozenset({(table.alias or name).lower()})

    def _check(self, select: exp.Select, available: tuple[Output, ...], tables: frozenset[str]) -> None:
        names = {column.name for column in available if column.name}
        if any(column.name is None for column in available):
            return  # Spark gives it a name
        known = names | tables | _NOT_COLUMNS | _aliases(select) | _parameters(select) | _windows(select)
        for column in _own_columns(select):
            parts = [part.name for part in column.parts]
            first = parts[0].lower()
            at = offset_of(column.parts[0])
            if at is None or not parts[0]:
                continue
            if first in tables and first not in names:
                if len(parts) < 2 or parts[1].lower() in names:
                    continue
                missing = parts[1]
                at = offset_of(column.parts[1]) or at
            elif first in known:
                continue
            else:
                missing = parts[0]
            if len(self.problems) >= MAX_PROBLEMS:
                return
            candidates = sorted(name for name in names if len(name) <= MAX_NAME)[:_MAX_CANDIDATES]
            nearest = difflib.get_close_matches(missing.lower()[:MAX_NAME], candidates, n=1, cutoff=0.6)
            more = ", …" if len(names) > _MAX_LISTED else ""
            listed = f"columns: {', '.join(sorted(names)[:_MAX_LISTED])}{more}"
            remedy = f"did you mean {nearest[0]}?" if nearest else listed
            self.problems.append(TextProblem(at, f"there is no column {missing}", remedy, Reason.INVALID_TRANSFORM))


def _own_columns(select: exp.Select) -> Iterator[exp.Column]:
    """The columns that a SELECT reads itself, not in the queries below it."""
    for node in select.walk(prune=lambda n: n is not select and isinstance(n, exp.Query | exp.CTE)):
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            continue
        # sqlglot reads some names as columns that are none.
        if not node.find_ancestor(exp.JSONExtract, exp.DataType, exp.Collate):
            yield node


def _aliases(select: exp.Select) -> set[str]:
    """The names that a SELECT gives, which Spark lets its other expressions use."""
    names = {node.alias.lower() for node in select.find_all(exp.Alias, exp.PropertyEQ) if node.alias}
    return names | {i.name.lower() for node in select.find_all(exp.Aliases) for i in node.expressions}


def _windows(select: exp.Select) -> set[str]:
    """The columns that Spark adds for windows of event times by which a SELECT groups."""
    group = select.args.get("group")
    calls = {node.name.lower() for node in group.find_all(exp.Anonymous)} if group else set()
    return calls & {"window", "session_window"}


def _parameters(select: exp.Select) -> set[str]:
    """The parameters of its lambda functions."""
    return {i.name.lower() for node in select.find_all(exp.Lambda) for i in node.expressions}


def _renamed(columns: tuple[Output, ...] | None, node: exp.Expr) -> tuple[Output, ...] | None:
    """The columns under the names that an alias gives them: AS s(a, b)."""
    alias = node.args.get("alias")
    names = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    if not names:
        return columns
    if columns is None or len(names) != len(columns):
        return None
    return tuple(Output(n.name.lower(), None, c.type) for n, c in zip(names, columns, strict=True))


def _outputs(
    select: exp.Select, available: tuple[Output, ...] | None, tables: frozenset[str]
) -> tuple[Output, ...] | None:
    outputs: list[Output] = []
    for expression in select.expressions:
        if isinstance(expression, exp.Star):
            if available is None or any(expression.args.values()):
                return None
            if len(outputs) + len(available) > _MAX_COLUMNS:
                return None
            outputs += available
            continue
        output = _output(expression, available, tables)
        if output is None:
            return None
        outputs.append(output)
    return tuple(outputs)


def _output(expression: exp.Expr, available: tuple[Output, ...] | None, tables: frozenset[str]) -> Output | None:
    """The column that an expression returns; None if its name is not certain, or if it may return several."""
    if isinstance(expression, exp.Alias):
        if isinstance(expression.this, exp.Star):
            return None
        inner = _output(expression.this, available, tables)
        offset = _start(expression)
        return Output(expression.alias.lower(), offset, inner.type if inner else "")
    if isinstance(expression, exp.Column):
        if not isinstance(expression.this, exp.Identifier):
            return None  # source.*
        name = expression.name.lower()
        return Output(name, _start(expression), _type(expression, available, tables))
    if isinstance(expression, exp.Cast) and isinstance(expression.this, exp.Column):
        inner = _output(expression.this, available, tables)  # Spark names it by its column
        qualified = [part.name.lower() for part in expression.this.parts[:-1]]
        known = inner and (not qualified or (len(qualified) == 1 and qualified[0] in tables))
        return Output(inner.name, _start(expression)) if inner and known else None
    if isinstance(expression, exp.Filter):
        expression = expression.this
    plain = isinstance(expression, _PRINTED)
    binary = isinstance(expression, exp.Binary) and not isinstance(expression, exp.Dot)
    if plain or binary:
        return Output(None, _start(expression))
    return None


def _type(column: exp.Column, available: tuple[Output, ...] | None, tables: frozenset[str]) -> str:
    parts = [part.name.lower() for part in column.parts]
    if len(parts) > 1 and parts[0] in tables:
        parts = parts[1:]
    if len(parts) != 1 or available is None:
        return ""
    types = {output.type for output in available if output.name == parts[0]}
    return types.pop() if len(types) == 1 else ""


def _start(node: exp.Expr) -> int | None:
    """The offset of a node's first word."""
    return min((offset for part in node.walk() if (offset := offset_of(part)) is not None), default=None)
