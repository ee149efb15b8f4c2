"""TLS as RocketMQ does it: no negotiation in the protocol, the first byte of a connection tells.

A TLS connection begins with byte 0x16; a frame never does, since it would be far above the frame
limit. A server therefore looks at the first byte before it decides how to read the rest.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.errors import SettingsError
from orbitmq.transport.config import ClientAuth, TlsClientConfig, TlsMode, TlsServerConfig

if TYPE_CHECKING:
    from orbitmq.clock import Clock

TLS_FIRST_BYTE: Final = b"\x16"
_CERTIFICATE_DAYS: Final = 3650


class TlsServer:
    """Decides for each connection whether it speaks TLS, and with what certificate."""

    def __init__(self, config: TlsServerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._context: ssl.SSLContext | None = None
        if config.certificate_path or config.key_path:
            # Read now: a broken certificate stops the start, not the first client.
            self._context = _server_context(config)
        elif config.mode is TlsMode.ENFORCING and not config.test_mode:
            raise SettingsError(
                "tls.server.mode is enforcing and there is no certificate",
                hint="set tls.server.certPath and tls.server.keyPath",
            )

    @property
    def looks_at_first_byte(self) -> bool:
        """Whether a connection must show its first byte before it is served."""
        return self._config.mode is not TlsMode.DISABLED

    def accepts(self, first_byte: bytes) -> bool:
        """Whether a connection that begins so may be served."""
        if first_byte == TLS_FIRST_BYTE:
            return self._context is not None or self._config.test_mode
        return self._config.mode is not TlsMode.ENFORCING

    def context_for(self, first_byte: bytes) -> ssl.SSLContext | None:
        """Return the TLS context of a connection that begins so; None for plain text."""
        if first_byte != TLS_FIRST_BYTE:
            return None
        if self._context is None:
            self._context = _self_signed_context(self._clock)
        return self._context


def client_context(config: TlsClientConfig) -> ssl.SSLContext | None:
    """Return the TLS context of a client; None when it speaks plain text."""
    if not config.enable:
        return None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    # Compat: RocketMQ's certificates name no hosts; what counts is who signed them.
    context.check_hostname = False
    if config.verify_server:
        if config.trusted_path:
            _load("tls.client.trustCertPath", context.load_verify_locations, config.trusted_path)
    else:
        context.verify_mode = ssl.CERT_NONE
    if config.certificate_path:
        _load(
            "tls.client.certPath",
            context.load_cert_chain,
            config.certificate_path,
            config.key_path or None,
            config.key_password or None,
        )
    return context


def _server_context(config: TlsServerConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(
        "tls.server.certPath and tls.server.keyPath",
        context.load_cert_chain,
        config.certificate_path,
        config.key_path or None,
        config.key_password or None,
    )
    if config.client_auth is not ClientAuth.NONE:
        if not config.trusted_path:
            raise SettingsError(
                f"tls.server.need.client.auth is {config.client_auth} and nothing is trusted",
                hint="set tls.server.trustCertPath to the certificates that signed the clients'",
            )
        _load("tls.server.trustCertPath", context.load_verify_locations, config.trusted_path)
        required = config.client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _load(option: str, load: object, *arguments: str | None) -> None:
    # Invariant: `load` is a method of an SSLContext that takes paths and a password.
    assert callable(load)
    try:
        load(*arguments)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"{option}: cannot load {arguments[0]}: {error}",
            hint="check that the files exist, are PEM, and belong together",
        ) from error


def _self_signed_context(clock: Clock) -> ssl.SSLContext:
    certificate, key = self_signed_certificate(clock)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The ssl module loads certificates from files only.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.touch(mode=0o600)
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)
    return context


def self_signed_certificate(clock: Clock) -> tuple[bytes, bytes]:
    """Make a certificate for this machine and its key, both PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "OrbitMQ test mode")])
    now = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, tz=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_CERTIFICATE_DAYS))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
