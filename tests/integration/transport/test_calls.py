"""Calls in all their forms, over real sockets."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.errors import (
    CallTimeoutError,
    ConnectionLostError,
    FrameTooLargeError,
    NotSupportedError,
    OrbitError,
    SignatureError,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import FRAME_BYTES_MAX, Encoding
from orbitmq.protocol.requests.routing import GetClusterView
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.conftest import PATIENCE_MS
from tests.integration.transport.raw_peer import RawPeer, raw_serving
from tests.integration.transport.serving import ECHO, FAIL, SLOW, UNKNOWN, Gate, address_of, serving
from tests.waiting import until


@pytest.mark.parametrize("encoding", Encoding)
async def test_invoke_returns_the_answer(encoding: Encoding) -> None:
    async with serving() as server, RpcClient() as client:
        response = await client.invoke(
            address_of(server), Command(code=ECHO, body=b"hello", encoding=encoding)
        )

    assert (response.code, response.body, response.encoding) == (0, b"hello", encoding)


async def test_answers_out_of_order_reach_their_callers() -> None:
    gate = Gate()
    async with serving({SLOW: gate.handle}) as server, RpcClient() as client:
        names = [str(number) for number in range(20)]
        calls = [
            asyncio.create_task(
                client.invoke(address_of(server), Command(code=SLOW, fields={"name": name}))
            )
            for name in names
        ]
        await gate.wait_entered(20)

        finished: list[str] = []
        for name, call in reversed(list(zip(names, calls, strict=True))):
            gate.open(name)
            finished.append((await call).remark)

        assert finished == names[::-1]
        assert len(server.connections) == 1
        assert client.calls.unanswered.in_flight == 0


async def test_a_callback_gets_the_answer_with_and_without_an_existing_connection() -> None:
    async with serving() as server, RpcClient() as client:
        outcomes: list[Command | OrbitError] = []

        client.invoke_callback(address_of(server), Command(code=ECHO, body=b"1"), outcomes.append)
        assert outcomes == []
        await until(lambda: len(outcomes) == 1)
        client.invoke_callback(address_of(server), Command(code=ECHO, body=b"2"), outcomes.append)
        assert len(outcomes) == 1
        await until(lambda: len(outcomes) == 2)

        assert [outcome.body for outcome in outcomes if isinstance(outcome, Command)] == [
            b"1",
            b"2",
        ]


async def test_a_callback_gets_the_error_when_nobody_listens(own_port: int) -> None:
    address = f"127.0.0.1:{own_port}"
    async with RpcClient() as client:
        outcomes: asyncio.Future[Command | OrbitError] = asyncio.get_running_loop().create_future()

        client.invoke_callback(address, Command(code=ECHO), outcomes.set_result)

        assert "cannot connect" in str(await outcomes)


async def test_a_callback_that_raises_is_logged_once_and_affects_no_other_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()

    def broken(_: object) -> None:
        raise ValueError("from the callback")

    async with serving({SLOW: gate.handle}) as server, RpcClient() as client:
        await client.invoke(address_of(server), Command(code=ECHO))
        client.invoke_callback(address_of(server), Command(code=SLOW), broken)
        other = asyncio.create_task(client.invoke(address_of(server), Command(code=SLOW)))
        await gate.wait_entered(2)
        gate.open()

        assert (await other).code == 0
        assert (await client.invoke(address_of(server), Command(code=ECHO))).code == 0
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert "callback of a call failed" in caplog.text


async def test_a_one_way_request_arrives_and_nothing_comes_back() -> None:
    arrived: list[bytes] = []

    def note(_: Connection, request: Command) -> Command:
        arrived.append(request.body)
        return request.reply(remark="nobody wants this")

    async with serving({SLOW: note}) as server, await RawPeer.connect(server.port) as peer:
        await peer.send(Command(code=SLOW, body=b"raw", flag=2), Command(code=ECHO, opaque=7))
        assert (await peer.read()).opaque == 7

        async with RpcClient() as client:
            await client.invoke_oneway(address_of(server), Command(code=SLOW, body=b"client"))
            await until(lambda: len(arrived) == 2)
            assert client.calls.oneway.in_flight == 0

    assert arrived == [b"raw", b"client"]


async def test_one_way_requests_get_no_answer_even_when_they_fail_or_are_unknown() -> None:
    async def fail_later(_: Connection, __: Command) -> Command:
        raise OrbitError("later")

    async with (
        serving({FAIL: fail_later}) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.send(
            Command(code=UNKNOWN, flag=2), Command(code=FAIL, flag=2), Command(code=ECHO, opaque=3)
        )

        assert (await peer.read()).opaque == 3


async def test_an_overdue_call_fails_and_its_late_answer_is_dropped() -> None:
    clock = ManualClock()
    async with raw_serving() as server, RpcClient(clock=clock) as client:
        outcomes: list[Command | OrbitError] = []
        slow = asyncio.create_task(
            client.invoke(server.address, Command(code=ECHO), timeout_ms=1000)
        )
        peer = await server.accept()
        late = await peer.read()
        client.invoke_callback(server.address, Command(code=ECHO), outcomes.append, timeout_ms=2000)
        await peer.read()

        await clock.advance(1000)
        with pytest.raises(CallTimeoutError, match="within 1000 ms"):
            await slow
        assert outcomes == []
        await clock.advance(1000)
        assert [type(outcome) for outcome in outcomes] == [CallTimeoutError]
        assert client.calls.unanswered.in_flight == 0

        again = asyncio.create_task(client.invoke(server.address, Command(code=ECHO)))
        await peer.send(late.reply(remark="too late"))
        await peer.send((await peer.read()).reply(remark="in time"))
        assert (await again).remark == "in time"


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_a_lost_connection_fails_its_calls_at_once_and_the_next_call_makes_a_new_one(
    how: str,
) -> None:
    async with raw_serving() as server, RpcClient(clock=ManualClock()) as client:
        outcomes: list[Command | OrbitError] = []
        call = asyncio.create_task(client.invoke(server.address, Command(code=ECHO)))
        peer = await server.accept()
        await peer.read()
        client.invoke_callback(server.address, Command(code=ECHO), outcomes.append)
        await peer.read()

        match how:
            case "close":
                peer.close()
            case "reset":
                peer.reset()
            case _:
                peer.socket.shutdown(1)
        with pytest.raises(ConnectionLostError):
            await call
        assert [type(outcome) for outcome in outcomes] == [ConnectionLostError]
        assert client.calls.unanswered.in_flight == 0

        again = asyncio.create_task(client.invoke(server.address, Command(code=ECHO)))
        other = await server.accept()
        await other.send((await other.read()).reply())
        assert (await again).code == 0


async def test_a_failed_write_fails_its_call_at_once() -> None:
    async with raw_serving() as server, RpcClient(clock=ManualClock()) as client:
        connecting = asyncio.create_task(client.connection(server.address))
        peer = await server.accept()
        connection = await connecting
        # The reset arrives before the client's loop turns again, so that the write fails.
        peer.reset()

        with pytest.raises(ConnectionLostError):
            await connection.ask(Command(code=ECHO, body=bytes(1 << 20)), 3000)


async def test_closing_a_connection_fails_its_calls_at_once() -> None:
    async with raw_serving() as server, RpcClient(clock=ManualClock()) as client:
        call = asyncio.create_task(client.invoke(server.address, Command(code=ECHO)))
        await (await server.accept()).read()

        (await client.connection(server.address)).close()

        with pytest.raises(ConnectionLostError, match="on this side"):
            await call


async def test_a_cancelled_call_is_forgotten_and_its_answer_dropped() -> None:
    gate = Gate()
    async with serving({SLOW: gate.handle}) as server, RpcClient() as client:
        call = asyncio.create_task(client.invoke(address_of(server), Command(code=SLOW)))
        await gate.wait_entered()

        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
        assert client.calls.unanswered.in_flight == 0

        gate.open()
        assert (await client.invoke(address_of(server), Command(code=ECHO))).code == 0


async def test_both_sides_call_each_other_on_one_connection_at_the_same_time() -> None:
    met = asyncio.Event()

    async def ask_back(connection: Connection, request: Command) -> Command:
        own = await connection.ask(Command(code=ECHO, body=request.body + b" back"), PATIENCE_MS)
        return request.reply(body=own.body)

    async def answer_server(_: Connection, request: Command) -> Command:
        await met.wait()
        return request.reply(body=request.body + b" and forth")

    async with (
        serving({SLOW: ask_back}) as server,
        RpcClient(handlers={ECHO: answer_server}) as client,
    ):
        calls = [
            asyncio.create_task(
                client.invoke(address_of(server), Command(code=SLOW, body=str(number).encode()))
            )
            for number in range(30)
        ]
        await until(lambda: server.calls.unanswered.in_flight == 30)
        met.set()

        bodies = [(await call).body for call in calls]

        assert bodies == [f"{number} back and forth".encode() for number in range(30)]
        assert len(server.connections) == 1
        assert server.calls.unanswered.in_flight == 0


async def test_requests_of_both_directions_with_equal_opaques_are_kept_apart() -> None:
    async with serving() as server, await RawPeer.connect(server.port) as peer:
        await peer.ask(Command(code=ECHO))
        (connection,) = server.connections
        call = asyncio.create_task(connection.ask(Command(code=ECHO), PATIENCE_MS))
        theirs = await peer.read()

        mine = await peer.ask(Command(code=ECHO, opaque=theirs.opaque, body=b"mine"))
        assert (mine.body, mine.is_response) == (b"mine", True)
        await peer.send(theirs.reply(body=b"theirs"))

        assert (await call).body == b"theirs"


async def test_an_unknown_code_is_answered_with_3_and_call_raises_its_error() -> None:
    async with serving() as server, RpcClient() as client:
        response = await client.invoke(address_of(server), Command(code=UNKNOWN))
        assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

        with pytest.raises(NotSupportedError):
            await client.call(address_of(server), GetClusterView())


async def test_an_error_of_a_handler_becomes_the_answer_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_: Connection, __: Command) -> Command:
        raise OrbitError("no such thing", hint="try another")

    async def crash(_: Connection, __: Command) -> Command:
        raise KeyError("inside")

    async with serving({FAIL: refuse, SLOW: crash}) as server, RpcClient() as client:
        refused = await client.invoke(address_of(server), Command(code=FAIL))
        crashed = await client.invoke(address_of(server), Command(code=SLOW))

    assert (refused.code, refused.remark) == (1, "no such thing (try another)")
    assert (crashed.code, "KeyError" in crashed.remark) == (1, True)
    logged = [record.levelname for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged == ["WARNING", "ERROR"]


async def test_an_answer_that_cannot_be_encoded_becomes_an_error_answer() -> None:
    def too_large(_: Connection, request: Command) -> Command:
        return request.reply(body=bytes(FRAME_BYTES_MAX))

    def not_text(_: Connection, request: Command) -> Command:
        reply = request.reply()
        reply.fields = {"x": object()}  # type: ignore[dict-item]  # a handler's bug
        return reply

    async with serving({FAIL: too_large, SLOW: not_text}) as server, RpcClient() as client:
        large = await client.invoke(address_of(server), Command(code=FAIL))
        broken = await client.invoke(address_of(server), Command(code=SLOW))
        still = await client.invoke(address_of(server), Command(code=ECHO))

    assert (large.code, "above the limit" in large.remark) == (1, True)
    assert (broken.code, still.code) == (1, 0)


async def test_a_request_above_the_frame_limit_is_refused_before_it_breaks_the_connection() -> None:
    async with serving() as server, RpcClient() as client:
        await client.invoke(address_of(server), Command(code=ECHO))
        outcomes: list[Command | OrbitError] = []

        with pytest.raises(FrameTooLargeError):
            await client.invoke(address_of(server), Command(code=ECHO, body=bytes(FRAME_BYTES_MAX)))
        client.invoke_callback(
            address_of(server), Command(code=ECHO, body=bytes(FRAME_BYTES_MAX)), outcomes.append
        )
        await settle()

        assert [type(outcome) for outcome in outcomes] == [FrameTooLargeError]
        assert client.calls.unanswered.in_flight == 0
        assert (await client.invoke(address_of(server), Command(code=ECHO))).code == 0


async def test_a_request_of_exactly_the_frame_limit_and_its_answer_pass() -> None:
    async with serving() as server, RpcClient() as client:
        overhead = len(Command(code=ECHO, opaque=1).encode())
        body = bytes(FRAME_BYTES_MAX - overhead)

        response = await client.invoke(address_of(server), Command(code=ECHO, body=body))

        assert len(Command(code=ECHO, opaque=1, body=body).encode()) == FRAME_BYTES_MAX
        assert (response.code, len(response.body)) == (0, len(body))


# --- hooks ------------------------------------------------------------------------------------


class Notes:
    """A hook that records what it sees, and refuses given requests."""

    def __init__(self, *, before: Exception | None = None, after: Exception | None = None) -> None:
        self.seen: list[tuple[str, int, int | None]] = []
        self.before = before
        self.after = after

    def before_request(self, address: str, request: Command) -> None:
        assert address.startswith("127.0.0.1:")
        self.seen.append(("before", request.code, None))
        request.fields = {**request.fields, "remark": "hooked"}
        if self.before:
            raise self.before

    def after_response(self, address: str, request: Command, response: Command | None) -> None:
        assert address.startswith("127.0.0.1:")
        self.seen.append(("after", request.code, None if response is None else response.code))
        if self.after:
            raise self.after


async def test_hooks_run_before_and_after_each_call_on_both_sides() -> None:
    ours, theirs = Notes(), Notes()
    gate = Gate()
    gate.open()
    async with (
        serving({SLOW: gate.handle}, hooks=[theirs]) as server,
        RpcClient(hooks=[ours]) as client,
    ):
        outcomes: asyncio.Future[Command | OrbitError] = asyncio.get_running_loop().create_future()
        assert (await client.invoke(address_of(server), Command(code=ECHO))).remark == "hooked"
        await client.invoke(address_of(server), Command(code=SLOW))
        await client.invoke(address_of(server), Command(code=UNKNOWN))
        client.invoke_callback(address_of(server), Command(code=ECHO), outcomes.set_result)
        await outcomes
        await client.invoke_oneway(address_of(server), Command(code=ECHO))
        await until(lambda: len(theirs.seen) == 10)

    expected: list[tuple[str, int, int | None]] = []
    for code, answer in ((ECHO, 0), (SLOW, 0), (UNKNOWN, 3), (ECHO, 0), (ECHO, None)):
        expected += [("before", code, None), ("after", code, answer)]
    assert ours.seen == expected
    assert theirs.seen == expected


@pytest.mark.parametrize("error", [OrbitError("refused"), ValueError("refused")])
async def test_a_client_hook_refuses_by_raising_in_every_form_of_call(error: Exception) -> None:
    hook = Notes(before=error)
    async with serving() as server, RpcClient(hooks=[hook]) as client:
        with pytest.raises(type(error), match="refused"):
            await client.invoke(address_of(server), Command(code=ECHO))
        with pytest.raises(type(error), match="refused"):
            client.invoke_callback(address_of(server), Command(code=ECHO), lambda _: None)
        with pytest.raises(type(error), match="refused"):
            await client.invoke_oneway(address_of(server), Command(code=ECHO))

        assert not client.connected


@pytest.mark.parametrize("error", [OrbitError("refused"), ValueError("refused")])
async def test_a_client_hook_refuses_an_answer_by_raising(error: Exception) -> None:
    hook = Notes(after=error)
    async with serving() as server, RpcClient(hooks=[hook]) as client:
        outcomes: asyncio.Future[Command | OrbitError] = asyncio.get_running_loop().create_future()
        with pytest.raises(type(error), match="refused"):
            await client.invoke(address_of(server), Command(code=ECHO))
        client.invoke_callback(address_of(server), Command(code=ECHO), outcomes.set_result)

        assert "refused" in str(await outcomes)


async def test_a_hook_that_fails_after_a_failed_call_does_not_hide_why_it_failed(
    own_port: int,
) -> None:
    address = f"127.0.0.1:{own_port}"
    async with RpcClient(hooks=[Notes(after=ValueError("hook"))]) as client:
        outcomes: asyncio.Future[Command | OrbitError] = asyncio.get_running_loop().create_future()
        with pytest.raises(OrbitError, match="cannot connect"):
            await client.invoke(address, Command(code=ECHO))
        client.invoke_callback(address, Command(code=ECHO), outcomes.set_result)

        assert "cannot connect" in str(await outcomes)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SignatureError("who are you"), ResponseCode.NO_PERMISSION),
        (OrbitError("not now"), ResponseCode.SYSTEM_ERROR),
        (ValueError("a bug"), ResponseCode.SYSTEM_ERROR),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_server_hook_refuses_by_raising_and_the_connection_lives(
    error: Exception, code: ResponseCode, when: str
) -> None:
    hook = Notes(before=error) if when == "before" else Notes(after=error)
    gate = Gate()
    gate.open()
    async with (
        serving({SLOW: gate.handle}, hooks=[hook]) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.send(
            Command(code=ECHO, opaque=1), Command(code=ECHO, flag=2), Command(code=SLOW, opaque=2)
        )

        answers = [await peer.read(), await peer.read()]

        assert {(answer.opaque, answer.code) for answer in answers} == {(1, code), (2, code)}
        if when == "before":
            assert gate.entered == []


async def test_a_typed_call_is_signed_by_request_code() -> None:
    hook = Notes()
    async with serving(hooks=[hook]) as server, RpcClient() as client:
        with pytest.raises(NotSupportedError):
            await client.call(address_of(server), GetClusterView())

    assert hook.seen[0] == ("before", RequestCode.GET_BROKER_CLUSTER_INFO, None)
