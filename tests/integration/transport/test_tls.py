"""TLS: each mode of a server with each kind of client, certificates, and what can be broken."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock, SystemClock, settle
from orbitmq.errors import ConnectError, SettingsError, TransportError
from orbitmq.protocol.command import Command
from orbitmq.transport.config import (
    ClientAuth,
    ServerConfig,
    TlsClientConfig,
    TlsMode,
    TlsServerConfig,
)
from orbitmq.transport.rpc_client import RpcClient
from orbitmq.transport.rpc_server import RpcServer
from orbitmq.transport.tls import self_signed_certificate
from tests.integration.conftest import PATIENCE_MS
from tests.integration.transport.certificates import Authority
from tests.integration.transport.raw_peer import RawPeer, trusting_nothing
from tests.integration.transport.serving import ECHO, LARGE, LOCAL, SLOW, Gate, address_of, serving
from tests.waiting import until

PLAIN = TlsClientConfig()
ANY_SERVER = TlsClientConfig(enable=True)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


async def _answered(server: RpcServer, tls: TlsClientConfig) -> bool:
    async with RpcClient(tls=tls) as client:
        try:
            body = b"x" * 100_000
            response = await client.invoke(address_of(server), Command(code=ECHO, body=body))
        except TransportError:
            return False
        assert response.body == body
        return True


@pytest.mark.parametrize(
    ("mode", "plain_served", "tls_served"),
    [
        (TlsMode.DISABLED, True, False),
        (TlsMode.PERMISSIVE, True, True),
        (TlsMode.ENFORCING, False, True),
    ],
)
async def test_each_mode_serves_the_clients_it_promises_to(
    mode: TlsMode, *, plain_served: bool, tls_served: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tls=TlsServerConfig(mode=mode)) as server:
        assert await _answered(server, PLAIN) is plain_served
        assert await _answered(server, ANY_SERVER) is tls_served

    bad = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(bad) == [plain_served, tls_served].count(False)


async def test_a_permissive_server_without_test_mode_and_certificate_serves_plain_text_only() -> (
    None
):
    async with serving(tls=TlsServerConfig(test_mode=False)) as server:
        assert await _answered(server, PLAIN)
        assert not await _answered(server, ANY_SERVER)


async def test_a_verifying_client_accepts_only_certificates_of_its_authority(
    tmp_path: Path, authority: Authority
) -> None:
    other = Authority(tmp_path, "other")
    issued = authority.issue("server")
    tls = TlsServerConfig(certificate_path=str(issued.certificate), key_path=str(issued.key))
    async with serving(tls=tls) as server:
        verifying = TlsClientConfig(
            enable=True, verify_server=True, trusted_path=str(authority.path)
        )
        assert await _answered(server, verifying)
        assert await _answered(server, ANY_SERVER)

        for mistrusting in (
            TlsClientConfig(enable=True, verify_server=True, trusted_path=str(other.path)),
            TlsClientConfig(enable=True, verify_server=True),
        ):
            async with RpcClient(tls=mistrusting) as client:
                with pytest.raises(ConnectError, match="certificate verify failed"):
                    await client.invoke(address_of(server), Command(code=ECHO))


async def test_replaced_certificates_serve_later_connections(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "next").mkdir()
    other = Authority(tmp_path / "next", "other")
    issued, replacement = authority.issue("server"), other.issue("server")
    trusting_old, trusting_new = (
        TlsClientConfig(enable=True, verify_server=True, trusted_path=str(trusted.path))
        for trusted in (authority, other)
    )
    tls = TlsServerConfig(certificate_path=str(issued.certificate), key_path=str(issued.key))
    clock = ManualClock()
    async with serving(tls=tls, clock=clock) as server, RpcClient(tls=trusting_old) as early:
        await early.invoke(address_of(server), Command(code=ECHO))

        replacement.certificate.replace(issued.certificate)
        await clock.advance(1000)
        # The key does not match yet: the old certificate stays in use, which is logged once.
        assert await _answered(server, trusting_old)
        await clock.advance(1000)
        assert await _answered(server, trusting_old)
        assert caplog.text.count("changed certificates not used") == 1

        replacement.key.replace(issued.key)
        # The files are checked once a second.
        assert await _answered(server, trusting_old)
        await clock.advance(1000)
        assert await _answered(server, trusting_new)
        assert not await _answered(server, trusting_old)

        assert (await early.invoke(address_of(server), Command(code=ECHO))).code == 0


async def test_replaced_authorities_decide_which_clients_are_served(
    tmp_path: Path, authority: Authority
) -> None:
    (tmp_path / "next").mkdir()
    other = Authority(tmp_path / "next", "other")
    issued = authority.issue("server")
    old, new = (
        TlsClientConfig(
            enable=True, certificate_path=str(client.certificate), key_path=str(client.key)
        )
        for client in (authority.issue("client"), other.issue("client"))
    )
    tls = TlsServerConfig(
        certificate_path=str(issued.certificate),
        key_path=str(issued.key),
        client_auth=ClientAuth.REQUIRE,
        trusted_path=str(authority.path),
    )
    clock = ManualClock()
    async with serving(tls=tls, clock=clock) as server:
        assert [await _answered(server, client) for client in (old, new)] == [True, False]

        other.path.replace(authority.path)
        await clock.advance(1000)

        assert [await _answered(server, client) for client in (old, new)] == [False, True]


async def test_the_self_signed_certificate_can_be_trusted_by_name(tmp_path: Path) -> None:
    certificate, key = self_signed_certificate(SystemClock())
    (tmp_path / "both.pem").write_bytes(certificate + key)
    (tmp_path / "certificate.pem").write_bytes(certificate)
    tls = TlsServerConfig(mode=TlsMode.ENFORCING, certificate_path=str(tmp_path / "both.pem"))
    async with serving(tls=tls) as server:
        trusting = TlsClientConfig(
            enable=True, verify_server=True, trusted_path=str(tmp_path / "certificate.pem")
        )

        assert await _answered(server, trusting)


@pytest.mark.parametrize("test_mode", [False, True], ids=["own certificate", "test mode"])
async def test_client_certificates_are_demanded_as_configured(
    tmp_path: Path, authority: Authority, *, test_mode: bool
) -> None:
    server_files = authority.issue("server")
    good = authority.issue("client")
    bad = Authority(tmp_path, "other").issue("stranger")
    clients = [
        ANY_SERVER,
        TlsClientConfig(
            enable=True, certificate_path=str(good.certificate), key_path=str(good.key)
        ),
        TlsClientConfig(enable=True, certificate_path=str(bad.certificate), key_path=str(bad.key)),
    ]
    for client_auth, served in (
        (ClientAuth.NONE, [True, True, True]),
        (ClientAuth.OPTIONAL, [True, True, False]),
        (ClientAuth.REQUIRE, [False, True, False]),
    ):
        tls = TlsServerConfig(
            certificate_path="" if test_mode else str(server_files.certificate),
            key_path="" if test_mode else str(server_files.key),
            client_auth=client_auth,
            trusted_path=str(authority.path),
        )
        async with serving(tls=tls) as server:
            assert [await _answered(server, client) for client in clients] == served


async def test_a_broken_certificate_fails_the_start_with_a_clear_error(
    tmp_path: Path, authority: Authority
) -> None:
    issued = authority.issue("server")
    locked = authority.issue("locked", password="secret")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("not a certificate")
    certificate, key, broken = str(issued.certificate), str(issued.key), str(garbage)

    for tls in (
        TlsServerConfig(certificate_path=broken, key_path=key),
        TlsServerConfig(certificate_path=certificate, key_path=broken),
        TlsServerConfig(certificate_path=certificate, key_path=str(locked.key)),
        TlsServerConfig(
            certificate_path=str(locked.certificate), key_path=str(locked.key), key_password="no"
        ),
        # Without a password: an error, no prompt on the terminal.
        TlsServerConfig(certificate_path=str(locked.certificate), key_path=str(locked.key)),
        TlsServerConfig(certificate_path=str(tmp_path / "none.pem"), key_path=key),
        TlsServerConfig(key_path=key),
    ):
        with pytest.raises(SettingsError, match=r"tls\.server\.certPath") as caught:
            RpcServer({}, tls=tls)
        assert "PEM" in caught.value.hint

    for auth in (
        TlsServerConfig(client_auth=ClientAuth.REQUIRE),
        TlsServerConfig(client_auth=ClientAuth.OPTIONAL, trusted_path=broken),
        TlsServerConfig(mode=TlsMode.ENFORCING, test_mode=False),
    ):
        with pytest.raises(SettingsError, match=r"tls\.server\."):
            RpcServer({}, tls=auth)
    for ours in (
        TlsClientConfig(enable=True, certificate_path=broken),
        TlsClientConfig(enable=True, verify_server=True, trusted_path=broken),
    ):
        with pytest.raises(SettingsError, match=r"tls\.client\."):
            RpcClient(tls=ours)


async def test_an_encrypted_key_is_read_with_its_password(authority: Authority) -> None:
    locked = authority.issue("locked", password="secret")
    tls = TlsServerConfig(
        certificate_path=str(locked.certificate), key_path=str(locked.key), key_password="secret"
    )
    async with serving(tls=tls) as server:
        assert await _answered(server, ANY_SERVER)


async def test_broken_files_do_not_matter_if_tls_is_disabled(tmp_path: Path) -> None:
    tls = TlsServerConfig(mode=TlsMode.DISABLED, certificate_path=str(tmp_path / "none.pem"))
    async with serving(tls=tls) as server:
        assert await _answered(server, PLAIN)


async def test_a_tls_hello_to_a_server_without_tls_is_closed_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        serving(tls=TlsServerConfig(mode=TlsMode.DISABLED)) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))

        assert await peer.rest() == b""
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


async def test_an_invalid_handshake_is_closed_and_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server, await RawPeer.connect(server.port) as peer:
        await peer.send(b"\x16" + b"nonsense" * 100)

        await peer.rest()
        assert await _answered(server, ANY_SERVER)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


async def test_a_handshake_that_does_not_end_times_out_after_10_seconds() -> None:
    clock = ManualClock()
    async with (
        serving(clock=clock) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        await until(lambda: server._acceptor.admitting == 1)
        await settle()
        await clock.advance(9_999)
        assert server._acceptor.admitting == 1

        await clock.advance(1)

        assert await peer.rest() == b""
        await until(lambda: server._acceptor.admitting == 0)


async def test_a_peer_that_vanishes_in_the_handshake_leaves_nothing() -> None:
    async with serving() as server:
        for vanish in (RawPeer.close, RawPeer.reset):
            peer = await RawPeer.connect(server.port)
            await peer.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            await until(lambda: server._acceptor.admitting == 1)
            vanish(peer)
            await until(lambda: server._acceptor.admitting == 0)

        assert not server.connections


async def test_both_sides_call_each_other_and_defer_over_tls() -> None:
    gate = Gate()
    async with (
        serving({SLOW: gate.handle}, tls=TlsServerConfig(mode=TlsMode.ENFORCING)) as server,
        RpcClient(
            tls=ANY_SERVER, handlers={ECHO: lambda _, request: request.reply(remark="client")}
        ) as client,
    ):
        call = asyncio.create_task(client.invoke(address_of(server), Command(code=SLOW)))
        await gate.wait_entered()
        (connection,) = server.connections
        assert (await connection.ask(Command(code=ECHO), PATIENCE_MS)).remark == "client"
        gate.open()

        assert (await call).code == 0
        large = Command(code=LARGE, fields={"bytes": "16000000"})
        assert len((await client.invoke(address_of(server), large)).body) == 16_000_000


async def _slow_reader(server: RpcServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect by TLS with a receive buffer that does not grow: what is unread fills the server's.

    A buffer of the system's own choice may grow until it holds all that a test has sent.
    """
    peer = await RawPeer.connect(server.port, receive_buffer_bytes=65536)
    return await asyncio.open_connection(
        sock=peer.socket, ssl=trusting_nothing(), server_hostname="localhost", limit=1024
    )


