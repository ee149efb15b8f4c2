"""Reading clients, kept from task to task."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from orbitmq.client.sync.record_reader import RecordReader
from orbitmq.spark.sessions.client_pool import ClientPool

if TYPE_CHECKING:
    from orbitmq.spark.options.read_options import ReadOptions

# Reading more clusters at a time is rare.
IDLE_MAX: Final = 4

_readers: Final = ClientPool(RecordReader, idle_max=IDLE_MAX)


def pooled_reader(options: ReadOptions) -> AbstractContextManager[RecordReader]:
    """Lend a running client for these options."""
    return _readers.lend(
        group=options.reading_group,
        pull_bytes_max=options.pull_bytes_max,
        pulls_ahead=options.pulls_ahead,
        pull_timeout_ms=options.pull_timeout_ms,
        retries=options.retries,
        retry_pause_ms=options.retry_interval_ms,
        **options.client_keywords(),
    )


def stop_all() -> None:
    """Stop the clients of this process; the next task gets new ones."""
    _readers.stop_all()
