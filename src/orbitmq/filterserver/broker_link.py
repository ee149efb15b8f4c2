"""The link to the broker: registers this filter server, and pulls messages.

It registers every 10 s, and within a second if the broker was lost. The connection that it registers
over is not the one for pulls: closing it ends the registration at once, and pulls in flight finish.

Threads: the event loop's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.errors import OrbitError
from orbitmq.lifecycle import Periodic
from orbitmq.model.subscriptions import EVERYTHING, TAG, Subscription
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.failures import raise_for_failure
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import ConsumerConnections, ListConsumerConnections
from orbitmq.protocol.requests.filter_servers import (
    RegisterFilterServer,
    RegisterFilterServerReply,
)
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.transport.config import ClientConfig
from orbitmq.transport.rpc_client import RpcClient

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

REGISTER_INTERVAL_MS: Final = 10_000
_RETRY_INTERVAL_MS: Final = 1000
# Consumers wait 30 s for a reply.
HOLD_MS_MAX: Final = 15_000
_ANSWER_MS_MAX: Final = 5000


class BrokerLink:
    """What a filter server asks its broker."""

    def __init__(self, broker: str, *, clock: Clock) -> None:
        self.broker = broker
        self.broker_name = ""
        self._clock = clock
        self._own_address = ""
        self._registering = RpcClient(clock=clock)
        # Held pulls are cut off when it stops: they have nothing to finish.
        self._pulling = RpcClient(config=ClientConfig(shutdown_grace_seconds=0), clock=clock)
        self._registered_ms: float | None = None
        self._failure = ""
        self._rounds = Periodic("registration", _RETRY_INTERVAL_MS, self._keep_registered, clock)

    async def start(self, own_address: str) -> None:
        """Register this filter server; a broker that is down is no error."""
        self._own_address = own_address
        await self._registering.start()
        await self._pulling.start()
        await self._register()
        self._rounds.start()

    async def end_registration(self) -> None:
        """Tell the broker that this filter server leaves, by closing the connection."""
        await self._rounds.stop()
        await self._registering.stop()

    async def stop(self) -> None:
        """Cut off the pulls in flight."""
        await self._pulling.stop()

    # --- registration -------------------------------------------------------------------------

    async def _keep_registered(self) -> None:
        due = (
            self._registered_ms is None
            or self.broker not in self._registering.connected
            or self._clock.monotonic_ms() - self._registered_ms >= REGISTER_INTERVAL_MS
        )
        if due:
            await self._register()

    async def _register(self) -> None:
        header = RegisterFilterServer(address=self._own_address)
        try:
            reply = await self._registering.call(self.broker, header)
            answered = RegisterFilterServerReply.decode(reply.fields)
        except OrbitError as error:
            self._registered_ms = None
            # Logged once, not at every attempt.
            if str(error) != self._failure:
                log.warning("registration failed broker=%s reason=%s", self.broker, error)
            self._failure = str(error)
            return
        if self._registered_ms is None:
            log.info(
                "registered broker=%s name=%s number=%s address=%s",
                self.broker,
                answered.broker_name,
                answered.filter_server_id,
                self._own_address,
            )
        self._failure = ""
        self.broker_name = answered.broker_name
        self._registered_ms = self._clock.monotonic_ms()

    # --- messages -----------------------------------------------------------------------------

    async def pull(self, asked: PullMessages, offset: int, *, may_hold: bool) -> Command:
        """Pull all messages of a queue from an offset, in the name of the consumer's group.

        So the broker applies the rights of that group, and resets of its offsets reach it.
        """
        hold_ms = min(max(asked.suspend_timeout_ms, 0), HOLD_MS_MAX)
        flag = PullFlag.SUBSCRIPTION
        if may_hold and asked.system_flag & PullFlag.SUSPEND and hold_ms:
            flag |= PullFlag.SUSPEND
        header = PullMessages(
            consumer_group=asked.consumer_group,
            topic=asked.topic,
            queue_id=asked.queue_id,
            queue_offset=Long(offset),
            messages_max=asked.messages_max,
            system_flag=int(flag),
            commit_offset=Long(0),
            suspend_timeout_ms=Long(hold_ms),
            expression=EVERYTHING,
            subscription_version=Long(0),
            expression_type=TAG,
            bytes_max=asked.bytes_max,
            broker_name=self.broker_name or None,
        )
        return await self._pulling.invoke(
            self.broker, request(header), timeout_ms=hold_ms + _ANSWER_MS_MAX
        )

    async def subscription_of(self, group: str, topic: str) -> Subscription | None:
        """Ask what a group subscribes to in a topic; None if none of its members is online."""
        asked = request(ListConsumerConnections(consumer_group=group))
        reply = await self._pulling.invoke(self.broker, asked)
        if reply.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        raise_for_failure(asked, reply, self.broker)
        found = java_json.decode(reply.body, ConsumerConnections)
        return found.subscriptions.get(topic)