async def test_a_slow_reader_over_tls_holds_the_server_back_and_gets_everything() -> None:
    config = ServerConfig(write_high_water_bytes=65536)
    async with serving(config=config) as server:
        reader, writer = await _slow_reader(server)
        request = Command(code=LARGE, fields={"bytes": "300000"})
        for opaque in range(100):
            request.opaque = opaque
            writer.write(request.encode())
        await until(lambda: any(c.writing_paused for c in server.connections))
        (connection,) = server.connections
        await settle(200)
        assert connection._transport.get_write_buffer_size() < 1_000_000
        assert await _answered(server, ANY_SERVER)

        for opaque in range(100):
            head = await reader.readexactly(8)
            rest = await reader.readexactly(int.from_bytes(head[:4], "big") - 4)
            assert f'"opaque":{opaque},'.encode() in rest[:300]
            assert len(rest) > 300_000
        writer.close()
        await writer.wait_closed()


async def test_a_slow_reader_over_tls_is_cut_when_idle_and_at_a_stop() -> None:
    clock = ManualClock()
    async with serving(clock=clock) as server:
        for stop in (False, True):
            _, writer = await _slow_reader(server)
            for _ in range(10):
                writer.write(Command(code=LARGE, fields={"bytes": "1000000"}).encode())
            await until(lambda: any(c.writing_paused for c in server.connections))
            await settle()
            if stop:
                stopping = asyncio.create_task(server.stop())
                await settle()
                await clock.advance(LOCAL.shutdown_grace_seconds * 1000)
                await stopping
            else:
                await clock.advance(140_000)
            await until(lambda: not server.connections)
            writer.transport.abort()
            await asyncio.wait({asyncio.ensure_future(writer.wait_closed())})
