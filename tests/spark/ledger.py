"""A ledger outside Spark: what was sent, and how often each row must be found."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import AbstractContextManager
from typing import Self

from orbitmq.client import Message, MessageQueue, Producer
from orbitmq.spark.reading.offsets import Offsets
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.spark.topics import PATIENCE_MS
from tests.waiting import wait_until

# Messages per batch.
BATCH_MESSAGES = 4
# Keys found too rarely or too often: how often, and the allowed range.
Wrong = dict[str, tuple[int, int, int]]


class Ledger(AbstractContextManager["Ledger"]):
    """Sends messages continuously, and records the offsets of acknowledged ones."""

    def __init__(self, namesrv: str, topic: str, *, pause_s: float) -> None:
        self._namesrv = namesrv
        self._topic = topic
        # May be changed while it sends.
        self.pause_s = pause_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="ledger")
        self._guard = threading.Lock()
        self._keys: dict[MessageQueue, dict[int, str]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()
        self._thread.join()

    def all_keys(self) -> Counter[str]:
        """How often each key was acknowledged."""
        with self._guard:
            return Counter(key for keys in self._keys.values() for key in keys.values())

    def keys_before(self, ends: Offsets) -> Counter[str]:
        """How often each key is before these ends of queues."""
        # A query may have read messages whose acknowledgements are still on their way.
        wait_until(
            lambda: all(self._knows(queue, end) for queue, end in ends.items()),
            timeout_s=CLIENT_TIMEOUT_S,
            what=f"acknowledgements of everything before {ends}",
        )
        with self._guard:
            return Counter(
                self._keys[queue][offset] for queue, end in ends.items() for offset in range(end)
            )

    def _knows(self, queue: MessageQueue, end: int) -> bool:
        with self._guard:
            return len(self._keys.get(queue, ())) >= end

    def _send(self) -> None:
        with Producer("ledger", namesrv=self._namesrv, send_timeout_ms=PATIENCE_MS) as producer:
            queues = producer.queues(self._topic)
            number = 0
            while not self._ended.wait(self.pause_s):
                keys = [f"key-{number + more}" for more in range(BATCH_MESSAGES)]
                batch = [Message(self._topic, b"a row", keys=key) for key in keys]
                queue = queues[number // BATCH_MESSAGES % len(queues)]
                first = producer.send(batch, queue=queue).queue_offset
                with self._guard:
                    self._keys.setdefault(queue, {}).update(enumerate(keys, first))
                number += len(keys)


def wrong_counts(found: Counter[str], *, low: Counter[str], high: Counter[str]) -> Wrong:
    """Compare what was found with what must and may be found."""
    return {
        key: (found[key], low[key], high[key])
        for key in low.keys() | high.keys() | found.keys()
        if not low[key] <= found[key] <= high[key]
    }
