"""The steps of a pipeline: SQL over the names before it, or a Python function."""

from __future__ import annotations

import importlib.util
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from orbitmq.errors import OrbitError, SettingsError
from orbitmq.pipelines.plan import PythonStep, SqlStep, Step
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
    with _in_file(step.file):
        function = _function_of(step)
        made = function(*(by_name[name] for name in step.reads))
    if not isinstance(made, DataFrame):
        raise SettingsError(
            f"{step.function} of {step.file} returned {type(made).__name__}, not a DataFrame",
            hint="a step takes DataFrames and returns one",
        )
    return made


@contextmanager
def _in_file(file: Path) -> Iterator[None]:
    """Say in which line of a user's file something went wrong."""
    try:
        yield
    except (OrbitError, AnalysisException, ParseException):
        raise
    except Exception as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(file)
        ]
        if isinstance(error, SyntaxError) and error.filename == str(file):
            lines.append(error.lineno)
        place = f"{file}:{lines[-1]}" if lines else str(file)
        said = error.msg if isinstance(error, SyntaxError) else error
        raise SettingsError(f"{place}: {type(error).__name__}: {said}") from error


def _function_of(step: PythonStep) -> Callable[..., object]:
    spec = importlib.util.spec_from_file_location(f"pipeline_step_{step.file.stem}", step.file)
    assert spec is not None
    assert spec.loader is not None
    # Not among the modules of this process, so that what it defines travels to Spark's workers, which
    # do not find its file.
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, step.function, None)
    if not callable(function):
        there = [name for name, one in vars(module).items() if inspect.isfunction(one)]
        raise SettingsError(
            f"{step.file} has no function {step.function}", hint=suggestion(step.function, there)
        )
    return cast("Callable[..., object]", function)
