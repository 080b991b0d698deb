"""Judges transform.sql without Spark, by sqlglot's Spark dialect. Pure.

It refuses only what Spark or the job certainly refuses. Of a text that it cannot read, where Spark may, it says so
(`Judgement.unread`); of arguments of functions, LATERAL VIEW and fields of structs it says nothing. The job
has the last word (ackwright_stream/transform.py); tests/integration/spark/test_sql_judgement.py compares the two.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ackwright.planning import sql_functions
from ackwright.planning.schema_ddl import TextProblem
from ackwright.planning.sql_columns import MAX_PROBLEMS, VIEW, Output, SelectColumns, offset_of
from ackwright.planning.sql_groups import group_problems
from ackwright.planning.sql_joins import Construct, StateTerms, is_join, join_problems
from ackwright.planning.sql_parser import TooComplex, parse, tokenize
from ackwright_stream.reasons import Reason

# First words of queries.
_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
# First words of commands, which the job refuses.
_COMMAND_WORDS_TEXT = (
    "ALTER ANALYZE CACHE CREATE DELETE DESC DESCRIBE DROP EXPLAIN INSERT MERGE REFRESH SET SHOW TRUNCATE UNCACHE "
    "UPDATE USE"
)
_COMMAND_WORDS = frozenset(_COMMAND_WORDS_TEXT.split())
# First words of other statements, which are not judged.
_OTHER_WORDS_TEXT = (
    "ADD BEGIN CALL CLEAR COMMENT COMMIT DECLARE DFS EXECUTE EXPORT FETCH GRANT IMPORT LIST LOAD LOCK MAP MSCK "
    "OPEN REDUCE REPAIR REPLACE RESET REVOKE ROLLBACK START UNLOCK"
)
_OTHER_WORDS = frozenset(_OTHER_WORDS_TEXT.split())
# Of Spark's syntax and unknown to sqlglot, or read by it in another way: such a text may be right although sqlglot
# refuses it.
_UNKNOWN_SYNTAX = re.compile(
    r"\|>|\?::|>>>|(?<!:):(?!:)|\{|\$|!<|!>|\b(?:VOID|MATCH_RECOGNIZE|VERSION|WATERMARK)\b", re.I
)
_TEXTS = re.compile(r"""r?'(?:[^'\\]|\\.|'')*'|r?"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.I | re.S)
# Words that Spark takes as names and sqlglot does not.
_NAMES_IN_SPARK_TEXT = "CASE VALUES TABLE WINDOW CUBE ROLLUP PIVOT UNPIVOT LATERAL ARRAY MAP STRUCT INTERVAL END"
_NAMES_IN_SPARK = frozenset(_NAMES_IN_SPARK_TEXT.split())

_AGGREGATES_TEXT = (
    "approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or collect_list "
    "collect_set corr count count_if covar_pop covar_samp first first_value kurtosis last last_value listagg max "
    "max_by mean median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx "
    "regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness std stddev "
    "stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance"
)
_AGGREGATES = frozenset(_AGGREGATES_TEXT.split())
_REPARTITION = frozenset(("REPARTITION", "REPARTITION_BY_RANGE", "COALESCE", "REBALANCE"))
# By the part of a query: what the user has written, and the token where it begins.
_CLAUSES: Mapping[str, tuple[str, str]] = {
    "group": ("GROUP BY", "GROUP"),
    "distinct": ("DISTINCT", "DISTINCT"),
    "order": ("ORDER BY", "ORDER"),
    "sort": ("SORT BY", "SORT"),
    "cluster": ("CLUSTER BY", "CLUSTER"),
    "distribute": ("DISTRIBUTE BY", "DISTRIBUTE"),
    "limit": ("LIMIT", "LIMIT"),
    "offset": ("OFFSET", "OFFSET"),
}
_ONE_RECORD = "transform each record on its own (SELECT, WHERE, explode), or declare spec.state"
# What a stateful pipeline takes, beside aggregate functions.
_JOIN = "JOIN"
_KEEPS_STATE = ("GROUP BY", "DISTINCT", _JOIN)
_AGGREGATE = "the aggregate function "


@dataclass(frozen=True)
class Judgement:
    """What is known of a query."""

    problems: tuple[TextProblem, ...] = ()
    # The columns of its output. None: not known.
    output: tuple[Output, ...] | None = None
    # The offset of the query's first word: where a problem of the output as a whole is shown.
    start: int = 0
    # Why the text is not judged: it may be right, and it may be wrong. None: it is judged.
    unread: TextProblem | None = None


