"""Assembles the replication of one broker: what makes it a master or a slave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.broker.replication.config import BrokerRole, ReplicationConfig
from orbitmq.broker.replication.copies import Copies
from orbitmq.broker.replication.log_sender import LogSender
from orbitmq.broker.replication.sync_gate import SyncGate
from orbitmq.broker.statistics.replication_metrics import ReplicationFigures, SlaveFigures
from orbitmq.disk import off_loop
from orbitmq.errors import SettingsError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.statistics import Replication as ReplicationState
from orbitmq.protocol.requests.statistics import SlaveLink
from orbitmq.store.files.record_checks import store_ms_of

if TYPE_CHECKING:
    from orbitmq.broker.replication.copies import SlaveCopy
    from orbitmq.broker.replication.epoch import EpochFile
    from orbitmq.broker.replication.following import Following
    from orbitmq.clock import Clock
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.protocol.requests.registration import RegisterBroker
    from orbitmq.store.message_store import MessageStore

_LOOK_MS: Final = 10


class Replication:
    """Who is master: this broker with its slaves, or another one that this broker follows."""

    def __init__(
        self,
        *,
        config: Callable[[], ReplicationConfig],
        identity: Callable[[], RegisterBroker],
        epochs: EpochFile,
        store: MessageStore,
        bind_address: str,
        port: int,
        clock: Clock,
    ) -> None:
        self._config = config
        self._identity = identity
        self._epochs = epochs
        self._store = store
        self._clock = clock
        self.copies = Copies(
            settled=lambda: store.settled,
            gap_bytes_max=lambda: config().gap_bytes_max,
            clock=clock,
        )
        self.role = role = config().role
        self.is_slave = role is BrokerRole.SLAVE
        # Set at a master that does not count any more, with the reason.
        self.replaced: str | None = None
        # Whether it does not count because there are two of its epoch.
        self._has_rival = False
        # What sends and readers of a sync master wait for; None if they do not.
        self.gate: SyncGate | None = None
        if role is BrokerRole.SYNC_MASTER:
            self.gate = SyncGate(store=store, copies=self.copies, config=config, clock=clock)
        # Set at a slave, once it can look for its master.
        self.following: Following | None = None
        self._sender = LogSender(
            store=store,
            copies=self.copies,
            config=config(),
            bind_address=bind_address,
            port=port,
            clock=clock,
        )

    def start(self) -> None:
        """Let slaves connect."""
        if not self.is_slave:
            self._sender.start()

    @property
    def waits_for_slaves(self) -> bool:
        """Whether a part of the log is hidden that slaves may not have."""
        return self.gate is not None and self._store.visible < self._store.log_end

    async def wait_for_slaves(self) -> None:
        """Wait until slaves have the whole log, `slaveTimeout` at most."""
        assert self.gate is not None
        deadline_ms = self._clock.monotonic_ms() + self.gate.timeout_ms
        while self._clock.monotonic_ms() < deadline_ms:
            having, _ = self.copies.holding(self._store.log_end)
            if having >= self.gate.awaited:
                return
            await self._clock.sleep_ms(_LOOK_MS)

    async def begin(self) -> None:
        """Be the master from now on; what slaves do not have by now is shown without them."""
        if self.gate is not None:
            self.gate.start()
            await off_loop(self.gate.update)

    @property
    def is_master(self) -> bool:
        """Whether this broker is a master that no other has replaced."""
        return not self.is_slave and (self.replaced is None or self._has_rival)

    def end_reign(self, reason: str, *, has_rival: bool = False) -> None:
        """Acknowledge nothing from now on: another master counts, or a rival has the same epoch."""
        if self.replaced is None:
            self.replaced = reason
            self._has_rival = has_rival
            self._store.fence(reason)

    async def stop(self) -> None:
        """Disconnect master and slaves."""
        if self.gate is not None:
            self.gate.stop_warning()
        if not self.is_slave:
            await off_loop(self._sender.stop)

    @property
    def master(self) -> str:
        """The address of the master that this broker follows; empty if nobody knows it."""
        return self.following.master if self.following is not None else ""

    @property
    def master_is_alive(self) -> bool:
        """Whether the master is connected; always at the master itself."""
        return self.following is None or self.following.is_linked

    def refusal(self) -> tuple[ResponseCode, str] | None:
        """Why messages cannot be stored here, as a code and a remark; None if they can."""
        if self.is_slave:
            return ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave; send to its master"
        if self.replaced is not None:
            return ResponseCode.SERVICE_NOT_AVAILABLE, self.replaced
        lacking = self.lacks_copies()
        return (ResponseCode.SYSTEM_ERROR, lacking) if lacking else None

    def lacks_copies(self) -> str:
        """Why nothing may be stored for want of slaves; empty if it may."""
        if self.gate is None or not self.gate.is_short or not self._config().copies_required:
            return ""
        return (
            f"in-sync replicas not enough: {len(self.copies.near())} of "
            f"{self.gate.awaited} slaves are connected and near (requireInSyncReplicas)"
        )

    def why(self) -> tuple[str, str]:
        """Why this broker is only read now, and what to do."""
        if not self.is_slave:
            return "this master is starting, and waits for its slaves", "try again in some seconds"
        return (
            "this broker is a slave, which only its master changes",
            f"ask the master {self.master}" if self.master else "its master is not known now",
        )

    def state(self) -> ReplicationState:
        """The state that tools show; reads the log, in any thread."""
        following = self.following
        state = ReplicationState(
            is_master=not self.is_slave, log_end=self._store.log_end, epoch=self._epochs.epoch
        )
        if following is not None:
            state.master_link = following.status
        state.slaves = [self._link(slave) for slave in self.copies.slaves]
        state.in_sync_slaves = len(self.copies.near())
        return state

    def figures(self) -> ReplicationFigures:
        """The figures that metrics show."""
        identity = self._identity()
        following = self.following
        seen = following.seen if following is not None else None
        return ReplicationFigures(
            role=self.role,
            broker_id=identity.broker_id,
            address=identity.broker_address,
            is_slave=self.is_slave,
            is_master=self.is_master,
            epoch=self._epochs.epoch,
            log_start=self._store.log_start,
            log_end=self._store.log_end,
            visible=self._store.visible,
            slaves=tuple(
                SlaveFigures(
                    broker_id=slave.broker_id,
                    address=slave.broker_address or slave.peer,
                    copied=slave.acked,
                    lag_bytes=self._lag(slave),
                    is_near=slave.is_near,
                )
                for slave in self.copies.slaves
            ),
            lag_ms=self._lag_ms,
            awaited=self._config().slaves_awaited,
            near=len(self.copies.near()),
            given_up=self.gate.given_up if self.gate is not None else 0,
            master=self.master,
            is_linked=following is not None and following.is_linked,
            master_end=seen.log_end if seen is not None else None,
            master_heard_ms=seen.heard_ms if seen is not None else None,
        )

    def _lag(self, slave: SlaveCopy) -> int:
        return max(self._store.settled - slave.acked, 0)

    def _lag_ms(self, copied: PhysicalOffset) -> int | None:
        """How long ago the first message was stored that a slave lacks; reads the log.

        None if a message does not begin there, as may be with slaves of RocketMQ.
        """
        if copied >= self._store.settled:
            return 0
        record = self._store.record_at(copied, hidden=True)
        return max(self._clock.now_ms() - store_ms_of(record), 0) if record is not None else None

    def _link(self, slave: SlaveCopy) -> SlaveLink:
        return SlaveLink(
            address=slave.peer,
            lag_bytes=self._lag(slave),
            in_sync=slave.is_near,
            confirmed_offset=slave.acked,
            sent_from_offset=slave.position or 0,
            bytes_per_second=slave.rate(self._clock.monotonic_ms()),
            broker_id=slave.broker_id,
            broker_address=slave.broker_address or None,
            lag_ms=self._lag_ms(slave.acked),
        )


def check_role(role: BrokerRole, broker_id: int) -> None:
    """Raise SettingsError unless a broker with this id can have this role."""
    if role is BrokerRole.SLAVE and not broker_id:
        raise SettingsError(
            "brokerRole=SLAVE needs a brokerId above 0", hint="give each slave another one"
        )
    if role is not BrokerRole.SLAVE and broker_id:
        raise SettingsError(
            f"brokerId={broker_id} is for a slave, and brokerRole={role} for a master",
            hint="set brokerRole=SLAVE, or brokerId=0",
        )
