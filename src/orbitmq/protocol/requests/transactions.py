"""Transactions: a broker asks for the state of one."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTransaction(Header):
    """The broker asks a producer, one way, for the state of the half message in the body."""

    CODE = RequestCode.CHECK_TRANSACTION_STATE
    topic: str | None = None
    # Its offsets in the queue of half messages and in the log; the answer repeats them.
    half_offset: Long = wire("tranStateTableOffset")
    physical_offset: Long = wire("commitLogOffset")
    message_id: str | None = wire("msgId", None)
    transaction_id: str | None = None
    offset_message_id: str | None = wire("offsetMsgId", None)
    broker_name: str | None = wire("bname", None)
