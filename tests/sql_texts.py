"""SQL texts for the judgement before Spark: of the unit tests, and of the comparison with Spark itself."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

# Syntax that Spark has: no text is refused. Columns need not exist.
ACCEPTED: tuple[str, ...] = (
    "WITH c AS (SELECT * FROM source WHERE kafka.offset > 1) SELECT key, value FROM c",
    "SELECT explode(split(CAST(value AS STRING), ' ')) AS value FROM source",
    "SELECT v AS value FROM source LATERAL VIEW explode(array('a', 'b')) t AS v",
    "SELECT v AS value FROM source LATERAL VIEW OUTER posexplode(array('a', 'b')) t AS p, v",
    "SELECT key, aggregate(array(1, 2), 0, (a, b) -> a + b) || '' AS value FROM source",
    "FROM source |> WHERE key IS NOT NULL |> SELECT value",
    "FROM source SELECT value",
    "SELECT CAST(NULL AS STRUCT<q: INT>) AS value FROM source",
    "SELECT CAST(value AS STRING):a.b AS value FROM source",
    "SELECT value::string AS value FROM source",
    "SELECT TIMESTAMP '2026-01-02T03:04:05.123456Z' AS t, value FROM source",
    "SELECT TIMESTAMP_NTZ '2026-01-02 03:04:05.000001' AS n, DATE '2026-01-02' AS d, value FROM source",
    "SELECT TIMESTAMP_LTZ '2026-01-02 03:04:05' AS value FROM source",
    "SELECT X'1C7' AS value FROM source",
    "SELECT bitmap_count(X '1010') AS value FROM source",
    "SELECT x '1C7' AS value FROM source",
    "SELECT r'\\d+' AS value FROM source",
    "SELECT 1L AS a, 2S AS b, 3Y AS c, 1.5BD AS d, 1.0D AS e, 1.0F AS f, value FROM source",
    "SELECT 1e3BD AS value FROM source",
    "SELECT INTERVAL '1' DAY AS value FROM source",
    "SELECT INTERVAL 1 DAY 2 HOURS AS value FROM source",
    "SELECT INTERVAL '1-2' YEAR TO MONTH AS value FROM source",
    "SELECT value FROM source WHERE value RLIKE 'x' OR value REGEXP 'y' OR value ILIKE 'z'",
    "SELECT value FROM source WHERE value LIKE ANY ('a%', 'b%')",
    "SELECT value FROM source WHERE value NOT LIKE ALL ('a%', 'b%')",
    "SELECT value FROM source WHERE value LIKE 'a!%' ESCAPE '!'",
    "SELECT value FROM source WHERE value <=> 'x' AND value != 'y' AND NOT (value == 'z') AND value <> 'q'",
    "SELECT value FROM source WHERE value IS DISTINCT FROM 'x'",
    "SELECT 5 DIV 2 AS value FROM source",
    "SELECT 5 % 2 AS value, 5 & 2, 5 | 2, 5 ^ 2, ~5, -5, +5, 1 << 2, 8 >> 1, 8 >>> 1 FROM source",
    "SELECT value, !true FROM source",
    "SELECT a[0] AS value FROM source",
    "SELECT kafka.headers[0].value AS value FROM source",
    "SELECT filter(kafka.headers, h -> h.key = 'x')[0].value AS value FROM source",
    "SELECT transform(array(1), (x, i) -> x + i) AS value FROM source",
    "SELECT try_element_at(map('a', 1), 'a') AS value FROM source",
    "SELECT CASE WHEN a THEN 1 ELSE 2 END AS value FROM source",
    "SELECT CASE a WHEN 1 THEN 1 END AS value FROM source",
    "SELECT IF(a, 1, 2) AS value FROM source",
    "SELECT struct(a, b) AS value FROM source",
    "SELECT named_struct('a', 1, 'b', 2).a AS value FROM source",
    "SELECT (a, b) AS value FROM source",
    "SELECT struct(*) AS value FROM source",
    "SELECT to_json(struct(*)) AS value FROM source",
    "SELECT * EXCEPT (kafka) FROM source",
    "SELECT * EXCEPT (kafka, key) FROM source",
    "SELECT source.* FROM source",
    "SELECT kafka.* FROM source",
    "SELECT s.value FROM source s",
    "SELECT s.value FROM source AS s",
    "SELECT s.v AS value FROM source AS s(k, v, m)",
    "SELECT value FROM (SELECT value FROM source WHERE key IS NOT NULL) AS s",
    "SELECT value FROM (SELECT value FROM source)",
    "SELECT stack(2, 'a', 'b') AS value FROM source",
    "SELECT inline(array(struct(1 AS a))) FROM source",
    "SELECT posexplode(array(1)) AS (p, value) FROM source",
    "SELECT extract(YEAR FROM kafka.timestamp) AS value FROM source",
    "SELECT date_trunc('hour', kafka.timestamp) AS value FROM source",
    "SELECT substring(value FROM 1 FOR 2) AS value FROM source",
    "SELECT substring(value, 1, 2) AS value FROM source",
    "SELECT trim(BOTH 'x' FROM value) AS value FROM source",
    "SELECT position('a' IN value) AS value FROM source",
    "SELECT overlay(value PLACING 'x' FROM 1 FOR 2) AS value FROM source",
    "SELECT CAST(value AS DECIMAL(10, 2)) AS value FROM source",
    "SELECT try_cast(value AS INT) AS value FROM source",
    "SELECT CAST(value AS ARRAY<STRUCT<a: INT, b: MAP<STRING, INT>>>) AS value FROM source",
    "SELECT from_json(value, 'a INT, b STRING').a AS value FROM source",
    "SELECT from_json(CAST(value AS STRING), 'a INT') AS v, value FROM source",
    "SELECT get_json_object(value, '$.a') AS value FROM source",
    "SELECT `value` FROM `source`",
    "SELECT `my ``col` AS value FROM source",
    "SELECT value value FROM source",
    "SELECT value FROM source WHERE",  # an alias
    "SELECT value FROM source WHERE WHERE value IS NOT NULL",
    "SELECT value AS FROM source",  # the alias is AS
    "SELECT /*+ BROADCAST(s) */ value FROM source s",
    "SELECT value -- comment\nFROM source",
    "SELECT value /* comment */ FROM source",
    "SELECT value FROM source;",
    "VALUES (1)",
    "TABLE source",
    "SELECT value FROM source WHERE value IN ('a', 'b')",
    "SELECT value FROM source WHERE kafka.offset BETWEEN 1 AND 2",
    "SELECT value FROM source WHERE kafka.timestamp > current_timestamp() - INTERVAL 1 DAY",
    "SELECT value FROM source WHERE current_date > DATE'2020-01-01'",
    "SELECT value FROM source LATERAL VIEW explode(array(1)) AS x",
    "SELECT value FROM source, LATERAL explode(array(1)) AS t(x)",
    "SELECT UPPER(value) COLLATE UNICODE_CI AS value FROM source",
    "SELECT value FROM source WHERE value = :p",
    "SELECT timestampadd(HOUR, 1, kafka.timestamp) AS value FROM source",
    "SELECT timestampdiff(HOUR, kafka.timestamp, kafka.timestamp) AS value FROM source",
    "SELECT datediff(kafka.timestamp, kafka.timestamp) AS value FROM source",
    "SELECT a.b.c.my_udf(value) AS value FROM source",
    "SELECT ceil(1.5, 1) AS value, current_timestamp, current_user FROM source",
    "SELECT value FROM source UNPIVOT (v FOR n IN (a, b))",
    "SELECT * FROM source UNPIVOT INCLUDE NULLS (v FOR n IN (a, b))",
    "SELECT variant_get(parse_json(value), '$.a', 'int') AS value FROM source",
    "SELECT 'a' 'b' AS value FROM source",
    'SELECT "a" AS value FROM source',
    "SELECT value FROM IDENTIFIER('source')",
    "SELECT array(1,2)[0] value, map('a',1)['a'], element_at(array(1),1) FROM source",
    "SELECT date AS value, timestamp, year, day, user, type, data, offset FROM source",
    "SELECT row AS value, status, time, interval, comment, format FROM source",
    "SELECT left AS value FROM source",
    "SELECT order AS value FROM source",
    "SELECT a.order, a.group, a.from, kafka.partition, kafka.offset AS value FROM source a",
    "SELECT window, values, start, end, index, table, partition, level, rank FROM source",
    "SELECT case, key, value, schema, map, struct, array FROM source",
    "SELECT 1 AS `select`, 2 AS end, 3 AS from, value FROM source",
    "SELECT a AS order, b AS group, value FROM source",
    "SELECT sum AS value, count, min, max, avg FROM source",
    "SELECT 1__a AS value FROM source",
    "SELECT 2024_id AS value FROM source",
    "SELECT exists(array(1), x -> x > 0) AS value FROM source",
    "SELECT some_col is true as value from source where b is not false",
    "SELECT to_timestamp(value, \"yyyy-MM-dd'T'HH\") AS value FROM source",
    "SELECT value FROM source WHERE value = 'it''s' OR value = 'it\\'s'",
    "SELECT map_from_entries(transform(kafka.headers, h -> struct(h.key, h.value)))['x'] AS value FROM source",
    "SELECT timestamp(value), date(value), string(value), int(value), binary(value) AS value FROM source",
    "SELECT TIME '12:00:00' AS value FROM source",
    "SELECT value FROM stream source",
    "SELECT value FROM STREAM(source)",
    "WITH RECURSIVE t AS (SELECT 1) SELECT value FROM source",
    "WITH a(v) AS (SELECT value FROM source), b AS (SELECT v AS value FROM a) SELECT value FROM b",
    "EXECUTE IMMEDIATE 'SELECT value FROM source'",
    "SELECT reduce(array(1), 0, (acc, x) -> acc + x, acc -> acc * 2) AS value FROM source",
    "SELECT sha2(value, 256) as value, hash(*), xxhash64(*) FROM source",
    "SELECT ELEMENT_AT(SPLIT(value, ','), -1) value FROM source WHERE array_contains(split(value, ','), 'x')",
    "SELECT CAST(a AS TIMESTAMP_NTZ), CAST(a AS TIMESTAMP_LTZ), CAST(a AS VOID), a AS value FROM source",
    "SELECT CAST(a AS VARIANT), CAST(a AS INTERVAL DAY TO SECOND), CAST(a AS CHAR(3)), CAST(a AS LONG) FROM source",
    "SELECT value FROM source WHERE (a, b) IN ((1, 2))",
    "SELECT CAST(a AS GEOMETRY(4326)), CAST(a AS TIME(6)), CAST(a AS STRING COLLATE UTF8_LCASE) FROM source",
    "SELECT value FROM source WATERMARK",
)

# What Spark or the job refuses, with the text at which the error is shown. The view has key, value and kafka.
REFUSED: tuple[tuple[str, str], ...] = (
    ("SELECT conct(key, 'x') AS value FROM source", "conct"),
    ("SELECT CAST(value AS STRING) AS value FROM source WHERE NOT `is_nul`(key)", "`is_nul`"),
    ("SELECT upper(my_udf(value)) AS value FROM source", "my_udf"),
    ("SELECT CAST(strpos(CAST(value AS STRING), 'a') AS STRING) AS value FROM source", "strpos"),  # of PostgreSQL
    ("SELECT v AS value FROM source LATERAL VIEW explod(array('a')) t AS v", "explod"),
    ("SELECT reflect('java.lang.System', 'getenv') AS value FROM source", "reflect"),
    ("SELECT value FROM source WHERE Java_Method('java.util.UUID', 'randomUUID') <> 'a'", "Java_Method"),
    ("SELECT concat(value, try_reflect('java.lang.System', 'getenv', 'HOME')) AS value FROM source", "try_reflect"),
    ("SELECT `reflect`('java.lang.System', 'getenv') AS value FROM source", "`reflect`"),
    ("SELEC id", "SELEC"),
    ("hello", "hello"),
    ("SELECT value FORM source", "FORM"),
    ("SELECT value FROM source WHRE key = 'a'", "WHRE"),
    ("SELECT (value FROM source", "FROM"),
    ("SELECT value FROM source)", ")"),
    ("SELECT value, FROM source", ","),
    ("SELECT , value FROM source", ","),
    ("SELECT value FROM", "FROM"),
    ("SELECT 'a FROM source", "'a"),
    ("SELECT value FROM source WHERE key =", "="),
    ("SELECT CAST(value STRING) AS value FROM source", "STRING"),
    ("SELECT value FROM source GROUP key", "key"),
    ("SELECT FROM source", "SELECT"),
    ("SELECT value value2 value3 FROM source", "value3"),
    ("SELECT value FROM source; SELECT 1", "SELECT 1"),
    ("DROP TABLE source", "DROP"),
    ("CREATE TABLE x AS SELECT 1", "CREATE"),
    ("INSERT INTO x SELECT value FROM source", "INSERT"),
    ("SET a = b", "SET"),
    ("SHOW TABLES", "SHOW"),
    ("UPDATE source SET a = 1", "UPDATE"),
    ("SELECT value FROM orders", "orders"),
    ("SELECT value FROM db.orders", "db.orders"),
    ("SELECT 'x' AS value", "SELECT"),
    ("WITH c AS (SELECT value FROM sauce) SELECT value FROM c", "sauce"),
    ("SELECT key, CAST(count(*) AS STRING) AS value FROM source GROUP BY key", "GROUP"),
    ("SELECT max(value) AS value FROM source", "max"),
    ("SELECT CAST(count(*) FILTER (WHERE key = 'a') AS STRING) AS value FROM source", "count"),
    ("SELECT first(value) IGNORE NULLS AS value FROM source", "first"),
    ("SELECT max(value) AS value FROM source GROUP BY key", "GROUP"),
    ("SELECT key, max(value) AS value FROM source GROUP BY key", "max"),
    ("SELECT value FROM source ORDER BY value", "ORDER"),
    ("SELECT /*+ REPARTITION(2) */ value FROM source", "/*+"),
    ("SELECT value FROM source WHERE key = (SELECT 'x')", "SELECT 'x'"),
    ("SELECT DISTINCT value FROM source", "DISTINCT"),
    ("SELECT value FROM source ORDER BY key", "ORDER"),
    ("SELECT value FROM source LIMIT 3", "LIMIT"),
    ("SELECT value FROM source UNION ALL SELECT value FROM source", "UNION"),
    ("SELECT a.value FROM source a JOIN source b ON a.key = b.key", "JOIN"),
    ("SELECT first_value(value) OVER (PARTITION BY key ORDER BY kafka.offset) AS value FROM source", "OVER"),
    ("SELECT /*+ REPARTITION(3) */ value FROM source", "/*+"),
    ("SELECT value FROM source TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT value FROM source DISTRIBUTE BY key", "DISTRIBUTE"),
    ("SELECT value FROM source SORT BY key", "SORT"),
    ("SELECT value FROM source WHERE key IN (SELECT key FROM source)", "SELECT key"),
    ("SELECT value FROM source WHERE EXISTS (SELECT 1)", "SELECT 1"),
    ("WITH c AS (SELECT value FROM source ORDER BY key) SELECT * FROM c", "ORDER"),
    ("SELECT TRANSFORM(value) USING 'cat' AS (value) FROM source", "TRANSFORM"),
    ("SELECT valeu AS value FROM source", "valeu"),
    ("SELECT s.valeu AS value FROM source s", "valeu"),
    ("SELECT upper(valeu) AS value FROM source", "valeu"),
    ("SELECT value FROM source WHERE kye = 'a'", "kye"),
    ("WITH c AS (SELECT value AS v FROM source) SELECT value FROM c", "value FROM c"),
    ("SELECT x.v AS value FROM (SELECT value FROM source) x", "v AS value"),
)

# What the sink of format binary refuses in an output, with the text at which the error is shown.
REFUSED_OUTPUTS: tuple[tuple[str, str], ...] = (
    ("SELECT key FROM source", "SELECT"),
    ("SELECT upper(CAST(value AS STRING)) FROM source", "SELECT"),
    ("SELECT value, kafka.offset AS o FROM source", "kafka.offset AS o"),
    ("SELECT value, value FROM source", "value FROM"),
    ("SELECT * FROM source", "SELECT"),
)


# A stateful transform of the job, which the spec does not offer yet.
COUNTS_WITH_MARKS = """
    SELECT name AS key, concat_ws(' ', count(*), first(mark)) AS value
    FROM (
        SELECT concat(CAST(key AS STRING), '/', CAST(split(CAST(value AS STRING), ':')[1] AS INT) DIV 100) AS name,
               rand() AS mark
        FROM source
    )
    GROUP BY name
