"""Blocking clients and those on asyncio have the same face: names, arguments, what they say."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq import client
from orbitmq.client import aio

NAMES = ["Admin", "Producer", "PushConsumer", "LitePullConsumer", "PullConsumer"]
# What is there for the client instance, and not for users.
OF_MEMBERS = {"check_transaction", "topics"}
# How the two say the same.
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
def test_both_are_made_with_the_same_arguments(name: str) -> None:
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


def test_every_name_that_is_promised_is_there() -> None:
    for module in (client, aio):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(NAMES) <= set(client.__all__)
    assert set(NAMES) <= set(aio.__all__)
