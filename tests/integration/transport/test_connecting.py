"""One connection per address: made once, kept, made again; and how that can fail."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import (
    CallTimeoutError,
    ConnectError,
    OrbitError,
    SettingsError,
    StateError,
)
from orbitmq.protocol.command import Command
from orbitmq.transport.config import ClientConfig, ServerConfig, TlsClientConfig
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.transport.raw_peer import RawPeer, RawServer, raw_serving
from tests.integration.transport.serving import ECHO, LOCAL, Events, address_of, serving
from tests.waiting import until


async def test_200_concurrent_callers_share_one_connection() -> None:
    events = Events()
    async with serving(listener=events) as server, RpcClient() as client:
        responses = await asyncio.gather(
            *(
                client.invoke(address_of(server), Command(code=ECHO, body=str(number).encode()))
                for number in range(200)
            )
        )

        assert [int(response.body) for response in responses] == list(range(200))
        assert events.seen == ["open"]
        assert client.connected == {address_of(server)}
        await client.invoke(address_of(server), Command(code=ECHO))
        assert events.seen == ["open"]


async def test_a_connection_lost_by_a_restart_of_the_server_is_made_again(own_port: int) -> None:
    config = replace(LOCAL, listen_port=own_port)
    async with RpcClient() as client:
        async with serving(config=config) as server:
            address = address_of(server)
            await client.invoke(address, Command(code=ECHO))
        await until(lambda: not client.connected)
        with pytest.raises(ConnectError, match=address):
            await client.invoke(address, Command(code=ECHO))

        async with serving(config=config):
            assert (await client.invoke(address, Command(code=ECHO))).code == 0


async def test_a_failed_connection_fails_all_its_callers_and_the_next_caller_retries(
    own_port: int,
) -> None:
    address = f"127.0.0.1:{own_port}"
    async with RpcClient() as client:
        failures = await asyncio.gather(
            *(client.invoke(address, Command(code=ECHO)) for _ in range(50)),
            return_exceptions=True,
        )
        assert {type(failure) for failure in failures} == {ConnectError}

        async with serving(config=replace(LOCAL, listen_port=own_port)):
            assert (await client.invoke(address, Command(code=ECHO))).code == 0


class Hanging:
    """A server whose backlog is full: connecting to it never ends."""

    def __init__(self) -> None:
        self.server = RawServer(backlog=0)
        self.address = self.server.address
        self._fillers: list[socket.socket] = []

    async def fill(self) -> None:
        # Linux accepts one more than the backlog; the next one hangs.
        for _ in range(2):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.server.port))
            self._fillers.append(filler)
        await settle()

    def close(self) -> None:
        self.server.close()
        for filler in self._fillers:
            filler.close()


async def test_a_cancelled_caller_does_not_cancel_the_connection_for_others() -> None:
    async with raw_serving() as server, RpcClient() as client:
        first = asyncio.create_task(client.invoke(server.address, Command(code=ECHO)))
        others = [
            asyncio.create_task(client.invoke(server.address, Command(code=ECHO))) for _ in range(5)
        ]
        await settle(1)

        first.cancel()
        peer = await server.accept()
        for _ in others:
            await peer.send((await peer.read()).reply())

        assert [(await other).code for other in others] == [0] * 5
        assert first.cancelled()


async def test_a_connection_that_fails_after_all_callers_gave_up_logs_nothing() -> None:
    clock = ManualClock()
    hanging = Hanging()
    await hanging.fill()
    async with RpcClient(clock=clock) as client:
        callers = [
            asyncio.create_task(client.invoke(hanging.address, Command(code=ECHO)))
            for _ in range(3)
        ]
        await settle()
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)

        await clock.advance(3000)

        assert all(caller.cancelled() for caller in callers)
    hanging.close()


async def test_connecting_ends_at_the_connect_timeout_or_the_callers_whichever_is_first() -> None:
    clock = ManualClock()
    hanging = Hanging()
    await hanging.fill()
    config = ClientConfig(connect_timeout_ms=2000)
    async with RpcClient(clock=clock, config=config) as client:
        patient = asyncio.create_task(
            client.invoke(hanging.address, Command(code=ECHO), timeout_ms=60_000)
        )
        hasty = asyncio.create_task(
            client.invoke(hanging.address, Command(code=ECHO), timeout_ms=500)
        )
        await settle()

        await clock.advance(500)
        with pytest.raises(ConnectError, match="within 500 ms"):
            await hasty
        assert not patient.done()
        await clock.advance(1500)
        with pytest.raises(ConnectError, match="within 2000 ms"):
            await patient
    hanging.close()


async def test_a_client_that_stops_while_connecting_fails_the_waiting_calls() -> None:
    hanging = Hanging()
    await hanging.fill()
    client = RpcClient(clock=ManualClock())
    await client.start()
    outcomes: list[Command | OrbitError] = []
    call = asyncio.create_task(client.invoke(hanging.address, Command(code=ECHO)))
    client.invoke_callback(hanging.address, Command(code=ECHO), outcomes.append)
    await settle()

    await client.stop()

    with pytest.raises(ConnectError, match="the client is stopping"):
        await call
    assert [type(outcome) for outcome in outcomes] == [ConnectError]
    with pytest.raises(StateError, match="stopped"):
        await client.invoke(hanging.address, Command(code=ECHO))
    with pytest.raises(StateError, match="stopped"):
        await client.connection(hanging.address)
    hanging.close()


async def _forward(source: RawPeer, target: RawPeer, opened: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    while chunk := await loop.sock_recv(source.socket, 1 << 16):
        await opened.wait()
        await loop.sock_sendall(target.socket, chunk)


async def test_one_deadline_covers_connecting_and_the_answer() -> None:
    clock = ManualClock()
    tls = TlsClientConfig(enable=True)
    config = ClientConfig(shutdown_grace_seconds=0)
    never = asyncio.Event()

    async def hang(*_: object) -> None:
        await never.wait()

    async with (
        serving({ECHO: hang}) as server,
        raw_serving() as between,
        RpcClient(clock=clock, tls=tls, config=config) as client,
    ):
        opened = asyncio.Event()
        call = asyncio.create_task(
            client.invoke(between.address, Command(code=ECHO), timeout_ms=1000)
        )
        near = await between.accept()
        async with await RawPeer.connect(server.port) as far:
            forwards = [
                asyncio.create_task(_forward(near, far, opened)),
                asyncio.create_task(_forward(far, near, opened)),
            ]

            await clock.advance(600)
            assert not client.connected
            opened.set()
            await until(lambda: client.calls.unanswered.in_flight == 1)
            await clock.advance(399)
            assert not call.done()
            await clock.advance(1)

            with pytest.raises(CallTimeoutError):
                await call
            for forward in forwards:
                forward.cancel()
            await asyncio.wait(forwards)
        never.set()


async def test_a_call_waits_for_a_slow_reader_within_its_deadline() -> None:
    clock = ManualClock()
    config = ClientConfig(write_high_water_bytes=65536, send_buffer_bytes=65536)
    async with (
        raw_serving(receive_buffer_bytes=4096) as server,
        RpcClient(clock=clock, config=config) as client,
    ):
        connecting = asyncio.create_task(client.connection(server.address))
        peer = await server.accept()
        connection = await connecting
        outcomes: list[Command | OrbitError] = []
        while not connection.writing_paused:
            await client.invoke_oneway(server.address, Command(code=ECHO, body=bytes(30_000)))

        call = asyncio.create_task(
            client.invoke(server.address, Command(code=ECHO), timeout_ms=1000)
        )
        oneway = asyncio.create_task(
            client.invoke_oneway(server.address, Command(code=ECHO), timeout_ms=2000)
        )
        client.invoke_callback(server.address, Command(code=ECHO), outcomes.append, timeout_ms=9000)
        await settle()
        assert client.calls.unanswered.in_flight == 0
        assert client.calls.oneway.in_flight == 1
        await clock.advance(1000)
        with pytest.raises(CallTimeoutError):
            await call
        await clock.advance(1000)
        with pytest.raises(CallTimeoutError):
            await oneway

        while (asked := await peer.read()).is_oneway:
            pass
        await peer.send(asked.reply(remark="read at last"))
        await until(lambda: outcomes)
        assert isinstance(outcomes[0], Command)
        assert client.calls.oneway.in_flight == 0


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70, "a..b", "no\0host"])
async def test_a_host_without_an_address_is_a_connect_error(host: str) -> None:
    async with RpcClient() as client:
        with pytest.raises(ConnectError):
            await client.invoke(f"{host}:9876", Command(code=ECHO))

        assert not client.connected


async def test_an_invalid_address_is_a_settings_error() -> None:
    async with RpcClient() as client:
        with pytest.raises(SettingsError, match="is not an address"):
            await client.invoke("nowhere", Command(code=ECHO))


async def test_an_ipv6_address_works_on_both_sides() -> None:
    async with serving(config=ServerConfig(bind_address="::1")) as server, RpcClient() as client:
        address = f"[::1]:{server.port}"

        assert (await client.invoke(address, Command(code=ECHO))).code == 0

        (connection,) = server.connections
        assert connection.address.startswith("[::1]:")
        assert client.connected == {address}


async def test_socket_options_are_set_on_both_sides() -> None:
    server_config = ServerConfig(send_buffer_bytes=100_000, receive_buffer_bytes=120_000)
    client_config = ClientConfig(send_buffer_bytes=140_000, receive_buffer_bytes=160_000)
    async with (
        serving(config=server_config) as server,
        RpcClient(config=client_config) as client,
    ):
        await client.invoke(address_of(server), Command(code=ECHO))
        (theirs,) = server.connections
        ours = await client.connection(address_of(server))

        for connection, sizes in ((theirs, (100_000, 120_000)), (ours, (140_000, 160_000))):
            connected: socket.socket = connection._transport.get_extra_info("socket")
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
            found = (
                connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
                connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
            )
            # Linux reserves twice what is asked for.
            assert found in {sizes, (sizes[0] * 2, sizes[1] * 2)}


async def test_a_server_that_closes_at_once_gives_a_clear_error_and_no_stale_connection() -> None:
    async with raw_serving() as server, RpcClient() as client:
        for _ in range(20):
            call = asyncio.create_task(client.invoke(server.address, Command(code=ECHO)))
            (await server.accept()).reset()

            with pytest.raises(OrbitError) as caught:
                await call

            assert caught.value.retryable
            await until(lambda: not client.connected)
