"""What `delta: PATH` of a sink and `format: delta` of a source have in common."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Final

from orbitmq.errors import PackageMissingError
from orbitmq.pipelines.file.fields import FieldReader
from orbitmq.pipelines.file.values import location

# deltalake takes paths for URLs, and fails at these.
_NOT_IN_PATHS: Final = re.compile(r"[\[\]|^\\\x00-\x1f]|%[0-9A-Fa-f]{2}")


def delta_folder(reader: FieldReader, name: str, folder: Path) -> str:
    """Where a field says that a Delta table is."""
    if importlib.util.find_spec("deltalake") is None:
        raise PackageMissingError("deltalake", needed_by=reader.what, extra="spark,delta")
    path = location(reader.required(name, "tables/orders"), folder)
    if "://" in path:
        reader.add(
            name,
            f"a Delta table cannot be at {path}",
            hint="give a folder that this machine, and every machine of Spark, has under that path",
        )
    wrong = _NOT_IN_PATHS.search(path)
    if wrong is not None:
        reader.add(name, f"a Delta table cannot be at {path}: its path has {wrong[0]!r}")
    return path
