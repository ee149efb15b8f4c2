"""Options of a table, from the statement that creates it to the query that uses it."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from orbitmq.errors import SettingsError
from orbitmq.spark.options.table_options import (
    NOTE,
    SEAL,
    options_of_new_table,
    options_of_read,
    options_of_stream_write,
    options_of_write,
    with_note,
)

COLUMNS = StructType([StructField("topic", StringType()), StructField("queueId", IntegerType())])
# What Spark hands over while a table is created.
CREATING = {
    "provider": "rocketmq",
    "owner": "me",
    "option.namesrvaddr": "127.0.0.1:9876",
    "option.subscribe": "orders",
    "namesrvaddr": "127.0.0.1:9876",
    "subscribe": "orders",
}
GIVEN = {"namesrvaddr": "127.0.0.1:9876", "subscribe": "orders"}
LOCATORS = ["namesrvaddr"]


def fitted(schema: StructType) -> StructType:
    """Columns of rows that Spark has fitted to those of the table they go to."""
    first, *others = schema.fields
    metadata = {name: value for name, value in first.metadata.items() if name != SEAL}
    return StructType([StructField(first.name, first.dataType, metadata=metadata), *others])


def test_a_new_table_has_the_options_of_its_statement_only() -> None:
    assert options_of_new_table(CREATING) == GIVEN


def test_options_of_a_read_are_not_those_of_a_new_table() -> None:
    assert options_of_new_table(GIVEN) is None


def test_the_location_of_a_table_is_one_of_its_options() -> None:
    made = {"provider": "rocketmq-store", "path": "file:/data/a%20b/*/store", "location": "…"}

    assert options_of_new_table(made) == {"path": "/data/a b/*/store"}


def test_columns_with_a_note_are_the_same_columns() -> None:
    noted = with_note(COLUMNS, GIVEN)

    assert [(field.name, field.dataType) for field in noted] == [
        (field.name, field.dataType) for field in COLUMNS
    ]


def test_every_column_of_a_table_may_be_left_out_of_an_insert() -> None:
    never_null = StructType([StructField("topic", StringType(), nullable=False)])

    assert [field.nullable for field in with_note(never_null, GIVEN)] == [True]


def test_tables_have_the_same_seal_only_if_they_have_the_same_options() -> None:
    def seal(**given: str) -> object:
        return with_note(COLUMNS, given).fields[0].metadata[SEAL]

    assert seal(topic="a", subscribe="b") == seal(subscribe="b", topic="a")
    assert len({seal(topic=f"topic-{number}") for number in range(1000)}) == 1000


# --- Reading -------------------------------------------------------------------------------------


def test_a_table_that_the_catalog_kept_brings_its_options_along() -> None:
    kept = StructType.fromJson(json.loads(with_note(COLUMNS, GIVEN).json()))

    assert options_of_read({}, kept, locators=LOCATORS) == GIVEN


def test_options_of_a_query_override_those_of_the_table() -> None:
    given = options_of_read({"Subscribe": "bills"}, with_note(COLUMNS, GIVEN), locators=LOCATORS)

    assert given == {**GIVEN, "subscribe": "bills"}


def test_columns_without_a_note_add_nothing() -> None:
    given = {"subscribe": "orders"}

    assert options_of_read(given, COLUMNS, locators=LOCATORS) == given
    assert options_of_write(given, COLUMNS) == given


def test_a_read_with_name_servers_of_its_own_ignores_the_note() -> None:
    given = options_of_read(
        {"namesrvAddr": "127.0.0.1:1", "assign": "{}"}, with_note(COLUMNS, GIVEN), locators=LOCATORS
    )

    assert given == {"namesrvaddr": "127.0.0.1:1", "assign": "{}"}


# --- Writing -------------------------------------------------------------------------------------


def test_rows_that_were_fitted_to_a_table_go_where_it_says() -> None:
    given = options_of_write({"Compression": "zlib"}, fitted(with_note(COLUMNS, GIVEN)))

    assert given == {**GIVEN, "compression": "zlib"}


def test_rows_of_a_table_do_not_go_where_it_says() -> None:
    noted = with_note(COLUMNS, {**GIVEN, "topic": "orders"})

    assert options_of_write({"namesrvaddr": "127.0.0.1:1"}, noted) == {"namesrvaddr": "127.0.0.1:1"}
    with pytest.raises(SettingsError, match=r"nothing says where they go.*name the columns"):
        options_of_write({"topic": "bills"}, noted)


def test_a_note_on_another_column_names_no_target() -> None:
    first, second = fitted(with_note(COLUMNS, GIVEN)).fields[0], StructField("tags", StringType())
    also = StructField("queueId", IntegerType(), metadata={NOTE: {"namesrvaddr": "127.0.0.1:1"}})

    for fields in ([second, first], [first, also]):
        with pytest.raises(SettingsError, match="nothing says where they go"):
            options_of_write({}, StructType(fields))


def test_a_table_may_begin_with_another_column_than_a_text() -> None:
    columns = StructType([StructField("body", BinaryType()), StructField("keys", StringType())])
    body, keys = with_note(columns, GIVEN).fields
    sent = StructType([body, StructField("keys", StringType(), metadata={NOTE: GIVEN})])

    assert (body.metadata, SEAL in keys.metadata) == ({}, True)
    assert options_of_read({}, StructType([body, keys]), locators=LOCATORS) == GIVEN
    assert options_of_write({}, sent) == GIVEN


def test_a_table_without_texts_can_only_be_read() -> None:
    noted = with_note(StructType([StructField("body", BinaryType())]), GIVEN)

    assert options_of_read({}, noted, locators=LOCATORS) == GIVEN
    assert options_of_write({"namesrvaddr": "127.0.0.1:1"}, noted) == {"namesrvaddr": "127.0.0.1:1"}
    with pytest.raises(SettingsError, match="cannot be inserted into a table without a column of"):
        options_of_write({}, noted)


def test_a_table_and_another_cluster_are_not_both_the_target() -> None:
    with pytest.raises(SettingsError, match=r"namesrvAddr=127.0.0.1:1 is given for a table"):
        options_of_write({"namesrvAddr": "127.0.0.1:1"}, fitted(with_note(COLUMNS, GIVEN)))


def test_a_stream_needs_options_of_its_own() -> None:
    assert options_of_stream_write({"namesrvAddr": "127.0.0.1:1"}) == {"namesrvaddr": "127.0.0.1:1"}
    with pytest.raises(SettingsError, match="needs all options, even if toTable"):
        options_of_stream_write({"topic": "bills"})
