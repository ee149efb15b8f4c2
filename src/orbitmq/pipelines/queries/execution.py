"""Runs a prepared query on a session of this process, or of Spark Connect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException, PySparkTypeError

from orbitmq.errors import QueryError
from orbitmq.pipelines.queries.preparation import view_name
from orbitmq.pipelines.running.spark_errors import finding_of, quiet, reason_of
from orbitmq.spark.options.column_names import COLUMN_NAMES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from orbitmq.client.keywords import ClientKeywords
    from orbitmq.pipelines.queries.preparation import PreparedQuery


_COLUMN_MISSING: Final = (
    "UNRESOLVED_COLUMN.WITH_SUGGESTION",
    "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION",
)


class Answer(NamedTuple):
    """The rows of a query, and whether there are more than were asked for."""

    rows: pa.Table
    has_more: bool = False


def run(
    query: PreparedQuery, spark: SparkSession, source: Mapping[str, str], *, limit: int | None
) -> Answer:
    """Run a query; an interrupt cancels it.

    Args:
        query: the query.
        spark: where to run it.
        source: options of the source of each topic: how to reach the cluster.
        limit: the most rows to return; None for all.

    Raises:
        QueryError: Spark refuses it, or it failed.
    """
    try:
        with quiet():
            try:
                return _run(query, spark, source, limit)
            except AnalysisException as error:
                if error.getCondition() not in _COLUMN_MISSING or query.columns == COLUMN_NAMES:
                    raise
                # Only columns that the query names are there; the error shall know them all.
                return _run(replace(query, columns=COLUMN_NAMES), spark, source, limit)
    except KeyboardInterrupt:
        cancel(spark)
        raise
    except (AnalysisException, ParseException) as error:
        raise QueryError(finding_of(error), hint=_hint(error)) from error
    except PySparkTypeError as error:
        raise QueryError(
            reason_of(error), hint="CAST(… AS STRING), or to_json(…), makes it a text"
        ) from error
    except (PySparkException, Py4JError) as error:
        raise QueryError(reason_of(error)) from error


def _run(
    query: PreparedQuery, spark: SparkSession, source: Mapping[str, str], limit: int | None
) -> Answer:
    for table in query.topics:
        topic = (
            spark.read.format("rocketmq")
            .options(**source)
            .option("subscribe", table.topic)
            .option("columns", ", ".join(query.columns))
            .option("pushFilters", str(query.pushes_filters).lower())
            .load()
        )
        topic.createOrReplaceTempView(view_name(table.name))
    for name, declared, rows in query.system_rows:
        # An empty table of Arrow has no columns to Spark.
        made = spark.createDataFrame(rows) if rows.num_rows else spark.createDataFrame([], declared)
        made.createOrReplaceTempView(view_name(name))
    found = spark.sql(query.sql)
    if limit is None:
        return Answer(found.toArrow())
    # One more than wanted says whether there are more.
    rows = found.limit(limit + 1).toArrow()
    return Answer(rows.slice(0, limit), has_more=rows.num_rows > limit)


def cancel(spark: SparkSession) -> None:
    """Cancel what a session runs."""
    interrupt: Any = getattr(spark, "interruptAll", None)
    if getattr(spark, "_jsparkSession", None) is not None:
        spark.sparkContext.cancelAllJobs()
    elif interrupt is not None:
        interrupt()


def source_options(keywords: ClientKeywords) -> dict[str, str]:
    """Options of the source that reach the same cluster as a client with these keywords."""
    from orbitmq.settings import describe
    from orbitmq.spark.options.read_options import ReadOptions

    names = {row.field: row.name for row in describe(ReadOptions)}
    return {
        names[keyword]: str(value).lower() if isinstance(value, bool) else str(value)
        for keyword, value in keywords.items()
    }


def _hint(error: AnalysisException | ParseException) -> str:
    if isinstance(error, ParseException) and "near '-'" in str(error):
        return "a topic with a - in its name is written in backticks: `shop-orders`"
    if 'has the type "BINARY"' in str(error):
        return "CAST(body AS STRING) makes a body a text"
    return ""
