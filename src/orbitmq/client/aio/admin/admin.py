"""The admin client: all that an operator does with a cluster, by noun.

    async with Admin(namesrv="127.0.0.1:9876") as admin:
        await admin.topics.create("orders", queues=8)
        print((await admin.groups.progress("billing")).lag)

It works with OrbitMQ and Apache RocketMQ clusters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from orbitmq.client.aio.admin.archives import Archives
from orbitmq.client.aio.admin.brokers import Brokers
from orbitmq.client.aio.admin.dead_letters import DeadLetters
from orbitmq.client.aio.admin.draining import Draining
from orbitmq.client.aio.admin.groups import Groups
from orbitmq.client.aio.admin.key_values import KeyValues
from orbitmq.client.aio.admin.messages import Messages
from orbitmq.client.aio.admin.name_servers import NameServerOptions
from orbitmq.client.aio.admin.offsets import Offsets
from orbitmq.client.aio.admin.pending import Pending
from orbitmq.client.aio.admin.promotion import Promotion
from orbitmq.client.aio.admin.queries import Queries
from orbitmq.client.aio.admin.reach import Reach
from orbitmq.client.aio.admin.topics import Topics
from orbitmq.client.aio.admin.traces import Traces
from orbitmq.client.aio.admin.traffic import Traffic
from orbitmq.client.aio.admin.transactions import Transactions
from orbitmq.client.aio.instance import instances
from orbitmq.client.aio.instance.client_lifecycle import ClientLifecycle
from orbitmq.client.keywords import ClientKeywords, options_of
from orbitmq.client.options import ClientOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.clock import Clock
    from orbitmq.model.routes import MissingBroker
    from orbitmq.transport.hooks import RpcHook


class Admin(ClientLifecycle):
    """Reads and changes a cluster; starts and stops once."""

    def __init__(
        self,
        *,
        rpc_hooks: Sequence[RpcHook] = (),
        on_missing: Callable[[MissingBroker], None] | None = None,
        clock: Clock | None = None,
        **options: Unpack[ClientKeywords],
    ) -> None:
        """Make an admin client; `start` connects it.

        Args:
            rpc_hooks: called before and after each request to a server.
            on_missing: called once for each missing broker that a request would have gone to, so
                that what it has is not in the result; without it, a warning is logged.
            clock: the source of time.
            options: see `ClientOptions`.
        """
        super().__init__("the admin client")
        self._options = options_of(ClientOptions, options)
        self._rpc_hooks = rpc_hooks
        self._clock = clock
        reach = Reach(self._running, on_missing)
        self.topics = Topics(reach)
        self.groups = Groups(reach, self.topics)
        self.brokers = Brokers(reach)
        self.offsets = Offsets(reach)
        self.messages = Messages(reach, self.offsets)
        self.dead_letters = DeadLetters(self.topics, self.messages)
        self.traces = Traces(self.messages)
        self.key_values = KeyValues(reach)
        self.queries = Queries(reach)
        self.transactions = Transactions(reach)
        self.archives = Archives(reach)
        self.pending = Pending(reach)
        self.name_servers = NameServerOptions(reach)
        self.draining = Draining(reach, self.brokers, self.topics, self.pending)
        self.promotion = Promotion(reach, self.brokers, self.queries)
        self.traffic = Traffic(reach, self.topics, self.groups)

    async def _open(self) -> None:
        # The first call connects.
        self._instance = await instances.acquire(
            self._options, rpc_hooks=self._rpc_hooks, clock=self._clock
        )

    async def _close(self) -> None:
        """Nothing: no work runs in the background."""
