"""The admin client: everything an operator asks of a cluster, by noun.

    async with Admin(namesrv="127.0.0.1:9876") as admin:
        await admin.topics.create("orders", queues=8)
        print((await admin.groups.progress("billing")).lag)

It works against OrbitMQ and Apache RocketMQ clusters alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from orbitmq.client.aio import instances
from orbitmq.client.aio.admin.brokers import Brokers
from orbitmq.client.aio.admin.groups import Groups
from orbitmq.client.aio.admin.key_values import KeyValues
from orbitmq.client.aio.admin.messages import Messages
from orbitmq.client.aio.admin.name_servers import NameServerOptions
from orbitmq.client.aio.admin.offsets import Offsets
from orbitmq.client.aio.admin.reach import Reach
from orbitmq.client.aio.admin.topics import Topics
from orbitmq.client.aio.admin.traffic import Traffic
from orbitmq.client.keywords import ClientKeywords, options_of
from orbitmq.client.options import ClientOptions
from orbitmq.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.client.aio.client_instance import ClientInstance
    from orbitmq.clock import Clock
    from orbitmq.transport.hooks import RpcHook


class Admin:
    """Asks and changes a cluster; started once, stopped once."""

    topics: Topics
    groups: Groups
    brokers: Brokers
    offsets: Offsets
    messages: Messages
    key_values: KeyValues
    name_servers: NameServerOptions
    traffic: Traffic

    def __init__(
        self,
        *,
        rpc_hooks: Sequence[RpcHook] = (),
        clock: Clock | None = None,
        **options: Unpack[ClientKeywords],
    ) -> None:
        self._options = options_of(ClientOptions, options)
        self._rpc_hooks = rpc_hooks
        self._clock = clock
        self._instance: ClientInstance | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Make ready; servers are asked by the calls that need them."""
        if self._instance is not None:
            raise StateError("the admin client is already started")
        self._instance = await instances.acquire(
            self._options, rpc_hooks=self._rpc_hooks, clock=self._clock
        )
        reach = Reach(self._instance)
        self.topics = Topics(reach)
        self.groups = Groups(reach, self.topics)
        self.brokers = Brokers(reach)
        self.offsets = Offsets(reach)
        self.messages = Messages(reach, self.offsets)
        self.key_values = KeyValues(reach)
        self.name_servers = NameServerOptions(reach)
        self.traffic = Traffic(reach, self.topics, self.groups)

    async def stop(self) -> None:
        """Close every connection."""
        instance, self._instance = self._instance, None
        if instance is not None:
            await instances.release(instance)
