"""Reads SQL by sqlglot's Spark dialect, with limited work. Pure.

The operator judges texts of every tenant, and sqlglot tries some constructs in several ways: the time that it takes for
nested `struct(` and for joins without conditions doubles with each of them. The limits count work and no time, so that
a text is always judged in the same way.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

# sqlglot warns of statements that it does not parse.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

MAX_CHARACTERS = 20_000
# Steps from token to token. The texts of tests/sql_texts.py need at most 3 for each token.
_STEPS, _STEPS_PER_TOKEN = 5_000, 10
# sqlglot copies a nested type at each level.
_MAX_NESTED_TYPES = 64
_NESTED_TYPES = frozenset(("ARRAY", "MAP", "STRUCT"))


class TooComplex(Exception):
    """A text that takes too much work."""


class _Parser(SparkParser):
    """Ends with TooComplex after so many steps."""

    def __init__(self, steps: int, **options: Any) -> None:
        super().__init__(**options)
        self._steps = steps

    def _advance(self, times: int = 1) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise TooComplex
        super()._advance(times)


def tokenize(sql: str) -> list[Token]:
    """The tokens of a text. Raises sqlglot's TokenError, and TooComplex for a long text."""
    if len(sql) > MAX_CHARACTERS:
        raise TooComplex
    return Spark().tokenize(sql)


def parse(sql: str, tokens: list[Token]) -> list[exp.Expr]:
    """The statements of a text. Raises sqlglot's ParseError, others of its errors for some texts, and TooComplex."""
    nested = sum(a.text.upper() in _NESTED_TYPES and b.text == "<" for a, b in pairwise(tokens))
    if nested > _MAX_NESTED_TYPES:
        raise TooComplex
    parser = _Parser(_STEPS + _STEPS_PER_TOKEN * len(tokens), dialect=Spark())
    try:
        return [tree for tree in parser.parse(_with_window(tokens), sql) if tree is not None]
    except RecursionError as e:
        raise TooComplex from e


def _with_window(tokens: list[Token]) -> list[Token]:
    """The tokens with Spark's function window() as a name.

    sqlglot reads the clause WINDOW, behind which a name stands and no parenthesis.
    """
    return [
        Token(TokenType.VAR, a.text, a.line, a.col, a.start, a.end, a.comments)
        if a.token_type is TokenType.WINDOW and b is not None and b.token_type is TokenType.L_PAREN
        else a
        for a, b in zip(tokens, [*tokens[1:], None], strict=True)
    ]