"""


# The number of records of each key of a source with the format string.
COUNTS_BY_KEY = "SELECT key, CAST(count(*) AS STRING) AS value FROM source GROUP BY key"

# What a stateful pipeline cannot have, or lacks, each with a part of the problem. The view has a column `at`.
NOT_BUILT = (
    ("SELECT CAST(at AS STRING) AS value FROM source", "keeps no state"),
    ("SELECT CAST(count(*) AS STRING) AS value FROM source", "aggregates all records in one group"),
    ("SELECT DISTINCT CAST(at AS STRING) AS value FROM source ORDER BY value", "uses ORDER BY"),
    (
        "SELECT CAST(a.at AS STRING) AS value FROM source a JOIN source b ON a.at = b.at GROUP BY a.at",
        "uses GROUP BY together with JOIN",
    ),
    ("SELECT 'x' AS topic, CAST(count(*) AS STRING) AS value FROM source GROUP BY at", "the column topic"),
)

# The columns of the view for the groups below; the event time is `at`.
GROUP_COLUMNS = {"id": "STRING", "at": "TIMESTAMP", "sent": "TIMESTAMP", "kafka": ""}


def _counted(groups: str, source: str = "source") -> str:
    return f"SELECT id AS key, CAST(count(*) AS STRING) AS value FROM {source} GROUP BY {groups}"  # noqa: S608


_SESSIONS = (
    "SELECT 'all' AS key, CAST(count(*) AS STRING) AS value FROM source GROUP BY session_window(at, '5 minutes')"
)

# Groups that the watermark ends.
GROUPS = (
    _counted("id, window(at, '1 minute')"),
    _counted("id, WINDOW(s.AT, '1 minute', '10 seconds')", "source AS s"),
    _counted("id, (at)"),
    _counted("id, source.at"),
    _counted("id, session_window(at, '5 minutes')"),
    _counted("kafka.topic, id, session_window(at, '5 minutes')"),
    "SELECT id AS key, window(at, '1 minute') AS w, CAST(count(*) AS STRING) AS value FROM source GROUP BY id, w",
    "SELECT id AS key, window(at, '1 minute') AS w, CAST(count(*) AS STRING) AS value FROM source GROUP BY 1, 2",
    "SELECT id AS key, at AS time, CAST(count(*) AS STRING) AS value FROM source GROUP BY id, time",
    "SELECT id AS key, window(at, '1 minute') AS w, CAST(count(*) AS STRING) AS value FROM source GROUP BY ALL",
    "SELECT key, CAST(count(*) AS STRING) AS value FROM (SELECT id AS key, at AS t FROM source) GROUP BY key, t",
    "SELECT DISTINCT id AS key, at FROM source",
    "SELECT DISTINCT * FROM source",
    "SELECT DISTINCT id AS key, window(at, '1 minute') AS value FROM source",
)
# With append: what the job refuses, the text at which that is shown, and a part of the problem.
REFUSED_GROUPS = (
    (_counted("id"), "GROUP BY", "no watermark ends its groups"),
    (_counted("id, window(sent, '1 minute')"), "GROUP BY", "window of sent, and not of the event time at"),
    (_counted("id, window(kafka.timestamp, '1 minute')"), "GROUP BY", "window of kafka.timestamp"),
    (_counted("id, window(at + INTERVAL 1 HOUR, '1 minute')"), "GROUP BY", "no watermark ends its groups"),
    (_counted("id, date_trunc('hour', at)"), "GROUP BY", "no watermark ends its groups"),
    (
        "SELECT date_trunc('hour', at) AS key, CAST(count(*) AS STRING) AS value FROM source GROUP BY 1",
        "GROUP BY",
        "no",
    ),
    ("SELECT DISTINCT id AS key, id AS value FROM source", "DISTINCT", "no watermark ends its groups"),
    ("SELECT DISTINCT id AS key, date_trunc('hour', at) AS value FROM source", "DISTINCT", "no watermark ends"),
    (_SESSIONS, "GROUP BY", "by session_window alone"),
)
# With update: as above.
REFUSED_UPDATES = (
    (_counted("id, session_window(at, '5 minutes')"), "session_window", "outputMode update"),
    (_SESSIONS, "session_window", "outputMode update"),
)

# The columns of the view for the joins below.
JOIN_COLUMNS = {"id": "STRING", "order_id": "STRING", "amount": "STRING", "at": "TIMESTAMP"}
JOIN = """
    SELECT o.id AS key, concat(o.amount, ' ', p.amount) AS value FROM source o JOIN source p
    ON o.id = p.order_id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR
    WHERE o.kafka.topic = 'orders' AND p.kafka.topic = 'payments'
