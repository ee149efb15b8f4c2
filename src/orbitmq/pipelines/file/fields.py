"""The fields of one thing in a pipeline file, read one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from orbitmq.pipelines.file.nodes import Fields, Items, Node, Text
from orbitmq.pipelines.file.places import Place
from orbitmq.pipelines.file.problems import Problems
from orbitmq.pipelines.file.values import duration_ms
from orbitmq.pipelines.suggestions import suggestion

_NUMBER_MAX: Final = 1_000_000_000


class FieldReader:
    """Reads fields; `end` reports those that nobody asked for."""

    def __init__(self, node: Node | None, place: Place, what: str, problems: Problems) -> None:
        """Read the fields of `what`, as in "source orders"."""
        self.what = what
        self.problems = problems
        self.place = place
        self._asked: list[str] = []
        self._fields: dict[str, tuple[Place, Node]] = {}
        if isinstance(node, Fields):
            self._fields = node.fields
        elif node is not None and not (isinstance(node, Text) and not node.value):
            problems.add(node.place, f"{what} has fields, each in a line as `name: value`")

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    @property
    def names(self) -> list[str]:
        """The names of all fields, in the order of the file."""
        return list(self._fields)

    def place_of(self, name: str) -> Place:
        """Where a field is; where this thing begins if it is not there."""
        return self._fields[name][0] if name in self._fields else self.place

    def add(self, name: str, text: str, *, hint: str = "") -> None:
        """Report what is wrong with the value of a field."""
        node = self._fields[name][1] if name in self._fields else None
        self.problems.add(self.place if node is None else node.place, text, hint=hint)

    def node(self, name: str) -> Node | None:
        """The value of a field, whatever it is; None if it is not there."""
        self._asked.append(name)
        return self._fields[name][1] if name in self._fields else None

    def text(self, name: str, default: str = "") -> str:
        """A value."""
        node = self.node(name)
        if node is None:
            return default
        if not isinstance(node, Text):
            self.add(name, f"{name} of {self.what} is one value")
            return default
        return node.value.strip() or default

    def required(self, name: str, example: str) -> str:
        """A value that must be there."""
        value = self.text(name)
        if not value:
            self.problems.add(
                self.place_of(name), f"{self.what} needs {name}", hint=f"as in {name}: {example}"
            )
        return value

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """One of a few words."""
        value = self.text(name, default)
        if value in allowed:
            return value
        self.add(name, f"{name} cannot be {value!r}", hint=suggestion(value, allowed))
        return default

    def number(self, name: str, default: int) -> int:
        """A whole number above 0."""
        value = self.text(name, str(default))
        if value.isascii() and value.isdigit() and 0 < int(value[:20]) <= _NUMBER_MAX:
            return int(value)
        self.add(
            name, f"{name} cannot be {value!r}", hint=f"it is a number from 1 to {_NUMBER_MAX:,}"
        )
        return default

    def duration(self, name: str, default_ms: int = 0) -> int:
        """A length of time, in milliseconds."""
        value = self.text(name)
        if not value:
            return default_ms
        found = duration_ms(value)
        if found is None:
            self.add(name, f"{name} cannot be {value!r}", hint="as in 500 ms, 10 seconds, 2 hours")
            return default_ms
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """One value, or a list of them."""
        return tuple(text.value for text in self.places(name))

    def places(self, name: str) -> list[Text]:
        """One value, or a list of them, with their places."""
        node = self.node(name)
        items = node.items if isinstance(node, Items) else () if node is None else (node,)
        found = [item for item in items if isinstance(item, Text) and item.value]
        if node is not None and (len(found) < len(items) or not found):
            self.add(name, f"{name} of {self.what} is a name, or a list of names")
        return found

    def mapping(self, name: str) -> dict[str, Text]:
        """Names with a value each."""
        reader = self.fields(name, f"{name} of {self.what}")
        found: dict[str, Text] = {}
        for key in reader.names:
            node = reader.node(key)
            if isinstance(node, Text):
                found[key] = node
            elif node is not None:
                self.problems.add(node.place, f"{key} in {reader.what} is one value")
        return found

    def options(self, name: str, *, ours: Mapping[str, str]) -> dict[str, str]:
        """Names with a value each, as Spark takes options: in any case, and each once.

        `ours` are those that the pipeline sets itself, with what to write instead.
        """
        ours_by_lower = {key.lower(): hint for key, hint in ours.items()}
        found: dict[str, str] = {}
        for key, text in self.mapping(name).items():
            lower = key.lower()
            if lower in ours_by_lower:
                self.problems.add(
                    text.place,
                    f"{self.what} cannot have the option {key}: the pipeline sets it",
                    hint=ours_by_lower[lower],
                )
            elif lower in map(str.lower, found):
                self.problems.add(text.place, f"option {key} of {self.what} is there twice")
            found[key] = text.value
        return found

    def fields(self, name: str, what: str) -> FieldReader:
        """The fields of a field."""
        return FieldReader(self.node(name), self.place_of(name), what, self.problems)

    def end(self) -> None:
        """Report fields that nobody asked for."""
        asked = list(dict.fromkeys(self._asked))
        for name, (place, _) in self._fields.items():
            if name not in asked:
                self.problems.add(
                    place, f"{self.what} has no field {name!r}", hint=suggestion(name, asked)
                )
