"""Judges source.schema, columns in Spark's DDL, without Spark. Pure.

It refuses only what Spark certainly refuses. What it does not understand passes: the job has the last word. The types
are those of Spark 4.1 (https://spark.apache.org/docs/4.1.1/sql-ref-datatypes.html).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ackwright_stream.reasons import Reason

METADATA = "kafka"  # the view's column with the record as it is in Kafka

# Every name of a type, with the name that Spark prints.
_SIMPLE = {
    **{"BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "BYTE": "TINYINT", "SMALLINT": "SMALLINT", "SHORT": "SMALLINT"},
    **{"INT": "INT", "INTEGER": "INT", "BIGINT": "BIGINT", "LONG": "BIGINT", "FLOAT": "FLOAT", "REAL": "FLOAT"},
    **{"DOUBLE": "DOUBLE", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP", "TIMESTAMP_NTZ": "TIMESTAMP_NTZ"},
    **{"TIMESTAMP_LTZ": "TIMESTAMP", "STRING": "STRING", "CHAR": "STRING", "CHARACTER": "STRING"},
    **{"VARCHAR": "STRING", "BINARY": "BINARY", "DECIMAL": "DECIMAL", "DEC": "DECIMAL", "NUMERIC": "DECIMAL"},
    **{"VOID": "VOID", "VARIANT": "VARIANT", "TIME": "TIME", "GEOMETRY": "GEOMETRY", "GEOGRAPHY": "GEOGRAPHY"},
}
_NESTED = ("ARRAY", "MAP", "STRUCT", "INTERVAL")
_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z_0-9]+)|(?P<quoted>`(?:[^`]|``)*`)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<sign>[<>(),:]))"""
)


@dataclass(frozen=True)
class TextProblem:
    """What is wrong at one character of a text of the spec."""

    offset: int  # of the character
    problem: str
    remedy: str
    reason: Reason = Reason.INVALID_SPEC


@dataclass(frozen=True)
class Schema:
    """What is known of a schema."""

    # By the column's name: the type as Spark prints it, or "" for a nested one. None: the text is not understood.
    columns: dict[str, str] | None
    problems: tuple[TextProblem, ...] = ()


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    offset: int


class _Stop(Exception):
    """Ends the reading of a schema: at a problem, or without one where the text is not understood."""

    def __init__(self, problem: TextProblem | None = None) -> None:
        super().__init__()
        self.problem = problem


def unquoted(name: str) -> str:
    """The name of a column that may be written between backticks."""
    return name[1:-1].replace("``", "`") if len(name) >= 2 and name[0] == name[-1] == "`" else name


def read(ddl: str) -> Schema:
    """The columns of a schema, and what Spark certainly refuses in it."""
    try:
        tokens = _tokens(ddl)
        if len(tokens) == 1 and tokens[0].text.upper() in _SIMPLE:
            raise _Stop(TextProblem(0, "is one type and no list of columns", 'write columns: "id BIGINT, name STRING"'))
        return Schema(_Reader(tokens, len(ddl)).columns())
    except _Stop as stop:
        return Schema(None, (stop.problem,) if stop.problem else ())


def _tokens(ddl: str) -> list[_Token]:
    tokens, position = [], 0
    while ddl[position:].strip():
        match = _TOKEN.match(ddl, position)
        if match is None:  # a comment, for instance
            raise _Stop
        kind = match.lastgroup or ""
        tokens.append(_Token(kind, match.group(kind), match.start(kind)))
        position = match.end()
    return tokens


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: Sequence[_Token], end: int) -> None:
        self._tokens = tokens
        self._at = 0
        self._end = _Token("end", "", end)

    def columns(self) -> dict[str, str]:
        """The columns of the whole text."""
        columns: dict[str, str] = {}
        while True:
            name = self._name()
            if name.text.lower() == METADATA:
                problem = f"has a column {METADATA}, which is the record's metadata"
                raise _Stop(TextProblem(name.offset, problem, "rename it"))
            if name.text in columns:
                raise _Stop  # Spark refuses only a query that reads it
            columns[name.text] = self._type(name)
            self._after_type(name)
            if self._next().kind == "end":
                return columns
            self._take(",")

    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else self._end

    def _advance(self) -> _Token:
        token = self._next()
        self._at += 1
        return token

    def _take(self, sign: str) -> None:
        if self._advance().text != sign:
            raise _Stop

    def _name(self) -> _Token:
        token = self._advance()
        if token.kind == "quoted":
            return _Token("word", unquoted(token.text), token.offset)
        if token.kind != "word":
            raise _Stop
        return token

    def _type(self, column: _Token) -> str:
        if self._next().text == ":":
            self._advance()
        token = self._advance()
        if token.text in (",", ">") or token.kind == "end":
            raise _Stop(
                TextProblem(column.offset, f"the column {column.text} has no type", f"write {column.text} STRING")
            )
        if token.kind != "word":
            raise _Stop
        name = token.text.upper()
        if name in _SIMPLE:
            if self._next().text == "(":
                self._skip_brackets("(", ")")
            return _SIMPLE[name]
        if name == "STRUCT" and self._next().text == "<":
            self._fields()
            return ""
        if name in ("ARRAY", "MAP") and self._next().text == "<":
            self._elements(column)
            return ""
        if name in _NESTED or self._next().text in ("(", "<"):
            raise _Stop
        # A type of a later Spark is none that resembles a known one.
        nearest = difflib.get_close_matches(name, [*_SIMPLE, *_NESTED], n=1, cutoff=0.7)
        if not nearest:
            raise _Stop
        raise _Stop(TextProblem(token.offset, f"Spark has no type {token.text}", f"did you mean {nearest[0]}?"))

    def _fields(self) -> None:
        self._take("<")
        while self._next().text != ">":
            name = self._name()
            self._type(name)
            self._after_type(name)
            if self._next().text == ",":
                self._advance()
            elif self._next().text != ">":
                raise _Stop
        self._take(">")

    def _elements(self, column: _Token) -> None:
        self._take("<")
        self._type(column)
        while self._next().text == ",":
            self._advance()
            self._type(column)
        self._take(">")

    def _skip_brackets(self, opening: str, closing: str) -> None:
        self._take(opening)
        while self._next().text not in (closing, ""):
            self._advance()
        self._take(closing)

    def _after_type(self, column: _Token) -> None:
        """Passes over NOT NULL and COMMENT; stops without a problem at anything else that is no comma."""
        while self._next().kind == "word":
            token = self._advance()
            word, following = token.text.upper(), self._next()
            is_not_null = word == "NOT" and following.text.upper() == "NULL"
            if is_not_null or (word == "COMMENT" and following.kind == "text"):
                self._advance()
            elif word not in ("COLLATE", "DEFAULT", "GENERATED") and following.text.upper() in _SIMPLE:
                problem = f"there is no comma between the columns {column.text} and {token.text}"
                raise _Stop(TextProblem(token.offset, problem, "write one"))
            else:
                raise _Stop
