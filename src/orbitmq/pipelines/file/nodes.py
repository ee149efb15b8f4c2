"""The text of a pipeline file as a tree in which everything has its place.

YAML, with one difference: a value is the text that is written. What `no`, `1.0` or `2026-01-01` mean
is decided by the field that it is the value of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import yaml

from orbitmq.pipelines.file.places import Place
from orbitmq.pipelines.file.problems import Problems

# More than any file that people write, and little enough to be read at once.
TEXT_MAX: Final = 1024 * 1024
NODES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Text:
    """A value."""

    value: str
    place: Place
    # The line of its first character, which of a block is the one below its indicator.
    first_line: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Fields:
    """Names with their values, in the order of the file."""

    fields: dict[str, tuple[Place, Node]]
    place: Place


Node = Text | Items | Fields


def read_nodes(text: str, problems: Problems) -> Node | None:
    """Parse a text; None if it is not YAML."""
    if len(text) > TEXT_MAX:
        problems.add(Place(1, 1), f"the file has more than {TEXT_MAX:,} characters")
        return None
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)
        problems.add(place, f"this is not YAML: {error.problem or error.context}")
        return None
    except (yaml.YAMLError, RecursionError) as error:
        problems.add(Place(1, 1), f"this is not YAML: {str(error)[:200]}")
        return None
    if root is None:
        problems.add(Place(1, 1), "the file is empty", hint="docs/pipelines.md has an example")
        return None
    try:
        return _Reading(problems).node(root)
    except RecursionError:
        # Also of an alias that is part of what it stands for.
        problems.add(Place(1, 1), "lists and fields are nested too deeply")
        return None


class _Reading:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._count = 0

    def node(self, node: yaml.Node) -> Node | None:
        place = _place_of(node)
        self._count += 1
        if self._count > NODES_MAX:
            if self._count == NODES_MAX + 1:
                self._problems.add(place, f"the file has more than {NODES_MAX:,} values")
            return None
        if isinstance(node, yaml.ScalarNode):
            is_block = node.style in ("|", ">")
            return Text(node.value, place, place.line + is_block)
        if isinstance(node, yaml.SequenceNode):
            items = [self.node(item) for item in node.value]
            return Items(tuple(item for item in items if item is not None), place)
        return self._fields(node, place)

    def _fields(self, node: yaml.Node, place: Place) -> Fields:
        fields: dict[str, tuple[Place, Node]] = {}
        for name_node, value_node in node.value:
            name_place = _place_of(name_node)
            if not isinstance(name_node, yaml.ScalarNode):
                self._problems.add(name_place, "a name is expected here")
                continue
            name, value = name_node.value, self.node(value_node)
            if name in fields:
                line = fields[name][0].line
                self._problems.add(name_place, f"{name!r} is there twice, first in line {line}")
            elif value is not None:
                fields[name] = name_place, value
        return Fields(fields, place)


def _place_of(node: yaml.Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)
