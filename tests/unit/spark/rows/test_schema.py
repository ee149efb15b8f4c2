"""The columns of topics as tables."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from orbitmq.errors import SettingsError
from orbitmq.spark.options.column_names import COLUMN_NAMES, USUAL_COLUMNS
from orbitmq.spark.rows.schema import Projection, projection_of, table_projection

PROPERTIES_MAP = MapType(StringType(), StringType())


def _schema(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])  # type: ignore[arg-type]  # by name


def test_the_default_is_the_usual_columns_with_properties_as_text() -> None:
    projection = table_projection()

    assert projection.names == USUAL_COLUMNS
    assert projection.properties == "string"
    assert projection.arrow_schema.field("properties").type == pa.string()
    assert projection.arrow_schema.field("storeTimestamp").type == pa.timestamp("us", tz="UTC")


def test_properties_may_be_a_map() -> None:
    projection = table_projection(properties="map")

    assert projection.properties == "map"
    assert projection.arrow_schema.field("properties").type == pa.map_(pa.string(), pa.string())


def test_every_column_has_a_type() -> None:
    assert table_projection(COLUMN_NAMES).names == COLUMN_NAMES


def test_a_schema_minds_no_case_and_rows_have_its_names() -> None:
    projection = projection_of(_schema(QUEUEOFFSET=LongType(), Properties=PROPERTIES_MAP))

    assert projection.names == ("queueOffset", "properties")
    assert projection.properties == "map"
    assert projection.arrow_schema.names == ["queueOffset", "properties"]
    assert projection.asked_schema.names == ["QUEUEOFFSET", "Properties"]


def test_columns_from_properties_need_their_entries() -> None:
    text, maps = table_projection(), table_projection(properties="map")

    assert (text.has_maps, text.has_entries) == (False, True)
    assert (maps.has_maps, maps.has_entries) == (True, True)
    assert projection_of(_schema(properties=PROPERTIES_MAP)).has_entries
    assert not projection_of(_schema(properties=StringType(), body=BinaryType())).has_entries
    assert not projection_of(_schema(body=BinaryType())).has_maps


def test_only_optional_columns_are_nullable() -> None:
    schema = table_projection().spark_schema

    assert [field.name for field in schema if field.nullable] == ["keys", "tags"]


@pytest.mark.parametrize(
    "projection",
    [
        table_projection(),
        table_projection(properties="map"),
        projection_of(StructType([StructField("body", BinaryType(), nullable=False)])),
        projection_of(
            StructType(
                [
                    StructField("properties", MapType(StringType(), StringType(), False)),
                    StructField("topic", StringType(), nullable=False, metadata={"comment": "t"}),
                ]
            )
        ),
    ],
)
def test_batches_have_the_schema_that_spark_expects(projection: Projection) -> None:
    expected = to_arrow_schema(projection.spark_schema, timezone="UTC")

    assert expected.equals(projection.asked_schema)


def test_a_projection_can_be_pickled() -> None:
    projection = table_projection(properties="map")
    assert projection.arrow_schema is not None

    pickles = CloudPickleSerializer()
    arrived = pickles.loads(pickles.dumps(projection))

    assert arrived == projection
    assert arrived.arrow_schema == projection.arrow_schema


def test_a_users_schema_may_name_any_columns_in_any_order() -> None:
    schema = _schema(body=BinaryType(), queueOffset=LongType(), properties=PROPERTIES_MAP)

    projection = projection_of(schema)

    assert projection.names == ("body", "queueOffset", "properties")
    assert projection.properties == "map"
    assert projection.spark_schema == schema


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("queue", "did you mean queueId?"),
        ("bodyBytes", "did you mean body?"),
        ("storetime", "did you mean storeTimestamp?"),
        ("zzz", "the columns are topic, brokerName, queueId"),
    ],
)
def test_an_unknown_column_is_refused_with_the_nearest_name(name: str, advice: str) -> None:
    with pytest.raises(
        SettingsError, match=f"column '{name}', which messages do not have"
    ) as error:
        projection_of(StructType([StructField(name, StringType())]))

    assert advice in error.value.hint


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (StructField("queueId", LongType()), "'queueId' cannot be BIGINT (use INT,"),
        (StructField("body", StringType()), "'body' cannot be STRING (use BINARY,"),
        (
            StructField("bornTimestamp", TimestampNTZType()),
            "'bornTimestamp' cannot be TIMESTAMP_NT",
        ),
        (StructField("topic", PROPERTIES_MAP), "'topic' cannot be MAP<STRING,STRING>"),
        (StructField("properties", MapType(StringType(), LongType())), "STRING or MAP<STRING, STR"),
        (StructField("properties", IntegerType()), "STRING or MAP<STRING, STRING>"),
    ],
)
def test_a_column_of_another_type_is_refused(column: StructField, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        projection_of(StructType([column]))

    assert message in str(error.value)


@pytest.mark.parametrize("name", ["keys", "tags"])
def test_optional_columns_must_be_nullable(name: str) -> None:
    with pytest.raises(SettingsError, match=f"'{name}' cannot be NOT NULL"):
        projection_of(StructType([StructField(name, StringType(), nullable=False)]))


def test_columns_of_messages_that_may_be_unreadable_must_be_nullable() -> None:
    made = table_projection(COLUMN_NAMES, may_be_null=True).spark_schema
    strict = StructType([StructField("body", BinaryType(), nullable=False)])

    assert projection_of(made, may_be_null=True).names == COLUMN_NAMES
    with pytest.raises(SettingsError, match="'body' is NOT NULL, and with onUnreadable=null"):
        projection_of(strict, may_be_null=True)


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(SettingsError, match="no columns"):
        projection_of(StructType([]))


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(SettingsError, match="'topic' more than once"):
        projection_of(_schema(topic=StringType(), Topic=StringType()))
