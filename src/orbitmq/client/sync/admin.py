"""The blocking admin client: all calls to inspect and change a cluster, by noun.

    with Admin(namesrv="127.0.0.1:9876") as admin:
        admin.topics.create("orders", queues=8)
        print(admin.groups.progress("billing").lag)

Every call is derived from `orbitmq.client.aio.Admin`, with its arguments and description.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from orbitmq.client.aio.admin.admin import Admin as AioAdmin
from orbitmq.client.aio.admin.archives import Archives as AioArchives
from orbitmq.client.aio.admin.brokers import Brokers as AioBrokers
from orbitmq.client.aio.admin.dead_letters import DeadLetters as AioDeadLetters
from orbitmq.client.aio.admin.draining import Draining as AioDraining
from orbitmq.client.aio.admin.groups import Groups as AioGroups
from orbitmq.client.aio.admin.key_values import KeyValues as AioKeyValues
from orbitmq.client.aio.admin.messages import Messages as AioMessages
from orbitmq.client.aio.admin.name_servers import NameServerOptions as AioNameServerOptions
from orbitmq.client.aio.admin.offsets import Offsets as AioOffsets
from orbitmq.client.aio.admin.pending import Pending as AioPending
from orbitmq.client.aio.admin.promotion import Promotion as AioPromotion
from orbitmq.client.aio.admin.queries import Queries as AioQueries
from orbitmq.client.aio.admin.topics import Topics as AioTopics
from orbitmq.client.aio.admin.traces import Traces as AioTraces
from orbitmq.client.aio.admin.traffic import Traffic as AioTraffic
from orbitmq.client.aio.admin.transactions import Transactions as AioTransactions
from orbitmq.client.sync.blocking_client import BlockingCalls, BlockingClient, iterating, waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from orbitmq.client.keywords import ClientKeywords
    from orbitmq.client.sync.background_loop import BackgroundLoop
    from orbitmq.clock import Clock
    from orbitmq.model.routes import MissingBroker
    from orbitmq.transport.hooks import RpcHook

N = TypeVar("N")


@dataclass(slots=True, eq=False)
class Noun(BlockingCalls[N]):
    """The calls about one noun; each waits for its answer."""

    _admin: Admin
    _client: N

    def _running(self) -> BackgroundLoop:
        return self._admin._running()


class Topics(Noun[AioTopics]):
    """Creates, changes, deletes and describes topics."""

    names = waiting(AioTopics.names)
    route = waiting(AioTopics.route)
    configs = waiting(AioTopics.configs)
    config = waiting(AioTopics.config)
    create = waiting(AioTopics.create)
    delete = waiting(AioTopics.delete)
    bounds = waiting(AioTopics.bounds)
    consumers = waiting(AioTopics.consumers)
    set_permission = waiting(AioTopics.set_permission)
    settings_elsewhere = waiting(AioTopics.settings_elsewhere)


class Groups(Noun[AioGroups]):
    """Creates, changes, deletes and describes consumer groups and their members."""

    configs = waiting(AioGroups.configs)
    create = waiting(AioGroups.create)
    change = waiting(AioGroups.change)
    delete = waiting(AioGroups.delete)
    progress = waiting(AioGroups.progress)
    connections = waiting(AioGroups.connections)
    producers = waiting(AioGroups.producers)
    running = waiting(AioGroups.running)
    consume_directly = waiting(AioGroups.consume_directly)
    may_read = waiting(AioGroups.may_read)
    forbid_reading = waiting(AioGroups.forbid_reading)
    allow_reading = waiting(AioGroups.allow_reading)
    set_consume_mode = waiting(AioGroups.set_consume_mode)


class Brokers(Noun[AioBrokers]):
    """Describes brokers, changes their options, and has them clean up."""

    clusters = waiting(AioBrokers.clusters)
    missing = waiting(AioBrokers.missing)
    forget = waiting(AioBrokers.forget)
    name = waiting(AioBrokers.name)
    addresses = waiting(AioBrokers.addresses)
    producers = waiting(AioBrokers.producers)
    progress = waiting(AioBrokers.progress)
    runtime = waiting(AioBrokers.runtime)
    replication = waiting(AioBrokers.replication)
    options = waiting(AioBrokers.options)
    set_options = waiting(AioBrokers.set_options)
    counter = waiting(AioBrokers.counter)
    forbid_writing = waiting(AioBrokers.forbid_writing)
    allow_writing = waiting(AioBrokers.allow_writing)
    clean_expired_queues = waiting(AioBrokers.clean_expired_queues)
    clean_unused_topics = waiting(AioBrokers.clean_unused_topics)
    delete_expired_logs = waiting(AioBrokers.delete_expired_logs)


class Draining(Noun[AioDraining]):
    """Stops sends to a broker, and measures what it still has to deliver."""

    find = waiting(AioDraining.find)
    obstacles = waiting(AioDraining.obstacles)
    refuses_sends = waiting(AioDraining.refuses_sends)
    send_producers_away = waiting(AioDraining.send_producers_away)
    refuse_sends = waiting(AioDraining.refuse_sends)
    undo = waiting(AioDraining.undo)
    log_end = waiting(AioDraining.log_end)
    backlog = waiting(AioDraining.backlog)
    unread = waiting(AioDraining.unread)


class Promotion(Noun[AioPromotion]):
    """Makes a slave the master of its group."""

    plan = waiting(AioPromotion.plan)
    promote = waiting(AioPromotion.promote)


class Offsets(Noun[AioOffsets]):
    """Reads the bounds of queues; reads and changes the offsets of groups."""

    first = waiting(AioOffsets.first)
    end = waiting(AioOffsets.end)
    at_time = waiting(AioOffsets.at_time)
    committed = waiting(AioOffsets.committed)
    queues = waiting(AioOffsets.queues)
    preview = waiting(AioOffsets.preview)
    reset = waiting(AioOffsets.reset)
    set = waiting(AioOffsets.set)
    clone = waiting(AioOffsets.clone)


class Messages(Noun[AioMessages]):
    """Finds stored messages."""

    by_id = waiting(AioMessages.by_id)
    all_by_id = waiting(AioMessages.all_by_id)
    by_unique_id = waiting(AioMessages.by_unique_id)
    by_key = waiting(AioMessages.by_key)
    at = waiting(AioMessages.at)
    between = iterating(AioMessages.between)
    newest = iterating(AioMessages.newest)
    entries = waiting(AioMessages.entries)


class DeadLetters(Noun[AioDeadLetters]):
    """Finds messages that groups gave up on."""

    counts = waiting(AioDeadLetters.counts)
    find = iterating(AioDeadLetters.find)
    by_ids = waiting(AioDeadLetters.by_ids)


class Traces(Noun[AioTraces]):
    """Finds what clients reported about messages."""

    of = waiting(AioTraces.of)


class KeyValues(Noun[AioKeyValues]):
    """Reads and changes key values, at every name server."""

    put = waiting(AioKeyValues.put)
    get = waiting(AioKeyValues.get)
    delete = waiting(AioKeyValues.delete)
    all = waiting(AioKeyValues.all)


class Queries(Noun[AioQueries]):
    """Lists and forgets queries that write exactly once."""

    all = waiting(AioQueries.all)
    find = waiting(AioQueries.find)
    at = waiting(AioQueries.at)
    forget = waiting(AioQueries.forget)


class Pending(Noun[AioPending]):
    """Works with the pending messages of OrbitMQ's brokers, which have requests for it."""

    brokers = waiting(AioPending.brokers)
    find = waiting(AioPending.find)
    at = iterating(AioPending.at)
    counts = waiting(AioPending.counts)
    deliver = waiting(AioPending.deliver)