"""
_SELECT = "SELECT o.id AS key, p.amount AS value FROM source o"
_EQUAL = f"{_SELECT} JOIN source p ON o.id = p.order_id"
_WITHIN = "o.id = p.order_id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR"
_ORDERS = "(SELECT * FROM source WHERE kafka.topic = 'orders') o"
_PAYMENTS = "(SELECT * FROM source WHERE kafka.topic = 'payments') p"


def joined_sides(kind: str, condition: str = _WITHIN) -> str:
    """A join of this kind of orders with payments, of which each side is filtered before the join."""
    columns = "o.id AS key, o.amount AS value"
    if "SEMI" not in kind:
        columns = (
            "coalesce(o.id, p.order_id) AS key, concat_ws(' ', nvl(o.amount, 'none'), nvl(p.amount, 'none')) AS value"
        )
    return f"SELECT {columns} FROM {_ORDERS} {kind} JOIN {_PAYMENTS} ON {condition}"  # noqa: S608


# Each order has a random mark, which is in the state.
JOIN_WITH_MARKS = f"""
    SELECT o.id AS key, concat_ws(' ', o.amount, p.amount, o.mark) AS value
    FROM (SELECT id, amount, at, rand() AS mark FROM source WHERE kafka.topic = 'orders') o
    JOIN {_PAYMENTS} ON {_WITHIN}
