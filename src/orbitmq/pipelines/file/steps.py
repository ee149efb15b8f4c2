"""The part `steps:` of a pipeline file."""

from __future__ import annotations

import re
from typing import Final

from orbitmq.pipelines.file.fields import FieldReader
from orbitmq.pipelines.file.nodes import Text
from orbitmq.pipelines.file.places import Place
from orbitmq.pipelines.file.sources import Defaults, one_kind, read_watermark
from orbitmq.pipelines.file.sql_names import tables_in
from orbitmq.pipelines.plan import DeduplicateStep, PythonStep, SqlStep, Step
from orbitmq.pipelines.suggestions import suggestion

KINDS: Final = ("sql", "python", "deduplicate")
_QUERY: Final = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*(select|with|from|values)\b", re.I | re.S
)


class KnownNames:
    """What was named so far, and what will be."""

    def __init__(self, all_names: list[str]) -> None:
        self._all = {name.lower(): name for name in all_names}
        self._known: dict[str, str] = {}
        self.used: set[str] = set()

    def add(self, name: str) -> None:
        """Note that a name may be used from here on."""
        self._known[name.lower()] = name

    def has(self, name: str) -> bool:
        """Whether a name may be used here."""
        return name.lower() in self._known

    def resolve(self, name: str, reader: FieldReader, place: Place) -> str | None:
        """The name as it was defined; reports one that is not known."""
        found = self._known.get(name.lower())
        if found is not None:
            self.used.add(found)
            return found
        later = self._all.get(name.lower())
        hint = (
            f"{later} comes later: move it up"
            if later is not None
            else suggestion(name, self._known.values())
        )
        reader.problems.add(place, f"{reader.what} reads {name!r}, which is not known", hint=hint)
        return None


def read_step(name: str, reader: FieldReader, defaults: Defaults, known: KnownNames) -> Step | None:
    """Read one step; None if it cannot be told what it is."""
    kind = one_kind(reader, KINDS)
    if kind is None:
        return None
    step: Step
    if kind == "sql":
        step = _sql(name, reader, known)
    elif kind == "python":
        step = _python(name, reader, defaults, known)
    else:
        step = _deduplicate(name, reader, known)
    reader.end()
    return step


def _sql(name: str, reader: FieldReader, known: KnownNames) -> SqlStep:
    node = reader.node("sql")
    sql = reader.required("sql", "SELECT * FROM orders")
    reads: list[str] = []
    if isinstance(node, Text) and sql:
        if not _QUERY.match(sql):
            reader.add("sql", f"{reader.what} is no query", hint="begin with SELECT, WITH or FROM")
        for table in tables_in(node.value):
            # Spark knows what has a qualifier, as parquet.`folder`.
            if table.qualifier or (table.is_local and not known.has(table.name)):
                continue
            place = Place(node.first_line + table.line, node.place.column)
            found = known.resolve(table.name, reader, place)
            if found is not None:
                reads.append(found)
    return SqlStep(
        name=name, sql=sql, reads=tuple(dict.fromkeys(reads)), watermark=read_watermark(reader)
    )


def _python(name: str, reader: FieldReader, defaults: Defaults, known: KnownNames) -> PythonStep:
    given = reader.required("python", "scoring.py:score")
    path, colon, function = given.rpartition(":")
    file = defaults.folder / path
    if given and not (colon and path and function.isidentifier()):
        reader.add("python", f"python cannot be {given!r}", hint="as in scoring.py:score")
    elif given and not file.is_file():
        there = sorted(one.name for one in defaults.folder.glob("*.py"))
        reader.add(
            "python", f"there is no file {file}", hint=suggestion(path, there) if there else ""
        )
    return PythonStep(
        name=name,
        file=file,
        function=function,
        reads=_reads(reader, known),
        watermark=read_watermark(reader),
    )


def _deduplicate(name: str, reader: FieldReader, known: KnownNames) -> DeduplicateStep:
    fields = reader.fields("deduplicate", f"deduplicate of {reader.what}")
    keys = fields.places("keys")
    if "keys" not in fields:
        fields.required("keys", "[id]")
    seen: set[str] = set()
    for key in keys:
        if key.value.lower() in seen:
            fields.problems.add(key.place, f"{fields.what} has the key {key.value} twice")
        seen.add(key.value.lower())
    fields.end()
    reads = _reads(reader, known)
    if len(reads) > 1:
        reader.add("from", f"{reader.what} reads one thing", hint="put the others into a step")
    return DeduplicateStep(name=name, keys=tuple(key.value for key in keys), reads=reads)


def _reads(reader: FieldReader, known: KnownNames) -> tuple[str, ...]:
    found = [known.resolve(one.value, reader, one.place) for one in reader.places("from")]
    if "from" not in reader:
        reader.problems.add(reader.place, f"{reader.what} needs from", hint="as in from: orders")
    return tuple(one for one in found if one is not None)
