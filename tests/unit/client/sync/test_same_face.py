"""Blocking and asyncio clients have the same names and arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq import client
from orbitmq.client import aio

NAMES = ["Admin", "Producer", "PushConsumer", "LitePullConsumer", "PullConsumer"]
# For the client instance, not for users.
OF_MEMBERS = {"answers_checks", "check_transaction", "topics"}
# How each spells the same method.
SPELLED = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}
WITHOUT_OTHER = {"__anext__"}


def _public(kind: type[object]) -> dict[str, Any]:
    names = {name for each in kind.__mro__[:-1] for name in vars(each)}
    return {
        name: inspect.getattr_static(kind, name)
        for name in names
        if not name.startswith("_") or name in {*SPELLED, *SPELLED.values(), *WITHOUT_OTHER}
    }


def _parameters(function: Callable[..., object]) -> list[tuple[str, Any, Any]]:
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_both_constructors_take_the_same_arguments(name: str) -> None:
    blocking, on_asyncio = getattr(client, name), getattr(aio, name)

    assert _parameters(blocking.__init__) == _parameters(on_asyncio.__init__)


@pytest.mark.parametrize("name", NAMES)
def test_both_have_the_same_methods_with_the_same_arguments(name: str) -> None:
    blocking, on_asyncio = _public(getattr(client, name)), _public(getattr(aio, name))
    expected = {
        SPELLED.get(method, method): function
        for method, function in on_asyncio.items()
        if method not in OF_MEMBERS | WITHOUT_OTHER
    }

    assert set(blocking) == set(expected)
    for method, function in expected.items():
        if callable(function):
            assert _parameters(blocking[method]) == _parameters(function), method
        else:
            assert isinstance(blocking[method], property), method


def test_every_exported_name_exists() -> None:
    for module in (client, aio):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(NAMES) <= set(client.__all__)
    assert set(NAMES) <= set(aio.__all__)
