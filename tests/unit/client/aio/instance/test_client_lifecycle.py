"""The lifecycle of a client."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client.aio.instance.client_lifecycle import ClientLifecycle
from orbitmq.errors import StateError


class Client(ClientLifecycle):
    """Records what was called."""

    def __init__(self, *, failure: Exception | None = None) -> None:
        super().__init__("the client")
        self.steps: list[str] = []
        self.may_open = asyncio.Event()
        self.opening = asyncio.Event()
        self._failure = failure

    async def _open(self) -> None:
        self.opening.set()
        try:
            await self.may_open.wait()
        except asyncio.CancelledError:
            self.steps.append("given up")
            raise
        if self._failure is not None:
            raise self._failure
        self.steps.append("open")

    async def _close(self) -> None:
        self.steps.append("closed")


@pytest.fixture
async def client() -> Client:
    return Client()


async def test_a_client_is_opened_and_closed_once(client: Client) -> None:
    client.may_open.set()

    async with client:
        with pytest.raises(StateError, match="the client is already started"):
            await client.start()
        await client.stop()

    assert client.steps == ["open", "closed"]
    with pytest.raises(StateError, match="the client is stopped"):
        await client.start()


async def test_a_client_that_was_not_started_has_nothing_to_close(client: Client) -> None:
    await client.stop()

    assert client.steps == []


async def test_a_stop_cancels_a_start_in_progress(client: Client) -> None:
    starting = asyncio.create_task(client.start())
    await client.opening.wait()

    await client.stop()

    assert client.steps == ["given up", "closed"]
    with pytest.raises(StateError, match="the client was stopped while it started"):
        await starting


async def test_a_cancelled_start_leaves_nothing_running(client: Client) -> None:
    starting = asyncio.create_task(client.start())
    await client.opening.wait()

    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert client.steps == ["given up", "closed"]


async def test_a_failed_start_is_closed_before_it_raises() -> None:
    client = Client(failure=OSError("no network"))
    client.may_open.set()

    with pytest.raises(OSError, match="no network"):
        await client.start()

    assert client.steps == ["closed"]
    with pytest.raises(StateError, match="the client is stopped"):
        await client.start()


async def test_the_client_id_is_known_while_it_runs(client: Client) -> None:
    with pytest.raises(StateError, match=r"the client is not started \(call start\(\), or use it"):
        _ = client.client_id
    starting = asyncio.create_task(client.start())
    await client.opening.wait()
    with pytest.raises(StateError, match=r"the client is still starting \(await start\(\) first"):
        _ = client.client_id
    client.may_open.set()
    await starting
    await client.stop()
    with pytest.raises(StateError, match="the client is stopped"):
        _ = client.client_id
