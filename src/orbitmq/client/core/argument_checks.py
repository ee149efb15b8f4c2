"""Checks of client arguments; options check themselves."""

from __future__ import annotations

from orbitmq.errors import SettingsError


def check_function(name: str, value: object) -> None:
    """Raise unless a value can be called."""
    if not callable(value):
        raise SettingsError(f"{name} cannot be {value!r}", hint="it takes a function")


def check_flag(name: str, value: object) -> None:
    """Raise unless a value is True or False: a text such as "no" would count as True."""
    if not isinstance(value, bool):
        raise SettingsError(f"{name} cannot be {value!r}", hint="it takes True or False")
