"""The event loop is the one that was asked for."""

from __future__ import annotations

import asyncio
import sys

import pytest
import uvloop

from orbitmq.transport import event_loop


async def _loop_type() -> type[asyncio.AbstractEventLoop]:
    return type(asyncio.get_running_loop())


def test_uvloop_is_used_if_wanted_and_asyncio_if_not() -> None:
    assert event_loop.run(_loop_type(), use_native_loop=True) is uvloop.Loop
    assert not issubclass(event_loop.run(_loop_type(), use_native_loop=False), uvloop.Loop)


def test_asyncio_is_used_where_uvloop_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert not issubclass(event_loop.run(_loop_type(), use_native_loop=True), uvloop.Loop)


def test_errors_of_the_main_coroutine_are_raised() -> None:
    async def fail() -> None:
        raise ValueError("from main")

    with pytest.raises(ValueError, match="from main"):
        event_loop.run(fail(), use_native_loop=True)
