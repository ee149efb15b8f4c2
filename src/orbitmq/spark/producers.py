"""Producers and staged writers of a worker process, kept from task to task.

Spark uses its Python workers again for other tasks and micro-batches, so that connections made
for one serve the next; what is left is stopped when the process exits.

Fork: a child starts without any; those of its parent are none of its business.
Threads: any.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from orbitmq.client import Producer
from orbitmq.client.sync.staged_writer import StagedWriter
from orbitmq.spark.write_options import WriteOptions

# Of so many clusters, or with so many different options; the one used longest ago makes room.
_CLIENTS_MAX: Final = 8


class _Client(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


C = TypeVar("C", bound=_Client)


class _Clients:
    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.by_options: dict[tuple[object, ...], _Client] = {}

    def begin_child(self) -> None:
        """Forget, in a child, what the parent has; a lock may have been held there."""
        self.__init__()  # type: ignore[misc]  # the same object, as after its making


_process: Final = _Clients()
os.register_at_fork(after_in_child=_process.begin_child)


def producer_for(options: WriteOptions) -> Producer:
    """Give a running producer with these options."""
    keywords = options.producer_keywords()
    key = (options.group, *sorted(keywords.items()))
    return _client_for(Producer, key, lambda: Producer(options.group, **keywords))


def staged_writer_for(options: WriteOptions) -> StagedWriter:
    """Give a running staged writer with these options."""
    keywords = options.client_keywords()
    key = tuple(sorted(keywords.items()))
    return _client_for(StagedWriter, key, lambda: StagedWriter(**keywords))


def stop_all() -> None:
    """Stop the clients of this process; the next task gets new ones."""
    with _process.guard:
        clients = [*_process.by_options.values()]
        _process.by_options.clear()
    for client in clients:
        client.stop()


def _client_for(kind: type[C], options: tuple[object, ...], make: Callable[[], C]) -> C:
    key = (kind, *options)
    with _process.guard:
        client = _process.by_options.pop(key, None)
        if client is None:
            while len(_process.by_options) >= _CLIENTS_MAX:
                _process.by_options.pop(next(iter(_process.by_options))).stop()
            client = make()
            client.start()
        _process.by_options[key] = client
    # Invariant: the key begins with the kind.
    assert isinstance(client, kind)
    return client
