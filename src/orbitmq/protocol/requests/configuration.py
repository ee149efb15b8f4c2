"""Options of a running server, read and changed as properties text."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class GetNameServerConfig(Header):
    """Ask for every option; the reply's body is properties text."""

    CODE = RequestCode.GET_NAMESRV_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateNameServerConfig(Header):
    """Change options of a running name server; the body is properties text."""

    CODE = RequestCode.UPDATE_NAMESRV_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBrokerConfig(Header):
    """Change options of a running broker; the body is properties text."""

    CODE = RequestCode.UPDATE_BROKER_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerConfig(Header):
    """Ask for every option; the reply's body is properties text."""

    CODE = RequestCode.GET_BROKER_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigReply(Header):
    """The version of the options."""

    data_version: str | None = wire("version", None)
