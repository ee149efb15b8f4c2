"""Filter servers: registration with a broker, and the filter class of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long, wire

# How many filter servers a broker has, and reports to name servers.
FILTER_SERVERS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFilterServer(Header):
    """A filter server is alive at this address; it says so every 10 s."""

    CODE = RequestCode.REGISTER_FILTER_SERVER
    address: str = wire("filterServerAddr")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFilterServerReply(Header):
    """The broker that the filter server belongs to now."""

    filter_server_id: Long | None = None
    broker_name: str
    # Compat: RocketMQ's own filter server requires it.
    broker_id: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFilterClass(Header):
    """A group filters a topic by a class, whose source is the body; nobody runs it here."""

    CODE = RequestCode.REGISTER_MESSAGE_FILTER_CLASS
    consumer_group: str
    topic: str
    class_name: str
    class_crc: int = wire("classCRC")