class Transactions(Noun[AioTransactions]):
    """Lists open transactions, and has producers asked about them."""

    open = waiting(AioTransactions.open)
    find = waiting(AioTransactions.find)
    check = waiting(AioTransactions.check)


class Archives(Noun[AioArchives]):
    """Opens, advances, lists and releases archives that retention may wait for."""

    all = waiting(AioArchives.all)
    at = waiting(AioArchives.at)
    open = waiting(AioArchives.open)
    advance = waiting(AioArchives.advance)
    release = waiting(AioArchives.release)
    release_unknown = waiting(AioArchives.release_unknown)


class NameServerOptions(Noun[AioNameServerOptions]):
    """Reads and changes the options of every name server, and the epochs that each knows."""

    options = waiting(AioNameServerOptions.options)
    set_options = waiting(AioNameServerOptions.set_options)
    epochs = waiting(AioNameServerOptions.epochs)
    forget_epoch = waiting(AioNameServerOptions.forget_epoch)


class Traffic(Noun[AioTraffic]):
    """Reads the counters that brokers keep per topic and per group."""

    of = waiting(AioTraffic.of)


class Admin(BlockingClient[AioAdmin]):
    """Reads and changes a cluster; starts and stops once, best in a `with` block."""

    def __init__(
        self,
        *,
        rpc_hooks: Sequence[RpcHook] = (),
        on_missing: Callable[[MissingBroker], None] | None = None,
        clock: Clock | None = None,
        **options: Unpack[ClientKeywords],
    ) -> None:
        """Make an admin client; `start` makes it usable.

        Args:
            rpc_hooks: called before and after each request to a server.
            on_missing: called, on the loop of the clients, once for each missing broker that a
                request would have gone to; without it, a warning is logged.
            clock: the source of time.
            options: see `ClientOptions`.
        """
        client = AioAdmin(rpc_hooks=rpc_hooks, on_missing=on_missing, clock=clock, **options)
        super().__init__(client, what="admin client")
        self.topics = Topics(self, client.topics)
        self.groups = Groups(self, client.groups)
        self.brokers = Brokers(self, client.brokers)
        self.draining = Draining(self, client.draining)
        self.promotion = Promotion(self, client.promotion)
        self.offsets = Offsets(self, client.offsets)
        self.messages = Messages(self, client.messages)
        self.dead_letters = DeadLetters(self, client.dead_letters)
        self.traces = Traces(self, client.traces)
        self.key_values = KeyValues(self, client.key_values)
        self.queries = Queries(self, client.queries)
        self.transactions = Transactions(self, client.transactions)
        self.archives = Archives(self, client.archives)
        self.pending = Pending(self, client.pending)
        self.name_servers = NameServerOptions(self, client.name_servers)
        self.traffic = Traffic(self, client.traffic)