"""  # noqa: S608
# Joins that a stateful pipeline with an event time can have.
JOINS = (
    JOIN_WITH_MARKS,
    JOIN,
    f"{_EQUAL} AND o.at = p.at",
    f"{_EQUAL} AND o.at <= p.at AND p.at < o.at + INTERVAL 10 MINUTES",
    f"{_EQUAL} AND (p.at + INTERVAL 1 HOUR > o.at) WHERE p.at - INTERVAL 1 HOUR < o.at AND o.amount IS NOT NULL",
    f"{_EQUAL} WHERE abs(unix_timestamp(p.at)) > 5 AND p.at BETWEEN o.at - INTERVAL 1 DAY AND o.at",
    f"{_SELECT}, source p WHERE o.id = p.order_id AND p.at BETWEEN o.at AND o.at + INTERVAL '90' MINUTE",
    "SELECT id AS key, p.amount AS value FROM source JOIN source p USING (id, at)",
    """
    WITH uses AS (SELECT id, order_id, at FROM source)
    SELECT o.id AS key, 'paid' AS value FROM uses o JOIN uses p
    ON o.id = p.order_id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR
    """,
    """
    WITH orders AS (SELECT id, at FROM source WHERE kafka.topic = 'orders'),
        payments AS (SELECT order_id AS id, amount, at AS paid FROM source WHERE kafka.topic = 'payments')
    SELECT o.id AS key, amount AS value FROM orders o JOIN payments p ON o.id = p.id
    AND paid >= at AND paid <= at + INTERVAL 1 HOUR
    """,
    f"{_SELECT} LEFT JOIN source p ON o.id = p.order_id AND o.at = p.at",
    f"{_SELECT} LEFT JOIN source p ON {_WITHIN} AND o.amount = 'x' WHERE o.kafka.topic = 'orders'",
    f"{_SELECT} LEFT JOIN source p ON {_WITHIN} WHERE p.amount IS NULL",
    f"{_SELECT} FULL OUTER JOIN source p ON {_WITHIN} AND o.id IS NOT NULL",
    "SELECT id AS key, 'x' AS value FROM source o LEFT SEMI JOIN source p USING (id, at)",
    f"SELECT o.id AS value FROM source o SEMI JOIN source p ON {_WITHIN} AND p.kafka.topic = 'a'",  # noqa: S608
    joined_sides("LEFT"),
    joined_sides("LEFT OUTER", f"{_WITHIN} AND p.kafka.partition = 0"),
    joined_sides("RIGHT"),
    joined_sides("FULL", f"{_WITHIN} AND p.order_id IS NOT NULL"),
    joined_sides("LEFT SEMI"),
)
# Joins that are refused, each with the text at which the error is shown and a part of the problem.
REFUSED_JOINS = (
    (_EQUAL, "JOIN", "forever"),
    (f"{_EQUAL} AND p.at >= o.at", "JOIN", "forever"),
    (f"{_EQUAL} AND p.at <= o.at + INTERVAL 1 HOUR", "JOIN", "forever"),
    (f"{_EQUAL} AND p.at BETWEEN '2026-01-01' AND '2027-01-01'", "JOIN", "forever"),
    (f"{_SELECT} JOIN source p ON p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR", "JOIN", "without an equality"),
    (f"{_SELECT} CROSS JOIN source p", "JOIN", "CROSS"),
    ("SELECT o.id AS value FROM source o LEFT ANTI JOIN source p USING (id, at)", "JOIN", "LEFT ANTI"),
    (f"{_SELECT} LEFT JOIN source p ON o.id = p.order_id WHERE o.at = p.at", "o.at = p.at", "WHERE"),
    (f"{_SELECT} LEFT JOIN source p ON o.id = p.order_id AND p.at >= o.at", "JOIN", "forever"),
    (
        f"{_SELECT} LEFT JOIN source p ON o.id = p.order_id AND p.at >= o.at WHERE p.at - INTERVAL 1 HOUR < o.at",
        "p.at - INTERVAL",
        "WHERE",
    ),
    (
        f"{_SELECT} LEFT JOIN source p ON o.id = p.order_id AND p.at >= o.at "
        "WHERE nvl(p.at, o.at) < o.at + INTERVAL 1 HOUR",
        "JOIN",
        "forever",
    ),
    (f"{_SELECT} LEFT JOIN source p ON {_WITHIN} WHERE p.kafka.topic = 'payments'", "p.kafka.topic", "WHERE"),
    (f"{_SELECT} RIGHT JOIN source p ON {_WITHIN} WHERE 'orders' = o.kafka.topic", "'orders' =", "WHERE"),
    (f"{_SELECT} FULL JOIN source p ON {_WITHIN} WHERE o.amount LIKE 'a%'", "o.amount LIKE", "WHERE"),
    (f"{joined_sides('LEFT')} WHERE p.amount <> 'x'", "p.amount <> 'x'", "WHERE"),
    (f"{_SELECT} LEFT JOIN source p ON {_WITHIN} AND o.kafka.topic = 'orders'", "o.kafka.topic", "on "),
    (f"{_SELECT} RIGHT JOIN source p ON {_WITHIN} AND p.kafka.topic = 'payments'", "p.kafka.topic", "on "),
    (f"{_SELECT} FULL JOIN source p ON {_WITHIN} AND o.kafka.topic = 'orders'", "o.kafka.topic", "on "),
    (f"{_EQUAL} AND o.at = p.at JOIN source q ON o.id = q.id AND o.at = q.at", "JOIN source q", "2 joins"),
    (_EQUAL.replace("SELECT", "SELECT DISTINCT") + " AND o.at = p.at", "DISTINCT", "together with"),
)


def joined(condition: str, kind: str = "") -> str:
    """A join of orders with their payments by this further condition."""
    return f"{_SELECT} {kind} JOIN source p ON o.id = p.order_id AND {condition}"


def mutations(number: int, seed: int) -> Iterator[str]:
    """Accepted texts with a word removed, repeated, exchanged with its neighbour, misspelt, or of another text."""
    rng = random.Random(seed)
    words = [re.findall(r"\w+|'[^']*'|\s+|.", sql) for sql in ACCEPTED]
    for _ in range(number):
        text = list(rng.choice(words))
        places = [i for i, word in enumerate(text) if not word.isspace()]
        at, other = rng.choice(places), rng.choice(places)
        match rng.randrange(5):
            case 0:
                del text[at]
            case 1:
                text.insert(at, text[at] + " ")
            case 2:
                text[at], text[other] = text[other], text[at]
            case 3:
                text[at] = text[at][:-1] + "x"
            case _:
                text[at] = rng.choice(rng.choice(words))
        yield "".join(text)
