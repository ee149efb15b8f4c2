"""What slaves ask their master for, besides its topics, groups and offsets."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header

_CHECKPOINT: Final = struct.Struct(">qqqqqqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTimerCheckpoint(Header):
    """Ask for the progress of the timers; the reply's body is a `TimerCheckpoint`, as bytes."""

    CODE = RequestCode.GET_TIMER_CHECK_POINT


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCheckpoint:
    """Progress of the timers of a broker: seven numbers of 8 bytes, big-endian."""

    # Slots of the wheel before this time are delivered.
    read_ms: int = 0
    timer_log_end: int = 0
    # The next message of the timer topic to take in.
    queue_offset: int = 0
    # The same, of the master.
    master_queue_offset: int = 0
    data_version: DataVersion = field(default_factory=DataVersion)

    def encode(self) -> bytes:
        """Write it as RocketMQ does."""
        version = self.data_version
        return _CHECKPOINT.pack(
            self.read_ms,
            self.timer_log_end,
            self.queue_offset,
            self.master_queue_offset,
            version.state_version,
            version.timestamp,
            version.counter,
        )

    @classmethod
    def decode(cls, body: bytes) -> TimerCheckpoint:
        """Read what `encode` or RocketMQ wrote."""
        if len(body) != _CHECKPOINT.size:
            raise ProtocolError(
                f"a timer checkpoint has {_CHECKPOINT.size} bytes, not {len(body)}; "
                f"it starts {body[:60]!r}"
            )
        read_ms, log_end, offset, master_offset, state, stamp, counter = _CHECKPOINT.unpack(body)
        return cls(
            read_ms=read_ms,
            timer_log_end=log_end,
            queue_offset=offset,
            master_queue_offset=master_offset,
            data_version=DataVersion(state_version=state, timestamp=stamp, counter=counter),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTimerMetrics(Header):
    """Ask how many timers each topic has; the reply's body is a `TimerMetrics`."""

    CODE = RequestCode.GET_TIMER_METRICS


class TimerMetrics(msgspec.Struct, kw_only=True):
    """How many messages of each topic are not due yet, as RocketMQ counts them."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion, name="dataVersion")
    counts: dict[str, Any] = msgspec.field(default_factory=dict, name="timingCount")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConsumeModes(Header):
    """Ask how every group gets its messages; the reply's body is a `ConsumeModeTable`."""

    CODE = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE


class ConsumeModeTable(msgspec.Struct, kw_only=True):
    """Which groups pop instead of pulling, by topic and group."""

    modes: dict[str, Any] = msgspec.field(default_factory=dict, name="messageRequestModeMap")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListStoreTables(Header):
    """Ask for what of a master's store is not in its log; the reply's body is `StoreTables`."""

    CODE = RequestCode.LIST_STORE_TABLES


class ReservedNumbers(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A queue in memory, and the number below which its messages are numbered."""

    topic: str
    queue_id: Annotated[int, msgspec.Meta(ge=0)]
    end: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class StoreTables(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What of a store is not in its log."""

    reserved: list[ReservedNumbers]
    # Where in the log each deleted topic ended; those below its start may be missing.
    deleted: dict[str, int]
    log_start: int
