"""Reads a pipeline file; everything that is wrong with it is found at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from orbitmq.errors import PipelineFileError
from orbitmq.pipelines.file.definition import definition_in
from orbitmq.pipelines.file.fields import FieldReader
from orbitmq.pipelines.file.nodes import TEXT_MAX, read_nodes
from orbitmq.pipelines.file.places import Place
from orbitmq.pipelines.file.problems import Problems
from orbitmq.pipelines.file.sinks import read_sink
from orbitmq.pipelines.file.sources import Defaults, read_source
from orbitmq.pipelines.file.steps import KnownNames, read_step
from orbitmq.pipelines.file.values import location
from orbitmq.pipelines.plan import (
    DeduplicateStep,
    DeltaSink,
    ParquetSink,
    Pipeline,
    PythonStep,
    TableSource,
    TopicSource,
)

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,99}")
_PIPELINE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PARTS: Final = ("sources", "steps", "sinks")
_NEEDED: Final = {
    "sources": "orders: {topic: orders}",
    "sinks": "out: {from: orders, console: }",
}


def read_pipeline(path: Path) -> Pipeline:
    """Read a file; raises PipelineFileError with all mistakes, or if it cannot be read."""
    problems = Problems(path)
    text = _text(path)
    is_python = path.suffix == ".py"
    root = definition_in(path.absolute()) if is_python else read_nodes(text, problems)
    problems.raise_if_any()
    reader = FieldReader(root, Place(1, 1), "a pipeline", problems)
    pipeline = _Reading(path, reader, problems).pipeline()
    problems.raise_if_any()
    return pipeline


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(TEXT_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineFileError(
            [f"{path} cannot be read: {error}"], hint="give the path of a pipeline file, in UTF-8"
        ) from error


class _Reading:
    def __init__(self, path: Path, reader: FieldReader, problems: Problems) -> None:
        self._path = path
        self._reader = reader
        self._problems = problems
        self._parts = {part: reader.fields(part, part) for part in _PARTS}
        names = [name for part in ("sources", "steps") for name in self._parts[part].names]
        self._known = KnownNames(names)

    def pipeline(self) -> Pipeline:
        folder = self._path.absolute().parent
        name = self._reader.text("name", self._path.stem)
        if not _PIPELINE_NAME.fullmatch(name):
            self._reader.add(
                "name", f"name cannot be {name!r}", hint="letters, digits, _, - and ., at most 100"
            )
        state = location(self._reader.text("state", f"{name}.state"), folder)
        defaults = Defaults(folder, self._reader.text("namesrv"))
        pipeline = Pipeline(
            name=name,
            file=self._path.absolute(),
            state=state,
            quarantine=location(self._reader.text("quarantine", f"{state}/quarantine"), folder),
            interval_ms=self._reader.duration("interval"),
            sources=self._each("sources", "source", lambda n, r: read_source(n, r, defaults)),
            steps=self._each("steps", "step", lambda n, r: read_step(n, r, defaults, self._known)),
            sinks=self._each("sinks", "sink", lambda n, r: read_sink(n, r, defaults, self._known)),
        )
        self._reader.end()
        for part, example in _NEEDED.items():
            if not self._parts[part].names:
                self._problems.add(
                    self._reader.place_of(part), f"a pipeline needs {part}", hint=f"as in {example}"
                )
        self._report_shared_tables(pipeline)
        self._report_unused()
        self._report_missing_watermarks(pipeline)
        return pipeline

    def _each(
        self, part: str, noun: str, read: Callable[[str, FieldReader], T | None]
    ) -> tuple[T, ...]:
        reader, found = self._parts[part], []
        for name in reader.names:
            if not _NAME.fullmatch(name):
                self._problems.add(
                    reader.place_of(name),
                    f"a {noun} cannot be named {name!r}",
                    hint="letters, digits and _; SQL uses it as the name of a table",
                )
            one = read(name, reader.fields(name, f"{noun} {name}"))
            if one is not None:
                found.append(one)
            if part != "sinks":
                self._note_name(name, reader)
        return tuple(found)

    def _note_name(self, name: str, reader: FieldReader) -> None:
        others = [
            other
            for part in ("sources", "steps")
            for other in self._parts[part].names
            if other.lower() == name.lower()
        ]
        if len(others) > 1 and reader is self._parts["steps"]:
            self._problems.add(
                reader.place_of(name), f"{name!r} is the name of a source or another step, too"
            )
        self._known.add(name)

    def _report_shared_tables(self, pipeline: Pipeline) -> None:
        """Two queries cannot write one table: Spark counts its batches for one, and drops the others."""
        reader = self._parts["sinks"]
        owners = {
            _folder(f"{pipeline.quarantine}/{source.name}"): f"the quarantine of {source.name}"
            for source in pipeline.sources
            if isinstance(source, TopicSource)
        }
        for sink in pipeline.sinks:
            if not isinstance(sink, ParquetSink | DeltaSink):
                continue
            owner = owners.setdefault(_folder(sink.path), f"sink {sink.name}")
            if owner != f"sink {sink.name}":
                self._problems.add(
                    reader.place_of(sink.name),
                    f"sink {sink.name} writes the folder of {owner}",
                    hint="each needs a folder of its own; a step with UNION brings rows together",
                )

    def _report_missing_watermarks(self, pipeline: Pipeline) -> None:
        """What came before cannot be remembered for ever."""
        if self._problems.found:
            return
        # A function may set one itself.
        timed = {
            one.name
            for one in (*pipeline.sources, *pipeline.steps)
            if isinstance(one, PythonStep)
            or (not isinstance(one, TableSource) and one.watermark is not None)
        }
        for step in pipeline.steps:
            if timed.intersection(step.reads):
                timed.add(step.name)
            elif isinstance(step, DeduplicateStep):
                self._problems.add(
                    self._parts["steps"].place_of(step.name),
                    f"step {step.name} needs a watermark in what it reads: it says how long keys "
                    "are remembered",
                    hint="as in watermark: {column: placed, delay: 10 minutes} of the source",
                )

    def _report_unused(self) -> None:
        """A name that nothing reads is a mistake, mostly in what reads it."""
        if self._problems.found:
            return
        for part in ("sources", "steps"):
            for name in self._parts[part].names:
                if name not in self._known.used:
                    self._problems.add(
                        self._parts[part].place_of(name),
                        f"nothing reads {name}",
                        hint="read it in a step or a sink, or take it out",
                    )


def _folder(path: str) -> str:
    """One spelling for each folder of this machine."""
    return path.rstrip("/") if "://" in path else os.path.realpath(path)
