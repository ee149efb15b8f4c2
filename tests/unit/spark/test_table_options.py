"""Options of a table, from the statement that makes it to the query that uses it."""

from __future__ import annotations

import json

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from orbitmq.spark.table_options import options_of_new_table, with_note, with_noted

COLUMNS = StructType([StructField("topic", StringType()), StructField("queueId", IntegerType())])
# What Spark hands over while a table is made.
MAKING = {
    "provider": "rocketmq",
    "owner": "me",
    "option.namesrvaddr": "127.0.0.1:9876",
    "option.subscribe": "orders",
    "namesrvaddr": "127.0.0.1:9876",
    "subscribe": "orders",
}
GIVEN = {"namesrvaddr": "127.0.0.1:9876", "subscribe": "orders"}


def test_a_new_table_has_the_options_of_its_statement_only() -> None:
    assert options_of_new_table(MAKING) == GIVEN


def test_options_of_a_read_are_not_those_of_a_new_table() -> None:
    assert options_of_new_table(GIVEN) is None


def test_a_table_that_the_catalog_kept_brings_its_options_along() -> None:
    kept = StructType.fromJson(json.loads(with_note(COLUMNS, GIVEN).json()))

    assert with_noted({}, kept) == GIVEN


def test_columns_with_a_note_are_the_same_columns() -> None:
    noted = with_note(COLUMNS, GIVEN)

    assert [(field.name, field.dataType) for field in noted] == [
        (field.name, field.dataType) for field in COLUMNS
    ]


def test_every_column_of_a_table_may_be_left_out_of_an_insert() -> None:
    never_null = StructType([StructField("topic", StringType(), nullable=False)])

    assert [field.nullable for field in with_note(never_null, GIVEN)] == [True]


def test_what_a_query_says_itself_wins() -> None:
    noted = with_note(COLUMNS, GIVEN)

    assert with_noted({"Subscribe": "bills"}, noted) == {**GIVEN, "subscribe": "bills"}


def test_columns_without_a_note_add_nothing() -> None:
    assert with_noted({"subscribe": "orders"}, COLUMNS) == {"subscribe": "orders"}


def test_where_a_table_lies_is_one_of_its_options() -> None:
    made = {"provider": "rocketmq-store", "path": "file:/data/a%20b/*/store", "location": "…"}

    assert options_of_new_table(made) == {"path": "/data/a b/*/store"}
