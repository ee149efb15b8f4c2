"""A pipeline that a Python file defines: the fields of YAML, steps as functions.

    shop = define("shop", namesrv="127.0.0.1:9876")
    shop.source("orders", topic="orders", decode="json", columns={"id": "bigint"})

    @shop.step
    def large(orders): ...

It becomes the tree that a YAML file becomes, and is read by the same rules.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Final, TypeVar, overload

from orbitmq.errors import PipelineFileError
from orbitmq.pipelines.file.nodes import Fields, Items, Node, Text
from orbitmq.pipelines.file.places import Place
from orbitmq.pipelines.file.python_files import lines_named, load

F = TypeVar("F", bound=Callable[..., object])

# Of `from`, which Python keeps for itself.
_READS: Final = "reads"


def define(name: str, **fields: object) -> Definition:
    """Begin a pipeline; fields are those at the top of a pipeline file, such as `namesrv`."""
    return Definition(_caller(), {"name": name, **fields})


def definition_in(file: Path) -> Node:
    """The pipeline that a Python file defines, as a tree."""
    with lines_named(file):
        things = vars(load(file)).values()
    # By identity: one may have several names.
    found = {id(one): one for one in things if isinstance(one, Definition)}
    if len(found) != 1:
        raise PipelineFileError(
            [f"{file} defines {len(found)} pipelines, not one"],
            hint='as in shop = define("shop", namesrv="127.0.0.1:9876")',
        )
    (definition,) = found.values()
    return definition.tree()


class Definition:
    """A pipeline while a file defines it; made by `define`."""

    def __init__(self, line: int, fields: Mapping[str, object]) -> None:
        self._place = Place(line, 1)
        self._fields = _fields(fields, self._place).fields
        self._parts: dict[str, dict[str, tuple[Place, Node]]] = {}

    def source(self, name: str, /, **fields: object) -> None:
        """Add a source."""
        self._add("sources", name, fields, _caller())

    def sql(self, name: str, query: str, /, **fields: object) -> None:
        """Add a step that is a query."""
        self._add("steps", name, {"sql": query, **fields}, _caller())

    @overload
    def step(self, function: F, /) -> F: ...

    @overload
    def step(self, /, **fields: object) -> Callable[[F], F]: ...

    def step(self, function: F | None = None, /, **fields: object) -> F | Callable[[F], F]:
        """Decorate a function that is a step; its parameters are the names that it reads."""
        line = _caller()

        def decorate(made: F) -> F:
            self._add_function(made, fields, line)
            return made

        return decorate if function is None else decorate(function)

    @overload
    def sink(self, name: str, /, **fields: object) -> None: ...

    @overload
    def sink(self, /, **fields: object) -> Callable[[F], F]: ...

    def sink(self, name: str | None = None, /, **fields: object) -> Callable[[F], F] | None:
        """Add a sink that reads the name `reads`, or decorate the function whose rows it takes."""
        line = _caller()
        if name is not None:
            self._add("sinks", name, fields, line)
            return None

        def decorate(made: F) -> F:
            self._add_function(made, {}, line)
            self._add("sinks", made.__name__, {**fields, _READS: made.__name__}, line)
            return made

        return decorate

    def tree(self) -> Node:
        """All of it, as a YAML file would have it."""
        parts: dict[str, tuple[Place, Node]] = {
            part: (self._place, Fields(things, self._place)) for part, things in self._parts.items()
        }
        return Fields({**self._fields, **parts}, self._place)

    def _add_function(self, function: F, fields: Mapping[str, object], line: int) -> None:
        file = inspect.getsourcefile(function)
        step = {"python": f"{Path(file or '').name}:{function.__name__}", **fields}
        if _READS not in fields:
            step[_READS] = list(inspect.signature(function).parameters)
        self._add("steps", function.__name__, step, line)

    def _add(self, part: str, name: str, fields: Mapping[str, object], line: int) -> None:
        place = Place(line, 1)
        things = self._parts.setdefault(part, {})
        if name in things:
            first = things[name][0].line
            raise PipelineFileError(
                [f"{name} is defined twice among the {part}: in line {first}, and in line {line}"]
            )
        named = {"from" if field == _READS else field: value for field, value in fields.items()}
        things[name] = place, _fields(named, place)


def _fields(values: Mapping[str, object], place: Place) -> Fields:
    return Fields(
        {str(name): (place, _node(value, place)) for name, value in values.items()}, place
    )


def _node(value: object, place: Place) -> Node:
    if isinstance(value, Mapping):
        return _fields(value, place)
    if isinstance(value, list | tuple):
        return Items(tuple(_node(one, place) for one in value), place)
    if value is None:
        return Text("", place, place.line)
    if isinstance(value, bool):
        return Text(str(value).lower(), place, place.line)
    if isinstance(value, str | int | float | Decimal | Path):
        return Text(str(value), place, place.line)
    raise PipelineFileError(
        [f"line {place.line}: a value cannot be {value!r}"], hint="texts, numbers, lists and dicts"
    )


def _caller() -> int:
    """The line of the file that called a function of this one."""
    return sys._getframe(2).f_lineno
