"""A test must leave nothing behind: no task, no unretrieved error."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests import leftovers

# Of a test's time limit.
_HANGS_AFTER_SHARE: Final = 2 / 3


@pytest.fixture(autouse=True)
async def nothing_is_left_behind(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
    limit = request.node.get_closest_marker("timeout")
    seconds = float(limit.args[0] if limit else request.config.getini("timeout"))
    # A signal, as pytest-timeout sends it, does not wake uvloop.
    watchdog = loop.call_later(seconds * _HANGS_AFTER_SHARE, _cancel_all)
    yield
    watchdog.cancel()
    # Futures warn of unretrieved errors when they are garbage-collected; objects older than the
    # test need not be checked.
    gc.collect(1)
    assert not complaints
    await leftovers.no_tasks_since(set())


def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel("the test hangs")
