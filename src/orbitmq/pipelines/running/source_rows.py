"""The rows of a source: messages decoded, and those that are rejected.

A decoded row has the columns that the file pins, and `message`, which says where it comes from; of
messages that say how rows of a database changed, there is a row for each change. A row that cannot be decoded, or does not meet an expectation, is not among the rows: it is among the
rejected, as the message that it was, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from orbitmq.pipelines.decoding import change_bodies
from orbitmq.pipelines.file.sources import MESSAGE_COLUMN, TEXT_COLUMN
from orbitmq.pipelines.plan import (
    AvroDecoding,
    ChangeDecoding,
    Decoded,
    Decoding,
    Expectation,
    ProtobufDecoding,
    TableSource,
    TopicSource,
)
from orbitmq.pipelines.plan import Column as PinnedColumn
from orbitmq.pipelines.tables.columns import quoted
from orbitmq.pipelines.watching.progress import REASONS
from orbitmq.spark.options.column_names import USUAL_COLUMNS

REASON_COLUMN: Final = "reason"
_CORRUPT: Final = "_orbitmq_corrupt"
_DECODED: Final = "_orbitmq_decoded"
_BODY: Final = "_orbitmq_body"
_END: Final = "_orbitmq_end"
_REASON: Final = "_orbitmq_reason"
_WRONG: Final = "_orbitmq_wrong"
_CHANGE: Final = "_orbitmq_change"
_CANNOT_BE_DECODED: Final = "cannot be decoded"
# Of a change, its number in its message.
CHANGE_INDEX: Final = "changeIndex"
_OF_MESSAGE: Final = tuple(name for name in USUAL_COLUMNS if name != "body")


class SourceRows(NamedTuple):
    """What a topic has."""

    rows: DataFrame
    # What goes into quarantine; None if nothing can.
    rejected: DataFrame | None


def table_rows(source: TableSource, spark: SparkSession) -> DataFrame:
    """The rows of a table, as it is now."""
    if source.format == "delta":
        # An extra, which others need not have.
        from orbitmq.pipelines.tables.delta_rows import delta_rows

        return delta_rows(source.path, spark)
    reader = spark.read.format(source.format).options(**source.options)
    if source.columns:
        reader = reader.schema(_schema(source.columns))
    return reader.load(source.path)


def topic_rows(source: TopicSource, spark: SparkSession) -> SourceRows:
    """The rows of a topic, as a stream."""
    start = (
        {"startingOffsets": source.start}
        if source.start in {"earliest", "latest"}
        else {"startingTimestamp": source.start}
    )
    messages = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=source.namesrv, subscribe=source.topic, properties="map", **start)
        .options(**source.options)
        .load()
    )
    if source.decoding is not None:
        rows = _decoded(messages, source.decoding)
        kept = [*(column.name for column in source.decoding.columns), MESSAGE_COLUMN]
        lost = [*(f"{MESSAGE_COLUMN}.{name}" for name in _OF_MESSAGE), _BODY, _REASON]
    else:
        rows = messages.withColumn(_WRONG, _nothing())
        kept = messages.columns
        lost = [*_OF_MESSAGE, "body", _REASON]
    rejected = None
    if source.may_reject:
        rows = rows.withColumn(_REASON, _reason(source))
        is_rejected = functions.col(_REASON).isNotNull()
        rejected = (
            rows.where(is_rejected)
            .select(*lost)
            .withColumnsRenamed({_BODY: "body", _REASON: REASON_COLUMN})
            .observe(REASONS, *_counts_by_reason(source))
        )
        rows = rows.where(~is_rejected)
    rows = rows.select(*(functions.col(quoted(name)) for name in kept))
    return SourceRows(rows, rejected)


def _decoded(messages: DataFrame, decoding: Decoded) -> DataFrame:
    """The pinned columns, the message, its body, and why that could not be decoded."""
    if isinstance(decoding, ChangeDecoding):
        return _changes(messages, decoding)
    decoded = functions.col(_DECODED)
    if not isinstance(decoding, Decoding):
        parsed = messages.withColumn(_DECODED, _in_python(decoding)(functions.col("body")))
        return _flat(parsed, decoding.columns, decoded, decoded.isNull())
    text = functions.col("body").cast("string")
    is_not_text = text.isNull() | ~functions.is_valid_utf8(text)
    if decoding.format == "text":
        parsed = messages.withColumn(_DECODED, functions.struct(text.alias(TEXT_COLUMN.name)))
        return _flat(parsed, decoding.columns, decoded, is_not_text)
    schema = _schema(decoding.columns)
    options = {**decoding.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if decoding.format == "json":
        # Spark reads the first value of a text, and nothing after it. So the body is a field of an
        # object that has another field after it.
        text = functions.concat(
            functions.lit(f'{{"{_BODY}":'), text, functions.lit(f'\n,"{_END}":1}}')
        )
        schema = f"{_BODY} STRUCT<{schema}>, {_END} INT, {_CORRUPT} STRING"
        parsed = messages.withColumn(_DECODED, functions.from_json(text, schema, options))
        row = decoded[_BODY]
        is_wrong = decoded[_END].isNull()
    else:
        schema = f"{schema}, {_CORRUPT} STRING"
        parsed = messages.withColumn(_DECODED, functions.from_csv(text, schema, options))
        row = decoded
        is_wrong = functions.expr("false")
    is_wrong = is_wrong | is_not_text | row.isNull() | decoded[_CORRUPT].isNotNull()
    return _flat(parsed, decoding.columns, row, is_wrong)


def _changes(messages: DataFrame, decoding: ChangeDecoding) -> DataFrame:
    """As `_decoded`, a row for each change of a message."""
    decoded, change = functions.col(_DECODED), functions.col(_CHANGE)
    parsed = messages.withColumn(_DECODED, _in_python(decoding)(functions.col("body")))
    parsed = parsed.select(
        "*", functions.posexplode_outer(decoded["changes"]).alias(CHANGE_INDEX, _CHANGE)
    )
    said = functions.concat_ws(": ", functions.lit(_CANNOT_BE_DECODED), decoded["reason"])
    return parsed.select(
        *(change[column.name].alias(column.name) for column in decoding.columns),
        functions.struct(*_OF_MESSAGE, CHANGE_INDEX).alias(MESSAGE_COLUMN),
        functions.col("body").alias(_BODY),
        functions.when(change.isNull(), said).alias(_WRONG),
    )


def _flat(
    parsed: DataFrame, columns: tuple[PinnedColumn, ...], row: Column, is_wrong: Column
) -> DataFrame:
    return parsed.select(
        *(row[column.name].alias(column.name) for column in columns),
        functions.struct(*_OF_MESSAGE).alias(MESSAGE_COLUMN),
        functions.col("body").alias(_BODY),
        functions.when(is_wrong, _CANNOT_BE_DECODED).alias(_WRONG),
    )


def _in_python(
    decoding: AvroDecoding | ProtobufDecoding | ChangeDecoding,
) -> Callable[[Column], Column]:
    """A function that decodes bodies in Spark's Python workers."""
    columns = _schema(decoding.columns)
    if isinstance(decoding, ChangeDecoding):
        columns = f"changes ARRAY<STRUCT<{columns}>>, reason STRING"
    form = StructType.fromDDL(columns)
    arrow_form = to_arrow_type(form, timezone="UTC")
    if isinstance(decoding, AvroDecoding):
        from orbitmq.pipelines.decoding import avro_bodies

        decode = avro_bodies.rows_of(decoding, arrow_form)
    elif isinstance(decoding, ChangeDecoding):
        decode = change_bodies.changes_of(decoding, arrow_form)
    else:
        from orbitmq.pipelines.decoding import protobuf_bodies

        decode = protobuf_bodies.rows_of(decoding, arrow_form)
    # Its kind is in its annotations.
    made: Callable[[Column], Column] = arrow_udf(decode, form)  # type: ignore[call-overload]
    return made


def _reason(source: TopicSource) -> Column:
    """Why a row is rejected; null if it is not."""
    reason = _nothing()
    for expectation in reversed(source.expectations):
        # Null is not met.
        met = functions.coalesce(functions.expr(expectation.condition), functions.expr("false"))
        broken = functions.lit(_broken(expectation))
        reason = functions.when(~met, broken).otherwise(reason)
    return functions.coalesce(functions.col(_WRONG), reason)


def _nothing() -> Column:
    return functions.lit(None).cast("string")


def _counts_by_reason(source: TopicSource) -> list[Column]:
    """Counts that a batch reports, named by their reason."""
    column = functions.col(REASON_COLUMN)
    counts = {
        _broken(expectation): column == _broken(expectation) for expectation in source.expectations
    }
    if source.decoding is not None:
        # It may say more.
        counts[_CANNOT_BE_DECODED] = column.startswith(_CANNOT_BE_DECODED)
    return [functions.count_if(is_so).alias(reason) for reason, is_so in counts.items()]


def _broken(expectation: Expectation) -> str:
    return f"not {expectation.name}"


def _schema(columns: tuple[PinnedColumn, ...]) -> str:
    return ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
