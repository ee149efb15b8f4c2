"""Python files of users: loaded, with the lines of their errors."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from orbitmq.errors import OrbitError, PipelineFileError


def load(file: Path) -> ModuleType:
    """Run a file.

    Afterwards it is not among the modules of this process: what it defines then travels whole to
    Spark's workers, which do not find the file.
    """
    name = f"pipeline_file_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look for their module.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


@contextmanager
def lines_named(file: Path, *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raise what goes wrong as a PipelineFileError with the line; `passing` errors say enough."""
    enough: tuple[type[Exception], ...] = (OrbitError, *passing)
    try:
        yield
    except enough:
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
        raise PipelineFileError([f"{place}: {type(error).__name__}: {said}"]) from error
