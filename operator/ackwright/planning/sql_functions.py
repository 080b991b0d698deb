"""Which functions a query calls that Spark does not have, or that the job refuses. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ackwright.planning.schema_ddl import TextProblem
from ackwright.planning.spark_functions import FUNCTIONS
from ackwright.planning.sql_columns import MAX_NAME, offset_of
from ackwright_stream.jobspec import REFUSED_FUNCTIONS
from ackwright_stream.reasons import Reason

# Of Spark's grammar, and not in its registry of functions.
_CALLED_BY_GRAMMAR_TEXT = (
    "cast date_add date_diff dateadd datediff exists extract identifier overlay percentile_cont percentile_disc "
    "position stream struct table timediff timestampadd timestampdiff trim try_cast values"
)
_CALLED_BY_GRAMMAR = frozenset(_CALLED_BY_GRAMMAR_TEXT.split())
# Of other words, a parenthesis may follow a keyword.
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


def unknown(tree: exp.Expr, tokens: list[Token]) -> Iterator[TextProblem]:
    """Calls of functions that Spark does not have. sqlglot knows some that only other databases have."""
    called = {a.start: a.text for a, b in pairwise(tokens) if a.token_type in _NAMES and b.text == "("}
    for call in tree.find_all(exp.Func):
        offset = offset_of(call)
        name = None if offset is None else called.get(offset)
        if offset is None or name is None or name.lower() in FUNCTIONS or name.lower() in _CALLED_BY_GRAMMAR:
            continue
        if isinstance(call.parent, exp.Dot) or call.find_ancestor(exp.Hint):
            continue  # a function of a catalog, which is not known here; a hint
        nearest = difflib.get_close_matches(name.lower()[:MAX_NAME], FUNCTIONS, n=1, cutoff=0.6)
        remedy = f"did you mean {nearest[0]}?" if nearest else "use a function of Spark SQL"
        yield _invalid(offset, f"calls {name}, and Spark has no such function", remedy)


def methods_of_the_jvm(tree: exp.Expr, tokens: list[Token]) -> Iterator[TextProblem]:
    """Functions that the job removes from Spark, because they call any method of its JVM."""
    for call in tree.find_all(exp.Anonymous):
        name = call.name.lower()
        if name in REFUSED_FUNCTIONS:
            offset = next((t.start for t in tokens if t.text.lower() == name), tokens[0].start)
            yield _invalid(offset, f"calls {name}, which can run any code in the job", "use another function of Spark")


def _invalid(offset: int, problem: str, remedy: str) -> TextProblem:
    return TextProblem(offset, problem, remedy, Reason.INVALID_TRANSFORM)
