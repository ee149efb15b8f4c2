"""Options of replication."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orbitmq.settings import option

_MIB = 1024 * 1024


class BrokerRole(StrEnum):
    """What a broker does with its group's log."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Whether this broker is a master or a slave, and how the log is copied."""

    role: BrokerRole = option(
        BrokerRole.ASYNC_MASTER,
        java="brokerRole",
        doc="ASYNC_MASTER acknowledges a message before slaves have it, SYNC_MASTER once "
        "`inSyncReplicas` brokers have it. A SLAVE copies the log of the master of the same "
        "brokerName; it needs a brokerId above 0.",
    )
    port: int = option(
        0,
        low=0,
        high=65_535,
        java="haListenPort",
        default_shown="listenPort + 1",
        doc="Port on which a master streams its log to slaves.",
    )
    master_address: str = option(
        "",
        java="haMasterAddress",
        default_shown="what the name servers say",
        doc="Where a slave finds the port haListenPort of its master, as host:port.",
    )
    heartbeat_interval_ms: int = option(
        5000,
        low=10,
        high=600_000,
        java="haSendHeartbeatInterval",
        doc="After this long without anything to send, master and slave send a heartbeat.",
    )
    silence_ms_max: int = option(
        20_000,
        low=100,
        high=3_600_000,
        java="haHousekeepingInterval",
        doc="A connection between master and slave that is silent for this long is closed.",
    )
    batch_bytes: int = option(
        256 * 1024,
        low=1024,
        # Compat: Java's slaves receive into a buffer of 4 MiB, with 12 bytes for the header.
        high=4 * _MIB - 12,
        java="haTransferBatchSize",
        doc="Most bytes of the log that a master sends in one piece.",
    )
    copies: int = option(
        0,
        low=0,
        high=64,
        live=True,
        java="inSyncReplicas",
        guarded="end the wait for slaves",
        default_shown="2",
        doc="How many brokers, the master among them, must have a message before a SYNC_MASTER "
        "acknowledges it. A slave with SYNC_FLUSH has it once it is on its disk.",
    )
    copies_required: bool = option(
        False,
        live=True,
        java="requireInSyncReplicas",
        guarded="stop all sends, or end the wait for slaves",
        doc="Let a SYNC_MASTER refuse messages while too few slaves are connected and near, "
        "instead of storing them with the status SLAVE_NOT_AVAILABLE.",
    )
    slave_timeout_ms: int = option(
        3000,
        low=1,
        high=600_000,
        java="slaveTimeout",
        doc="A send that waits longer for slaves is answered FLUSH_SLAVE_TIMEOUT.",
    )
    gap_bytes_max: int = option(
        256 * _MIB,
        low=1024,
        high=2**62,
        live=True,
        guarded="end the wait for slaves",
        java="haMaxGapNotInSync",
        doc="A SYNC_MASTER does not wait for slaves that lag further behind.",
    )

    @property
    def slaves_awaited(self) -> int:
        """How many slaves must have a message before it is acknowledged."""
        return max((self.copies or 2) - 1, 0) if self.role is BrokerRole.SYNC_MASTER else 0
