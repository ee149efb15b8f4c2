"""What brokers of one group ask each other, and tools ask them: who is master."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowMaster(Header):
    """A slave says who it is, and asks how far the master's log is visible."""

    CODE = RequestCode.FOLLOW_MASTER
    broker_name: str
    broker_id: Long
    broker_address: str = wire("brokerAddr")
    # Its end of the connection on which the log arrives, as host:port; empty if there is none.
    link: str = ""
    # Whether what it reports is on its disk.
    is_flushed: bool = False
    # The master answers once more than this is visible, or after as many milliseconds.
    visible: Long
    wait_ms: int = wire("waitMillis")
    epoch: Long = wire("epoch", 0)
    # The master also answers once the state of its tables is another than this.
    tables: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowReply(Header):
    """How far the master's log is visible, and what the log is like."""

    visible: Long
    log_start: Long
    log_end: Long
    log_file_bytes: Long
    is_master: bool
    # Of the master; slaves remember the role, in case one of them is promoted.
    epoch: Long = wire("epoch", 0)
    role: str = ""
    # How many slaves must have a message before the master acknowledges it.
    slaves_awaited: int = wire("slavesAwaited", 0)
    # How many slaves are connected to it.
    slaves: int = 0
    # The state of its tables: a word for each, which differs after a change.
    tables: str = ""
    # What clients may do there, as brokerPermission.
    permission: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStanding(Header):
    """Ask a broker for its `Standing`; the asker may say who it is."""

    CODE = RequestCode.READ_STANDING
    broker_name: str = ""
    # A master that hears of a larger epoch of its group asks back whether that is so.
    epoch: Long = wire("epoch", 0)
    broker_address: str = wire("brokerAddr", "")


class EpochStart(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An epoch, and where in the log it began; under which id its master was a slave before."""

    epoch: int
    offset: int
    former_id: int


class MasterSeen(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a slave last heard of its master."""

    address: str
    role: str
    log_end: int
    visible: int
    heard_ms: int
    slaves_awaited: int = 0
    # The most that were connected to it at a time, as far as was heard.
    slaves: int = 0
    # What clients might do there, as brokerPermission.
    permission: int = 6


class Standing(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A broker's place in its group: role, epoch and log."""

    broker_name: str
    broker_id: int
    address: str
    role: str
    is_master: bool
    epoch: int
    # The oldest first.
    epochs: list[EpochStart] = msgspec.field(default_factory=list)
    log_start: int
    log_end: int
    flushed: int
    visible: int
    # Of a slave: the master it followed last.
    master: MasterSeen | None = None
    # Of a slave: whether the log arrives, and if not, why.
    is_linked: bool = False
    failure: str = ""
    # Of a slave that does not follow: from where on its log is not that of its master.
    differs_from: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteBroker(Header):
    """Make this slave the master of its group."""

    CODE = RequestCode.PROMOTE_BROKER
    broker_name: str
    epoch: Long
    # ASYNC_MASTER or SYNC_MASTER; empty for that of the last master.
    role: str = ""
    # Even though the present master answers.
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteReply(Header):
    """Up to where the log is kept; all that others had beyond is lost."""

    log_end: Long
    epoch: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQueueEnds(Header):
    """Ask where queues end, with what is in the log and not visible; the body is `QueueEnds`."""

    CODE = RequestCode.LIST_QUEUE_ENDS
    # Topics after this one, in the order of their names.
    after: str = ""
    # Topics are listed whole until this many queues are reached.
    limit: int


class QueueEnds(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Where the queues of some topics end in a log that ends at `log_end`."""

    log_end: int
    # By topic and queue id; a queue without messages is left out.
    ends: dict[str, dict[int, int]]
    has_more: bool
