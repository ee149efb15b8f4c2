"""The listening socket: what is accepted, what is refused, and stopping."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import SettingsError, StateError
from orbitmq.protocol.command import Command
from orbitmq.transport.acceptor import Acceptor
from orbitmq.transport.config import ServerConfig, TlsMode, TlsServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.connections import Connections
from orbitmq.transport.tls import TlsServer
from tests.integration.transport.raw_peer import RawPeer, trusting_nothing
from tests.integration.transport.serving import ECHO
from tests.unit.transport.pairs import Parts
from tests.waiting import until


class Site:
    """An acceptor with its collaborators."""

    def __init__(self, config: ServerConfig | None = None, mode: str = "permissive") -> None:
        self.parts = Parts()
        self.clock: ManualClock = self.parts.clock
        self.connections = Connections(
            idle_seconds_max=120,
            send_buffer_bytes=0,
            receive_buffer_bytes=0,
            clock=self.clock,
            listener=None,
        )
        self.acceptor = Acceptor(
            config or ServerConfig(bind_address="127.0.0.1"),
            tls=TlsServer(TlsServerConfig(mode=TlsMode(mode)), self.clock),
            clock=self.clock,
            connections=self.connections,
            new_connection=self._new_connection,
        )

    def _new_connection(self) -> Connection:
        connection = self.parts.new_connection()
        connection._on_open = self.connections.opened
        connection._on_close = self.connections.closed
        return connection

    async def stop(self) -> None:
        await self.acceptor.stop()
        await self.connections.stop(0)


@pytest.mark.parametrize("mode", ["disabled", "permissive"])
async def test_an_accepted_socket_becomes_a_connection(mode: str) -> None:
    site = Site(mode=mode)
    with pytest.raises(StateError, match="does not listen"):
        assert site.acceptor.port
    site.acceptor.start()
    async with await RawPeer.connect(site.acceptor.port) as peer:
        assert (await peer.ask(Command(code=ECHO))).code == 0
        assert len(site.connections) == 1
        assert site.acceptor.admitting == 0
        await site.stop()
        assert await peer.rest() == b""


async def test_a_peer_that_begins_with_tls_is_answered_in_tls() -> None:
    site = Site()
    site.acceptor.start()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", site.acceptor.port, ssl=trusting_nothing()
    )
    writer.write(Command(code=ECHO, body=b"secret").encode())

    assert (await reader.readuntil(b"secret")).endswith(b"secret")

    writer.transport.abort()
    await asyncio.wait({asyncio.ensure_future(writer.wait_closed())})
    await until(lambda: len(site.connections) == 0)
    await site.stop()


async def test_a_peer_that_breaks_the_tls_mode_is_refused_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(mode="enforcing")
    site.acceptor.start()
    for first in (b"\0\0\0\4", b"\x16nonsense that is no handshake at all"):
        caplog.clear()
        async with await RawPeer.connect(site.acceptor.port) as peer:
            await peer.send(first)
            await peer.rest()
        await until(lambda: site.acceptor.admitting == 0)
        assert [r.levelno for r in caplog.records if r.levelno >= logging.INFO] == [logging.WARNING]
    await site.stop()


async def test_silent_peers_and_endless_handshakes_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes] = []
    context_for = TlsServer.context_for

    def spy(tls: TlsServer, first_byte: bytes) -> ssl.SSLContext | None:
        seen.append(first_byte)
        return context_for(tls, first_byte)

    monkeypatch.setattr(TlsServer, "context_for", spy)
    site = Site()
    site.acceptor.start()
    async with (
        await RawPeer.connect(site.acceptor.port) as silent,
        await RawPeer.connect(site.acceptor.port) as greeting,
    ):
        await greeting.send(b"\x16\x03\x01\x02\x00")
        await until(lambda: site.acceptor.admitting == 2 and seen == [b"\x16"])
        await settle()
        await site.clock.advance(10_000)
        await greeting.rest()
        assert site.acceptor.admitting == 1
        await site.clock.advance(110_000)
        await silent.rest()
        assert site.acceptor.admitting == 0
    await site.stop()


async def test_a_peer_that_disconnects_before_its_first_byte_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    site.acceptor.start()
    for vanish in (RawPeer.close, RawPeer.reset):
        vanish(await RawPeer.connect(site.acceptor.port))
        await settle()
        await until(lambda: site.acceptor.admitting == 0)
        await until(lambda: len(site.connections) == 0)
    await site.stop()

    assert not [r for r in caplog.records if r.levelno >= logging.INFO]


async def test_connections_above_the_limit_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(ServerConfig(bind_address="127.0.0.1", connections_max=1))
    site.acceptor.start()
    async with (
        await RawPeer.connect(site.acceptor.port) as first,
        await RawPeer.connect(site.acceptor.port) as second,
    ):
        assert await second.rest() == b""
        assert (await first.ask(Command(code=ECHO))).code == 0
        await site.stop()

    assert caplog.text.count("limit=serverConnectionsMax") == 1


class Failing:
    """A listening socket whose accept fails with given errors."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.failures: list[OSError] = []

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            raise self.failures.pop(0)
        return self._listening.accept()

    def fileno(self) -> int:
        return self._listening.fileno()

    def getsockname(self) -> tuple[str, int]:
        name: tuple[str, int] = self._listening.getsockname()
        return name

    def close(self) -> None:
        self._listening.close()


