"""TLS as RocketMQ does it: the first byte of a connection shows whether it is TLS.

A TLS connection begins with byte 0x16. A frame never does: it would be far above the frame limit.
A server therefore looks at the first byte before it decides how to read the rest.

Replaced certificate files are read again, for later connections.

Threads: one event loop; files are checked and read off it.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.disk import off_loop
from orbitmq.errors import ProtocolError, SettingsError
from orbitmq.transport.config import ClientAuth, TlsClientConfig, TlsMode, TlsServerConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

TLS_FIRST_BYTE: Final = b"\x16"
_CERTIFICATE_DAYS: Final = 3650
_CHECK_INTERVAL_MS: Final = 1000.0
# Of each file: inode, bytes, time of the last change; None for a missing file.
_FileStates = tuple[tuple[int, int, int] | None, ...]


class TlsServer:
    """Decides for each connection whether it speaks TLS, and with which certificate."""

    def __init__(self, config: TlsServerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._context: ssl.SSLContext | None = None
        # The state of the certificate files when last read; None without such files.
        self._files_read: _FileStates | None = None
        self._next_check_ms = 0.0
        if config.mode is TlsMode.DISABLED:
            return
        # Checked and read now: a broken file fails the start, not the first client.
        _check_client_auth(config)
        if config.certificate_path or config.key_path:
            # Taken before they are read: a change in between is read again.
            self._files_read = _file_states(config)
            self._context = _server_context(config)
        elif config.mode is TlsMode.ENFORCING and not config.test_mode:
            raise SettingsError(
                "tls.server.mode is enforcing and there is no certificate",
                hint="set tls.server.certPath and tls.server.keyPath",
            )

    @property
    def needs_first_byte(self) -> bool:
        """Whether a connection must show its first byte before it is served."""
        return self._config.mode is not TlsMode.DISABLED

    async def refresh(self) -> None:
        """Reload certificates whose files changed; checks once a second, however often called.

        If the new files cannot be used, the old certificates stay in use.
        """
        now_ms = self._clock.monotonic_ms()
        if self._files_read is None or now_ms < self._next_check_ms:
            return
        self._next_check_ms = now_ms + _CHECK_INTERVAL_MS
        found = await off_loop(_file_states, self._config)
        if found == self._files_read:
            return
        try:
            self._context = await off_loop(_server_context, self._config)
        except SettingsError as error:
            # Often half of a change: the certificate is new already, its key is not.
            log.warning("changed certificates not used reason=%s", error)
        else:
            log.info("certificates reloaded file=%s", self._config.certificate_path)
        self._files_read = found

    def context_for(self, first_byte: bytes) -> ssl.SSLContext | None:
        """Return the TLS context for a connection with this first byte; None for plain text.

        Raises ProtocolError for a connection that must not be served.
        """
        if first_byte != TLS_FIRST_BYTE:
            if self._config.mode is TlsMode.ENFORCING:
                raise ProtocolError("it speaks plain text and tls.server.mode is enforcing")
            return None
        if self._context is None:
            if not self._config.test_mode:
                raise ProtocolError("it speaks TLS and this server has no certificate")
            self._context = _self_signed_context(self._config, self._clock)
        return self._context


def client_context(config: TlsClientConfig) -> ssl.SSLContext | None:
    """Return the TLS context of a client; None if it speaks plain text."""
    if not config.enable:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Compat: RocketMQ's certificates name no hosts; only their issuer counts.
    context.check_hostname = False
    if not config.verify_server:
        context.verify_mode = ssl.CERT_NONE
    elif config.trusted_path:
        _load("tls.client.trustCertPath", context.load_verify_locations, config.trusted_path)
    else:
        # The system's authorities sign for everybody, so the host must match too.
        context.check_hostname = True
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if config.certificate_path:
        _load_certificate(
            context,
            "tls.client.certPath and tls.client.keyPath",
            config.certificate_path,
            config.key_path,
            config.key_password,
        )
    return context


def _file_states(config: TlsServerConfig) -> _FileStates:
    paths = (config.certificate_path, config.key_path, config.trusted_path)
    return tuple(_file_state(Path(path)) for path in paths if path)


def _file_state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _server_context(config: TlsServerConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_certificate(
        context,
        "tls.server.certPath and tls.server.keyPath",
        config.certificate_path,
        config.key_path,
        config.key_password,
    )
    _ask_for_client_certificates(context, config)
    return context


def _self_signed_context(config: TlsServerConfig, clock: Clock) -> ssl.SSLContext:
    certificate, key = self_signed_certificate(clock)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The ssl module loads certificates from files only.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.touch(mode=0o600)
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)
    _ask_for_client_certificates(context, config)
    return context


def _check_client_auth(config: TlsServerConfig) -> None:
    if config.client_auth is ClientAuth.NONE:
        return
    if not config.trusted_path:
        raise SettingsError(
            f"tls.server.need.client.auth is {config.client_auth} and no certificate is trusted",
            hint="set tls.server.trustCertPath to the certificates that signed the clients'",
        )
    _ask_for_client_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), config)


def _ask_for_client_certificates(context: ssl.SSLContext, config: TlsServerConfig) -> None:
    if config.client_auth is ClientAuth.NONE:
        return
    _load("tls.server.trustCertPath", context.load_verify_locations, config.trusted_path)
    required = config.client_auth is ClientAuth.REQUIRE
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL


def _load_certificate(
    context: ssl.SSLContext, options: str, certificate_path: str, key_path: str, password: str
) -> None:
    # The password is passed even if empty: without one, OpenSSL would prompt on the terminal.
    _load(options, context.load_cert_chain, certificate_path, key_path or None, password)


def _load(options: str, load: Callable[..., None], path: str, *more: str | None) -> None:
    try:
        load(path, *more)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"{options}: cannot load {path or 'a certificate without a path'}: {error}",
            hint="check that the files exist, are PEM, and belong together",
        ) from error


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
