"""Transactions: ended by producers, asked about by brokers, seen by tools."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions(Header):
    """List open transactions, those that wait longest first; the body is a `TransactionPage`."""

    CODE = RequestCode.LIST_TRANSACTIONS
    # Only those with this id.
    transaction_id: str | None = None
    limit: int


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that waits for its end."""

    transaction_id: str
    group: str
    topic: str
    queue_id: int
    keys: str
    body_bytes: int
    # When its half message was stored, and where the newest copy of it is.
    since_ms: int
    half_offset: int
    # How often producers were asked; who was asked last, and when, if that is known.
    checks: int
    asked_client: str = ""
    asked_ms: int = 0
    # How many producers of the group are connected.
    producers: int


class TransactionPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some open transactions of a broker, and how many it has."""

    transactions: list[OpenTransaction]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTransactions(Header):
    """Ask producers about open transactions now; the body of the reply is a `ChecksSent`."""

    CODE = RequestCode.CHECK_TRANSACTIONS
    # Only those with this id; without it, those that wait longest.
    transaction_id: str | None = None
    limit: int


class ChecksSent(msgspec.Struct, frozen=True, kw_only=True):
    """How many transactions producers were asked about, and of how many nobody could be asked."""

    # The clients that were asked.
    clients: list[str]
    asked: int
    without_producer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeTransaction(Header):
    """Ask producers again about a transaction that was given up."""

    CODE = RequestCode.RESUME_CHECK_HALF_MESSAGE
    topic: str | None = None
    # Where its message is stored, in the topic of those given up or in that of half messages.
    message_id: str = wire("msgId")
