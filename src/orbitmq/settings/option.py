"""One row of the table of options, and how a config class declares it.

A config class is a frozen, keyword-only dataclass whose fields are all made by `option`. A row
holds all facts about an option; loader, limits, help, live update and the documentation page read
them from here, so that nothing is written twice.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.errors import OptionValueError
from orbitmq.settings.option_kinds import OptionKind, kind_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

# Replaces the value of a secret wherever settings are shown.
HIDDEN: Final = "******"

_ROW: Final = "orbitmq.option"

# Splits brokerIP1 into broker IP1 and useTLSNow into use TLS Now.
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declaration:
    """The arguments of `option` in the config class."""

    default: object
    doc: str
    low: float | None
    high: float | None
    choices: tuple[object, ...]
    java: str | None
    environment: tuple[str, ...]
    live: bool
    guarded: str
    secret: bool
    default_shown: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row: an option, its limits and its meaning."""

    owner: type[object]
    field: str  # in the config class, and as a flag
    name: str  # in files, on the wire, after ORBITMQ_ and as a flag
    kind: OptionKind
    default: object
    doc: str
    low: float | None
    high: float | None
    choices: tuple[object, ...]
    environment: tuple[str, ...]  # further variables that set it
    live: bool
    guarded: str  # what a live update of it could do, if that is dangerous
    secret: bool
    default_shown: str | None

    @property
    def limits(self) -> str:
        """The values it accepts, short enough for a table cell."""
        if self.choices:
            return ", ".join(self.kind.write(choice) for choice in self.choices)
        if self.kind.members:
            return ", ".join(self.kind.members)
        if self.low is not None and self.high is not None:
            return f"{self.low} to {self.high}"
        if self.low is not None:
            return f"{self.low} or more"
        if self.high is not None:
            return f"{self.high} or less"
        return self.kind.takes.removeprefix("a ").removeprefix("any ")

    @property
    def takes(self) -> str:
        """The values it accepts, as the end of a sentence."""
        if self.choices:
            return f"one of {self.limits}"
        if self.low is None and self.high is None:
            return self.kind.takes
        if self.low is not None and self.high is not None:
            return f"{self.kind.takes} from {self.limits}"
        return f"{self.kind.takes}, {self.limits}"

    @property
    def default_text(self) -> str:
        """The default for display; the same on every machine."""
        return self.kind.write(self.default) if self.default_shown is None else self.default_shown

    def parse(self, text: str, *, where: str) -> object:
        """Parse a value; `where` is named in the error."""
        # Compat: Java keeps trailing spaces in the value; RocketMQ trims them from strings, and
        # ignores the whole setting for numbers.
        try:
            value = self.kind.parse(text.strip())
        except ValueError:
            raise self._refusal(text, where) from None
        self.check(value, where=where)
        return value

    def check(self, value: object, *, where: str) -> None:
        """Check a value against type and limits."""
        accepted = self.kind.holds(value) and (not self.choices or value in self.choices)
        if accepted and isinstance(value, int | float):
            too_low = self.low is not None and value < self.low
            too_high = self.high is not None and value > self.high
            accepted = not too_low and not too_high
        if not accepted and isinstance(value, list | tuple) and not self.secret:
            joined = ";".join(map(str, value))
            raise OptionValueError(
                self.name,
                f"a {type(value).__name__}",
                where=where,
                allowed=f"{self.takes}: several are written as {joined!r}",
            )
        if not self.kind.holds(value):
            raise self._refusal(str(value), where, f"{self.takes}, not a {type(value).__name__}")
        if not accepted:
            raise self._refusal(str(value), where)

    def show(self, value: object) -> str:
        """Write a value for display; a secret that is not empty is hidden."""
        text = self.kind.write(value)
        return HIDDEN if self.secret and text else text

    def _refusal(self, text: str, where: str, allowed: str = "") -> OptionValueError:
        return OptionValueError(
            self.name, HIDDEN if self.secret else text, where=where, allowed=allowed or self.takes
        )


def option(  # noqa: PLR0913 - each argument is one column of the table
    default: T,
    *,
    doc: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[T, ...] = (),
    java: str | None = None,
    environment: tuple[str, ...] = (),
    live: bool = False,
    guarded: str = "",
    secret: bool = False,
    default_shown: str | None = None,
) -> T:
    """Declare a field of a config class.

    Args:
        default: the value if nothing sets the option; a path may start with `~`.
        doc: what the option does, in whole sentences.
        low: the smallest number it accepts.
        high: the largest number it accepts.
        choices: the only values it accepts.
        java: RocketMQ's name; otherwise the field name in lowerCamelCase.
        environment: further variables that set it; the ORBITMQ_ ones take precedence.
        live: whether it may change while the server runs.
        guarded: what a live update of it could do, as the end of "it can …"; such an option is
            live only where the server's own file or flags allow it.
        secret: whether its value is hidden wherever settings are shown.
        default_shown: the default in words, if it differs from machine to machine.
    """
    row = _Declaration(
        default=default,
        doc=doc,
        low=low,
        high=high,
        choices=choices,
        java=java,
        environment=environment,
        live=live,
        guarded=guarded,
        secret=secret,
        default_shown=default_shown,
    )
    metadata = {_ROW: row}
    # The home directory is resolved when the config is created; the row keeps the `~`.
    made: object = (
        dataclasses.field(default_factory=default.expanduser, metadata=metadata)
        if isinstance(default, Path)
        else dataclasses.field(default=default, metadata=metadata)
    )
    return typing.cast("T", made)


@functools.cache
def _rows(config_class: type[DataclassInstance]) -> tuple[Option, ...]:
    annotations = typing.get_type_hints(config_class)
    return tuple(
        _row(config_class, field, annotations[field.name])
        for field in dataclasses.fields(config_class)
    )


def _row(
    config_class: type[object], field: dataclasses.Field[object], annotation: object
) -> Option:
    """Build one row; a faulty declaration is a bug of ours and raises TypeError."""
    place = f"{config_class.__name__}.{field.name}"
    declared = field.metadata.get(_ROW)
    if not isinstance(declared, _Declaration):
        raise TypeError(f"{place} is not made by option()")
    if not declared.doc.strip():
        raise TypeError(f"{place} has no doc")
    if declared.guarded and not declared.live:
        raise TypeError(f"{place} is guarded against live updates, but not live")
    row = Option(
        owner=config_class,
        field=field.name,
        name=declared.java or camel_case(field.name),
        kind=kind_of(annotation),
        default=declared.default,
        doc=declared.doc,
        low=declared.low,
        high=declared.high,
        choices=declared.choices,
        environment=declared.environment,
        live=declared.live,
        guarded=declared.guarded,
        secret=declared.secret,
        default_shown=declared.default_shown,
    )
    row.check(row.default, where=f"default of {place}")
    return row


def describe(*config_classes: type[DataclassInstance]) -> tuple[Option, ...]:
    """List the rows of config classes, in the order of their fields."""
    return tuple(row for config_class in config_classes for row in _rows(config_class))


def check_limits(config: DataclassInstance) -> None:
    """Check a config that was created in code against its limits."""
    for row in describe(type(config)):
        row.check(getattr(config, row.field), where=type(config).__name__)


def camel_case(field: str) -> str:
    """Turn listen_port into listenPort."""
    first, *rest = field.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def upper_snake(name: str) -> str:
    """Turn listenPort into LISTEN_PORT."""
    return _WORD_START.sub("_", name).replace(".", "_").replace("-", "_").upper()
