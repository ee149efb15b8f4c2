"""Servers for tests: one that answers, one that must be clean when it has stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from orbitmq.clock import Clock
from orbitmq.protocol.command import Command
from orbitmq.transport.config import ServerConfig, TlsServerConfig
from orbitmq.transport.connection import Connection, Processor
from orbitmq.transport.connections import ConnectionListener
from orbitmq.transport.hooks import RpcHook
from orbitmq.transport.request_loop import Handler, RequestLoop
from orbitmq.transport.rpc_server import RpcServer
from tests.waiting import until

ECHO: Final = 9001
SLOW: Final = 9002
LARGE: Final = 9003
FAIL: Final = 9004
UNKNOWN: Final = 9099
WAIT_SECONDS: Final = 60
LOCAL: Final = ServerConfig(bind_address="127.0.0.1", shutdown_grace_seconds=30)


def echo(_: Connection, request: Command) -> Command:
    return request.reply(remark=request.fields.get("remark", ""), body=request.body)


def large(_: Connection, request: Command) -> Command:
    return request.reply(body=bytes(int(request.fields["bytes"])))


class Gate:
    """A deferred handler that answers on request."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self._opened: dict[str, asyncio.Event] = {}

    async def handle(self, _: Connection, request: Command) -> Command:
        name = request.fields.get("name", "")
        self.entered.append(name)
        await self._event(name).wait()
        return request.reply(remark=name, body=bytes(int(request.fields.get("bytes", "0"))))

    def open(self, name: str = "") -> None:
        self._event(name).set()

    async def wait_entered(self, count: int = 1) -> None:
        await until(lambda: len(self.entered) >= count)

    def _event(self, name: str) -> asyncio.Event:
        return self._opened.setdefault(name, asyncio.Event())


@asynccontextmanager
async def serving(
    handlers: Mapping[int, Handler] | None = None,
    *,
    config: ServerConfig = LOCAL,
    tls: TlsServerConfig | None = None,
    clock: Clock | None = None,
    hooks: Sequence[RpcHook] = (),
    listener: ConnectionListener | None = None,
    make_processor: Callable[[RequestLoop], Processor] | None = None,
) -> AsyncIterator[RpcServer]:
    """Run a server during a test; afterwards every budget must be unused."""
    if config.bind_address == "0.0.0.0":
        config = replace(config, bind_address="127.0.0.1")
    server = RpcServer(
        {ECHO: echo, LARGE: large, **(handlers or {})},
        config=config,
        tls=tls,
        clock=clock,
        hooks=hooks,
        listener=listener,
        make_processor=make_processor,
    )
    await server.start()
    try:
        yield server
    finally:
        async with asyncio.timeout(WAIT_SECONDS):
            await server.stop()
    assert not server.connections
    assert_free(server)


def assert_free(server: RpcServer) -> None:
    assert server.kept_bytes.taken == 0
    assert server.calls.oneway.in_flight == 0
    assert server.calls.unanswered.in_flight == 0


def address_of(server: RpcServer) -> str:
    return f"127.0.0.1:{server.port}"


class Events:
    """A connection listener that records its events."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.connections: list[Connection] = []

    def on_open(self, connection: Connection) -> None:
        self.seen.append("open")
        self.connections.append(connection)

    def on_idle(self, connection: Connection) -> None:
        assert connection in self.connections
        self.seen.append("idle")

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        assert connection in self.connections
        self.seen.append(f"close {type(error).__name__}" if error else "close")
