"""The steps of a pipeline: SQL over the names before it, or a Python function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import cast

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from orbitmq.errors import SettingsError
from orbitmq.pipelines.file.python_files import lines_named, load
from orbitmq.pipelines.plan import DeduplicateStep, PythonStep, SqlStep, Step
from orbitmq.pipelines.suggestions import suggestion


def step_rows(step: Step, by_name: Mapping[str, DataFrame], spark: SparkSession) -> DataFrame:
    """What a step makes of the DataFrames that were named before it."""
    if isinstance(step, SqlStep):
        try:
            for name in step.reads:
                by_name[name].createOrReplaceTempView(name)
            return spark.sql(step.sql)
        finally:
            # The query knows them; others of this session shall not.
            for name in step.reads:
                spark.catalog.dropTempView(name)
    if isinstance(step, DeduplicateStep):
        (name,) = step.reads
        return _deduplicated(by_name[name], step)
    with lines_named(step.file, passing=(AnalysisException, ParseException)):
        function = _function_of(step)
        made = function(*(by_name[name] for name in step.reads))
    if not isinstance(made, DataFrame):
        raise SettingsError(
            f"{step.function} of {step.file} returned {type(made).__name__}, not a DataFrame",
            hint="a step takes DataFrames and returns one",
        )
    return made


def _deduplicated(rows: DataFrame, step: DeduplicateStep) -> DataFrame:
    there = {column.lower(): column for column in rows.columns}
    for key in step.keys:
        if key.lower() not in there:
            raise SettingsError(
                f"step {step.name}: {step.reads[0]} has no column {key} to deduplicate by",
                hint=suggestion(key, rows.columns),
            )
    # A batch has all rows of a table, and keeps nothing for the next.
    if not rows.isStreaming:
        return rows.dropDuplicates(list(step.keys))
    return rows.dropDuplicatesWithinWatermark(list(step.keys))


def _function_of(step: PythonStep) -> Callable[..., object]:
    module = load(step.file)
    function = getattr(module, step.function, None)
    if not callable(function):
        there = [name for name, one in vars(module).items() if inspect.isfunction(one)]
        raise SettingsError(
            f"{step.file} has no function {step.function}", hint=suggestion(step.function, there)
        )
    return cast("Callable[..., object]", function)
