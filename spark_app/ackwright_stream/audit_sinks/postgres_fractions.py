"""The same as audit_fractions.py in SQL, for a comparison that PostgreSQL makes. Contacts no server.

names: the columns of the output, with their names in the comparison. tolerances: of columns whose numbers may differ.
"""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import sql


def with_expected_numbers(
    every: sql.Composed, names: Mapping[str, sql.Identifier], tolerances: Mapping[str, float]
) -> sql.Composed:
    """The rows, with expected numbers in place of the actual ones within their tolerance.

    every: a query of expected and actual rows, with k, which is 2 for actual ones. The other columns say which rows
    belong together; of these, all expected ones have the same numbers.
    """
    if not tolerances:
        return every
    exact = [column for name, column in names.items() if name not in tolerances]
    of_output = {name: sql.SQL("max({}) FILTER (WHERE k < 2) OVER w").format(names[name]) for name in tolerances}
    close = sql.SQL(" AND ").join(_close(names[name], of_output[name], tolerances[name]) for name in tolerances)
    replaced = [
        sql.SQL("CASE WHEN k = 2 AND {0} THEN {1} ELSE {2} END AS {2}").format(close, of_output[name], names[name])
        for name in tolerances
    ]
    window = sql.SQL("PARTITION BY {}").format(sql.SQL(", ").join(exact)) if exact else sql.SQL("")
    return sql.SQL("SELECT {}, k FROM ({}) AS every WINDOW w AS ({})").format(
        sql.SQL(", ").join([*exact, *replaced]), every, window
    )


def equal(names: Mapping[str, sql.Identifier], tolerances: Mapping[str, float]) -> sql.Composed:
    """Whether the rows c (expected) and a (actual) are equal, their numbers within the tolerances."""
    pairs = {name: [sql.SQL(f"{row}.{{}}").format(column) for row in "ca"] for name, column in names.items()}
    exact = [pair for name, pair in pairs.items() if name not in tolerances]
    rows = [sql.SQL(", ").join(of_row) for of_row in zip(*exact, strict=True)]
    close = [_close(a, c, tolerances[name]) for name, (c, a) in pairs.items() if name in tolerances]
    return sql.SQL(" AND ").join([sql.SQL("ROW({}) IS NOT DISTINCT FROM ROW({})").format(*rows), *close])


def _close(actual: sql.Composable, expected: sql.Composable, tolerance: float) -> sql.Composed:
    """Whether two numbers are equal within a tolerance. The server refuses to compute with the largest and smallest."""
    return sql.SQL(
        "CASE WHEN {0} IS NOT DISTINCT FROM {1} THEN true WHEN abs({0}) BETWEEN 1e-290 AND 1e290 "
        "AND abs({1}) BETWEEN 1e-290 AND 1e290 THEN abs({0}::float8 - {1}::float8) <= {2} * abs({1}::float8) "
        "ELSE false END"
    ).format(actual, expected, sql.Literal(tolerance))
