"""A child that appends until it is killed: `python -m tests.crash.appender ROOT MODE`.

It writes a line to its output when it starts, when the store is open, and for every message that
was acknowledged: queue and number. Each of three threads has a queue, so that they share syncs.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from tests.crash.scenario import TOPIC, draft, small_config

MESSAGES_MAX = 3000
KILL_SECONDS_MAX = 120


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def _append(store: MessageStore, queue_id: int) -> None:
    first = int(store.end_of(TOPIC, queue_id, committed=False))
    number = first
    while number < first + MESSAGES_MAX:
        size = 1 + number % 4 * (number % 3)
        body_bytes = 100 if number % 5 else 3000
        batch = [
            draft(n, queue_id=queue_id, body_bytes=body_bytes) for n in range(number, number + size)
        ]
        store.put_batch(batch)
        number += size
        _say(f"{queue_id} {number - 1}")


def run(root: Path, mode: FlushMode) -> None:
    """Append."""
    _say("started")
    with MessageStore(small_config(root, mode)) as store:
        _say("open")
        threads = [threading.Thread(target=_append, args=(store, q)) for q in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # The kill may come late, and nothing is closed before it.
        threading.Event().wait(KILL_SECONDS_MAX)
    _say("closed")


if __name__ == "__main__":
    run(Path(sys.argv[1]), FlushMode(sys.argv[2]))
