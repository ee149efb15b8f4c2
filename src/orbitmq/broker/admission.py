"""Admission: whether sends are taken at present, and why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.confirmations import Confirmations
    from orbitmq.clock import Clock


class Admission:
    """Says what keeps the broker from taking sends."""

    def __init__(
        self, *, config: Callable[[], BrokerConfig], confirmations: Confirmations, clock: Clock
    ) -> None:
        self._config = config
        self._confirmations = confirmations
        self._clock = clock
        # Whether the broker runs: neither still starting nor about to stop.
        self.is_open = False

    def accepts(self) -> bool:
        """Whether sends are taken."""
        return self.why_not() is None

    def why_not(self) -> tuple[ResponseCode, str] | None:
        """Say as a code and a remark why sends are not taken; None when they are."""
        config = self._config()
        if not self.is_open:
            return ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST] the broker is stopping"
        if config.accept_sends_ms and self._clock.now_ms() < config.accept_sends_ms:
            return (
                ResponseCode.SYSTEM_ERROR,
                f"sends are taken from {config.accept_sends_ms} on "
                "(startAcceptSendRequestTimeStamp)",
            )
        waiting = len(self._confirmations)
        if config.fast_failure and waiting >= config.unconfirmed_max:
            return (
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD] {waiting} sends wait for the disk, the oldest for "
                f"{self._confirmations.oldest_wait_ms:.0f} ms; the limit is "
                f"sendThreadPoolQueueCapacity={config.unconfirmed_max}",
            )
        return None