def judge(sql: str, view: Mapping[str, str] | None, state: StateTerms | None = None) -> Judgement:
    """What Spark and the job certainly refuse in a query, and the columns of its output.

    view: the columns of the view `source` with their types, "" if not known. None: the columns are not known. state: of
    a stateful pipeline, whose query may group, join and drop duplicates.
    """
    try:
        tokens = tokenize(sql)
    except TokenError:
        return _refused(_unclosed(sql), 0)
    except TooComplex:
        return _unread(0, "it is too long")
    if not tokens:
        return Judgement()
    start = tokens[0].start
    if wrong := _first_word(tokens[0]):
        return Judgement((wrong,), start=start)
    if pipe := next((a for a, b in pairwise(tokens) if _is_pipe(a, b)), None):
        return _unread(pipe.start, "it has pipes (|>)", start)
    try:
        trees = parse(sql, tokens)
    except ParseError as e:
        return _refused(_syntax(sql, tokens, e), start, _place(tokens, e))
    except TooComplex:
        return _unread(start, "it is nested too deeply", start)
    except Exception:  # sqlglot raises others for some texts, for instance of a function with too few arguments
        return _unread(start, "its syntax is not known here", start)
    return _of_trees(trees, tokens, view, state)


def _refused(problems: Iterator[TextProblem], start: int, token: Token | None = None) -> Judgement:
    """The problems of a text that sqlglot does not read; without any, Spark may read it. token: where it ends."""
    certain = tuple(problems)
    if certain:
        return Judgement(certain, start=start)
    if token is None:
        return _unread(start, "its syntax is not known here", start)
    return _unread(token.start, f"its syntax is not known here at {token.text}", start)


def _unread(offset: int, why: str, start: int = 0) -> Judgement:
    problem = _invalid(offset, f"is not checked: {why}", "the job checks it when it starts")
    return Judgement(start=start, unread=problem)


def _of_trees(
    trees: list[exp.Expr], tokens: list[Token], view: Mapping[str, str] | None, state: StateTerms | None
) -> Judgement:
    start = tokens[0].start
    if len(trees) != 1:
        second = next((b for a, b in pairwise(tokens) if a.token_type is TokenType.SEMICOLON), None)
        if second is None:
            return _unread(start, "its syntax is not known here", start)
        problem = _invalid(second.start, "has a second statement", "write one query")
        return Judgement((problem,), start=start)
    [tree] = trees
    if not isinstance(tree, exp.Query):
        return _unread(start, f"it begins with {tokens[0].text}", start)
    structure = (
        *_empty_column(tokens),
        *_tables(tree, start),
        *sql_functions.methods_of_the_jvm(tree, tokens),
        *sql_functions.unknown(tree, tokens),
        *(_stateful(tree, tokens) if state is None else _not_built(tree, tokens, state)),
    )
    if structure:
        return Judgement(tuple(dict.fromkeys(structure))[:MAX_PROBLEMS], start=start)
    columns = SelectColumns(view)
    output, problems = columns.output(tree), tuple(columns.problems)
    if state is not None and not problems:
        names = None if view is None else frozenset(name.lower() for name in view)
        problems = tuple(group_problems(tree, tokens, state, names))[:MAX_PROBLEMS]
    return Judgement(problems, output, start)


def _invalid(offset: int, problem: str, remedy: str) -> TextProblem:
    return TextProblem(offset, problem, remedy, Reason.INVALID_TRANSFORM)


def _is_pipe(first: Token, second: Token) -> bool:
    return (first.text == "|" and second.text == ">" and first.end + 1 == second.start) or first.text == "|>"


def _unclosed(sql: str) -> Iterator[TextProblem]:
    """The quote or comment that is not closed, if that is what is wrong."""
    rest = _TEXTS.sub(lambda match: " " * len(match.group()), sql)
    match = re.search(r"['\"`]|/\*", rest)
    if match:
        yield _invalid(match.start(), f"has no end for {match.group()}", f"close {match.group()}")


def _first_word(first: Token) -> TextProblem | None:
    word = first.text.upper()
    if word in _COMMAND_WORDS:
        return _invalid(first.start, f"is not a query but a command ({word})", "write one SELECT")
    if not word.isalpha() or word in _OTHER_WORDS or word in _QUERY_WORDS:
        return None
    nearest = difflib.get_close_matches(word, _QUERY_WORDS, n=1, cutoff=0.6)
    remedy = f"did you mean {nearest[0]}?" if nearest else "write one SELECT"
    return _invalid(first.start, f"is not a query: it begins with {first.text}", remedy)


