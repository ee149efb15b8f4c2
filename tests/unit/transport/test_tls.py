"""Which connections speak TLS, and with which certificates."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock, SystemClock
from orbitmq.errors import ProtocolError, SettingsError
from orbitmq.transport.config import ClientAuth, TlsClientConfig, TlsMode, TlsServerConfig
from orbitmq.transport.tls import TlsServer, client_context, self_signed_certificate
from tests.integration.transport.certificates import Authority

HELLO, PLAIN = b"\x16", b"\x00"


def _server(**options: object) -> TlsServer:
    return TlsServer(TlsServerConfig(**options), SystemClock())  # type: ignore[arg-type]  # by name


def test_the_first_byte_decides_in_permissive_mode() -> None:
    tls = _server()

    assert tls.needs_first_byte
    assert tls.context_for(PLAIN) is None
    context = tls.context_for(HELLO)
    assert context is not None
    assert tls.context_for(HELLO) is context


def test_enforcing_mode_refuses_plain_text_and_disabled_mode_does_not_look() -> None:
    enforcing = _server(mode=TlsMode.ENFORCING)

    assert enforcing.context_for(HELLO) is not None
    with pytest.raises(ProtocolError, match="plain text"):
        enforcing.context_for(PLAIN)
    assert not _server(mode=TlsMode.DISABLED).needs_first_byte


def test_without_test_mode_there_must_be_a_certificate() -> None:
    with pytest.raises(ProtocolError, match="no certificate"):
        _server(test_mode=False).context_for(HELLO)
    with pytest.raises(SettingsError, match="enforcing and there is no certificate"):
        _server(test_mode=False, mode=TlsMode.ENFORCING)


def test_a_certificate_is_loaded_at_once_and_with_its_password(tmp_path: Path) -> None:
    issued = Authority(tmp_path, "authority").issue("server", password="secret")
    paths = {"certificate_path": str(issued.certificate), "key_path": str(issued.key)}

    assert _server(**paths, key_password="secret").context_for(HELLO) is not None
    for password in ("", "wrong"):
        with pytest.raises(SettingsError, match="cannot load"):
            _server(**paths, key_password=password)
    _server(**paths, mode=TlsMode.DISABLED)
    with pytest.raises(SettingsError, match="a certificate without a path"):
        _server(key_path=str(issued.key))


async def test_files_are_reloaded_only_after_a_change_and_a_second(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    issued = authority.issue("server")
    clock = ManualClock()
    config = TlsServerConfig(certificate_path=str(issued.certificate), key_path=str(issued.key))
    tls = TlsServer(config, clock)
    first = tls.context_for(HELLO)
    await tls.refresh()
    await clock.advance(1000)
    await tls.refresh()
    assert tls.context_for(HELLO) is first

    os.utime(issued.certificate, (1, 1))
    await clock.advance(999)
    await tls.refresh()
    assert tls.context_for(HELLO) is first

    await clock.advance(1)
    await tls.refresh()
    assert tls.context_for(HELLO) is not first


async def test_a_missing_or_broken_file_changes_nothing_until_it_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issued = Authority(tmp_path, "authority").issue("server")
    whole = issued.key.read_bytes()
    clock = ManualClock()
    config = TlsServerConfig(certificate_path=str(issued.certificate), key_path=str(issued.key))
    tls = TlsServer(config, clock)
    first = tls.context_for(HELLO)

    async def refreshed() -> ssl.SSLContext | None:
        await clock.advance(1000)
        await tls.refresh()
        return tls.context_for(HELLO)

    issued.key.unlink()
    assert await refreshed() is first
    assert await refreshed() is first
    assert caplog.text.count("changed certificates not used") == 1
    issued.key.write_bytes(whole[:50])
    assert await refreshed() is first
    assert caplog.text.count("changed certificates not used") == 2

    issued.key.write_bytes(whole)
    assert await refreshed() is not first


async def test_without_files_there_is_nothing_to_reload() -> None:
    tls = _server()
    context = tls.context_for(HELLO)

    await tls.refresh()

    assert tls.context_for(HELLO) is context


@pytest.mark.parametrize(
    ("client_auth", "verify_mode"),
    [
        (ClientAuth.NONE, ssl.CERT_NONE),
        (ClientAuth.OPTIONAL, ssl.CERT_OPTIONAL),
        (ClientAuth.REQUIRE, ssl.CERT_REQUIRED),
    ],
)
def test_clients_are_asked_for_certificates_in_test_mode_too(
    tmp_path: Path, client_auth: ClientAuth, verify_mode: ssl.VerifyMode
) -> None:
    authority = Authority(tmp_path, "authority")
    issued = authority.issue("server")
    for paths in (
        {},
        {"certificate_path": str(issued.certificate), "key_path": str(issued.key)},
    ):
        tls = _server(client_auth=client_auth, trusted_path=str(authority.path), **paths)
        context = tls.context_for(HELLO)
        assert context is not None
        assert context.verify_mode == verify_mode


def test_client_certificates_need_a_trusted_authority(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is require and no certificate is trusted"):
        _server(client_auth=ClientAuth.REQUIRE)
    with pytest.raises(SettingsError, match=r"tls\.server\.trustCertPath: cannot load"):
        _server(client_auth=ClientAuth.REQUIRE, trusted_path=str(tmp_path / "none.pem"))


def test_a_client_verifies_as_much_as_configured(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    assert client_context(TlsClientConfig()) is None

    trusting = client_context(TlsClientConfig(enable=True))
    assert trusting is not None
    assert trusting.verify_mode == ssl.CERT_NONE

    own = client_context(
        TlsClientConfig(enable=True, verify_server=True, trusted_path=str(authority.path))
    )
    assert own is not None
    assert (own.verify_mode, own.check_hostname) == (ssl.CERT_REQUIRED, False)
    # Only the named certificates are trusted, not the system's authorities.
    assert len(own.get_ca_certs()) == 1

    # The system's authorities sign for everybody, so the name must match.
    system = client_context(TlsClientConfig(enable=True, verify_server=True))
    assert system is not None
    assert (system.verify_mode, system.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    issued = Authority(tmp_path, "authority").issue("client")
    config = TlsClientConfig(
        enable=True, certificate_path=str(issued.certificate), key_path=str(issued.key)
    )

    assert client_context(config) is not None
    with pytest.raises(SettingsError, match=r"tls\.client\.certPath"):
        client_context(TlsClientConfig(enable=True, certificate_path=str(tmp_path / "none.pem")))


def test_the_self_signed_certificate_is_valid_around_the_clocks_time() -> None:
    from cryptography import x509

    clock = ManualClock()
    certificate = x509.load_pem_x509_certificate(self_signed_certificate(clock)[0])

    now_seconds = clock.now_ms() / 1000
    assert certificate.not_valid_before_utc.timestamp() < now_seconds
    assert certificate.not_valid_after_utc.timestamp() > now_seconds + 300 * 86_400
