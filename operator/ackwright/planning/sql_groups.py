"""Judges GROUP BY and DISTINCT of a stateful pipeline's SQL: what the job certainly refuses of them. Pure.

In append mode a group is written when the watermark has passed it, so that its columns need the event time or a window
of it. What is certain without Spark are the columns of a SELECT that reads the view itself; others are left to the job
(ackwright_stream/transform.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from ackwright.planning.schema_ddl import TextProblem, unquoted
from ackwright.planning.sql_columns import VIEW
from ackwright.planning.sql_joins import StateTerms
from ackwright_stream.reasons import Reason

_SESSION = "session_window"
_WINDOWS = ("window", _SESSION)
_UPDATE = "or write state.outputMode: update, if the sink takes it"
# Of a GROUP BY whose columns are not simply those that are listed.
_SETS = ("all", "cube", "rollup", "grouping_sets", "totals")


def group_problems(
    tree: exp.Expr, tokens: Sequence[Token], terms: StateTerms, columns: Collection[str] | None
) -> Iterator[TextProblem]:
    """What the job refuses of the groups of a query; nothing for a query without them.

    columns: of the view, in lower case. None: not known.
    """
    selects = [select for select in tree.find_all(exp.Select) if select.args.get("group") or _is_distinct(select)]
    for select in selects:
        clause = "DISTINCT" if select.args.get("group") is None else "GROUP BY"
        offset = _offset(tokens, clause.split(" ", maxsplit=1)[0])
        sessions = [key for key in _grouped_by(select) if _window_of(key) == _SESSION]
        if sessions and not terms.append:
            named = _offset(tokens, _SESSION)
            yield _problem(named, f"uses {_SESSION} with state.outputMode update, which Spark refuses", "write append")
        elif sessions and len(sessions) == len(_grouped_by(select)):
            alone = f"groups by {_SESSION} alone, which Spark refuses"
            yield _problem(offset, alone, f"add a column, such as GROUP BY kafka.topic, {_SESSION}(…)")
        elif terms.append:
            yield from _endless(select, clause, offset, terms.event_time, columns)


def _endless(
    select: exp.Select, clause: str, offset: int, event_time: str | None, columns: Collection[str] | None
) -> Iterator[TextProblem]:
    """The problem of groups that are certainly not ended by the watermark."""
    problem = f"uses {clause} with state.outputMode append, and no watermark ends its groups, so none is ever written"
    if event_time is None:
        remedy = f"declare source.eventTime, and have it or a window of it among the columns of {clause}, {_UPDATE}"
        yield _problem(offset, problem, remedy)
        return
    name = unquoted(event_time)
    keys = _keys(select, columns)
    if keys is None or any(_is_column(_timed_by(key), name, select) for key in keys):
        return
    others = [_timed_by(key).sql("spark") for key in keys if _window_of(key)]
    if others:
        problem = f"{problem}: it has a window of {others[0]}, and not of the event time {name}"
    example = name if clause == "DISTINCT" else f"window({name}, '1 minute')"
    yield _problem(offset, problem, f"add {example} to the columns of {clause}, {_UPDATE}")


def _keys(select: exp.Select, columns: Collection[str] | None) -> list[exp.Expr] | None:
    """The expressions by which a SELECT of the view keeps its groups; None if they are not certain."""
    from_ = select.args.get("from_")
    if from_ is None or not _is_view(from_.this) or select.args.get("joins") or select.args.get("laterals"):
        return None
    group = select.args.get("group")
    if group is None:
        keys = [_plain(column) for column in select.expressions]
        return None if any(key.is_star for key in keys) else keys
    if any(group.args.get(name) for name in _SETS):
        return None
    keys = []
    for expression in group.expressions:
        key = _resolved(_plain(expression), select, columns)
        if key is None:
            return None
        keys.append(key)
    return keys


def _resolved(key: exp.Expr, select: exp.Select, columns: Collection[str] | None) -> exp.Expr | None:
    """What a column of GROUP BY stands for: a number and an alias for a column of the output; None: not certain."""
    if isinstance(key, exp.GroupingSets | exp.Rollup | exp.Cube):
        return None
    if isinstance(key, exp.Literal) and not key.is_string:
        before = select.expressions[: int(key.this)] if key.this.isdigit() else []
        if not before or any(column.is_star for column in before):
            return None
        return _plain(before[-1])
    if not isinstance(key, exp.Column) or len(key.parts) > 1:
        return key
    if columns is not None and key.name.lower() in columns:
        return key
    aliased = [column for column in select.expressions if column.alias.lower() == key.name.lower()]
    if columns is not None and len(aliased) == 1:
        return _plain(aliased[0])
    return None


def _grouped_by(select: exp.Select) -> list[exp.Expr]:
    group = select.args.get("group")
    return [_plain(key) for key in group.expressions] if group else []


def _timed_by(key: exp.Expr) -> exp.Expr:
    """The first argument of a window; of others the expression itself."""
    return _plain(key.expressions[0]) if _window_of(key) and key.expressions else key


def _window_of(key: exp.Expr) -> str | None:
    """The name of the function if the expression is a window."""
    name = key.name.lower() if isinstance(key, exp.Anonymous) else ""
    return name if name in _WINDOWS else None


def _is_column(node: exp.Expr, name: str, select: exp.Select) -> bool:
    """Whether an expression is this column of the view, and nothing computed from it."""
    if not isinstance(node, exp.Column) or node.name.lower() != name.lower():
        return False
    table = select.args["from_"].this.alias_or_name.lower()
    return [part.name.lower() for part in node.parts[:-1]] in ([], [table])


def _plain(node: exp.Expr) -> exp.Expr:
    """An expression without its alias and its parentheses."""
    while isinstance(node, exp.Alias | exp.Paren):
        node = node.this
    return node


def _is_distinct(select: exp.Select) -> bool:
    return select.args.get("distinct") is not None


def _is_view(node: exp.Expr) -> bool:
    names_columns = node.args.get("alias") is not None and node.args["alias"].args.get("columns")
    return (
        isinstance(node, exp.Table)
        and isinstance(node.this, exp.Identifier)
        and node.name.lower() == VIEW
        and not names_columns
        and not node.args.get("joins")
        and not node.args.get("pivots")
    )


def _offset(tokens: Sequence[Token], word: str) -> int:
    """Where a word stands for the first time."""
    return next((t.start for t in tokens if t.text.upper().split(" ")[0] == word.upper()), tokens[0].start)


def _problem(offset: int, problem: str, remedy: str) -> TextProblem:
    return TextProblem(offset, problem, remedy, Reason.INVALID_TRANSFORM)
