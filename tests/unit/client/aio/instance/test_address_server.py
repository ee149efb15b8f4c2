"""The address server: requests, replies and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbitmq.client.aio.instance.address_server import AddressServer
from orbitmq.client.options import ClientOptions
from orbitmq.clock import ManualClock, SystemClock, settle
from orbitmq.errors import AddressServerError


@asynccontextmanager
async def serving(answer: bytes, asked: list[bytes]) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def fetched(answer: bytes, **options: Any) -> tuple[list[str], bytes]:
    asked: list[bytes] = []
    async with serving(answer, asked) as domain:
        server = AddressServer(ClientOptions(namesrv_domain=domain, **options), ManualClock())
        return await server.name_servers(), asked[0]


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + body


async def test_the_first_line_lists_the_name_servers() -> None:
    found, asked = await fetched(ok(b" a:9876;b:9876\r\nmore\r\n"))

    assert found == ["a:9876", "b:9876"]
    assert asked.startswith(b"GET /rocketmq/nsaddr HTTP/1.0\r\n")


async def test_a_unit_and_a_subgroup_ask_for_their_own_list() -> None:
    _, asked = await fetched(ok(b"a:1"), unit_name="east", namesrv_subgroup="mine")

    assert asked.startswith(b"GET /rocketmq/mine-east?nofix=1 HTTP/1.0\r\n")


def test_a_domain_without_a_port_gets_the_usual_one() -> None:
    server = AddressServer(ClientOptions(namesrv_domain="addresses.example"), SystemClock())

    assert server.url == "http://addresses.example:8080/rocketmq/nsaddr"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\nno", "it replied '404 Not Found'"),
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
        (b"", "does not speak HTTP"),
        (ok(b""), "its reply is empty"),
        (ok(b"<html>"), "it replied '<html>'"),
        (ok(b"a:1\n" * 20_000), "longer than 65536 bytes"),
    ],
)
async def test_a_useless_reply_is_an_error_with_a_hint(answer: bytes, reason: str) -> None:
    with pytest.raises(AddressServerError, match=f"{reason}.*check namesrv_domain"):
        await fetched(answer)


async def test_a_server_that_does_not_listen_is_an_error() -> None:
    server = AddressServer(ClientOptions(namesrv_domain="127.0.0.1:1"), SystemClock())

    with pytest.raises(AddressServerError, match=r"http://127\.0\.0\.1:1/rocketmq/nsaddr"):
        await server.name_servers()


async def test_a_server_that_does_not_reply_times_out() -> None:
    clock = ManualClock()
    connected = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with listening:
        domain = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        server = AddressServer(ClientOptions(namesrv_domain=domain), clock)
        fetching = asyncio.create_task(server.name_servers())
        await connected.wait()
        await settle()

        await clock.advance(3000)

        with pytest.raises(AddressServerError, match="no answer within 3000 ms"):
            await fetching
