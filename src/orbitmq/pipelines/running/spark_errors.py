"""What Spark finds wrong, in a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame

from orbitmq.errors import SettingsError

_PYSPARK_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_OUR_ERROR: Final = re.compile(r"\borbitmq\.[\w.]+Error: (.+)")
# What Spark Connect wraps the refusal of a server in.
_RPC_DETAILS: Final = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
_PYTHON_ERROR: Final = re.compile(r"(?!org\.|java)([A-Za-z_][\w.]*(?:Error|Exception)): (.+)")


@contextmanager
def named(what: str) -> Iterator[None]:
    """Raise what Spark finds wrong as a SettingsError about something of the file."""
    try:
        with quiet():
            yield
    except (AnalysisException, ParseException) as error:
        raise SettingsError(f"{what}: {finding_of(error)}") from error


def finding_of(error: AnalysisException | ParseException) -> str:
    """What Spark finds wrong with a query, without its plan and frames of the JVM."""
    return str(error).partition("\n\nJVM stacktrace")[0].partition(";\n")[0].strip()


def check_can_append(rows: DataFrame, *, sink: str) -> None:
    """Raise SettingsError if Spark cannot say when rows are final, as all sinks only get such."""
    java: Any = rows.sparkSession.sparkContext._jvm
    sql = java.org.apache.spark.sql
    try:
        sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            rows._jdf.queryExecution().analyzed(), sql.streaming.OutputMode.Append()
        )
    except AnalysisException as error:
        said = str(error).partition(";\n")[0].partition("\n\nJVM stacktrace")[0].strip()
        raise SettingsError(
            f"sink {sink} cannot have these rows, as they are never final: {said}",
            hint="give the source a watermark, and group by a window of its column, or join within "
            "a span of it",
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PySpark from printing errors as JSON: they are raised, too."""
    loggers = [PySparkLogger.getLogger(name) for name in _PYSPARK_LOGGERS]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


def reason_of(failure: Exception) -> str:
    """What went wrong, without the frames of a JVM."""
    ours = _OUR_ERROR.findall(str(failure))
    if ours:
        return str(ours[-1])
    if isinstance(failure, Py4JJavaError):
        return str(failure.java_exception.getMessage())
    details = _RPC_DETAILS.search(str(failure))
    if details is not None:
        return details[1]
    lines = [line.strip() for line in str(failure).splitlines()]
    # Of a Python function: the last line of its traceback.
    said = [found for found in map(_PYTHON_ERROR.match, lines) if found is not None]
    if said:
        name, text = said[-1].groups()
        return f"{name}: {text}"
    return next((line for line in lines if line), type(failure).__name__)