async def test_a_broken_connection_in_the_backlog_does_not_block_the_others() -> None:
    site = Site()
    site.acceptor.start()
    assert site.acceptor._listening is not None
    failing = Failing(site.acceptor._listening)
    failing.failures = [OSError(errno.EPROTO, "Protocol error"), ConnectionAbortedError()]
    site.acceptor._listening = failing  # type: ignore[assignment]  # a fault
    async with await RawPeer.connect(site.acceptor.port) as peer:
        assert (await peer.ask(Command(code=ECHO))).code == 0
        assert failing.failures == []
        await site.stop()


async def test_out_of_file_descriptors_accepting_pauses_for_a_second_or_until_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for waits in (True, False):
        site = Site()
        site.acceptor.start()
        assert site.acceptor._listening is not None
        failing = Failing(site.acceptor._listening)
        failing.failures = [OSError(errno.EMFILE, "Too many open files")]
        site.acceptor._listening = failing  # type: ignore[assignment]  # a fault
        caplog.clear()
        async with await RawPeer.connect(site.acceptor.port) as peer:
            await until(lambda: "accepting paused" in caplog.text)
            await settle()
            assert site.acceptor.admitting == 0
            if waits:
                await site.clock.advance(1000)
                assert (await peer.ask(Command(code=ECHO))).code == 0
            await site.stop()
            await site.clock.advance(1000)


async def test_an_unavailable_address_is_a_clear_error() -> None:
    site = Site()
    site.acceptor.start()
    taken = ServerConfig(bind_address="127.0.0.1", listen_port=site.acceptor.port)

    with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{taken.listen_port}: "):
        Site(taken).acceptor.start()

    await site.stop()


async def test_a_stop_drops_connections_at_every_stage_of_admission() -> None:
    for turns in range(10):
        site = Site()
        site.acceptor.start()
        peers = [await RawPeer.connect(site.acceptor.port) for _ in range(3)]
        await peers[1].send(Command(code=ECHO))
        await peers[2].send(b"\x16\x03\x01\x02\x00")
        await settle(turns)

        await site.stop()

        assert site.acceptor.admitting == 0
        assert len(site.connections) == 0
        for peer in peers:
            await peer.rest()
            peer.close()


async def test_an_internal_error_during_admission_is_logged_and_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    site.acceptor.start()

    def broken() -> Connection:
        raise ZeroDivisionError("inside")

    site.acceptor._new_connection = broken
    peer = await RawPeer.connect(site.acceptor.port)
    await peer.send(Command(code=ECHO))
    await peer.rest()
    await until(lambda: site.acceptor.admitting == 0)
    peer.close()
    await site.stop()

    assert caplog.text.count("task failed") == 1
