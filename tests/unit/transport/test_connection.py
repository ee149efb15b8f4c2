"""One connection: chunks, back-pressure, calls, and every way it can end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import (
    CallTimeoutError,
    ConnectionLostError,
    FrameTooLargeError,
    OrbitError,
    TooManyCallsError,
    TransportError,
    WriteBlockedError,
)
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.transport.connection import Connection
from orbitmq.transport.limits import ByteBudget
from orbitmq.transport.turns import LARGE_FRAME_BYTES, SLOW_MS, SlowTurnNeeded, SlowTurns
from tests.busy_clock import BusyClock
from tests.integration.transport.serving import ECHO, LARGE
from tests.unit.transport.pairs import LIMITS, MIB, Parts, connected
from tests.waiting import until


async def test_unprocessed_frames_are_processed_after_other_connections_had_a_turn() -> None:
    seen: list[bytes] = []
    frame = Command(code=ECHO).encode()

    class OneFrameAtATime:
        """Stops after a frame, as a processor does to keep its replies small."""

        def process(self, _: Connection, chunk: bytes) -> tuple[int, bytes]:
            seen.append(chunk)
            return len(frame), b"reply %d " % len(seen)

    parts = Parts(processor=OneFrameAtATime())
    async with connected(parts) as (connection, peer):
        await peer.send(frame * 3)
        await until(lambda: len(seen) == 3)

        assert seen == [frame * 3, frame * 2, frame]
        connection.close()
        assert await peer.rest() == b"reply 1 reply 2 reply 3 "
    assert parts.seen == ["open", "close NoneType"]


@pytest.mark.parametrize("frames", [2, 3])
async def test_after_slow_frames_a_connection_waits_for_its_next_turn(frames: int) -> None:
    frame = Command(code=ECHO).encode()
    clock = BusyClock()
    turns = SlowTurns(clock, clock.monotonic_ms)
    seen: list[bytes] = []

    class Slow:
        """Takes 50 ms longer than a turn may for a frame."""

        def process(self, _: Connection, chunk: bytes) -> tuple[int, bytes]:
            clock.pass_ms(SLOW_MS + 50)
            seen.append(chunk)
            # Somebody else is active.
            turns.others_active_ms = clock.monotonic_ms()
            return len(frame), b""

    parts = Parts(processor=Slow(), clock=clock, slow_turns=turns)
    async with connected(parts) as (_, peer):
        await peer.send(frame * frames)
        # The first one may have waited for a processor.
        await until(lambda: len(seen) == 2)
        await peer.send(frame)
        await clock.advance(149)
        assert len(seen) == 2

        await clock.advance(1)
        await until(lambda: len(seen) == 3)


async def test_a_large_frame_waits_until_other_connections_are_served() -> None:
    small = Command(code=ECHO, opaque=1).encode()
    large = Command(code=ECHO, opaque=2, body=bytes(LARGE_FRAME_BYTES)).encode()
    turns = SlowTurns()
    parts = Parts(slow_turns=turns)
    async with connected(parts) as (connection, peer):
        waiting: list[Callable[[], None]] = []
        with mock.patch.object(turns, "join", waiting.append):
            await peer.send(small + large + small)
            assert (await peer.read()).opaque == 1
            await until(lambda: len(waiting) == 1)
        with pytest.raises(SlowTurnNeeded):
            connection.require_slow_turn()

        waiting[0]()

        # In the order in which they came.
        assert [(await peer.read()).opaque for _ in range(2)] == [2, 1]


async def test_a_frame_in_pieces_is_kept_and_answered_once_complete() -> None:
    parts = Parts()
    async with connected(parts) as (connection, peer):
        frame = Command(code=ECHO, opaque=9, body=b"x" * 50_000).encode()
        for start in range(0, len(frame), 9_000):
            await peer.send(frame[start : start + 9_000])
            await until(
                lambda: (
                    connection._incomplete.kept_bytes in {0, *range(9_000, len(frame) + 1, 9_000)}
                )
            )

        assert (await peer.read()).opaque == 9
        assert parts.is_free


async def test_a_peer_that_does_not_read_is_not_read_from_until_it_does() -> None:
    parts = Parts()
    async with connected(parts) as (connection, peer):
        requests = [
            Command(code=LARGE, opaque=opaque, fields={"bytes": "100000"}) for opaque in range(200)
        ]
        sending = asyncio.create_task(peer.send(*requests))
        await until(lambda: connection.writing_paused)
        await settle(50)
        assert connection._transport.get_write_buffer_size() < 400_000

        answers = [await peer.read() for _ in requests]
        await sending

        assert [answer.opaque for answer in answers] == list(range(200))
        assert not connection.writing_paused
        assert parts.is_free


async def test_waiting_for_a_peer_to_read_ends_when_it_reads_or_when_it_is_lost() -> None:
    parts = Parts()
    async with connected(parts) as (connection, peer):
        await connection.drained()
        waiting = await _fill(connection, 2)
        reading = asyncio.create_task(peer.rest())
        await asyncio.gather(*waiting)

        reading.cancel()
        await asyncio.wait({reading})
        waiting = await _fill(connection, 2)
        peer.reset()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

        assert {type(outcome) for outcome in outcomes} == {ConnectionLostError}
        with pytest.raises(ConnectionLostError):
            await connection.drained()


async def _fill(connection: Connection, waiters: int) -> list[asyncio.Task[None]]:
    while not connection.writing_paused:
        connection.write(Command(code=ECHO, flag=2, body=bytes(100_000)).encode())
    waiting = [asyncio.create_task(connection.drained()) for _ in range(waiters)]
    await settle()
    assert not any(task.done() for task in waiting)
    return waiting


async def test_calls_are_answered_timed_out_forgotten_or_lost() -> None:
    clock = ManualClock()
    parts = Parts(clock=clock)
    async with connected(parts) as (connection, peer):
        outcomes: list[Command | OrbitError] = []
        answered = asyncio.create_task(connection.ask(Command(code=1), 1000))
        await peer.send((await peer.read()).reply(remark="yes"))
        assert (await answered).remark == "yes"
        await connection.all_answered()

        connection.call(Command(code=1), 1000, outcomes.append)
        await clock.advance(1000)
        assert [type(outcome) for outcome in outcomes] == [CallTimeoutError]
        connection.forget_call(connection.call(Command(code=1), 1000, outcomes.append))
        cancelled = asyncio.create_task(connection.ask(Command(code=1), 1000))
        await settle()
        cancelled.cancel()
        await asyncio.wait({cancelled})
        assert parts.is_free

        connection.call(Command(code=1), 1000, outcomes.append)
        lost = asyncio.create_task(connection.ask(Command(code=1), 1000))
        await settle()
        connection.close("because of the test")
        with pytest.raises(ConnectionLostError, match="because of the test"):
            await lost
        assert [type(outcome) for outcome in outcomes] == [CallTimeoutError, ConnectionLostError]
        for call in (
            lambda: connection.call(Command(code=1), 1000, outcomes.append),
            lambda: connection.call_oneway(Command(code=1)),
        ):
            with pytest.raises(ConnectionLostError, match="already closed"):
                call()


async def test_a_connection_is_aborted_when_calls_wait_and_the_peer_is_silent() -> None:
    parts = Parts(limits=replace(LIMITS, silence_ms_max=3000))
    async with connected(parts) as (connection, peer):
        outcomes: list[Command | OrbitError] = []
        connection.call(Command(code=ECHO), 1000, outcomes.append)
        answered = await peer.read()
        await parts.clock.advance(900)
        # A late answer to any call shows that the peer is alive.
        await peer.send(answered.reply())
        await until(lambda: len(outcomes) == 1)
        for _ in range(3):
            connection.call(Command(code=ECHO), 1000, outcomes.append)
            assert not connection.closed
            await parts.clock.advance(1000)

        assert connection.closed
        kinds = [type(outcome) for outcome in outcomes[1:]]
        assert kinds == [CallTimeoutError] * 3


async def test_a_slow_peer_that_sends_something_stays_connected() -> None:
    parts = Parts(limits=replace(LIMITS, silence_ms_max=3000))
    async with connected(parts) as (connection, peer):
        outcomes: list[Command | OrbitError] = []
        connection.call(Command(code=ECHO), 4000, outcomes.append)
        connection.call(Command(code=ECHO), 20_000, outcomes.append)
        await peer.read()
        second = await peer.read()
        await parts.clock.advance(3900)
        await peer.send(second.reply())
        await until(lambda: len(outcomes) == 1)

        await parts.clock.advance(200)

        assert [type(outcome) for outcome in outcomes] == [Command, CallTimeoutError]
        assert not connection.closed


async def test_an_answer_to_a_caller_just_cancelled_is_dropped() -> None:
    async with connected(Parts()) as (connection, peer):
        call = asyncio.create_task(connection.ask(Command(code=1), 1000))
        asked = await peer.read()

        connection.answer(asked.reply())
        call.cancel()
        await asyncio.wait({call})
        connection.answer(asked.reply())

        call = asyncio.create_task(connection.ask(Command(code=1), 1000))
        await settle()
        call.cancel()
        connection.answer((await peer.read()).reply())
        await asyncio.wait({call})

        assert not connection.closed


async def test_a_request_that_cannot_be_encoded_leaves_no_pending_call() -> None:
    parts = Parts()
    async with connected(parts) as (connection, _):
        too_large = Command(code=1, body=bytes(16 * MIB))
        not_text = Command(code=1, fields={"x": object()})  # type: ignore[dict-item]  # a bug
        for request, error in ((too_large, FrameTooLargeError), (not_text, TypeError)):
            with pytest.raises(error):
                connection.call(request, 1000, lambda _: None)
            with pytest.raises(error):
                connection.call_oneway(request)

        assert parts.is_free


async def test_requests_encoded_by_the_caller_are_sent_together_and_in_order() -> None:
    outcomes: list[Command | OrbitError] = []
    parts = Parts()
    async with connected(parts) as (connection, peer):
        for body in (b"1", b"2"):
            opaque = connection.begin_call(7, 1000, outcomes.append)
            connection.send_call(opaque, Command(code=7, opaque=opaque, body=body).encode())
        opaque = connection.unused_opaque()
        connection.send_oneway(Command(code=8, opaque=opaque, flag=2, body=b"3").encode())
        assert connection._written_bytes == 0
        # Other requests must not overtake them.
        connection.call(Command(code=7, body=b"4"), 1000, outcomes.append)
        assert connection._written_bytes > 0
        connection.send_oneway(Command(code=8, flag=2, body=bytes(70_000)).encode())
        assert connection._gathered == []

        asked = [await peer.read() for _ in range(5)]
        assert [request.body for request in asked] == [b"1", b"2", b"3", b"4", bytes(70_000)]
        assert len({request.opaque for request in asked[:4]}) == 4
        await peer.send(asked[1].reply(remark="second"))
        await until(lambda: len(outcomes) == 1)
        await parts.clock.advance(1000)

    assert isinstance(outcomes[0], Command)
    assert outcomes[0].remark == "second"
    assert [type(outcome) for outcome in outcomes[1:]] == [CallTimeoutError, CallTimeoutError]


async def test_gathered_requests_are_sent_before_a_close_and_dropped_by_an_abort() -> None:
    for end, sent in ((Connection.close, 1), (Connection.abort, 0)):
        async with connected(Parts()) as (connection, peer):
            frame = Command(code=8, flag=2).encode()
            connection.send_oneway(frame)
            end(connection)

            assert await peer.rest() == frame * sent
            with pytest.raises(ConnectionLostError, match="already closed"):
                connection.begin_call(7, 1000, lambda _: None)
            with pytest.raises(ConnectionLostError, match="already closed"):
                connection.send_oneway(frame)


async def test_a_request_too_large_for_a_frame_is_not_sent() -> None:
    parts = Parts()
    async with connected(parts) as (connection, _):
        opaque = connection.begin_call(7, 1000, lambda _: None)
        with pytest.raises(FrameTooLargeError):
            connection.send_call(opaque, bytes(17 * MIB))
        with pytest.raises(FrameTooLargeError):
            connection.send_oneway(bytes(17 * MIB))

        assert parts.is_free


async def test_one_way_requests_count_while_the_peer_does_not_read() -> None:
    parts = Parts(kept_bytes=ByteBudget(16 * MIB))
    async with connected(parts) as (connection, peer):
        connection.call_oneway(Command(code=1))
        assert parts.calls.oneway.in_flight == 0
        (waiting,) = await _fill(connection, 1)
        for _ in range(8):
            connection.call_oneway(Command(code=1))
        with pytest.raises(TooManyCallsError):
            connection.call_oneway(Command(code=1))
        connection.write(bytes(5 * MIB))
        with pytest.raises(WriteBlockedError):
            connection.call_oneway(Command(code=1))

        reading = asyncio.create_task(peer.rest())
        await waiting
        assert parts.calls.oneway.in_flight == 0
        connection.close()
        await reading


async def test_replies_that_a_peer_does_not_read_are_bounded_for_all_connections_together() -> None:
    parts = Parts()
    async with connected(parts) as (connection, _):
        (waiting,) = await _fill(connection, 1)
        while not connection.closed:
            connection.write(bytes(100_000))

        with pytest.raises(ConnectionLostError):
            await waiting
        assert parts.is_free


async def test_a_frame_over_the_budget_is_answered_busy_or_fails_its_call() -> None:
    parts = Parts(kept_bytes=ByteBudget(20_000))
    async with connected(parts) as (connection, peer):
        await peer.send(Command(code=ECHO, opaque=1, body=bytes(1_000_000)))
        assert (await peer.read()).code == ResponseCode.SYSTEM_BUSY
        await peer.send(Command(code=ECHO, flag=2, body=bytes(1_000_000)))
        call = asyncio.create_task(connection.ask(Command(code=1), 1000))
        await peer.send((await peer.read()).reply(body=bytes(1_000_000)))
        with pytest.raises(TransportError, match="was discarded"):
            await call

        assert (await peer.ask(Command(code=ECHO, opaque=2))).opaque == 2
        assert parts.is_free


async def test_bad_input_and_internal_errors_close_the_connection_with_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected(Parts()) as (connection, peer):
        call = asyncio.create_task(connection.ask(Command(code=1), 1000))
        await peer.read()
        await peer.send(bytes(8), bytes(8))
        with pytest.raises(ConnectionLostError, match="bad input"):
            await call
        assert await peer.rest() == b""
        connection.data_received(b"after the end")
    assert len(caplog.records) == 1

    class Broken:
        def process(self, *_: object) -> tuple[int, bytes]:
            raise KeyError("inside")

    caplog.clear()
    async with connected(Parts(processor=Broken())) as (_, peer):
        await peer.send(bytes(8))
        assert await peer.rest() == b""
    assert [r.levelno for r in caplog.records] == [logging.ERROR]

    caplog.clear()
    async with connected(Parts(kept_bytes=ByteBudget(0))) as (_, peer):
        await peer.send(Command(code=1, fields={"x": "y" * 50_000}).encode()[:10_000])
        assert await peer.rest() == b""
    assert [r.levelno for r in caplog.records] == [logging.WARNING]


async def test_the_owner_is_notified_once_however_a_connection_ends() -> None:
    for end in (
        lambda _, peer: peer.close(),
        lambda _, peer: peer.reset(),
        lambda _, peer: peer.socket.shutdown(socket.SHUT_WR),
        lambda connection, _: connection.close(),
        lambda connection, _: connection.abort(),
        lambda connection, _: connection.abandon(),
    ):
        parts = Parts()
        async with connected(parts) as (connection, peer):
            end(connection, peer)
            await until(lambda: len(parts.seen) == 2)  # noqa: B023
            connection.close()
            connection.abort()
            connection.abandon()
            connection.connection_lost(None)
            connection.write(b"into the void")
            await settle()
        assert len(parts.seen) == 2


async def test_a_connection_that_was_never_made_can_be_closed_in_any_way() -> None:
    parts = Parts()
    connection = parts.new_connection()

    connection.close()
    connection.abort()
    connection.abandon()
    connection.write(b"into the void")

    assert connection.closed
    assert parts.seen == []


async def test_a_close_sends_unsent_bytes_even_to_a_slow_reader() -> None:
    async with connected(Parts()) as (connection, peer):
        (waiting,) = await _fill(connection, 1)
        written = connection._written_bytes

        connection.close()

        with pytest.raises(ConnectionLostError):
            await waiting
        assert len(await peer.rest()) == written


async def test_activity_is_what_was_received_or_really_sent() -> None:
    clock = ManualClock(0)
    parts = Parts(clock=clock)
    async with connected(parts) as (connection, peer):
        await clock.advance(10)
        assert connection.active_ms(10) == 0
        await peer.ask(Command(code=ECHO))
        assert connection.active_ms(11) == 10
        connection.call_oneway(Command(code=1))
        assert connection.active_ms(20) == 20
        assert connection.active_ms(30) == 20

        (waiting,) = await _fill(connection, 1)
        connection.active_ms(40)
        seen = connection.active_ms(50)
        connection.call_oneway(Command(code=1))
        assert connection.active_ms(60) == seen
        unsent = connection._transport.get_write_buffer_size()
        while connection._transport.get_write_buffer_size() == unsent:
            with contextlib.suppress(BlockingIOError):  # it may take a moment to arrive
                peer.socket.recv(10_000)
            await settle()
        assert connection.active_ms(70) == 70
        reading = asyncio.create_task(peer.rest())
        await waiting
        connection.close()
        await reading


async def test_bytes_received_between_turns_stay_in_order_and_need_no_budget() -> None:
    parts = Parts(kept_bytes=ByteBudget(0))
    async with connected(parts) as (connection, peer):
        frames = [Command(code=ECHO, opaque=opaque).encode() for opaque in range(300)]
        # A TLS layer may deliver decrypted bytes after reading was paused.
        connection.data_received(b"".join(frames[:200]))
        assert connection._turn_is_due
        connection.data_received(b"".join(frames[200:]))

        assert [(await peer.read()).opaque for _ in range(300)] == list(range(300))


async def test_another_processor_takes_over_with_the_next_chunk() -> None:
    class Refusing:
        def process(self, _: Connection, chunk: bytes) -> tuple[int, bytes]:
            refused.append(len(chunk))
            return len(chunk), b"no"

    refused: list[int] = []
    async with connected(Parts()) as (connection, peer):
        await peer.ask(Command(code=ECHO))
        connection.serve_with(Refusing())
        await peer.send(Command(code=ECHO))
        await until(lambda: refused)
        connection.close()

        assert await peer.rest() == b"no"


async def test_socket_options_are_set() -> None:
    async with connected(Parts()) as (connection, _):
        connection.set_socket_options(send_buffer_bytes=50_000, receive_buffer_bytes=60_000)
        connection.set_socket_options(send_buffer_bytes=0, receive_buffer_bytes=0)

        opened: socket.socket = connection._transport.get_extra_info("socket")
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 50_000
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 60_000


async def test_an_unexpected_answer_is_dropped() -> None:
    async with connected(Parts()) as (_, peer):
        await peer.send(Command(code=0, flag=1, opaque=77))

        assert (await peer.ask(Command(code=ECHO, opaque=5))).opaque == 5


def test_processors_can_read_the_limits() -> None:
    connection = Parts().new_connection()

    assert connection.frame_bytes_max == LIMITS.frame_bytes_max
    assert connection.replies_bytes_max == LIMITS.write_high_water_bytes
