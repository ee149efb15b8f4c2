"""All client instances of this process: one per event loop and client id, counted.

Threads: any; each event loop sees its own instances only.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.client.aio.instance.client_instance import ClientInstance
from orbitmq.client.options import DEFAULT_INSTANCE, ClientOptions
from orbitmq.clock import SystemClock
from orbitmq.errors import StateError
from orbitmq.transport.local_machine import local_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.clock import Clock
    from orbitmq.transport.hooks import RpcHook

O = TypeVar("O", bound=ClientOptions)  # noqa: E741  # reads as "the options class"


def _new_future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclasses.dataclass(slots=True, eq=False)
class _SharedInstance:
    """An instance, the outcome of its start, and the number of its users."""

    instance: ClientInstance
    started: asyncio.Future[None] = dataclasses.field(default_factory=_new_future)
    users: int = 0


_entries: dict[tuple[asyncio.AbstractEventLoop, str], _SharedInstance] = {}
_guard = threading.Lock()
_numbers: Final = itertools.count()


def _renew_guard() -> None:
    """Make a new lock after a fork: the thread that held the old one may not exist here."""
    global _guard  # noqa: PLW0603  # as the standard library does with its own
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_renew_guard)


def with_own_instance(options: O, clock: Clock) -> O:
    """Replace the instance name DEFAULT by a unique one."""
    if options.instance_name != DEFAULT_INSTANCE:
        return options
    nanoseconds = int(clock.monotonic_ms() * 1_000_000) + next(_numbers)
    return dataclasses.replace(options, instance_name=f"{os.getpid()}#{nanoseconds}")


def client_id_of(options: ClientOptions) -> str:
    """Build the id that brokers know a client by."""
    address = options.client_ip or local_address()
    unit = f"@{options.unit_name}" if options.unit_name.strip() else ""
    return f"{address}@{options.instance_name}{unit}"


async def acquire(
    options: ClientOptions, *, rpc_hooks: Sequence[RpcHook] = (), clock: Clock | None = None
) -> ClientInstance:
    """Return the started instance of a client id on the running loop; `release` it after use."""
    client_id = client_id_of(options)
    key = (asyncio.get_running_loop(), client_id)
    with _guard:
        _drop_closed_loops()
        entry = _entries.get(key)
        is_new = entry is None
        if entry is None:
            instance = ClientInstance(
                client_id,
                options,
                # Compat: message ids hold the machine's address, whatever `client_ip` says.
                address=local_address(),
                clock=clock or SystemClock(),
                rpc_hooks=rpc_hooks,
            )
            entry = _entries[key] = _SharedInstance(instance)
        else:
            _check_same_servers(entry.instance, options)
        entry.users += 1
    if is_new:
        await _start(key, entry)
        return entry.instance
    try:
        await asyncio.shield(entry.started)
    except asyncio.CancelledError:
        await release(entry.instance)
        raise
    return entry.instance


async def release(instance: ClientInstance) -> None:
    """Drop one use of an instance; the last one stops it."""
    key = (asyncio.get_running_loop(), instance.client_id)
    with _guard:
        entry = _entries.get(key)
        if entry is None or entry.instance is not instance:
            return
        entry.users -= 1
        if entry.users:
            return
        del _entries[key]
    await instance.stop()


async def _start(key: tuple[asyncio.AbstractEventLoop, str], entry: _SharedInstance) -> None:
    try:
        await entry.instance.start()
    except BaseException as error:
        with _guard:
            _entries.pop(key, None)
        failure = (
            error
            if isinstance(error, Exception)
            else StateError(f"the start of the client {entry.instance.client_id} was cancelled")
        )
        entry.started.set_exception(failure)
        # Maybe nobody waits; reading the exception keeps asyncio from complaining.
        entry.started.exception()
        await entry.instance.stop()
        raise
    entry.started.set_result(None)


def _check_same_servers(instance: ClientInstance, options: ClientOptions) -> None:
    """Refuse to share an instance that is connected to other name servers."""
    if options.namesrv and options.namesrv != instance.options.namesrv:
        raise StateError(
            f"the client {instance.client_id} is connected to the name servers "
            f"{instance.options.namesrv}, not to {options.namesrv}",
            hint="give this client another instance_name",
        )


def _drop_closed_loops() -> None:
    """Forget instances whose loop was closed before they were released."""
    for loop, client_id in [*_entries]:
        if loop.is_closed():
            del _entries[loop, client_id]
