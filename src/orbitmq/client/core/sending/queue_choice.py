"""Queue choice: which queue of a topic gets the next message.

Round robin from a random start, so that producers do not all start with the same queue. A retry
goes to another broker if there is one. Brokers that were slow or failed are avoided if possible.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.client.core.sending.broker_faults import BrokerFaults
    from orbitmq.model.queues import MessageQueue


class QueueChoice:
    """Chooses among the queues of one topic; there is at least one."""

    __slots__ = ("_count", "_position", "queues")

    def __init__(self, queues: tuple[MessageQueue, ...], *, start: int | None = None) -> None:
        # Invariant: there is a queue to choose.
        assert queues
        self.queues = queues
        self._count = len(queues)
        if start is None:
            start = random.randrange(self._count)  # noqa: S311  # any start does
        self._position = start

    def next(self, faults: BrokerFaults, now_ms: float, *, last_broker: str = "") -> int:
        """Choose a queue; return its index in `queues`. A retry names the broker that failed."""
        # Perf: true for nearly every send.
        if not last_broker and not faults:
            position = (self._position + 1) % self._count
            self._position = position
            return position
        return self._best(faults, now_ms, last_broker)

    def _best(self, faults: BrokerFaults, now_ms: float, last_broker: str) -> int:
        """Choose the next queue of another broker that is not avoided; failing that, the best."""
        best: tuple[bool, float] | None = None
        best_position = self._position
        for step in range(1, self._count + 1):
            position = (self._position + step) % self._count
            broker_name = self.queues[position].broker_name
            rank = (broker_name == last_broker, faults.avoided_until_ms(broker_name, now_ms))
            if best is None or rank < best:
                best, best_position = rank, position
                if rank == (False, 0.0):
                    break
        self._position = best_position
        return best_position
