"""Checks of client arguments; options check themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

from orbitmq.errors import SettingsError


def check_function(name: str, value: object) -> None:
    """Raise unless a value can be called."""
    if not callable(value):
        raise SettingsError(f"{name} cannot be {value!r}", hint="it takes a function")


def check_flag(name: str, value: object) -> None:
    """Raise unless a value is True or False: a text such as "no" would count as True."""
    if not isinstance(value, bool):
        raise SettingsError(f"{name} cannot be {value!r}", hint="it takes True or False")


def is_async_function(function: Callable[..., object]) -> bool:
    """Whether calling a function makes a coroutine."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async
    )
