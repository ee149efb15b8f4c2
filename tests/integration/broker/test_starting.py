"""Starting, registering, stopping, and what survives a stop and a kill."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker import registration
from orbitmq.broker.app import DEFAULT_PORT, load_settings
from orbitmq.broker.ports import FAST_LANE, find_port
from orbitmq.clock import ManualClock, settle
from orbitmq.errors import OrbitError, SettingsError
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.nameserver.app import NameServer
from orbitmq.nameserver.app import load_settings as load_name_server_settings
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.configuration import UpdateBrokerConfig
from orbitmq.protocol.requests.offsets import CommitOffset, GetCommittedOffset
from orbitmq.protocol.requests.registration import encode_register_body
from orbitmq.store.message_store import MessageStore
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.local_machine import is_free
from tests.integration.broker.conftest import WAIT_SECONDS, Site, crash_image, make_broker, running
from tests.waiting import until


@asynccontextmanager
async def name_server(folder: Path, port: int = 0) -> AsyncIterator[NameServer]:
    flags = {
        "listenPort": str(port),
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(folder / "kvConfig.json"),
    }
    server = NameServer(load_name_server_settings(flags=flags))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def test_the_port_is_that_of_rocketmq_unless_set() -> None:
    assert load_settings().of(ServerConfig).listen_port == DEFAULT_PORT == 10911


# --- ports ------------------------------------------------------------------------------------


async def test_a_found_port_is_reserved_while_the_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(tmp_path, ManualClock())
    open_store = broker._open_store
    free: list[bool] = []

    def opening() -> MessageStore:
        free.extend(is_free("127.0.0.1", broker.port + step) for step in (0, FAST_LANE))
        return open_store()

    monkeypatch.setattr(broker, "_open_store", opening)
    await broker.start()
    await broker.stop()

    assert free == [False, False]


async def test_port_0_finds_three_neighbours(site: Site) -> None:
    port = site.broker.port

    assert not is_free("127.0.0.1", port)
    assert not is_free("127.0.0.1", port - 2)
    assert [server.port for server in site.broker.serving.servers] == [port, port - 2]
    assert site.broker.advertised == f"127.0.0.1:{port}"


async def test_a_fast_lane_in_use_fails_the_start_and_leaves_nothing_behind(tmp_path: Path) -> None:
    port = find_port("127.0.0.1")
    lane = port - 2
    broker = make_broker(tmp_path, ManualClock(), listenPort=str(port))
    with (
        socket.create_server(("127.0.0.1", lane)),
        pytest.raises(OrbitError, match=f"cannot listen on 127.0.0.1:{lane}"),
    ):
        await broker.start()

    await broker.stop()
    assert is_free("127.0.0.1", broker.port)
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        assert (await peer.send("T")).code == ResponseCode.SUCCESS


async def test_a_store_in_use_fails_the_start(site: Site) -> None:
    with pytest.raises(OrbitError):
        await make_broker(site.folder, ManualClock()).start()


# --- name servers -----------------------------------------------------------------------------


async def test_every_name_server_learns_of_the_broker_and_its_new_topics(
    tmp_path: Path,
) -> None:
    async with name_server(tmp_path) as first, name_server(tmp_path) as second:
        addresses = f"127.0.0.1:{first.port};127.0.0.1:{second.port}"
        async with running(tmp_path, ManualClock(), namesrvAddr=addresses) as site:
            told = [server.routes.route("TBW102") is not None for server in (first, second)]
            peer = await site.connect()
            await peer.make_topic("Made")
            made = [server.routes.route("Made") is not None for server in (first, second)]
            await peer.send("Sent")
            sent = [server.routes.route("Sent") is not None for server in (first, second)]
        left = [server.routes.route("Made") is None for server in (first, second)]

    assert told == [True, True]
    assert made == [True, True]
    assert sent == [True, True]
    assert left == [True, True]


async def test_a_name_server_that_is_down_does_not_affect_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with name_server(tmp_path) as up:
        address = f"127.0.0.1:{up.port}"
        async with running(tmp_path, ManualClock(), namesrvAddr=f"127.0.0.1:1;{address}"):
            assert up.routes.route("TBW102") is not None
        assert up.routes.route("TBW102") is None

    assert "registration failed name_server=127.0.0.1:1" in caplog.text
    assert f" registered name_server={address} " in caplog.text


async def test_a_silent_name_server_delays_neither_start_nor_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wait in ("_START_WAIT_MS", "_UNREGISTER_TIMEOUT_MS"):
        monkeypatch.setattr(registration, wait, 3000)
    clock = ManualClock()

    async def let_time_pass(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        async with asyncio.timeout(WAIT_SECONDS):
            while not task.done():
                await clock.advance(100)
        await task

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        broker = make_broker(tmp_path, clock, namesrvAddr=address)
        await let_time_pass(broker.start())
        await let_time_pass(broker.stop())

    assert f"starting without name servers that do not answer addresses={address}" in caplog.text
    # Nothing waited for the call to time out.
    assert "REGISTER_BROKER (103)" not in caplog.text


async def test_nothing_is_reported_after_the_broker_has_unregistered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server(tmp_path) as server:
        address = f"127.0.0.1:{server.port}"
        async with running(tmp_path, ManualClock(), namesrvAddr=address) as site:
            peer = await site.connect()
            # A stopping broker unregisters first; connected clients send a while longer.
            await site.broker.parts.registration.stop()
            await peer.send("Late")
            await site.broker.parts.registration.register_all()

            assert server.routes.route("TBW102") is None
            assert server.routes.route("Late") is None

    assert "refused" not in caplog.text


async def test_many_new_topics_need_few_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def count(
        topics: Mapping[str, TopicConfig], version: DataVersion, *, filter_servers: list[str]
    ) -> bytes:
        sizes.append(len(topics))
        return encode_register_body(topics, version, filter_servers=filter_servers)

    async with name_server(tmp_path) as up:
        addresses = f"127.0.0.1:1;127.0.0.1:{up.port}"
        async with running(tmp_path, ManualClock(), namesrvAddr=addresses) as site:
            peer = await site.connect()
            monkeypatch.setattr("orbitmq.broker.registration.encode_register_body", count)
            await asyncio.gather(*(peer.send(f"T{n}") for n in range(100)))
            await until(lambda: all(up.routes.route(f"T{n}") is not None for n in range(100)))

    # The server that is down has to wait for the next round: no report has the whole table.
    assert sum(sizes) == 100
    assert len(sizes) < 50


async def test_a_name_server_that_comes_back_gets_a_report_within_a_second(tmp_path: Path) -> None:
    port = find_port("127.0.0.1")
    clock = ManualClock()
    async with running(tmp_path, clock, namesrvAddr=f"127.0.0.1:{port}") as site:
        for _ in range(2):
            async with name_server(tmp_path, port=port) as server:
                routes = server.routes
                before = routes.route("TBW102")

                await site.clock.advance(1000)
                await until(lambda routes=routes: routes.route("TBW102") is not None)  # type: ignore[misc]

                assert before is None


@pytest.mark.parametrize(("permission", "seen"), [("6", 6), ("4", 4), ("2", 2)])
async def test_reported_permissions_are_limited_to_those_of_the_broker(
    tmp_path: Path, permission: str, seen: int
) -> None:
    async with name_server(tmp_path) as server:
        address = f"127.0.0.1:{server.port}"
        async with running(
            tmp_path, ManualClock(), namesrvAddr=address, brokerPermission=permission
        ) as site:
            peer = await site.connect()
            await peer.make_topic("T")
            route = server.routes.route("T")

            assert route is not None
            assert [queues.permission for queues in route.queues] == [seen]


async def test_a_permission_that_is_changed_reaches_the_name_servers(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server:
        address = f"127.0.0.1:{server.port}"
        async with running(tmp_path, ManualClock(), namesrvAddr=address) as site:
            peer = await site.connect()
            await peer.make_topic("T")

            for permission in (4, 6):
                body = f"brokerPermission={permission}".encode()
                await peer.ask(UpdateBrokerConfig(), body)
                route = server.routes.route("T")

                assert route is not None
                assert [queues.permission for queues in route.queues] == [permission]


# --- what survives ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"brokerId": "1"}, "set brokerRole=SLAVE"),
        ({"brokerRole": "SLAVE"}, "needs a brokerId above 0"),
    ],
)
def test_an_id_that_does_not_suit_the_role_is_refused(
    tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        make_broker(tmp_path, ManualClock(), **options)


async def test_everything_survives_a_stop(tmp_path: Path) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=3, write=2)
        await peer.send("T", b"one", queue_id=1)
        await peer.heartbeat("c")
        await peer.ask(
            CommitOffset(consumer_group="g", topic="T", queue_id=1, commit_offset=Long(1))
        )

    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        topic = site.broker.topics.require("T")
        assert (topic.read_queues, topic.write_queues) == (3, 2)
        assert site.broker.groups.get("g") is not None
        assert [message.body for message in await peer.read("T", queue_id=1)] == [b"one"]
        offset = await peer.ask(GetCommittedOffset(consumer_group="g", topic="T", queue_id=1))
        assert offset.fields["offset"] == "1"
        assert (await peer.send("T", b"two", queue_id=1)).fields["queueOffset"] == "1"


async def test_everything_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        for number in range(20):
            await peer.send("T", b"%d" % number, queue_id=number % 2)
        await peer.pull("T", commit=7)
        await site.clock.advance(5_000)
        await until((site.folder / "store/config/consumerOffset.json").exists)
        crash_image(site, killed)

    async with running(killed, ManualClock()) as site:
        peer = await site.connect()
        for queue_id in range(2):
            found = await peer.read("T", queue_id=queue_id)
            assert [int(message.body) for message in found] == list(range(queue_id, 20, 2))
        offset = await peer.ask(GetCommittedOffset(consumer_group="g", topic="T", queue_id=0))
        assert offset.fields["offset"] == "7"


async def test_a_cancelled_start_closes_the_store(tmp_path: Path) -> None:
    clock = ManualClock()
    starting = asyncio.create_task(make_broker(tmp_path, clock).start())
    await settle(3)  # a thread is at work on the store

    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    async with running(tmp_path, clock):
        pass  # nobody holds its lock
