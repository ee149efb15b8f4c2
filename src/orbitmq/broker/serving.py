"""The requests that a broker answers, and the servers that receive them.

Each family of requests is in a file of `broker/handlers/`.

Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from orbitmq.broker.handlers.answers import AnswerRequests
from orbitmq.broker.handlers.archives import ArchiveRequests
from orbitmq.broker.handlers.clients import ClientListener
from orbitmq.broker.handlers.committed_offsets import CommittedOffsetRequests
from orbitmq.broker.handlers.filter_servers import FilterServerRequests
from orbitmq.broker.handlers.following import FollowRequests
from orbitmq.broker.handlers.groups import GroupRequests
from orbitmq.broker.handlers.locks import LockRequests
from orbitmq.broker.handlers.maintenance import MaintenanceRequests
from orbitmq.broker.handlers.options import BrokerOptionRequests
from orbitmq.broker.handlers.pending import PendingRequests
from orbitmq.broker.handlers.promotion import PromotionRequests
from orbitmq.broker.handlers.pulling import PullRequests
from orbitmq.broker.handlers.queries import QueryRequests
from orbitmq.broker.handlers.queue_offsets import QueueOffsetRequests
from orbitmq.broker.handlers.recalls import RecallRequests
from orbitmq.broker.handlers.relays import RelayRequests
from orbitmq.broker.handlers.replication import ReplicationRequests
from orbitmq.broker.handlers.retries import RetryRequests
from orbitmq.broker.handlers.sending import SendRequests
from orbitmq.broker.handlers.staged_writes import StagedWriteRequests
from orbitmq.broker.handlers.topics import TopicRequests
from orbitmq.broker.handlers.transactions import TransactionRequests
from orbitmq.broker.hot_path import HotPath
from orbitmq.broker.ports import FAST_LANE
from orbitmq.broker.refusals import code_of
from orbitmq.broker.replication.read_only_requests import read_only_handlers
from orbitmq.broker.replication.table_changes import TableChanges
from orbitmq.broker.send_replies import SendReplies
from orbitmq.broker.transactions.preparing import Preparing
from orbitmq.model.unique_ids import UniqueIds
from orbitmq.transport.config import ServerConfig, TlsServerConfig
from orbitmq.transport.local_machine import address_of
from orbitmq.transport.request_loop import Handler
from orbitmq.transport.rpc_server import RpcServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.parts import Parts
    from orbitmq.transport.request_loop import Handler


class HandlerFamily(Protocol):
    """The handlers of one kind of requests."""

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""


class Serving:
    """The servers of one broker; until `serve_all`, they answer what a slave does."""

    def __init__(self, parts: Parts) -> None:
        """Make them; none listens yet."""
        config = parts.config()
        self._handlers: dict[int, Handler] = {}
        for family in (*_families(parts), parts.clients, parts.reporting.requests()):
            self._handlers.update(family.by_code())
        reading = read_only_handlers(self._handlers, parts.replication.why)
        make_processor = partial(
            HotPath,
            store=parts.store,
            confirmations=parts.confirmations,
            pulls=parts.pulls,
            replies=SendReplies(region=config.region, trace_on=config.trace_on),
            plain_topic=parts.plain_topics.find,
            accepts_sends=parts.admission.accepts,
            broker_properties=parts.broker_properties,
            clock=parts.clock,
        )
        listener = ClientListener(parts.clients, parts.filter_servers)
        self.servers = [
            RpcServer(
                reading,
                config=replace(parts.settings.of(ServerConfig), listen_port=port),
                tls=parts.settings.of(TlsServerConfig),
                clock=parts.clock,
                listener=listener,
                code_of=code_of,
                make_processor=make_processor,
            )
            for port in (parts.place.port, parts.place.port + FAST_LANE)
        ]

    def serve_all(self) -> None:
        """Answer every request from now on: this broker is the master in full."""
        for server in self.servers:
            server.serve(self._handlers)


def _families(parts: Parts) -> tuple[HandlerFamily, ...]:
    """Make the families, except those of clients and of statistics."""
    sending = SendRequests(
        config=parts.config,
        store_config=parts.store_config,
        refusal=parts.admission.refusal,
        topics=parts.tables.topics,
        changes_reported=parts.registration.changes_reported,
        groups=parts.tables.groups,
        locks=parts.tables.locks,
        storing=parts.storing,
        preparing=Preparing(
            config=parts.config,
            halves=parts.transactions.halves,
            recent=parts.transactions.recent,
            storing=parts.storing,
        ),
        delay_levels=len(parts.delay_levels_ms),
        broker_properties=parts.broker_properties,
        unique_ids=UniqueIds(address_of(parts.place.host), parts.clock.now_ms),
        counters=parts.counters,
        clock=parts.clock,
    )
    return (
        sending,
        AnswerRequests(
            config=parts.config,
            refusal=parts.admission.refusal,
            address=lambda: parts.place.advertised,
            members=parts.tables.members,
            sending=sending,
            clock=parts.clock,
        ),
        StagedWriteRequests(
            refusal=parts.admission.refusal,
            sending=sending,
            storing=parts.storing,
            deciding=parts.exactly_once.deciding,
            moving=parts.exactly_once.moving,
            states=parts.exactly_once.states,
            known=parts.exactly_once.known,
            counters=parts.counters,
        ),
        TransactionRequests(
            ending=parts.transactions.ending,
            open_transactions=parts.transactions.open_transactions,
            resuming=parts.transactions.resuming,
            is_open=lambda: parts.admission.is_open,
        ),
        RecallRequests(
            config=parts.config,
            store_config=parts.store_config,
            refusal=parts.admission.refusal,
            topics=parts.tables.topics,
            storing=parts.storing,
            delivery=parts.timers,
            clock=parts.clock,
        ),
        PendingRequests(
            pending=parts.pending,
            is_enabled=lambda: parts.store_config().timers_enable,
            refusal=parts.admission.refusal,
        ),
        PullRequests(parts.pulls),
        QueryRequests(store=parts.store, topics=parts.tables.topics, members=parts.tables.members),
        QueueOffsetRequests(parts.store),
        CommittedOffsetRequests(
            config=parts.config,
            store=parts.store,
            topics=parts.tables.topics,
            groups=parts.tables.groups,
            members=parts.tables.members,
            offsets=parts.tables.offsets,
            positions=parts.tables.positions,
            on_reset=parts.long_polls.wake,
            is_slave=parts.pulls.is_slave,
        ),
        RetryRequests(
            config=parts.config,
            store=parts.store,
            storing=parts.storing,
            topics=parts.tables.topics,
            groups=parts.tables.groups,
            delay_levels=len(parts.delay_levels_ms),
            counters=parts.counters,
        ),
        LockRequests(
            broker_name=parts.config().broker_name,
            topics=parts.tables.topics,
            groups=parts.tables.groups,
            members=parts.tables.members,
            locks=parts.tables.locks,
            notices=parts.notices,
            file=parts.tables.lock_file,
        ),
        TopicRequests(
            config=parts.config,
            store=parts.store,
            topics=parts.tables.topics,
            offsets=parts.tables.offsets,
            archives=parts.tables.archives,
            members=parts.tables.members,
            registration=parts.registration,
            on_deleted=parts.long_polls.wake,
            puts_per_second=parts.samples.puts_per_second,
        ),
        GroupRequests(groups=parts.tables.groups, offsets=parts.tables.offsets),
        ReplicationRequests(
            topics=parts.tables.topics,
            delays=parts.tables.delays,
            delay_offsets=lambda: parts.delay.offsets,
            timers=parts.timers,
            store=parts.store,
        ),
        FilterServerRequests(config=parts.config, filter_servers=parts.filter_servers),
        RelayRequests(
            broker_name=parts.place.name,
            store=parts.store,
            topics=parts.tables.topics,
            groups=parts.tables.groups,
            members=parts.tables.members,
        ),
        MaintenanceRequests(
            store=parts.store, topics=parts.tables.topics, archives=parts.tables.archives
        ),
        ArchiveRequests(
            archives=parts.tables.archives,
            gate=parts.archive_gate,
            topics=parts.tables.topics,
            store=parts.store,
            refusal=parts.replication.refusal,
        ),
        FollowRequests(
            broker_name=parts.place.name,
            is_master=lambda: not parts.replication.is_slave and parts.replication.replaced is None,
            role=parts.reign.role.role,
            slaves_awaited=lambda: parts.replication_config().slaves_awaited,
            epoch=lambda: parts.reign.epochs.epoch,
            permission=lambda: parts.config().permission,
            on_claim=parts.reign.heard_of_epoch,
            store=parts.store,
            copies=parts.replication.copies,
            tables=TableChanges(
                parts.tables.topics,
                parts.tables.groups,
                parts.tables.locks,
                parts.tables.archives,
            ),
            log_file_bytes=parts.store_config().log_file_bytes,
            clock=parts.clock,
        ),
        PromotionRequests(
            identity=parts.place.identity,
            store=parts.store,
            replication=parts.replication,
            epochs=parts.reign.epochs,
            configured=parts.reign.configured,
            on_claim=parts.reign.heard_of_epoch,
            restart=parts.reign.restart_wanted.set,
            clock=parts.clock,
        ),
        BrokerOptionRequests(
            parts.settings,
            file=parts.options_file,
            register=parts.report_permission,
            clock=parts.clock,
        ),
    )
