"""Publishes the progress of a stream as that of a consumer group.

Lag tools know groups. This is a copy: the checkpoint alone decides where a query resumes. A failed
copy is logged, and the next one catches up.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.errors import RemoteError
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.client.sync.pull_consumer import PullConsumer
    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.reading.offsets import Offsets

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.1


@dataclass(slots=True, eq=False)
class ProgressMirror:
    """Commits a stream's progress to the group in its options, if there is one."""

    options: ReadOptions
    _consumer: PullConsumer | None = field(default=None, init=False)
    _published: Offsets = field(default_factory=dict, init=False)

    def publish(self, done: Offsets) -> None:
        """Commit the offsets that changed since the last call; never fails."""
        moved = {
            queue: offset for queue, offset in done.items() if self._published.get(queue) != offset
        }
        if not self.options.group or not moved:
            return
        try:
            self._commit(moved)
        except Exception as error:  # noqa: BLE001  # tools may miss it, the query must not fail
            log.warning("could not publish progress group=%s: %s", self.options.group, error)
        else:
            self._published |= moved

    def stop(self) -> None:
        """Leave the group; the published offsets stay."""
        if self._consumer is not None:
            self._consumer.stop()
            self._consumer = None

    def _commit(self, moved: Offsets) -> None:
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._member().commit(moved)
            except RemoteError as error:
                # Compat: RocketMQ's brokers know a group once a member has registered, which
                # happens when the first connection is made.
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST or not left:
                    raise
                threading.Event().wait(_PAUSE_S)
            else:
                return

    def _member(self) -> PullConsumer:
        """A member of the group; it reads nothing."""
        if self._consumer is None:
            # Imported late: streams without a group do not need it, and it takes a while.
            from orbitmq.client.sync.pull_consumer import PullConsumer

            consumer = PullConsumer(self.options.group, **self.options.client_keywords())
            consumer.start()
            self._consumer = consumer
        return self._consumer
