"""All options of one process, and the check of everything that was set.

An option of OrbitMQ accepts or refuses the value. An option that only RocketMQ has is refused or
causes a warning. Any other name is unknown.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbitmq.errors import (
    OptionValueError,
    SettingsError,
    UnknownOptionError,
    UnsupportedOptionError,
)
from orbitmq.settings.option import Option, describe
from orbitmq.settings.rocketmq_options import ROCKETMQ_OPTIONS, RocketMQOption, ServerRole

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Origin(enum.Enum):
    """Where an option can be set."""

    FILE = enum.auto()
    ENVIRONMENT = enum.auto()
    FLAG = enum.auto()
    UPDATE = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A name, the text it was set to, and where."""

    name: str
    text: str
    origin: Origin
    source: str  # short, for `source_of`: "namesrv.conf line 3"
    where: str  # precise, for errors: "/etc/orbitmq/namesrv.conf:3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value that was accepted, and where it came from."""

    value: object
    origin: Origin
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The outcome of checking assignments."""

    settings: dict[str, Setting] = field(default_factory=dict)  # by option name
    warnings: list[str] = field(default_factory=list)
    problems: list[SettingsError] = field(default_factory=list)


class OptionTable:
    """The options of some config classes, by name."""

    def __init__(
        self, config_classes: Iterable[type[DataclassInstance]], *, role: ServerRole | None
    ) -> None:
        self.role = role
        rows = describe(*config_classes)
        self.options: dict[str, Option] = {row.name: row for row in rows}
        # Invariant: a name stands for one field; otherwise two parts could see different values.
        twice = [name for name, count in Counter(row.name for row in rows).items() if count > 1]
        if twice:
            raise TypeError(f"two config classes declare the option {', '.join(twice)}")
        fields = Counter(row.field for row in rows)
        self._names_by_field = {row.field: row.name for row in rows if fields[row.field] == 1}

    def name_of(self, name_or_field: str) -> str:
        """Turn the name of a field into that of its option; returns other names unchanged."""
        if name_or_field in self.options:
            return name_or_field
        return self._names_by_field.get(name_or_field, name_or_field)

    def read(self, assignments: Iterable[Assignment]) -> Reading:
        """Check every assignment; of several for one option the last one counts."""
        reading = Reading()
        for assignment in assignments:
            option = self.options.get(assignment.name)
            foreign = ROCKETMQ_OPTIONS.get(assignment.name)
            if option is not None:
                _accept(option, assignment, reading)
            elif foreign is not None:
                self._check_foreign(foreign, assignment, reading)
            else:
                reading.problems.append(self.unknown(assignment.name, where=assignment.where))
        return reading

    def unknown(self, name: str, *, where: str) -> UnknownOptionError:
        """Make the error for an unknown option."""
        return UnknownOptionError(name, where=where, nearest=self.nearest(name))

    def nearest(self, name: str) -> str | None:
        """Return the known name that was most likely meant."""
        # Ours come last, so that they win over equal names of RocketMQ.
        spelled = {_letters(known): known for known in (*ROCKETMQ_OPTIONS, *self.options)}
        matches = difflib.get_close_matches(_letters(name), spelled, n=1)
        return spelled[matches[0]] if matches else None

    def _check_foreign(
        self, foreign: RocketMQOption, assignment: Assignment, reading: Reading
    ) -> None:
        """Refuse an option of RocketMQ that cannot be honoured, or warn that it has no effect."""
        if foreign.harmless is None:
            reading.warnings.append(
                f"{assignment.where}: {foreign.name} {foreign.why_without_effect(self.role)}"
            )
        elif assignment.text.strip().lower() != foreign.harmless.lower():
            reading.problems.append(
                UnsupportedOptionError(
                    foreign.name,
                    assignment.text,
                    where=assignment.where,
                    reason=foreign.reason,
                    harmless=foreign.harmless,
                )
            )


def _accept(option: Option, assignment: Assignment, reading: Reading) -> None:
    try:
        value = option.parse(assignment.text, where=assignment.where)
    except OptionValueError as problem:
        reading.problems.append(problem)
    else:
        reading.settings[option.name] = Setting(
            value=value, origin=assignment.origin, source=assignment.source
        )


def _letters(name: str) -> str:
    """Reduce a name to its lower-case letters and digits, to compare spellings."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
