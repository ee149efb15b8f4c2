"""What names of tables stand for."""

from __future__ import annotations

import pytest

from orbitmq.errors import QueryError, TopicMissingError
from orbitmq.pipelines.queries.statements import statement_of
from orbitmq.pipelines.queries.tables import Table, TopicTable, in_sql, tables_named

TOPICS = ["orders", "shop-orders", "%DLQ%billing", "Mixed", "mixed", "TBW102"]


def tables_of(sql: str) -> list[Table]:
    return tables_named(statement_of(sql).tables, TOPICS)


def test_a_name_stands_for_a_topic() -> None:
    found = tables_of(
        "SELECT * FROM orders, `shop-orders` JOIN `%DLQ%billing` USING (keys), orders"
    )

    assert found == [
        TopicTable("orders", "orders"),
        TopicTable("shop-orders", "shop-orders"),
        TopicTable("%DLQ%billing", "%DLQ%billing"),
    ]


def test_upper_case_is_no_other_topic_unless_there_are_two() -> None:
    assert tables_of("SELECT * FROM Orders") == [TopicTable("Orders", "orders")]
    assert tables_of("SELECT * FROM mixed") == [TopicTable("mixed", "mixed")]
    with pytest.raises(TopicMissingError):
        tables_of("SELECT * FROM MIXED")
    with pytest.raises(QueryError, match="one name to SQL"):
        tables_of("SELECT * FROM mixed JOIN Mixed USING (keys)")


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT * FROM ordres", "did you mean orders"),
        ("SELECT * FROM shop-orders", "did you mean `shop-orders`? Such a name"),
        ("SELECT * FROM lag", "did you mean system.lag"),
        ("SELECT * FROM nothing_alike", "there are `%DLQ%billing`, Mixed, mixed, orders"),
    ],
)
def test_an_unknown_topic_is_answered_with_what_was_meant(sql: str, hint: str) -> None:
    with pytest.raises(TopicMissingError) as raised:
        tables_of(sql)

    assert hint in raised.value.hint
    assert "TBW102" not in raised.value.hint


def test_an_unknown_system_table_is_answered_with_the_nearest() -> None:
    with pytest.raises(QueryError, match="did you mean lag"):
        tables_of("SELECT * FROM system.lagg")


def test_what_spark_itself_has_is_left_to_it() -> None:
    assert tables_of("SELECT * FROM parquet.`/data/orders`, range(3)") == []


def test_a_name_is_quoted_if_sql_needs_it() -> None:
    assert list(map(in_sql, ["orders", "shop-orders", "a`b"])) == [
        "orders",
        "`shop-orders`",
        "`a``b`",
    ]
