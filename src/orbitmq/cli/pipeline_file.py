"""The file of a pipeline, as commands take it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.errors import PackageMissingError

if TYPE_CHECKING:
    from orbitmq.pipelines.plan import Pipeline

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")]


def read(file: Path) -> Pipeline:
    """Read it; raises PackageMissingError if pipelines cannot run here."""
    for package in ("yaml", "pyspark"):
        if importlib.util.find_spec(package) is None:
            raise PackageMissingError(package, needed_by="orbitmq pipeline", extra="spark")
    from orbitmq.pipelines.file.pipeline_file import read_pipeline

    return read_pipeline(file)
