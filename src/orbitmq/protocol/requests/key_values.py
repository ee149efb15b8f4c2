"""Key-value configuration on the name server: put, get, delete, list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header

# Brokers and clients read the order of a topic's queues from this namespace.
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKeyValue(Header):
    """Set one key of a namespace."""

    CODE = RequestCode.PUT_KV_CONFIG
    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKeyValue(Header):
    """Read one key of a namespace."""

    CODE = RequestCode.GET_KV_CONFIG
    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueReply(Header):
    """The value of a key."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKeyValue(Header):
    """Delete one key of a namespace."""

    CODE = RequestCode.DELETE_KV_CONFIG
    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListKeyValues(Header):
    """Read every key of a namespace; the reply's body is a `KeyValueTable`."""

    CODE = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str


class KeyValueTable(msgspec.Struct, kw_only=True):
    """Every key of a namespace, as JSON."""

    table: dict[str, str] = {}
