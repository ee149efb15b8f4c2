"""Statements: where they end, what may run, which columns of messages they need."""

from __future__ import annotations

import pytest

from orbitmq.errors import QueryError
from orbitmq.pipelines.queries.statements import Kind, split, statement_of
from orbitmq.spark.options.column_names import USUAL_COLUMNS


@pytest.mark.parametrize(
    ("text", "complete", "rest"),
    [
        ("", [], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1; ", ["SELECT 1"], ""),
        ("SELECT ';' AS a; SELECT 2 -- ;\n", ["SELECT ';' AS a"], "SELECT 2 -- ;"),
        ("SELECT `a;b`; ;; SELECT 2;", ["SELECT `a;b`", "SELECT 2"], ""),
        ("SELECT 'open; SELECT 2;", [], "SELECT 'open; SELECT 2;"),
        ("SELECT 1; SELECT 2 /* open; ", ["SELECT 1"], "SELECT 2 /* open;"),
        ("-- nothing;\n", [], ""),
    ],
)
def test_a_statement_ends_at_a_semicolon_that_is_no_text(
    text: str, complete: list[str], rest: str
) -> None:
    assert split(text) == (complete, rest)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT count(*) FROM orders", ("queueId",)),
        ("SELECT 1 FROM orders", ("queueId",)),
        ("SELECT tags, COUNT( * ) FROM orders GROUP BY tags", ("tags",)),
        ("SELECT CAST(BODY AS STRING) FROM orders WHERE `queueid` = 1", ("queueId", "body")),
        ("SELECT (queueId) * 2, 3 * flag FROM orders", ("queueId", "flag")),
        ("SELECT * FROM orders", USUAL_COLUMNS),
        ("SELECT o.* FROM orders o", USUAL_COLUMNS),
        ("SELECT count(tags), struct(*) FROM orders", USUAL_COLUMNS),
        ("FROM orders", USUAL_COLUMNS),
        ("SELECT tags FROM a NATURAL JOIN b", USUAL_COLUMNS),
        ("SELECT tags FROM (TABLE orders)", USUAL_COLUMNS),
        ("WITH o AS (FROM orders |> WHERE 1 = 1) SELECT tags FROM o", USUAL_COLUMNS),
    ],
)
def test_the_columns_are_read_that_a_query_may_need(sql: str, columns: tuple[str, ...]) -> None:
    assert statement_of(sql).columns == columns


def test_a_star_and_a_name_need_both() -> None:
    needed = statement_of("SELECT *, bornHost FROM orders").columns

    assert set(needed) == {*USUAL_COLUMNS, "bornHost"}


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO orders VALUES (1)",
        "insert overwrite directory '/tmp/x' select 1",
        "WITH a AS (SELECT 1) INSERT INTO orders SELECT * FROM a",
        "FROM orders INSERT INTO copies SELECT *",
        "FROM orders\ninsert -- a comment\n overwrite copies SELECT *",
        "WITH a AS (SELECT 1) DELETE FROM orders",
        "MERGE INTO orders USING a ON true WHEN MATCHED THEN DELETE",
        "EXPLAIN INSERT INTO orders SELECT 1",
        "DROP TABLE orders",
        "CREATE TABLE t AS SELECT 1",
        "SET spark.sql.ansi.enabled=false",
        "CACHE TABLE orders",
        "42",
    ],
)
def test_what_does_not_only_read_is_refused(sql: str) -> None:
    with pytest.raises(QueryError):
        statement_of(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.insert, into FROM orders o",
        "SELECT 'INSERT INTO orders'",
        "(SELECT 1) UNION (SELECT 2)",
        "VALUES (1), (2)",
        "EXPLAIN SELECT * FROM orders",
        "DESCRIBE FUNCTION sum",
        "SHOW FUNCTIONS",
        "with a as (select 1 as update) select update from a",
    ],
)
def test_queries_that_only_read_are_not_refused(sql: str) -> None:
    assert statement_of(sql).kind is Kind.QUERY


def test_a_wrong_verb_is_answered_with_the_nearest() -> None:
    with pytest.raises(QueryError, match="did you mean select"):
        statement_of("SELECTS 1")


def test_two_statements_are_not_one() -> None:
    with pytest.raises(QueryError, match="2 statements"):
        statement_of("SELECT 1; SELECT 2")


def test_describe_names_one_table() -> None:
    plain = statement_of("DESC TABLE `shop-orders`;")
    qualified = statement_of("describe system.lag")

    assert (plain.kind, plain.tables[0].name) == (Kind.DESCRIBE, "shop-orders")
    assert (qualified.tables[0].qualifier, qualified.tables[0].name) == ("system", "lag")
    with pytest.raises(QueryError, match="one table"):
        _ = statement_of("DESCRIBE a, b").tables


def test_a_query_that_is_too_long_is_refused() -> None:
    with pytest.raises(QueryError, match="too long"):
        statement_of("SELECT '" + "x" * (1 << 20) + "'")
