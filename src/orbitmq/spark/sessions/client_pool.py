"""Clients shared by the tasks of one worker process.

Spark reuses its Python workers for many tasks; a client that stays connected between them saves
each task the connections and the route look-ups. The remaining clients are stopped when the
process exits.

Threads: any.
Fork: a child starts with none; its parent's keep working in the parent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, ParamSpec, Protocol, TypeVar


class PooledClient(Protocol):
    """A client, started before its first use and stopped after the last."""

    def start(self) -> None:
        """Connect."""

    def stop(self) -> None:
        """Disconnect, and stop all threads."""


P = ParamSpec("P")
C = TypeVar("C", bound=PooledClient)


@dataclass(slots=True, eq=False)
class _Shared(Generic[C]):
    """A client, and how many tasks use it."""

    client: C
    users: int = 0


class ClientPool(Generic[P, C]):
    """The clients of one kind in this process, by their constructor arguments.

    Up to `idle_max` unused clients stay open.
    """

    def __init__(self, make: Callable[P, C], *, idle_max: int) -> None:
        self._make = make
        self._idle_max = idle_max
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        # The parent's lock may be held by a thread that the child does not have.
        self._guard = threading.Lock()
        # By their arguments, least recently used first.
        self._shared: dict[object, _Shared[C]] = {}

    def __len__(self) -> int:
        return len(self._shared)

    @contextmanager
    def lend(self, *args: P.args, **keywords: P.kwargs) -> Iterator[C]:
        """Lend the running client with these arguments."""
        shared = self._take(*args, **keywords)
        try:
            yield shared.client
        finally:
            self._give_back(shared)

    def stop_all(self) -> None:
        """Stop all clients, used or not; the next user gets a new one."""
        with self._guard:
            stopped = [*self._shared.values()]
            self._shared.clear()
        for one in stopped:
            one.client.stop()

    def _take(self, *args: P.args, **keywords: P.kwargs) -> _Shared[C]:
        key = (args, frozenset(keywords.items()))
        with self._guard:
            found = self._shared.pop(key, None)
            if found is None:
                found = _Shared(self._make(*args, **keywords))
                found.client.start()
            self._shared[key] = found
            found.users += 1
        return found

    def _give_back(self, shared: _Shared[C]) -> None:
        """Release one use, and stop the least recently used clients beyond `idle_max`."""
        with self._guard:
            shared.users -= 1
            idle = [key for key, one in self._shared.items() if not one.users]
            surplus = [self._shared.pop(key) for key in idle[: max(0, len(idle) - self._idle_max)]]
        for one in surplus:
            one.client.stop()
