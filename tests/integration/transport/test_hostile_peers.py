"""Bad input: the server answers or closes, logs once per bad connection, and stays up."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import random
from collections.abc import Sequence

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orbitmq.clock import ManualClock, settle
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding
from orbitmq.transport.config import TlsMode, TlsServerConfig
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.transport.raw_peer import RawPeer
from tests.integration.transport.serving import (
    ECHO,
    LARGE,
    SLOW,
    UNKNOWN,
    Gate,
    assert_free,
    serving,
)
from tests.waiting import until

MIB = 1024 * 1024


def _frame(header: bytes, *, encoding: int = 0, header_bytes: int | None = None) -> bytes:
    mark = encoding << 24 | (len(header) if header_bytes is None else header_bytes)
    return (4 + len(header)).to_bytes(4, "big") + mark.to_bytes(4, "big") + header


BAD_FRAMES = {
    "a negative length": b"\xff\xff\xff\xff" + bytes(20),
    "a length of nothing": bytes(24),
    "a length below the prefix": b"\0\0\0\3abc" + bytes(20),
    "a length above the limit": b"\x01\0\0\0" + bytes(20),
    "the largest length": b"\x7f\xff\xff\xff" + bytes(20),
    "a header longer than its frame": _frame(b'{"code":1}', header_bytes=11),
    "a header of 16 MiB in a small frame": _frame(b"{}", header_bytes=0xFFFFFF),
    "an unknown encoding": _frame(b'{"code":1}', encoding=7),
    "no header": _frame(b""),
    "broken JSON": _frame(b'{"code":'),
    "JSON that is no object": _frame(b"[1,2,3]"),
    "JSON of the wrong types": _frame(b'{"code":{"a":1},"opaque":[]}'),
    "JSON nested without end": _frame(b'{"code":1,"extFields":' + b"[" * 100_000),
    "a number above 32 bits": _frame(b'{"code":1,"opaque":99999999999}'),
    "a number above all bits": _frame(b'{"code":1,"opaque":' + b"9" * 5000 + b"}"),
    "a binary header cut off": _frame(b"\0\1\0", encoding=1),
    "a binary header that lies": _frame(b"\0\1\0\1\1" + b"\x7f" * 16, encoding=1),
    "JSON with 1001 fields": _frame(
        b'{"code":1,"extFields":{%b}}' % b",".join(b'"%d":""' % field for field in range(1001))
    ),
    "a header above 512 KiB": _frame(b'{"code":1}' + b" " * 512 * 1024),
    "a request in HTTP": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a request of Redis": b"*1\r\n$4\r\nPING\r\n" + bytes(20),
}
MODES = pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PERMISSIVE])


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("bad", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
async def test_a_bad_frame_ends_its_connection_and_is_logged_once(
    bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server, await RawPeer.connect(server.port) as healthy:
        await healthy.ask(Command(code=ECHO))
        async with await RawPeer.connect(server.port) as peer:
            # Bytes after the bad frame may hit the closed connection.
            with contextlib.suppress(ConnectionError):
                await peer.send(bad, bad)

            assert await peer.rest() == b""
        assert (await healthy.ask(Command(code=ECHO))).code == 0
        await until(lambda: len(server.connections) == 1)
        assert_free(server)
    warnings = _warnings(caplog)
    assert len(warnings) == 1
    assert "connection closed for bad input peer=127.0.0.1:" in warnings[0]


async def test_a_rush_of_bad_frames_logs_ten_warnings_a_second_and_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    nonsense = BAD_FRAMES["a request in HTTP"]
    async with serving(clock=clock) as server:

        async def rush(starts: list[bytes]) -> list[str]:
            caplog.clear()
            for start in starts:
                async with await RawPeer.connect(server.port) as peer:
                    await peer.send(start)
                    await peer.rest()
            await until(lambda: not server.connections and server._acceptor.admitting == 0)
            return _warnings(caplog)

        # Half fail in the TLS handshake, half with their first frame: one limit covers both.
        assert len(await rush([nonsense, b"\x16" + b"nonsense" * 100] * 20)) == 10

        caplog.clear()
        await clock.advance(1000)
        assert _warnings(caplog) == ["further connections closed for bad input or refused count=30"]

        assert len(await rush([nonsense] * 12)) == 10
        caplog.clear()
    # A stopping server logs the count.
    assert _warnings(caplog) == ["further connections closed for bad input or refused count=2"]


async def test_frames_before_a_bad_one_in_its_chunk_are_answered_first() -> None:
    good = [Command(code=ECHO, opaque=opaque).encode() for opaque in range(5)]
    async with serving() as server:
        for kind, bad in BAD_FRAMES.items():
            async with await RawPeer.connect(server.port) as peer:
                await peer.send(*good, bad)

                answers = await peer.rest_commands()
            assert [answer.opaque for answer in answers] == [0, 1, 2, 3, 4], kind


async def test_large_answers_before_a_bad_frame_all_arrive() -> None:
    async with (
        serving() as server,
        await RawPeer.connect(server.port, receive_buffer_bytes=65536) as peer,
    ):
        good = [
            Command(code=LARGE, opaque=opaque, fields={"bytes": str(MIB)}).encode()
            for opaque in range(20)
        ]

        await peer.send(*good, BAD_FRAMES["broken JSON"])

        answers = await peer.rest_commands()
        assert [answer.opaque for answer in answers] == list(range(20))
        assert {len(answer.body) for answer in answers} == {MIB}


@pytest.mark.parametrize("encoding", Encoding)
async def test_unknown_codes_are_answered_with_3_whatever_their_number(encoding: Encoding) -> None:
    async with serving() as server, await RawPeer.connect(server.port) as peer:
        for code in (UNKNOWN, -1, 0, 32767, -32768):
            asked = Command(code=code, opaque=code, encoding=encoding)
            answer = await peer.ask(asked)
            assert (answer.code, answer.opaque, answer.encoding) == (3, code, encoding)


async def test_unexpected_answers_are_dropped() -> None:
    async with serving() as server, await RawPeer.connect(server.port) as peer:
        await peer.send(*[Command(code=0, opaque=opaque, flag=1) for opaque in range(1000)])
        await peer.send(*[Command(code=0, opaque=opaque, flag=3) for opaque in range(1000)])

        assert (await peer.ask(Command(code=ECHO, opaque=5))).opaque == 5


@MODES
async def test_a_frame_cut_off_by_the_end_of_its_connection_leaves_nothing(
    mode: TlsMode, caplog: pytest.LogCaptureFixture
) -> None:
    frame = Command(code=ECHO, body=bytes(20_000)).encode()
    async with serving(tls=TlsServerConfig(mode=mode)) as server:
        for cut in (1, 3, 4, 7, 8, 50, 5000, len(frame) - 1):
            for end in (RawPeer.close, RawPeer.reset):
                peer = await RawPeer.connect(server.port)
                await peer.send(frame[:cut])
                await until(lambda: len(server.connections) == 1)
                (connection,) = server.connections
                await until(lambda: connection._incomplete.kept_bytes == cut)  # noqa: B023
                end(peer)
                await until(lambda: not server.connections)
                assert_free(server)
    assert _warnings(caplog) == []


@MODES
async def test_requests_may_arrive_byte_by_byte(mode: TlsMode) -> None:
    async with (
        serving(tls=TlsServerConfig(mode=mode)) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        frames = b"".join(
            Command(code=ECHO, opaque=opaque, body=b"body", encoding=encoding).encode()
            for opaque, encoding in enumerate(Encoding)
        )
        for position in range(len(frames)):
            await peer.send(frames[position : position + 1])
            await settle(2)

        answers = [await peer.read(), await peer.read()]
        assert [(answer.opaque, answer.body) for answer in answers] == [(0, b"body"), (1, b"body")]


async def test_thousands_of_frames_in_one_chunk_are_answered_in_order() -> None:
    async with serving() as server, await RawPeer.connect(server.port) as peer:
        await peer.send(*[Command(code=ECHO, opaque=opaque) for opaque in range(5000)])

        assert [(await peer.read()).opaque for _ in range(5000)] == list(range(5000))


async def test_a_frame_of_16_mib_in_small_pieces_costs_no_more_than_its_bytes() -> None:
    async with serving() as server, await RawPeer.connect(server.port) as peer:
        frame = Command(code=ECHO, body=bytes(16 * MIB - 1000)).encode()
        # Processor time, which a stalled machine does not use.
        began = sum(psutil.Process().cpu_times()[:2])
        for start in range(0, len(frame), 4096):
            await peer.send(frame[start : start + 4096])

        assert len((await peer.read()).body) == 16 * MIB - 1000
        # Quadratic copying would take minutes.
        assert sum(psutil.Process().cpu_times()[:2]) - began < 15


async def test_peers_that_announce_much_and_send_little_cost_little() -> None:
    async with serving() as server:
        gc.collect()
        before = psutil.Process().memory_info().rss
        head = (16 * MIB - 4).to_bytes(4, "big") + b"\0\0\0\x10" + bytes(1000)
        peers = [await RawPeer.connect(server.port) for _ in range(300)]
        for peer in peers:
            await peer.send(head)
        await until(lambda: len([c for c in server.connections if c._incomplete.kept_bytes]) == 300)

        assert psutil.Process().memory_info().rss - before < 30 * MIB
        for peer in peers:
            peer.reset()
        await until(lambda: not server.connections)
        assert_free(server)


async def test_a_thousand_bad_connections_are_all_logged_or_counted_and_leave_no_memory_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        bad = list(BAD_FRAMES.values())

        async def abuse(count: int) -> None:
            for number in range(count):
                async with await RawPeer.connect(server.port) as peer:
                    await peer.send(bad[number % len(bad)])
                    await peer.rest()

        await abuse(100)
        gc.collect()
        before = psutil.Process().memory_info().rss
        await abuse(1000)
        await until(lambda: not server.connections)
        gc.collect()

        assert psutil.Process().memory_info().rss - before < 20 * MIB
        assert_free(server)
        async with await RawPeer.connect(server.port) as peer:
            assert (await peer.ask(Command(code=ECHO))).code == 0
    # The last are counted when the server stops.
    warnings = _warnings(caplog)
    counts = [int(line.rpartition("count=")[2]) for line in warnings if "count=" in line]
    assert len(warnings) - len(counts) + sum(counts) == 1100


async def test_a_processor_that_fails_ends_its_connection_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def process(self, *_: object) -> tuple[int, bytes]:
            raise ZeroDivisionError("inside")

    async with (
        serving(make_processor=lambda _: Broken()) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        await peer.send(Command(code=ECHO))

        assert await peer.rest() == b""
    assert len(_warnings(caplog)) == 1
    assert "internal error" in caplog.text


# --- fuzz -------------------------------------------------------------------------------------

FUZZ = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
COMMANDS = st.lists(
    st.builds(
        Command,
        code=st.sampled_from([ECHO, UNKNOWN, SLOW]),
        body=st.binary(max_size=3000),
        opaque=st.integers(-(2**31), 2**31 - 1),
        flag=st.sampled_from([0, 0, 0, 2]),
        encoding=st.sampled_from(Encoding),
    ),
    min_size=1,
    max_size=8,
)


@FUZZ
@given(commands=COMMANDS, cuts=st.lists(st.floats(0, 1), max_size=6))
async def test_requests_are_answered_the_same_however_their_bytes_are_split(
    commands: Sequence[Command], cuts: Sequence[float]
) -> None:
    frames = b"".join(command.encode() for command in commands)
    places = sorted({int(cut * len(frames)) for cut in cuts} | {0, len(frames)})
    wanted = [command for command in commands if not command.is_oneway]
    gate = Gate()
    gate.open()
    async with (
        serving({SLOW: gate.handle}) as server,
        await RawPeer.connect(server.port) as peer,
    ):
        for start, end in itertools.pairwise(places):
            await peer.send(frames[start:end])
            await settle(3)

        answers = [await peer.read() for _ in wanted]

        codes = {ECHO: 0, SLOW: 0, UNKNOWN: 3}
        assert sorted((answer.opaque, answer.code) for answer in answers) == sorted(
            (command.opaque, codes[command.code]) for command in wanted
        )


async def _survives(server: RpcServer, frames: bytes) -> None:
    async with await RawPeer.connect(server.port) as peer:
        try:
            await peer.send(frames)
            peer.socket.shutdown(1)
        except OSError:
            return
        await peer.rest()
    async with await RawPeer.connect(server.port) as healthy:
        assert (await healthy.ask(Command(code=ECHO))).code == 0


@FUZZ
@given(frames=st.binary(max_size=400))
@example(frames=b"\0\0\0\4\0\0\0\0")
async def test_any_bytes_are_survived(frames: bytes) -> None:
    async with serving() as server:
        await _survives(server, frames)


@FUZZ
@given(
    commands=COMMANDS,
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=5),
)
async def test_requests_with_changed_bytes_are_survived(
    commands: Sequence[Command], changes: Sequence[tuple[float, int]]
) -> None:
    frames = bytearray(b"".join(command.encode() for command in commands))
    for place, value in changes:
        frames[int(place * len(frames))] = value
    gate = Gate()
    gate.open()
    async with serving({SLOW: gate.handle}) as server:
        await _survives(server, bytes(frames))


async def test_a_long_run_of_random_abuse_leaves_a_healthy_server(
    request: pytest.FixtureRequest,
) -> None:
    seed = hash(request.node.name) & 0xFFFF
    print(f"seed={seed}")  # noqa: T201  # shown when it fails
    chance = random.Random(seed)
    good = Command(code=ECHO, body=b"x" * 50).encode()
    async with serving() as server:
        for _ in range(300):
            peer = await RawPeer.connect(server.port)
            chunk = bytearray(good * chance.randint(1, 20))
            for _ in range(chance.randint(0, 3)):
                chunk[chance.randrange(len(chunk))] = chance.randrange(256)
            await peer.send(bytes(chunk[: chance.randint(1, len(chunk))]))
            await settle(chance.randint(0, 3))
            chance.choice([peer.close, peer.reset])()
        await until(lambda: not server.connections and not server._acceptor.admitting)

        assert_free(server)
        async with await RawPeer.connect(server.port) as healthy:
            assert (await healthy.ask(Command(code=ECHO))).code == 0
