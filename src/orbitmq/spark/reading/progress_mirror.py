"""Shows how far a stream has come as the progress of a consumer group.

Tools for lag know groups. What they show is a copy: the checkpoint alone says where a query goes
on, and a copy that fails is told in the log and made up for by the next one.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from orbitmq.errors import RemoteError
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.client.sync.pull_consumer import PullConsumer
    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.reading.offsets import Offsets

log = logging.getLogger(__name__)

_TRIES: Final = 10
_PAUSE_S: Final = 0.1


class ProgressMirror:
    """The group of one stream; without one in the options it does nothing."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._consumer: PullConsumer | None = None
        # What the brokers were told last.
        self._told: Offsets = {}

    def tell(self, done: Offsets) -> None:
        """Tell brokers where a stream goes on, as far as it is new; never fails."""
        moved = {queue: offset for queue, offset in done.items() if self._told.get(queue) != offset}
        if not self._options.group or not moved:
            return
        try:
            self._commit(moved)
        except Exception as error:  # noqa: BLE001  # tools may miss it, the query must not fail
            log.warning("progress not told group=%s: %s", self._options.group, error)
        else:
            self._told |= moved

    def stop(self) -> None:
        """Leave the group; what was told stays."""
        if self._consumer is not None:
            self._consumer.stop()
            self._consumer = None

    def _commit(self, moved: Offsets) -> None:
        for left in reversed(range(_TRIES)):
            try:
                self._member().commit(moved)
            except RemoteError as error:
                # Compat: RocketMQ's brokers know a group once they heard of a member of it, which
                # they do when the first connection is made.
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST or not left:
                    raise
                threading.Event().wait(_PAUSE_S)
            else:
                return

    def _member(self) -> PullConsumer:
        """A member of the group; it reads nothing."""
        if self._consumer is None:
            # Streams without a group do not need it, and it takes a while to import.
            from orbitmq.client.sync.pull_consumer import PullConsumer

            consumer = PullConsumer(self._options.group, **self._options.client_keywords())
            consumer.start()
            self._consumer = consumer
        return self._consumer
