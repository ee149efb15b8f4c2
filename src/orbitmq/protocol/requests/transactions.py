"""Transactions: a producer ends one, a broker asks for the state of one."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction(Header):
    """Commit a half message, roll it back, or say that its end is not known yet."""

    CODE = RequestCode.END_TRANSACTION
    topic: str | None = None
    producer_group: str
    # Its offsets in the queue of half messages and in the log.
    half_offset: Long = wire("tranStateTableOffset")
    physical_offset: Long = wire("commitLogOffset")
    # The bits of the system flag: 8 to commit, 12 to roll back, 0 if not known.
    outcome: int = wire("commitOrRollback")
    # Whether this answers a check.
    is_answer: bool | None = wire("fromTransactionCheck", None)
    # The unique id of the message; some clients send the id that says where it is stored.
    message_id: str | None = wire("msgId", None)
    transaction_id: str | None = None
    broker_name: str | None = wire("bname", None)
