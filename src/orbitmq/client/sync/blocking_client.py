"""What blocking clients share: start, stop, methods derived from asyncio clients.

    class Producer(BlockingClient[AioProducer]):
        send = waiting(AioProducer.send)

A derived method has the arguments, types and description of the coroutine method.

Threads: any number may use one client.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from orbitmq.client.sync import background_loop
from orbitmq.client.sync.background_loop import EXIT_SECONDS, BackgroundLoop, made_before_fork
from orbitmq.client.sync.callbacks import Callbacks
from orbitmq.errors import StateError

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class BlockingCalls(Generic[A_co]):
    """Methods of an asyncio object; each call waits for its result."""

    _client: A_co

    def _running(self) -> BackgroundLoop:
        """Return the loop to call; raises unless the client is running."""
        raise NotImplementedError


def waiting(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingCalls[A], P], T]:
    """Derive the blocking form of a coroutine method."""

    @functools.wraps(method)
    def call(self: BlockingCalls[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._running().call(method(self._client, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[BlockingCalls[A], P], Iterator[T]]:
    """Derive the blocking form of an async generator method."""

    @functools.wraps(method)
    def call(self: BlockingCalls[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        self._running()
        items = method(self._client, *args, **kwargs)
        # An interrupted call may still be ending on the loop.
        turn = asyncio.Lock()
        try:
            while item := self._running().call(_next(items, turn)):
                yield item[0]
        finally:
            # A stopped client has ended the generator already.
            with suppress(StateError):
                self._running().call(_end(items, turn))

    shown = inspect.signature(method)
    of_items = str(shown.return_annotation).partition("[")[2].removesuffix("]")
    returns = f"Iterator[{of_items.removesuffix(', None')}]"
    # Read by inspect and help().
    call.__signature__ = shown.replace(return_annotation=returns)  # type: ignore[attr-defined]
    call.__annotations__ = {**method.__annotations__, "return": returns}
    return call


def on_loop(
    method: Callable[Concatenate[C, P], T],
) -> Callable[Concatenate[BlockingClient[C], P], T]:
    """Derive the blocking form of a plain method, which runs in this thread before the start."""

    @functools.wraps(method)
    def call(self: BlockingClient[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._do(functools.partial(method, self._client, *args, **kwargs))

    return call


async def _next(items: AsyncIterator[T], turn: asyncio.Lock) -> list[T]:
    """Return a list of the next item; an empty one at the end."""
    async with turn:
        async for item in items:
            return [item]
        return []


async def _end(items: AsyncIterator[object], turn: asyncio.Lock) -> None:
    if isinstance(items, AsyncGenerator):
        async with turn:
            await items.aclose()


class AsyncClient(Protocol):
    """What every asyncio client has."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""

    @property
    def client_id(self) -> str:
        """The id that brokers know it by."""


C = TypeVar("C", bound=AsyncClient)
C_co = TypeVar("C_co", bound=AsyncClient, covariant=True)


class BlockingClient(BlockingCalls[C_co]):
    """A client whose calls wait for their result; best used in a `with` block."""

    def __init__(self, client: C_co, *, what: str, callbacks: Callbacks | None = None) -> None:
        """Wrap an asyncio client; errors call it `what`, and `callbacks` runs those of its user."""
        self._client = client
        self._what = what
        self._user_callbacks = callbacks
        self._process_id = os.getpid()
        self._guard = threading.Lock()
        # The loop while it starts, and once it runs.
        self._starting: BackgroundLoop | None = None
        self._loop: BackgroundLoop | None = None
        self._stopped = False
        # Set while nothing of it runs: before the start and after the stop.
        self._ended = threading.Event()
        self._ended.set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start; returns once the client can be used."""
        if os.getpid() != self._process_id:
            raise made_before_fork()
        with self._guard:
            self._check_not_started()
            self._ended.clear()
            try:
                self._starting = background_loop.acquire()
            except BaseException:
                self._ended.set()
                raise
            loop = self._starting
        try:
            loop.call(self._client.start())
            self._finish_start(loop)
        except BaseException:
            with self._guard:
                self._starting = None
            background_loop.release(loop)
            self._ended.set()
            raise

    def _check_not_started(self) -> None:
        if self._stopped:
            raise self._not_running()
        if not self._ended.is_set():
            raise StateError(
                f"the {self._what} is already started",
                hint="start it once, and use it until it stops",
            )

    def _finish_start(self, loop: BackgroundLoop) -> None:
        with self._guard:
            if self._stopped:
                raise StateError(f"the {self._what} was stopped while it started")
            loop.stop_at_exit(self._client.stop, afterwards=self._end_callbacks)
            self._starting, self._loop = None, loop

    def stop(self) -> None:
        """Stop; returns once nothing of the client runs. A second stop does nothing."""
        for used in (self._starting, self._loop):
            if used is not None and not used.belongs_to_parent:
                used.check_may_wait()
        with self._guard:
            loop, self._loop = self._loop, None
            self._stopped = True
            starting = self._starting
            if starting is not None and not starting.belongs_to_parent:
                # All clients share the loop: it must outlive the start.
                starting = background_loop.acquire()
        if starting is not None and not starting.belongs_to_parent:
            self._stop(starting)
        if loop is None:
            # Another thread may be stopping it, and that waits for callbacks and listeners.
            if not self._is_own_thread():
                self._ended.wait()
            return
        try:
            if not loop.belongs_to_parent:
                self._stop(loop)
        finally:
            self._ended.set()

    @property
    def client_id(self) -> str:
        """The id that brokers know this client by; raises unless the client runs."""
        self._running()
        return self._client.client_id

    def _stop(self, loop: BackgroundLoop) -> None:
        """Stop the asyncio client, and the callbacks of this one."""
        try:
            loop.call(self._client.stop())
        finally:
            loop.cancel_stop_at_exit(self._client.stop)
            background_loop.release(loop)
            if self._user_callbacks is not None:
                self._user_callbacks.stop()

    def _end_callbacks(self) -> None:
        """Run the pending callbacks at exit, for a bounded time."""
        if self._user_callbacks is not None:
            self._user_callbacks.stop(wait_seconds=EXIT_SECONDS)

    def _is_own_thread(self) -> bool:
        """Whether this thread runs a callback or listener of the client."""
        return self._user_callbacks is not None and self._user_callbacks.in_callback

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the loop and wait for its result."""
        loop = self._loop
        if loop is None:
            work.close()
            raise self._not_running()
        return loop.call(work)

    def _do(self, action: Callable[[], T]) -> T:
        """Call a plain function on the loop; before the start, in this thread."""
        loop = self._loop
        if loop is None:
            return action()
        return loop.call(_awaited(action))

    def _running(self) -> BackgroundLoop:
        loop = self._loop
        if loop is None:
            raise self._not_running()
        return loop

    def _not_running(self) -> StateError:
        if self._stopped:
            return StateError(f"the {self._what} is stopped", hint="make a new one")
        return StateError(
            f"the {self._what} is not started", hint="call start(), or use it in a with block"
        )


async def _awaited(action: Callable[[], T]) -> T:
    return action()