def _syntax(sql: str, tokens: list[Token], error: ParseError) -> Iterator[TextProblem]:
    """The place at which the text does not parse, unless Spark may read it in another way."""
    code = _TEXTS.sub(lambda match: " " * len(match.group()), sql)
    if _UNKNOWN_SYNTAX.search(code) or not error.errors:
        return
    details = error.errors[0]
    word = str(details.get("highlight") or "")
    if word.upper() in _NAMES_IN_SPARK or "TYPE" in str(details.get("description")):
        return
    at = _token_at(tokens, details)
    if at is None or _names_in_spark(tokens, at) or _is_typed_literal(tokens, at):
        return
    for misspelt in (at, at - 1):
        if keyword := _keyword_like(tokens[max(misspelt, 0)]):
            word = tokens[max(misspelt, 0)].text
            yield _invalid(tokens[max(misspelt, 0)].start, f"cannot be read at {word}", f"did you mean {keyword}?")
            return
    last = at == len(tokens) - 1 and "Unexpected token" not in str(details.get("description"))
    if last and tokens[at].text.isalpha() and tokens[at].token_type is not TokenType.FROM:
        return  # Spark takes most keywords as aliases: SELECT value FROM source WHERE
    place = "ends too early after" if last else "cannot be read at"
    yield _invalid(tokens[at].start, f"{place} {tokens[at].text}", "correct the syntax")


def _place(tokens: list[Token], error: ParseError) -> Token | None:
    """The token at which sqlglot stops."""
    at = _token_at(tokens, error.errors[0]) if error.errors else None
    return None if at is None else tokens[at]


def _token_at(tokens: list[Token], details: Mapping[str, object]) -> int | None:
    """The index of the token that an error of sqlglot highlights."""
    for i, token in enumerate(tokens):
        if (token.line, token.col) == (details.get("line"), details.get("col")):
            return i
    return None


def _names_in_spark(tokens: list[Token], at: int) -> bool:
    """Whether a word before the error may be a name in Spark, although sqlglot reads a keyword."""
    before = tokens[: at + 1]
    # Of two keywords one may be an alias, as in: source WHERE WHERE …, value AS FROM source.
    two_keywords = any(_is_keyword(a) and _is_keyword(b) for a, b in pairwise(before[-3:]))
    columns_named_from = (TokenType.COMMA, TokenType.FROM, TokenType.ALIAS)
    return (
        two_keywords
        or any(token.text.upper() in _NAMES_IN_SPARK for token in before)
        or any(a.token_type is TokenType.FROM and b.token_type in columns_named_from for a, b in pairwise(tokens))
    )


def _is_typed_literal(tokens: list[Token], at: int) -> bool:
    """Whether a text after a word may be a literal of Spark that sqlglot does not read: X '1C7'."""
    return any(
        a.token_type is TokenType.VAR and b.token_type is TokenType.STRING
        for a, b in pairwise(tokens[max(at - 1, 0) : at + 2])
    )


def _is_keyword(token: Token) -> bool:
    return token.text.isalpha() and token.token_type not in (TokenType.VAR, TokenType.STRING)


def _keyword_like(token: Token) -> str | None:
    """The keyword that a word resembles which is none itself."""
    if token.token_type is not TokenType.VAR:
        return None
    words = ("SELECT", "FROM", "WHERE", "LATERAL", "VIEW", "CAST", "WHEN", "BETWEEN", "LIKE", "GROUP", "ORDER")
    word = token.text.upper()
    return None if word in words else next(iter(difflib.get_close_matches(word, words, n=1, cutoff=0.7)), None)


def _empty_column(tokens: list[Token]) -> Iterator[TextProblem]:
    """A SELECT without columns, and commas without a column. sqlglot accepts both."""
    for first, second in pairwise(tokens):
        kinds = (first.token_type, second.token_type)
        if kinds == (TokenType.SELECT, TokenType.FROM):
            yield _invalid(first.start, "selects no column", "write columns between SELECT and FROM")
        elif kinds in ((TokenType.COMMA, TokenType.FROM), (TokenType.COMMA, TokenType.COMMA)):
            yield _invalid(first.start, "has a comma without a column", "remove it")
        elif kinds == (TokenType.SELECT, TokenType.COMMA):
            yield _invalid(second.start, "has a comma without a column", "remove it")


# ------------------------------------------------ records are transformed on their own


def _stateful(tree: exp.Expr, tokens: list[Token]) -> Iterator[TextProblem]:
    """What relates records to each other, which the job refuses."""
    written = {token.start: token for token in tokens}
    for node in tree.walk():
        for construct, offset in _constructs(node, tokens, written):
            problem = f"uses {construct}, which relates records to each other"
            yield TextProblem(offset, problem, _ONE_RECORD, Reason.NOT_STATELESS)


