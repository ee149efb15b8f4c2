"""Filter functions that an operator installed, found by entry point.

A package offers one like this; consumers select it by the name on the left:

    [project.entry-points."orbitmq.filters"]
    "org.example.PaidOrders" = "shop.filters:is_paid"

It is a function of a message and a context, or a class whose instances are such functions, and
returns True for messages that the consumer gets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

from orbitmq.errors import FilterFunctionError, SettingsError

if TYPE_CHECKING:
    from orbitmq.record.decode import StoredMessage

GROUP: Final = "orbitmq.filters"


@dataclass(frozen=True, slots=True)
class FilterContext:
    """For whom a message is filtered."""

    consumer_group: str


FilterFunction = Callable[["StoredMessage", FilterContext], bool]


def installed_filters() -> dict[str, EntryPoint]:
    """Find the installed filters by name; none of them is loaded."""
    found: dict[str, EntryPoint] = {}
    for offered in entry_points(group=GROUP):
        other = found.setdefault(offered.name, offered)
        if other.value != offered.value:
            raise SettingsError(
                f"two packages offer the filter {offered.name}: {other.value} and {offered.value}",
                hint="uninstall one of them",
            )
    return found


def load_filter(name: str, offered: EntryPoint) -> FilterFunction:
    """Import a filter function, which runs code of its package."""
    loaded = offered.load()
    function: object = loaded() if inspect.isclass(loaded) else loaded
    if not callable(function):
        raise FilterFunctionError(
            name,
            f"{offered.value} is a {type(function).__name__}",
            hint="let the entry point name a function, or a class with a method __call__",
        )
    return function
