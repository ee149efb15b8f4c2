"""Options of the sockets: servers, clients, and TLS on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orbitmq.settings import option

_MIB = 1024 * 1024


class TlsMode(StrEnum):
    """Whether a server accepts TLS connections, and plain ones."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether a server asks TLS clients for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How a server listens, and how much load it accepts."""

    bind_address: str = option("0.0.0.0", doc="Address to listen on.")  # noqa: S104  # as RocketMQ's servers do
    listen_port: int = option(
        0,
        low=0,
        high=65535,
        default_shown="9876 for a name server, 10911 for a broker",
        doc="Port to listen on; 0 takes a free one.",
    )
    accept_backlog: int = option(
        1024,
        low=1,
        high=65535,
        java="serverSocketBacklog",
        doc="Connections that may wait to be accepted.",
    )
    connections_max: int = option(
        20_000,
        low=1,
        high=1_000_000,
        java="serverConnectionsMax",
        doc="Connections open at once; further ones are closed as soon as they are accepted.",
    )
    idle_seconds_max: int = option(
        120,
        low=1,
        high=86_400,
        java="serverChannelMaxIdleTimeSeconds",
        doc="Close a connection after this long without a byte in either direction.",
    )
    oneway_calls_max: int = option(
        256,
        low=1,
        high=65_535,
        java="serverOnewaySemaphoreValue",
        doc="One-way requests to clients that may be in flight.",
    )
    async_calls_max: int = option(
        64,
        low=1,
        high=65_535,
        java="serverAsyncSemaphoreValue",
        doc="Requests to clients that may be unanswered.",
    )
    send_buffer_bytes: int = option(
        0,
        low=0,
        high=1024 * _MIB,
        java="serverSocketSndBufSize",
        doc="Send buffer of each socket; 0 leaves it to the system.",
    )
    receive_buffer_bytes: int = option(
        0,
        low=0,
        high=1024 * _MIB,
        java="serverSocketRcvBufSize",
        doc="Receive buffer of each socket; 0 leaves it to the system.",
    )
    frame_bytes_max: int = option(
        16 * _MIB,
        low=1024,
        high=1024 * _MIB,
        java="frameMaxLength",
        doc="Largest frame accepted; a connection that announces a larger one is closed.",
    )
    connection_work_bytes_max: int = option(
        64 * _MIB,
        low=_MIB,
        high=64 * 1024 * _MIB,
        java="connectionWorkBytesMax",
        doc="Bytes of requests that one connection may have in flight; more are answered busy.",
    )
    total_work_bytes_max: int = option(
        512 * _MIB,
        low=_MIB,
        high=1024 * 1024 * _MIB,
        java="totalWorkBytesMax",
        doc="Bytes of requests that all connections together may have in flight.",
    )
    write_high_water_bytes: int = option(
        1 * _MIB,
        low=1024,
        high=1024 * _MIB,
        java="writeBufferHighWaterMark",
        doc="A connection with more unsent bytes than this is not read until it drains.",
    )
    write_bytes_max: int = option(
        64 * _MIB,
        low=1024,
        high=64 * 1024 * _MIB,
        java="writeBufferBytesMax",
        doc="With more unsent bytes than this on a connection, requests to its client fail.",
    )
    shutdown_grace_seconds: int = option(
        10,
        low=0,
        high=3600,
        java="shutdownWaitTimeSeconds",
        doc="How long a stopping server waits for requests in flight.",
    )
    allow_guarded_updates: bool = option(
        False,
        java="allowGuardedUpdates",
        doc="Let clients change guarded options while the server runs: those that can delete "
        "messages, use up memory, stop the service or send the broker to other name servers.",
    )
    use_native_loop: bool = option(
        True,
        java="useEpollNativeSelector",
        doc="Run on uvloop where it is installed; false forces plain asyncio.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServerConfig:
    """How a server speaks TLS."""

    mode: TlsMode = option(
        TlsMode.PERMISSIVE,
        java="tls.server.mode",
        doc="disabled refuses TLS, permissive serves TLS and plain text, enforcing refuses plain "
        "text.",
    )
    test_mode: bool = option(
        True,
        java="tls.test.mode.enable",
        doc="Without a certificate, make a self-signed one when the first TLS client connects.",
    )
    certificate_path: str = option(
        "", java="tls.server.certPath", doc="Certificate chain of the server, PEM."
    )
    key_path: str = option("", java="tls.server.keyPath", doc="Private key of the server, PEM.")
    key_password: str = option(
        "", java="tls.server.keyPassword", secret=True, doc="Password of the private key."
    )
    client_auth: ClientAuth = option(
        ClientAuth.NONE,
        java="tls.server.need.client.auth",
        doc="Whether clients must present a certificate.",
    )
    trusted_path: str = option(
        "",
        java="tls.server.trustCertPath",
        doc="Certificates that client certificates must chain to, PEM.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client connects, and how much it may have in flight."""

    connect_timeout_ms: int = option(
        3000, low=1, high=600_000, java="connectTimeoutMillis", doc="Longest wait for a connection."
    )
    idle_seconds_max: int = option(
        120,
        low=1,
        high=86_400,
        java="clientChannelMaxIdleTimeSeconds",
        doc="Close a connection after this long without a byte in either direction.",
    )
    oneway_calls_max: int = option(
        65_535,
        low=1,
        high=1_000_000,
        java="clientOnewaySemaphoreValue",
        doc="One-way requests that may wait to be sent.",
    )
    async_calls_max: int = option(
        65_535,
        low=1,
        high=1_000_000,
        java="clientAsyncSemaphoreValue",
        doc="Requests that may be unanswered.",
    )
    send_buffer_bytes: int = option(
        0,
        low=0,
        high=1024 * _MIB,
        java="clientSocketSndBufSize",
        doc="Send buffer of each socket; 0 leaves it to the system.",
    )
    receive_buffer_bytes: int = option(
        0,
        low=0,
        high=1024 * _MIB,
        java="clientSocketRcvBufSize",
        doc="Receive buffer of each socket; 0 leaves it to the system.",
    )
    frame_bytes_max: int = option(
        16 * _MIB,
        low=1024,
        high=1024 * _MIB,
        java="clientFrameMaxLength",
        doc="Largest frame accepted; a connection that announces a larger one is closed.",
    )
    write_high_water_bytes: int = option(
        1 * _MIB,
        low=1024,
        high=1024 * _MIB,
        java="clientWriteBufferHighWaterMark",
        doc="With more unsent bytes than this, callers wait for the connection to drain.",
    )
    write_bytes_max: int = option(
        64 * _MIB,
        low=1024,
        high=64 * 1024 * _MIB,
        java="clientWriteBufferBytesMax",
        doc="With more unsent bytes than this, calls that cannot wait fail.",
    )
    shutdown_grace_seconds: int = option(
        3,
        low=0,
        high=3600,
        java="clientShutdownWaitTimeSeconds",
        doc="How long a stopping client waits for pending answers.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientConfig:
    """How a client speaks TLS."""

    enable: bool = option(False, java="tls.enable", doc="Connect with TLS.")
    verify_server: bool = option(
        False,
        java="tls.client.authServer",
        doc="Refuse servers whose certificate does not chain to a trusted one.",
    )
    trusted_path: str = option(
        "",
        java="tls.client.trustCertPath",
        doc="Certificates to trust, PEM; empty trusts the system's.",
    )
    certificate_path: str = option(
        "", java="tls.client.certPath", doc="Certificate chain of the client, PEM."
    )
    key_path: str = option("", java="tls.client.keyPath", doc="Private key of the client, PEM.")
    key_password: str = option(
        "", java="tls.client.keyPassword", secret=True, doc="Password of the private key."
    )
