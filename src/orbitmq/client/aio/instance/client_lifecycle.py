"""The lifecycle of a client: one start and one stop.

A stop cancels a start in progress, and a start that fails leaves nothing running.

Threads: one event loop, the one it was started on.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from orbitmq.client.aio.instance import instances
from orbitmq.errors import StateError
from orbitmq.lifecycle import RunOnce, cancel_and_wait, run_to_completion

if TYPE_CHECKING:
    from typing import Self

    from orbitmq.client.aio.instance.client_instance import ClientInstance


class ClientLifecycle(ABC):
    """Starts and stops a client on asyncio; best used in an `async with` block."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._state = RunOnce(what)
        self._starting: asyncio.Task[None] | None = None
        # Set by `_open`, released by the stop.
        self._instance: ClientInstance | None = None

    @abstractmethod
    async def _open(self) -> None:
        """Acquire what the client needs."""

    @abstractmethod
    async def _close(self) -> None:
        """Undo `_open`, however far it got."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start; returns once the client can be used."""
        self._state.begin()
        # In a task of its own, so that a stop can cancel it and not the caller.
        starting = asyncio.get_running_loop().create_task(
            self._open(), name=f"start of {self._what}"
        )
        self._starting = starting
        try:
            await asyncio.wait({starting})
            self._check_started(starting)
        except BaseException:
            # A client that failed to start cannot be used; release what it has.
            await run_to_completion(self._stop(), name=f"stop of {self._what}")
            raise

    def _check_started(self, starting: asyncio.Task[None]) -> None:
        failure = None if starting.cancelled() else starting.exception()
        if self._state.stopping:
            raise StateError(f"{self._what} was stopped while it started") from failure
        if failure is not None:
            raise failure

    async def stop(self) -> None:
        """Stop; returns once nothing of the client runs. A second stop does nothing."""
        await run_to_completion(self._stop(), name=f"stop of {self._what}")

    async def _stop(self) -> None:
        if not await self._state.begin_stop():
            return
        try:
            if self._starting is not None:
                await cancel_and_wait(self._starting)
            await self._close()
        finally:
            try:
                if self._instance is not None:
                    await instances.release(self._instance)
            finally:
                self._state.end_stop()

    @property
    def client_id(self) -> str:
        """The id that brokers know this client by; raises unless the client runs."""
        return self._running().client_id

    def _running(self) -> ClientInstance:
        """Return the instance; raises unless the client is started and not stopped."""
        self._state.check_running()
        if self._instance is None or self._starting is None or not self._starting.done():
            raise StateError(f"{self._what} is still starting", hint="await start() first")
        return self._instance
