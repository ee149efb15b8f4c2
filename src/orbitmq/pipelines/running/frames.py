"""The DataFrames of a pipeline: its sources decoded, its steps applied."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from orbitmq.pipelines.plan import Pipeline, TableSource, Watermark
from orbitmq.pipelines.running.source_rows import table_rows, topic_rows
from orbitmq.pipelines.running.spark_errors import named
from orbitmq.pipelines.running.steps import step_rows


@dataclass(slots=True)
class Frames:
    """What each name of a pipeline stands for."""

    by_name: dict[str, DataFrame] = field(default_factory=dict)
    # By source, what goes into quarantine.
    rejected: dict[str, DataFrame] = field(default_factory=dict)


def frames_of(pipeline: Pipeline, spark: SparkSession) -> Frames:
    """Make the DataFrames; Spark checks names and types of columns, and reads nothing yet."""
    frames = Frames()
    for source in pipeline.sources:
        with named(f"source {source.name}"):
            if isinstance(source, TableSource):
                frames.by_name[source.name] = table_rows(source, spark)
                continue
            rows, rejected = topic_rows(source, spark)
            frames.by_name[source.name] = _with_watermark(rows, source.watermark)
            if rejected is not None:
                frames.rejected[source.name] = rejected
    for step in pipeline.steps:
        with named(f"step {step.name}"):
            made = _with_watermark(step_rows(step, frames.by_name, spark), step.watermark)
        frames.by_name[step.name] = made
    return frames


def _with_watermark(rows: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return rows
    return rows.withWatermark(watermark.column, f"{watermark.delay_ms} milliseconds")
