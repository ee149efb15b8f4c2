"""Options of clients: how they find servers, who they are, how they work.

A producer or consumer takes them as keyword arguments (`keywords.py`); what is not given there is
looked for in the environment, as ORBITMQ_ and the option's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbitmq.errors import SettingsError
from orbitmq.settings import option
from orbitmq.transport.addresses import parse_addresses

# The instance name that stands for "one of my own"; broadcasting consumers keep it as it is.
DEFAULT_INSTANCE: Final = "DEFAULT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What every client has: servers, identity, credentials, TLS, intervals."""

    namesrv: str = option(
        "",
        java="namesrvAddr",
        environment=("NAMESRV_ADDR",),
        doc="Addresses of the name servers, separated by ';'. Without any, the address server "
        "is asked for them.",
    )
    namesrv_domain: str = option(
        "",
        java="rocketmq.namesrv.domain",
        doc="Host of an HTTP server that knows the name servers, port 8080 unless it names one.",
    )
    namesrv_subgroup: str = option(
        "nsaddr",
        java="rocketmq.namesrv.domain.subgroup",
        doc="Which list of name servers to ask the address server for.",
    )
    namesrv_interval_ms: int = option(
        120_000,
        low=100,
        high=86_400_000,
        doc="Pause between two looks at the address server.",
    )
    client_ip: str = option(
        "",
        java="clientIP",
        default_shown="an address of this machine",
        doc="The address by which this client is called in its id and in the ids of its messages.",
    )
    instance_name: str = option(
        DEFAULT_INSTANCE,
        doc="Clients of one process with the same name share connections. DEFAULT gives each "
        "producer and each clustering consumer a name of its own.",
    )
    unit_name: str = option("", doc="The unit this client lives in; becomes a part of its id.")
    namespace: str = option("", doc="Put before the names of topics and groups, as in RocketMQ 4.")
    access_key: str = option("", doc="Who signs the requests; empty leaves them unsigned.")
    secret_key: str = option("", secret=True, doc="What they are signed with.")
    security_token: str = option(
        "", secret=True, doc="Goes with temporary keys; empty for lasting ones."
    )
    tls: bool = option(False, java="tls.enable", doc="Connect with TLS.")
    tls_verify_server: bool = option(
        False,
        java="tls.client.authServer",
        doc="Refuse servers whose certificate does not chain to a trusted one.",
    )
    tls_trusted_path: str = option(
        "",
        java="tls.client.trustCertPath",
        doc="Certificates to trust, PEM; empty trusts the system's.",
    )
    tls_certificate_path: str = option(
        "", java="tls.client.certPath", doc="Certificate chain of the client, PEM."
    )
    tls_key_path: str = option("", java="tls.client.keyPath", doc="Private key of the client, PEM.")
    tls_key_password: str = option(
        "", java="tls.client.keyPassword", secret=True, doc="Password of the private key."
    )
    vip_channel: bool = option(
        False,
        java="vipChannelEnabled",
        doc="Send to the brokers' second port, their own less two, which pulls do not use.",
    )
    route_interval_ms: int = option(
        30_000,
        low=100,
        high=86_400_000,
        java="pollNameServerInterval",
        doc="Pause between two looks at where the topics in use are.",
    )
    heartbeat_interval_ms: int = option(
        30_000,
        low=100,
        high=86_400_000,
        java="heartbeatBrokerInterval",
        doc="Pause between two heartbeats; brokers forget a client after 120 s of silence.",
    )
    persist_interval_ms: int = option(
        5_000,
        low=100,
        high=86_400_000,
        java="persistConsumerOffsetInterval",
        doc="Pause between two commits of the offsets of consumers.",
    )
    call_timeout_ms: int = option(
        3_000,
        low=1,
        high=600_000,
        java="mqClientApiTimeout",
        doc="Longest wait for an answer, of calls that have no time limit of their own.",
    )
    connect_timeout_ms: int = option(
        3_000,
        low=1,
        high=600_000,
        java="connectTimeoutMillis",
        doc="Longest wait for a connection.",
    )

    def __post_init__(self) -> None:
        parse_addresses(self.namesrv)
        if bool(self.access_key) != bool(self.secret_key):
            there, missing = (
                ("access_key", "secret_key") if self.access_key else ("secret_key", "access_key")
            )
            raise SettingsError(
                f"{there} is set and {missing} is not", hint="requests are signed with both"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(ClientOptions):
    """How a producer sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ClientOptions):
    """What all consumers have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions(ConsumerOptions):
    """How a push consumer pulls and calls its listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullOptions(ConsumerOptions):
    """How a lite pull consumer fills its buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions(ConsumerOptions):
    """How a pull consumer asks."""
