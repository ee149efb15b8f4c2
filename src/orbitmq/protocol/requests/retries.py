"""Sending a message back that a consumer failed on, for a later retry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long, wire

# Delay levels with a meaning of their own.
BROKER_CHOOSES: Final = 0
TO_DEAD_LETTERS: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBack(Header):
    """Retry a message later; the broker reads it again from its commit log."""

    CODE = RequestCode.CONSUMER_SEND_MSG_BACK
    physical_offset: Long = wire("offset")
    group: str
    # Any negative level means dead letters.
    delay_level: int
    original_message_id: str | None = wire("originMsgId", None)
    original_topic: str | None = wire("originTopic", None)
    unit_mode: bool = False
    retries_max: int | None = wire("maxReconsumeTimes", None)
    broker_name: str | None = wire("bname", None)
    # Why it failed, for those who look at dead letters; RocketMQ's brokers ignore it.
    reason: str | None = wire("orbitReason", None)
