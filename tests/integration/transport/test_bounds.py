"""Bounds: requests above one are refused clearly, and everything works afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from orbitmq.errors import (
    ConnectionLostError,
    OrbitError,
    TooManyCallsError,
    TransportError,
    WriteBlockedError,
)
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import FRAME_BYTES_MAX
from orbitmq.transport.config import ClientConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.transport.raw_peer import RawPeer, raw_serving
from tests.integration.transport.serving import (
    ECHO,
    LOCAL,
    SLOW,
    Gate,
    address_of,
    assert_free,
    serving,
)
from tests.waiting import until

MIB = 1024 * 1024
SMALL = replace(
    LOCAL, connection_work_bytes_max=MIB, total_work_bytes_max=MIB, write_high_water_bytes=65536
)


async def _stuck(server: RpcServer) -> tuple[RawPeer, Connection]:
    """Connect a peer that does not read, and write to it until writing is paused."""
    peer = await RawPeer.connect(server.port, receive_buffer_bytes=4096)
    before = server.connections
    await peer.ask(Command(code=ECHO))
    (connection,) = server.connections - before
    while not connection.writing_paused:
        connection.write(Command(code=ECHO, flag=2, body=bytes(100_000)).encode())
    return peer, connection


# --- requests from a server -------------------------------------------------------------------


async def test_a_server_has_at_most_256_one_way_requests_waiting_for_peers_that_do_not_read() -> (
    None
):
    async with serving() as server, await RawPeer.connect(server.port) as healthy:
        await healthy.ask(Command(code=ECHO))
        (to_healthy,) = server.connections
        stuck, connection = await _stuck(server)
        for number in range(256):
            connection.call_oneway(Command(code=ECHO, fields={"n": str(number)}))
        assert server.calls.oneway.in_flight == 256

        with pytest.raises(TooManyCallsError, match="256 one-way"):
            connection.call_oneway(Command(code=ECHO))
        to_healthy.call_oneway(Command(code=ECHO))
        assert (await healthy.read()).is_oneway

        numbers: list[str] = []
        while len(numbers) < 256:
            command = await stuck.read()
            numbers += command.fields.values()
        assert numbers == [str(number) for number in range(256)]
        await until(lambda: server.calls.oneway.in_flight == 0)
        connection.call_oneway(Command(code=ECHO))
        assert (await stuck.read()).is_oneway
        stuck.close()


async def test_one_way_requests_to_a_lost_peer_no_longer_count() -> None:
    async with serving() as server:
        stuck, connection = await _stuck(server)
        for _ in range(256):
            connection.call_oneway(Command(code=ECHO))

        stuck.reset()

        await until(lambda: server.calls.oneway.in_flight == 0)
        with pytest.raises(ConnectionLostError):
            connection.call_oneway(Command(code=ECHO))


async def test_a_server_has_at_most_64_unanswered_requests_to_its_clients() -> None:
    async with serving() as server:
        peers = [await RawPeer.connect(server.port) for _ in range(2)]
        for peer in peers:
            await peer.ask(Command(code=ECHO))
        outcomes: list[Command | OrbitError] = []
        connections = list(server.connections)
        for number in range(64):
            connections[number % 2].call(Command(code=ECHO), 60_000, outcomes.append)

        for connection in connections:
            with pytest.raises(TooManyCallsError, match="64 unanswered"):
                connection.call(Command(code=ECHO), 60_000, outcomes.append)
        for peer in peers:
            await peer.send((await peer.read()).reply())
        await until(lambda: server.calls.unanswered.in_flight == 62)
        connections[0].call(Command(code=ECHO), 60_000, outcomes.append)
        for peer in peers:
            peer.reset()
        await until(lambda: server.calls.unanswered.in_flight == 0)

        assert len(outcomes) == 65
        assert len([lost for lost in outcomes if isinstance(lost, ConnectionLostError)]) == 63


# --- requests that are answered later ---------------------------------------------------------


async def test_deferred_requests_over_the_bound_of_a_connection_are_answered_busy() -> None:
    gate = Gate()
    config = replace(SMALL, total_work_bytes_max=64 * MIB)
    async with (
        serving({SLOW: gate.handle}, config=config) as server,
        await RawPeer.connect(server.port) as peer,
        await RawPeer.connect(server.port) as other,
    ):
        await peer.send(*[Command(code=SLOW, opaque=number) for number in range(300)])
        refused = [await peer.read() for _ in range(44)]
        assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}
        assert {answer.opaque for answer in refused} == set(range(256, 300))
        assert server.kept_bytes.taken == MIB
        await other.send(Command(code=SLOW))
        await gate.wait_entered(257)

        gate.open()
        taken = [await peer.read() for _ in range(256)]
        assert {answer.opaque for answer in taken} == set(range(256))
        assert {answer.code for answer in taken} == {0}
        await other.read()
        await until(lambda: server.kept_bytes.taken == 0)
        assert (await peer.ask(Command(code=SLOW))).code == 0


async def test_deferred_requests_over_the_bound_of_all_connections_are_answered_busy() -> None:
    gate = Gate()
    config = replace(SMALL, connection_work_bytes_max=64 * MIB)
    async with (
        serving({SLOW: gate.handle}, config=config) as server,
        await RawPeer.connect(server.port) as peer,
        await RawPeer.connect(server.port) as other,
    ):
        await peer.send(*[Command(code=SLOW)] * 256)
        await gate.wait_entered(256)

        assert (await other.ask(Command(code=SLOW))).code == ResponseCode.SYSTEM_BUSY
        assert (await other.ask(Command(code=ECHO))).code == 0
        gate.open()
        await until(lambda: server.kept_bytes.taken == 0)

        assert (await other.ask(Command(code=SLOW))).code == 0


async def test_a_large_deferred_request_counts_with_its_bytes_and_only_once() -> None:
    gate = Gate()
    async with (
        serving({SLOW: gate.handle}, config=SMALL) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        request = Command(code=SLOW, body=bytes(700_000))
        await peer.send(request)
        await gate.wait_entered()
        assert server.kept_bytes.taken == len(request.encode())

        assert (await peer.ask(request)).code == ResponseCode.SYSTEM_BUSY
        gate.open()
        assert (await peer.read()).code == 0
        await until(lambda: server.kept_bytes.taken == 0)
        assert (await peer.ask(request)).code == 0


async def test_deferred_answers_to_a_slow_reader_are_bounded_and_all_sent() -> None:
    gate = Gate()
    async with (
        serving({SLOW: gate.handle}, config=SMALL) as server,
        await RawPeer.connect(server.port, receive_buffer_bytes=4096) as peer,
    ):
        request = Command(code=SLOW, fields={"bytes": "200000"})
        for opaque in range(100):
            request.opaque = opaque
            await peer.send(request)
        await gate.wait_entered(100)

        gate.open()
        await until(lambda: server.kept_bytes.taken > 4 * 200_000)
        (connection,) = server.connections
        await until(lambda: len(server.requests.deferred) <= 5)
        assert server.kept_bytes.taken <= MIB
        assert connection._transport.get_write_buffer_size() < MIB

        answers = [await peer.read() for _ in range(100)]
        assert {answer.opaque for answer in answers} == set(range(100))
        full = [answer for answer in answers if answer.code == 0]
        assert len(full) >= 6
        assert {len(answer.body) for answer in full} == {200_000}
        assert {answer.code for answer in answers} == {0, ResponseCode.SYSTEM_BUSY}
        await until(lambda: server.kept_bytes.taken == 0)
        assert (await peer.ask(Command(code=ECHO))).code == 0


async def test_deferred_answers_to_a_peer_that_never_reads_are_dropped_with_it() -> None:
    gate = Gate()
    async with serving({SLOW: gate.handle}, config=SMALL) as server:
        peer = await RawPeer.connect(server.port, receive_buffer_bytes=4096)
        await peer.send(*[Command(code=SLOW, fields={"bytes": "300000"})] * 20)
        await gate.wait_entered(20)
        gate.open()
        await until(lambda: server.kept_bytes.taken > 600_000)

        peer.reset()

        await until(lambda: server.kept_bytes.taken == 0)


# --- incomplete frames ------------------------------------------------------------------------


def _parts(request: Command, first_bytes: int) -> tuple[bytes, bytes]:
    frame = request.encode()
    return frame[:first_bytes], frame[first_bytes:]


async def test_a_frame_over_the_bound_is_answered_busy_before_it_is_complete() -> None:
    async with (
        serving(config=SMALL) as server,
        await RawPeer.connect(server.port) as holder,
        await RawPeer.connect(server.port) as other,
    ):
        head, tail = _parts(Command(code=ECHO, body=bytes(1_000_000)), 900_000)
        await holder.send(head)
        await until(lambda: server.kept_bytes.taken == 900_000 - 4096)
        refused_head, refused_tail = _parts(
            Command(code=ECHO, opaque=5, body=bytes(1_000_000)), 300_000
        )

        await other.send(refused_head)
        answer = await other.read()
        assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_BUSY, 5)
        await other.send(refused_tail, Command(code=ECHO, opaque=6, body=b"next"))
        answer = await other.read()
        assert (answer.code, answer.opaque, answer.body) == (0, 6, b"next")

        await holder.send(tail)
        assert len((await holder.read()).body) == 1_000_000
        assert_free(server)
        await other.send(refused_head, refused_tail)
        assert (await other.read()).code == 0


async def test_a_refused_one_way_request_is_skipped_without_an_answer() -> None:
    async with (
        serving(config=SMALL) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.send(Command(code=ECHO, flag=2, body=bytes(3_000_000)))

        assert (await peer.ask(Command(code=ECHO, opaque=1))).opaque == 1
        assert_free(server)


@asynccontextmanager
async def full_server() -> AsyncIterator[tuple[RpcServer, RawPeer, Gate]]:
    """A server whose bound is reached until a gate opens, and an uninvolved peer."""
    gate = Gate()
    async with (
        serving({SLOW: gate.handle}, config=SMALL) as server,
        await RawPeer.connect(server.port) as holder,
        await RawPeer.connect(server.port) as other,
    ):
        await holder.send(*[Command(code=SLOW)] * 256)
        await gate.wait_entered(256)
        assert server.kept_bytes.taken == MIB
        yield server, other, gate


async def test_small_requests_in_pieces_are_served_while_the_bound_is_reached() -> None:
    async with full_server() as (server, other, gate):
        head, tail = _parts(Command(code=ECHO, body=bytes(3000)), 2500)
        await other.send(head)
        await until(lambda: any(c._incomplete.kept_bytes for c in server.connections))
        await other.send(tail)

        assert (await other.read()).code == 0
        gate.open()
        await until(lambda: server.kept_bytes.taken == 0)


async def test_many_small_requests_at_once_are_served_while_the_bound_is_reached() -> None:
    async with full_server() as (server, other, gate):
        await other.send(*[Command(code=ECHO, opaque=opaque) for opaque in range(2000)])

        assert [(await other.read()).opaque for _ in range(2000)] == list(range(2000))
        gate.open()
        await until(lambda: server.kept_bytes.taken == 0)


async def test_a_header_that_does_not_fit_the_bound_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with full_server() as (server, other, gate):
        await other.send(Command(code=ECHO, fields={"x": "y" * 50_000}).encode()[:20_000])

        assert await other.rest() == b""
        gate.open()
        await until(lambda: server.kept_bytes.taken == 0)
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "is exhausted" in warnings[0].getMessage()


async def test_a_frame_one_byte_above_the_limit_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        serving() as server,
        await RawPeer.connect(server.port) as peer,
        await RawPeer.connect(server.port) as other,
    ):
        frame = (FRAME_BYTES_MAX - 3).to_bytes(4, "big")
        await peer.send(Command(code=ECHO, opaque=4), frame)

        assert [answer.opaque for answer in await peer.rest_commands()] == [4]
        assert (await other.ask(Command(code=ECHO))).code == 0
    assert [r.levelname for r in caplog.records if r.levelno >= logging.WARNING] == ["WARNING"]


# --- clients ----------------------------------------------------------------------------------


async def test_a_client_has_at_most_its_bound_of_calls_unanswered() -> None:
    config = ClientConfig(async_calls_max=3)
    gate = Gate()
    async with (
        serving({SLOW: gate.handle}) as server,
        RpcClient(config=config) as client,
    ):
        calls = [
            asyncio.create_task(client.invoke(address_of(server), Command(code=SLOW)))
            for _ in range(3)
        ]
        await gate.wait_entered(3)
        outcomes: list[Command | OrbitError] = []

        with pytest.raises(TooManyCallsError):
            await client.invoke(address_of(server), Command(code=SLOW))
        client.invoke_callback(address_of(server), Command(code=SLOW), outcomes.append)
        await until(lambda: outcomes)
        assert isinstance(outcomes[0], TooManyCallsError)
        gate.open()
        await asyncio.gather(*calls)

        assert (await client.invoke(address_of(server), Command(code=ECHO))).code == 0


async def test_a_client_has_at_most_its_bound_of_one_way_requests_waiting() -> None:
    config = ClientConfig(oneway_calls_max=2)
    async with raw_serving() as server, RpcClient(config=config) as client:
        calls = [
            asyncio.create_task(client.invoke_oneway(server.address, Command(code=ECHO)))
            for _ in range(3)
        ]

        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [
            type(None),
            type(None),
            TooManyCallsError,
        ]
        await client.invoke_oneway(server.address, Command(code=ECHO))
        assert client.calls.oneway.in_flight == 0


async def test_calls_that_cannot_wait_fail_when_too_much_is_unsent() -> None:
    config = ClientConfig(write_high_water_bytes=65536, write_bytes_max=1_000_000)
    async with (
        raw_serving(receive_buffer_bytes=4096) as server,
        RpcClient(config=config) as client,
    ):
        connecting = asyncio.create_task(client.connection(server.address))
        peer = await server.accept()
        connection = await connecting

        while connection._transport.get_write_buffer_size() <= 1_000_000:
            connection.call_oneway(Command(code=ECHO, body=bytes(100_000)))
        with pytest.raises(WriteBlockedError):
            connection.call_oneway(Command(code=ECHO))

        assert connection._transport.get_write_buffer_size() < 1_200_000
        assert client.calls.oneway.in_flight > 0
        reading = asyncio.create_task(peer.rest())
        await until(lambda: client.calls.oneway.in_flight == 0)
        connection.call_oneway(Command(code=ECHO))
        await client.stop()
        await reading


async def test_an_answer_over_the_clients_bound_fails_its_call_at_once() -> None:
    async with raw_serving() as server, RpcClient() as client:
        client.kept_bytes.bytes_max = 100_000
        call = asyncio.create_task(client.invoke(server.address, Command(code=ECHO)))
        peer = await server.accept()
        head, tail = _parts((await peer.read()).reply(body=bytes(500_000)), 300_000)
        await peer.send(head)

        with pytest.raises(TransportError, match="was discarded"):
            await call
        again = asyncio.create_task(client.invoke(server.address, Command(code=ECHO)))
        await peer.send(tail)
        await peer.send((await peer.read()).reply(body=b"small"))

        assert (await again).body == b"small"
        assert client.kept_bytes.taken == 0


# --- turns ------------------------------------------------------------------------------------


async def test_thousands_of_requests_of_one_peer_do_not_delay_others() -> None:
    order: list[str] = []

    def note(_: Connection, request: Command) -> Command:
        order.append(request.fields["from"])
        return request.reply()

    async with (
        serving({SLOW: note}) as server,
        await RawPeer.connect(server.port) as greedy,
        await RawPeer.connect(server.port) as modest,
    ):
        await greedy.ask(Command(code=ECHO))
        await modest.ask(Command(code=ECHO))

        await greedy.send(Command(code=SLOW, fields={"from": "greedy"}).encode() * 5000)
        await modest.ask(Command(code=SLOW, fields={"from": "modest"}))
        await until(lambda: len(order) == 5001)

    assert order.index("modest") < 4000
