"""Producers and staged writers, kept from task to task.

Apart from the readers (reader_pool.py): Spark waits for the process that starts a stream, which
must not import what only writers need.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from orbitmq.client import Producer
from orbitmq.client.sync.staged_writer import StagedWriter
from orbitmq.spark.options.write_options import WriteOptions
from orbitmq.spark.sessions.client_pool import ClientPool

# More clusters, or writes with different options, at a time are rare.
IDLE_MAX: Final = 4

_producers: Final = ClientPool(Producer, idle_max=IDLE_MAX)
_staged_writers: Final = ClientPool(StagedWriter, idle_max=IDLE_MAX)


def pooled_producer(options: WriteOptions) -> AbstractContextManager[Producer]:
    """Lend a running producer with these options."""
    return _producers.lend(options.group, **options.producer_keywords())


def pooled_staged_writer(options: WriteOptions) -> AbstractContextManager[StagedWriter]:
    """Lend a running staged writer with these options."""
    return _staged_writers.lend(**options.client_keywords())


def stop_all() -> None:
    """Stop the clients of this process; the next task gets new ones."""
    _producers.stop_all()
    _staged_writers.stop_all()
