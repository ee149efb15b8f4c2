"""Clients that tasks of one worker process share, one after the other.

Spark uses its Python workers again for many tasks; a client that stays connected between them
saves each task the connections and the look at the routes.

Threads: any.
Fork: a child begins with none; those of its parent go on working in the parent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from orbitmq.client.sync.record_reader import RecordReader

if TYPE_CHECKING:
    from orbitmq.spark.read_options import ReadOptions

# Clients that nobody uses stay open up to this number; more clusters at a time are rare.
IDLE_MAX: Final = 4

_Key = tuple[object, ...]


class _Shared:
    """A client and how many use it."""

    def __init__(self, reader: RecordReader) -> None:
        self.reader = reader
        self.users = 0


class _Pool:
    """The clients of this process, those used last at the end."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.shared: dict[_Key, _Shared] = {}

    def begin_child(self) -> None:
        """Forget the clients of the parent, and the lock that a thread of it may hold."""
        self.guard = threading.Lock()
        self.shared = {}

    def take(self, options: ReadOptions) -> _Shared:
        """Give the client of some options, started."""
        key = _key(options)
        with self.guard:
            found = self.shared.pop(key, None)
            if found is None:
                found = _Shared(_started(options))
            self.shared[key] = found
            found.users += 1
        return found

    def give_back(self, shared: _Shared) -> None:
        """Say that one user is done, and stop what was not used for longest if there are many."""
        with self.guard:
            shared.users -= 1
            idle = [key for key, one in self.shared.items() if not one.users]
            surplus = [self.shared.pop(key) for key in idle[: max(0, len(idle) - IDLE_MAX)]]
        for one in surplus:
            one.reader.stop()


_pool: Final = _Pool()
os.register_at_fork(after_in_child=_pool.begin_child)


@contextmanager
def pooled_reader(options: ReadOptions) -> Iterator[RecordReader]:
    """Lend a client for some options."""
    shared = _pool.take(options)
    try:
        yield shared.reader
    finally:
        _pool.give_back(shared)


def stop_all() -> None:
    """Stop the clients of this process that nobody uses; the next task gets new ones."""
    with _pool.guard:
        idle = [key for key, one in _pool.shared.items() if not one.users]
        stopped = [_pool.shared.pop(key) for key in idle]
    for one in stopped:
        one.reader.stop()


def _started(options: ReadOptions) -> RecordReader:
    reader = RecordReader(
        group=options.reading_group,
        pull_bytes_max=options.pull_bytes_max,
        pulls_ahead=options.pulls_ahead,
        pull_timeout_ms=options.pull_timeout_ms,
        retries=options.retries,
        retry_pause_ms=options.retry_interval_ms,
        **options.client_keywords(),
    )
    reader.start()
    return reader


def _key(options: ReadOptions) -> _Key:
    """What a client is made of; other options may differ."""
    return (
        *options.client_keywords().items(),
        options.reading_group,
        options.pull_bytes_max,
        options.pulls_ahead,
        options.pull_timeout_ms,
        options.retries,
        options.retry_interval_ms,
    )
