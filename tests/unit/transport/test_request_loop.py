"""Requests reach handlers, and their outcomes become answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from orbitmq.clock import settle
from orbitmq.errors import OrbitError, ProtocolError, SignatureError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command, decode_command
from orbitmq.protocol.frame import frame_end
from orbitmq.transport.connection import Connection
from orbitmq.transport.request_loop import (
    FRAMES_PER_TURN,
    Handler,
    RequestLoop,
    starts_at_once,
    stopping,
)
from orbitmq.transport.turns import SlowTurns
from tests.integration.transport.serving import ECHO, FAIL, LARGE, SLOW, UNKNOWN, Gate, echo, large
from tests.unit.transport.pairs import Parts, connected


def _answers(replies: bytes) -> list[Command]:
    answers = []
    position = 0
    while position < len(replies):
        end = frame_end(replies, position)
        answers.append(decode_command(replies, position, end))
        position = end
    return answers


def _process(loop: RequestLoop, *requests: Command) -> list[Command]:
    chunk = b"".join(request.encode() for request in requests)
    position, replies = loop.process(Parts().new_connection(), chunk)
    assert position == len(chunk)
    return _answers(replies)


def test_every_request_of_a_chunk_is_answered_in_order() -> None:
    answers = _process(
        RequestLoop({ECHO: echo}),
        Command(code=ECHO, opaque=1, body=b"a"),
        Command(code=UNKNOWN, opaque=2),
        Command(code=ECHO, opaque=3, flag=2),
        Command(code=0, opaque=4, flag=1),
        Command(code=ECHO, opaque=5),
    )

    assert [(answer.opaque, answer.code) for answer in answers] == [(1, 0), (2, 3), (5, 0)]


def test_an_incomplete_frame_after_answered_ones_is_left() -> None:
    loop = RequestLoop({ECHO: echo})
    frame = Command(code=ECHO).encode()
    connection = Parts().new_connection()

    assert loop.process(connection, frame[:3]) == (0, b"")
    assert loop.process(connection, frame[:-1]) == (0, b"")
    position, replies = loop.process(connection, frame * 2 + frame[:-1])

    assert position == 2 * len(frame)
    assert len(_answers(replies)) == 2


def test_processing_pauses_when_its_replies_are_many_bytes() -> None:
    loop = RequestLoop({LARGE: large})
    frame = Command(code=LARGE, fields={"bytes": "50000"}).encode()

    position, replies = loop.process(Parts().new_connection(), frame * 5)

    assert position == 2 * len(frame)
    assert len(_answers(replies)) == 2


def test_processing_pauses_after_many_requests_to_let_other_connections_have_a_turn() -> None:
    loop = RequestLoop({ECHO: echo})
    frame = Command(code=ECHO).encode()

    position, replies = loop.process(Parts().new_connection(), frame * 1000)

    assert position == FRAMES_PER_TURN * len(frame)
    assert len(_answers(replies)) == FRAMES_PER_TURN


def test_frames_before_a_broken_one_are_answered_first() -> None:
    loop = RequestLoop({ECHO: echo})
    connection = Parts().new_connection()
    frame = Command(code=ECHO).encode()
    for good in (frame, Command(code=0, flag=1).encode()):
        position, _ = loop.process(connection, good + bytes(8))

        assert position == len(good)
        with pytest.raises(ProtocolError):
            loop.process(connection, bytes(8))


@pytest.mark.parametrize(
    ("error", "code", "logged"),
    [
        (SignatureError("who"), ResponseCode.NO_PERMISSION, False),
        (OrbitError("not now"), ResponseCode.SYSTEM_ERROR, False),
        (ValueError("a bug"), ResponseCode.SYSTEM_ERROR, True),
    ],
)
async def test_an_error_of_a_handler_becomes_the_answer(
    error: Exception, code: ResponseCode, caplog: pytest.LogCaptureFixture, *, logged: bool
) -> None:
    def now(*_: object) -> Command:
        raise error

    async def later(*_: object) -> Command:
        raise error

    loop = RequestLoop({FAIL: now, SLOW: later})
    async with connected(Parts(processor=loop)) as (_, peer):
        await peer.send(Command(code=SLOW), Command(code=FAIL))
        answers = [await peer.read(), await peer.read()]

    assert {answer.code for answer in answers} == {code}
    assert ("handler failed" in caplog.text) is logged


def test_an_answer_that_cannot_be_encoded_becomes_an_error() -> None:
    def too_large(_: Connection, request: Command) -> Command:
        return request.reply(body=bytes(16 * 1024 * 1024))

    def not_text(_: Connection, request: Command) -> Command:
        reply = request.reply()
        reply.fields = {"x": object()}  # type: ignore[dict-item]  # a handler's bug
        return reply

    answers = _process(
        RequestLoop({LARGE: too_large, FAIL: not_text}), Command(code=LARGE), Command(code=FAIL)
    )

    assert [answer.code for answer in answers] == [1, 1]
    assert "above the limit of 16777216" in answers[0].remark


async def test_a_handler_that_waits_is_answered_when_it_is_done() -> None:
    gate = Gate()
    parts = Parts(processor=RequestLoop({SLOW: gate.handle, ECHO: echo}))
    async with connected(parts) as (connection, peer):
        await peer.send(Command(code=SLOW, opaque=1), Command(code=ECHO, opaque=2))
        assert (await peer.read()).opaque == 2
        assert parts.kept_bytes.taken == 4096

        gate.open()
        assert (await peer.read()).opaque == 1
        await connection.deferred.all_done()
        assert parts.is_free


async def test_a_handler_that_starts_at_once_and_never_waits_is_answered_with_its_chunk() -> None:
    @starts_at_once
    async def at_once(_: Connection, request: Command) -> Command:
        if request.body == b"bad":
            raise OrbitError("refused")
        return request.reply(body=request.body)

    answers = _process(
        RequestLoop({SLOW: at_once, ECHO: echo}),
        Command(code=SLOW, opaque=1, body=b"a"),
        Command(code=ECHO, opaque=2),
        Command(code=SLOW, opaque=3, body=b"bad"),
        Command(code=SLOW, opaque=4, flag=2),
    )

    assert [(answer.opaque, answer.code, answer.body) for answer in answers] == [
        (1, 0, b"a"),
        (2, 0, b""),
        (3, ResponseCode.SYSTEM_ERROR, b""),
    ]


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_handler_that_starts_at_once_and_waits_has_a_task_after_that(turns: int) -> None:
    started, entered, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @starts_at_once
    async def waiting(_: Connection, request: Command) -> Command:
        assert asyncio.current_task() is None
        await (settle(1) if turns else started.wait())
        entered.set()
        async with asyncio.timeout(60):
            await gate.wait()
        return request.reply(body=request.body)

    parts = Parts(processor=RequestLoop({SLOW: waiting, ECHO: echo}))
    async with connected(parts) as (connection, peer):
        await peer.send(Command(code=SLOW, opaque=1, body=b"late"), Command(code=ECHO, opaque=2))
        assert (await peer.read()).opaque == 2
        started.set()
        await entered.wait()
        assert parts.kept_bytes.taken == 4096

        gate.set()
        answer = await peer.read()
        assert (answer.opaque, answer.code, answer.body) == (1, 0, b"late")
        await connection.deferred.all_done()
        assert parts.is_free


async def test_deferred_requests_over_the_bound_are_answered_busy_and_never_start() -> None:
    gate = Gate()
    parts = Parts(processor=RequestLoop({SLOW: gate.handle}))
    async with connected(parts) as (_, peer):
        await peer.send(*[Command(code=SLOW, opaque=opaque) for opaque in range(257)])
        answer = await peer.read()
        assert (answer.opaque, answer.code) == (256, ResponseCode.SYSTEM_BUSY)
        assert len(gate.entered) == 256
        gate.open()
        for _ in range(256):
            assert (await peer.read()).code == 0


async def test_a_one_way_request_that_waits_is_not_answered() -> None:
    gate = Gate()
    parts = Parts(processor=RequestLoop({SLOW: gate.handle, ECHO: echo}))
    async with connected(parts) as (connection, peer):
        await peer.send(Command(code=SLOW, flag=2))
        await gate.wait_entered()
        gate.open()
        await connection.deferred.all_done()

        assert (await peer.ask(Command(code=ECHO, opaque=8))).opaque == 8


async def test_a_deferred_answer_waits_for_a_slow_reader_or_becomes_busy() -> None:
    gate = Gate()
    loop = RequestLoop({SLOW: gate.handle, LARGE: large})
    parts = Parts(processor=loop)
    async with connected(parts) as (connection, peer):
        await peer.send(
            *[Command(code=SLOW, opaque=opaque, fields={"bytes": "300000"}) for opaque in range(10)]
        )
        await gate.wait_entered(10)
        while not connection.writing_paused:
            connection.write(Command(code=ECHO, opaque=99, flag=1, body=bytes(100_000)).encode())
        gate.open()
        await settle()
        assert len(loop.deferred) == 3
        assert 3 * 300_000 < parts.kept_bytes.taken < 2 * 1024 * 1024

        answers: list[Command] = []
        while len(answers) < 10:
            answer = await peer.read()
            if answer.opaque != 99:
                answers.append(answer)
        assert sorted(answer.opaque for answer in answers) == list(range(10))
        assert [answer.code for answer in answers].count(0) == 3
        await loop.deferred.all_done()
        assert parts.is_free


async def test_a_deferred_answer_to_a_lost_connection_is_dropped() -> None:
    gate = Gate()
    loop = RequestLoop({SLOW: gate.handle})
    parts = Parts(processor=loop)
    async with connected(parts) as (connection, peer):
        await peer.send(Command(code=SLOW, fields={"bytes": "300000"}))
        await gate.wait_entered()
        while not connection.writing_paused:
            connection.write(Command(code=ECHO, flag=1, body=bytes(100_000)).encode())
        gate.open()
        await settle()
        assert len(loop.deferred) == 1

        peer.reset()

        await loop.deferred.all_done()
        assert parts.is_free


class Hook:
    """Records what it sees and raises given errors."""

    def __init__(self, *, before: Exception | None = None, after: Exception | None = None) -> None:
        self.seen: list[str] = []
        self._before = before
        self._after = after

    def before_request(self, _: str, request: Command) -> None:
        self.seen.append(f"before {request.opaque}")
        if self._before:
            raise self._before

    def after_response(self, _: str, request: Command, response: Command | None) -> None:
        self.seen.append(f"after {request.opaque} {None if response is None else response.code}")
        if self._after:
            raise self._after


def _handlers(called: Callable[[], None]) -> dict[int, Handler]:
    def note(_: Connection, request: Command) -> Command:
        called()
        return request.reply()

    return {ECHO: note}


def test_hooks_see_every_request_and_its_answer() -> None:
    hook = Hook()
    _process(
        RequestLoop({ECHO: echo}, [hook]),
        Command(code=ECHO, opaque=1),
        Command(code=UNKNOWN, opaque=2),
        Command(code=ECHO, opaque=3, flag=2),
    )

    assert hook.seen == [
        "before 1",
        "after 1 0",
        "before 2",
        "after 2 3",
        "before 3",
        "after 3 None",
    ]


async def test_hooks_see_a_request_once_that_waits_for_a_slow_turn() -> None:
    hook, tries = Hook(), list[int]()

    def slow(connection: Connection, request: Command) -> Command:
        tries.append(request.opaque)
        if request.opaque == 2:
            connection.require_slow_turn()
        return request.reply()

    parts = Parts(processor=RequestLoop({SLOW: slow}, [hook]), slow_turns=SlowTurns())
    async with connected(parts) as (_, peer):
        await peer.send(*[Command(code=SLOW, opaque=opaque) for opaque in (1, 2, 3)])

        assert [(await peer.read()).opaque for _ in range(3)] == [1, 2, 3]
    assert tries == [1, 2, 2, 3]
    assert hook.seen == ["before 1", "after 1 0", "before 2", "after 2 0", "before 3", "after 3 0"]


def test_a_hook_that_raises_before_keeps_the_handler_from_being_called() -> None:
    calls: list[None] = []
    loop = RequestLoop(
        _handlers(lambda: calls.append(None)), [Hook(before=SignatureError("no")), Hook()]
    )

    answers = _process(loop, Command(code=ECHO), Command(code=ECHO, flag=2))

    assert [answer.code for answer in answers] == [ResponseCode.NO_PERMISSION]
    assert calls == []


def test_a_hook_that_raises_after_replaces_the_answer() -> None:
    last = Hook()
    loop = RequestLoop({ECHO: echo}, [Hook(after=OrbitError("no")), last])

    answers = _process(loop, Command(code=ECHO, opaque=1), Command(code=ECHO, opaque=2, flag=2))

    assert [(answer.code, answer.remark) for answer in answers] == [(1, "no")]
    assert last.seen == ["before 1", "after 1 1", "before 2", "after 2 None"]


async def test_a_stopping_server_still_accepts_answers_and_refuses_requests() -> None:
    parts = Parts(processor=RequestLoop({}, otherwise=stopping))
    async with connected(parts) as (connection, peer):
        call = asyncio.create_task(connection.ask(Command(code=1), 1000))
        await peer.send((await peer.read()).reply(remark="late"), Command(code=ECHO, opaque=6))

        assert (await call).remark == "late"
        answer = await peer.read()
        assert (answer.opaque, answer.code) == (6, ResponseCode.SYSTEM_BUSY)