def _not_built(tree: exp.Expr, tokens: list[Token], state: StateTerms) -> Iterator[TextProblem]:
    """What a stateful pipeline cannot have, or lacks."""
    written = {token.start: token for token in tokens}
    used = [Construct(*named) for node in tree.walk() for named in _constructs(node, tokens, written)]
    aggregates = [construct for construct in used if construct.name.startswith(_AGGREGATE)]
    keeping = [construct for construct in used if construct.name in _KEEPS_STATE]
    for construct in used:
        if construct not in aggregates and construct not in keeping:
            yield _invalid(
                construct.offset,
                f"uses {construct.name}, which is not built for stateful pipelines",
                "use GROUP BY, DISTINCT, JOIN, and what treats each record on its own",
            )
    grouping = [construct for construct in keeping if construct.name != _JOIN]
    yield from join_problems(tree, tokens, state, grouping or aggregates)
    if aggregates and not any(construct.name == "GROUP BY" for construct in keeping):
        yield _invalid(aggregates[0].offset, "aggregates all records in one group", "add GROUP BY")
    elif not keeping:
        yield _invalid(tokens[0].start, "keeps no state, although spec.state is set", "add GROUP BY, or remove state")


def _constructs(node: exp.Expr, tokens: list[Token], written: Mapping[int, Token]) -> Iterator[tuple[str, int]]:
    """The names of what one node does to several records, each with its offset. written: the tokens by offset."""
    if isinstance(node, exp.Query):
        yield from _of_query(node, tokens)
    elif is_join(node):
        yield _JOIN, _keyword(tokens, "JOIN", ",")
    elif isinstance(node, exp.Hint):
        for hint in node.expressions:
            if isinstance(hint, exp.Expr) and hint.name.upper() in _REPARTITION:
                yield f"the hint {hint.name.upper()}", _keyword(tokens, "/*+")
    elif isinstance(node, exp.Func) and not isinstance(node.find_ancestor(exp.Window, exp.Query), exp.Window):
        name = written.get(offset_of(node) or 0)
        if name is not None and name.text.lower() in _AGGREGATES:
            yield f"{_AGGREGATE}{name.text}", name.start
    for kind, (construct, word) in _NODES.items():
        if isinstance(node, kind):
            yield construct, _keyword(tokens, word)


def _of_query(query: exp.Query, tokens: list[Token]) -> Iterator[tuple[str, int]]:
    for clause, (construct, word) in _CLAUSES.items():
        if query.args.get(clause):
            yield construct, _keyword(tokens, word)
    if isinstance(query, exp.SetOperation):
        word = type(query).__name__.upper()
        yield word, _keyword(tokens, word, "MINUS")
    elif query.parent is not None and not isinstance(query.parent, _QUERY_PARENTS):
        yield "a subquery", _first_offset(query, tokens)


def _keyword(tokens: list[Token], *words: str) -> int:
    """The offset of the first of these words."""
    return next((t.start for t in tokens if t.text.upper().split(" ")[0] in words), tokens[0].start)


_NODES: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.Window: ("a window function (OVER)", "OVER"),
    exp.TableSample: ("TABLESAMPLE", "TABLESAMPLE"),
    exp.QueryTransform: ("TRANSFORM … USING", "TRANSFORM"),
}
_QUERY_PARENTS = (exp.CTE, exp.From, exp.SetOperation, exp.Subquery, exp.Join, exp.Lateral)


def _first_offset(node: exp.Expr, tokens: list[Token]) -> int:
    """The offset of the SELECT before a node's first name."""
    name = min((offset for part in node.walk() if (offset := offset_of(part)) is not None), default=None)
    if name is None:
        return tokens[0].start
    return max((t.start for t in tokens if t.text.upper() == "SELECT" and t.start <= name), default=tokens[0].start)


def _tables(tree: exp.Expr, start: int) -> Iterator[TextProblem]:
    """Tables other than the view."""
    common = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [table for table in tree.find_all(exp.Table) if not table.find_ancestor(exp.Hint)]
    for table in tables:
        name = table.this
        if not isinstance(name, exp.Identifier) or name.name.lower() in (VIEW, "stream"):
            continue
        if name.name.lower() in common and not table.db:
            continue
        first = next((p for p in (table.args.get("catalog"), table.args.get("db"), name) if p), name)
        written = ".".join(part.name for part in table.parts)
        yield _invalid(
            offset_of(first) or start,
            f"reads {written}, and a pipeline has only the view {VIEW}",
            f"select FROM {VIEW}",
        )
    if isinstance(tree, exp.Select) and not tables and not tree.args.get("from_") and not tree.find(exp.Lateral):
        yield _invalid(start, f"does not read the view {VIEW}", f"select FROM {VIEW}")
