"""What slaves of ours ask their master."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowReply(Header):
    """How far the master's log is visible, and what the log is like."""

    visible: Long
    log_start: Long
    log_end: Long
    log_file_bytes: Long
    is_master: bool
