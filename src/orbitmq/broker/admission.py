"""Admission: whether the broker accepts sends now, and if not, why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.confirmations import Confirmations
    from orbitmq.clock import Clock


@dataclass(slots=True, eq=False, kw_only=True)
class Admission:
    """Decides whether sends are accepted."""

    config: Callable[[], BrokerConfig]
    confirmations: Confirmations
    clock: Clock
    # Why this broker's place in its group does not allow sends now.
    by_role: Callable[[], tuple[ResponseCode, str] | None]
    # False while the broker starts or stops.
    is_open: bool = False

    def accepts(self) -> bool:
        """Whether sends are accepted."""
        return self.refusal() is None

    def refusal(self) -> tuple[ResponseCode, str] | None:
        """Why sends are refused, as a code and a remark; None if they are accepted."""
        config = self.config()
        if not self.is_open:
            return ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST] the broker is stopping"
        by_role = self.by_role()
        if by_role is not None:
            return by_role
        if config.accept_sends_ms and self.clock.now_ms() < config.accept_sends_ms:
            return (
                ResponseCode.SYSTEM_ERROR,
                f"sends are accepted from {config.accept_sends_ms} on "
                "(startAcceptSendRequestTimeStamp)",
            )
        waiting = len(self.confirmations)
        if config.fast_failure and waiting >= config.unconfirmed_max:
            return (
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD] {waiting} sends wait for the disk, the oldest for "
                f"{self.confirmations.oldest_wait_ms:.0f} ms; the limit is "
                f"sendThreadPoolQueueCapacity={config.unconfirmed_max}",
            )
        return None
