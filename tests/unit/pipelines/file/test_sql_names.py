"""Which tables a query reads."""

from __future__ import annotations

import pytest

from orbitmq.pipelines.file.sql_names import tables_in


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select a, b from orders o, payments AS p where o.a in (1, 2)", ["orders", "payments"]),
        ("SELECT * FROM a JOIN b USING (id, x) LEFT ANTI JOIN c ON f(a.x, b.y) = c.z", ["a", "b", "c"]),
        ("SELECT window(t, '1 minute') FROM orders GROUP BY window(t, '1 minute'), item", ["orders"]),
        ("WITH big AS (SELECT * FROM orders), best (a) AS (SELECT * FROM big) SELECT * FROM best", ["orders"]),
        ("SELECT * FROM (SELECT * FROM a) x, b", ["a", "b"]),
        ("SELECT EXTRACT(day FROM t), TRIM(BOTH 'x' FROM s) FROM orders", ["orders"]),
        ("SELECT * FROM orders WHERE a IS DISTINCT FROM b", ["orders"]),
        ("SELECT 'a FROM b' -- FROM c\n/* FROM d */ FROM `my table`", ["my table"]),
        ("SELECT * FROM range(10) JOIN a.b.c JOIN orders", ["orders"]),
        ("SELECT * FROM orders LATERAL VIEW explode(items) i AS item, other", ["orders"]),
        ("SELECT * FROM a UNION ALL SELECT * FROM b EXCEPT SELECT c, d FROM e", ["a", "b", "e"]),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM b) AND EXISTS (SELECT 1 FROM c, d)", ["a", "b", "c", "d"]),
        ("SELECT * FROM VALUES (1), (2) AS t(x)", []),
        ("SELECT 1", []),
        ("FROM orders SELECT *", ["orders"]),
        ("FROM orders |> WHERE a > 1 |> JOIN b USING (id) |> SELECT x, y", ["orders", "b"]),
        ("SELECT * FROM (FROM orders SELECT id) x", ["orders"]),
        ("SELECT TRIM(FROM x) FROM orders", ["orders"]),
        ("SELECT o.from, price, o.join, id FROM orders o", ["orders"]),
        ("SELECT * FROM VALUES 1, 2 AS t(x)", []),
    ],
)  # fmt: skip
def test_tables_are_found_where_sql_has_them(sql: str, tables: list[str]) -> None:
    assert [table.name for table in tables_in(sql) if not table.is_local] == tables


def test_a_table_that_the_query_defines_is_marked() -> None:
    found = tables_in("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders")

    assert [(table.name, table.is_local) for table in found] == [("orders", True)] * 2


def test_a_table_has_what_is_before_its_dot() -> None:
    found = tables_in("SELECT * FROM range(10), system.lag l, parquet.`x/y`, a.b.c")

    assert [(table.qualifier, table.name) for table in found] == [
        ("system", "lag"),
        ("parquet", "x/y"),
    ]


def test_a_table_has_its_line() -> None:
    assert [table.line for table in tables_in("SELECT *\nFROM a\n\nJOIN b")] == [1, 3]


def test_no_text_takes_long() -> None:
    assert tables_in("FROM " * 50_000 + "(" * 50_000 + "'" * 50_000) == []
