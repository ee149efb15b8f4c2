"""Producers of a worker process, kept from task to task.

Spark uses its Python workers again for other tasks and micro-batches, so that connections made
for one serve the next; what is left is stopped when the process exits.

Fork: a child starts without any; those of its parent are none of its business.
Threads: any.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from orbitmq.client import Producer
from orbitmq.spark.write_options import WriteOptions

# Of so many clusters, or with so many different options; the one used longest ago makes room.
_PRODUCERS_MAX: Final = 8


class _Producers:
    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.by_options: dict[tuple[object, ...], Producer] = {}

    def begin_child(self) -> None:
        """Forget, in a child, what the parent has; a lock may have been held there."""
        self.__init__()  # type: ignore[misc]  # the same object, as after its making


_process: Final = _Producers()
os.register_at_fork(after_in_child=_process.begin_child)


def producer_for(options: WriteOptions) -> Producer:
    """Give a running producer with these options."""
    keywords = options.producer_keywords()
    key = (options.group, *sorted(keywords.items()))
    with _process.guard:
        producer = _process.by_options.pop(key, None)
        if producer is None:
            while len(_process.by_options) >= _PRODUCERS_MAX:
                _process.by_options.pop(next(iter(_process.by_options))).stop()
            producer = Producer(options.group, **keywords)
            producer.start()
        _process.by_options[key] = producer
        return producer


def stop_all() -> None:
    """Stop the producers of this process; the next task gets new ones."""
    with _process.guard:
        producers = [*_process.by_options.values()]
        _process.by_options.clear()
    for producer in producers:
        producer.stop()
