"""A broker in this process, on sockets, with a store on disk and a clock moved by hand."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orbitmq import java_json
from orbitmq.broker.app import Broker, load_settings
from orbitmq.clock import ManualClock
from orbitmq.model.subscriptions import CLUSTERING, TAG, MessageModel, Subscription
from orbitmq.model.versions import OUR_VERSION
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests.clients import (
    ConsumerGroup,
    Heartbeat,
    HeartbeatBody,
    NotifyMembersChanged,
    ProducerGroup,
)
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.protocol.requests.sending import SendMessage, SendMessageShort
from orbitmq.protocol.requests.topics import UpdateTopic
from orbitmq.record.decode import StoredMessage, decode_records
from orbitmq.record.properties import encode_properties
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from tests.waiting import until

SMALL_FILES = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
WAIT_SECONDS = 60


def content(reply: Command) -> Any:
    """Decode the body of a reply, which may be in the dialect of Java peers."""
    return json.loads(java_json.to_standard(reply.body))


def send_header(
    topic: str = "T",
    *,
    queue_id: int = 0,
    kind: type[SendMessage] = SendMessageShort,
    unique_id: str | None = "0A0000010000",
    system_flag: int = 0,
    flag: int = 0,
    batch: bool = False,
    retries: int | None = None,
    retries_max: int | None = None,
    template: str = "TBW102",
    queues: int = 4,
    **properties: str,
) -> SendMessage:
    if unique_id is not None:
        properties["UNIQ_KEY"] = unique_id
    return kind(
        producer_group="producers",
        topic=topic,
        template_topic=template,
        template_queues=queues,
        queue_id=queue_id,
        system_flag=system_flag,
        born_timestamp_ms=Long(1_600_000_000_123),
        flag=flag,
        properties=encode_properties(properties).decode(),
        batch=batch or None,
        retries=retries,
        retries_max=retries_max,
    )


def pull_header(
    topic: str = "T",
    offset: int = 0,
    *,
    group: str = "g",
    queue_id: int = 0,
    expression: str | None = "*",
    expression_type: str | None = None,
    count_max: int = 32,
    hold_ms: int = 0,
    commit: int | None = None,
    version: int = 0,
    bulk_count: int | None = None,
    bulk_bytes: int | None = None,
) -> PullMessages:
    flag = PullFlag(0)
    if expression is not None:
        flag |= PullFlag.SUBSCRIPTION
    if hold_ms:
        flag |= PullFlag.SUSPEND
    if commit is not None:
        flag |= PullFlag.COMMIT_OFFSET
    return PullMessages(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=Long(offset),
        messages_max=count_max,
        system_flag=int(flag),
        commit_offset=Long(commit or 0),
        suspend_timeout_ms=Long(hold_ms),
        expression=expression,
        subscription_version=Long(version),
        expression_type=expression_type,
        bulk_count=bulk_count,
        bulk_bytes=bulk_bytes,
    )


def heartbeat_body(
    client_id: str,
    *,
    group: str = "g",
    topic: str = "T",
    expression: str = "*",
    expression_type: str = TAG,
    version: int = 1,
    model: MessageModel = CLUSTERING,
    produces: str | None = None,
) -> bytes:
    subscription = Subscription(
        topic=topic, expression=expression, expression_type=expression_type, version=version
    )
    consumer = ConsumerGroup(group=group, message_model=model, subscriptions=[subscription])
    return java_json.encode(
        HeartbeatBody(
            client_id=client_id,
            consumers=[consumer] if group else [],
            producers=[ProducerGroup(group=produces)] if produces else [],
        )
    )


@dataclass
class Peer:
    """A client of the broker under test, with a connection of its own."""

    address: str
    rpc: RpcClient
    # Groups whose members changed, as the broker notified.
    told: list[str] = field(default_factory=list)
    encoding: Encoding = Encoding.JSON

    async def ask(
        self, header: Header, body: bytes = b"", *, version: int = OUR_VERSION
    ) -> Command:
        asked = request(header, body, encoding=self.encoding)
        asked.version = version
        return await self.rpc.invoke(self.address, asked, timeout_ms=WAIT_SECONDS * 1000)

    async def send(self, topic: str = "T", body: bytes = b"body", **rest: Any) -> Command:
        return await self.ask(send_header(topic, **rest), body)

    async def pull(self, topic: str = "T", offset: int = 0, **rest: Any) -> Command:
        return await self.ask(pull_header(topic, offset, **rest))

    async def read(self, topic: str = "T", offset: int = 0, **rest: Any) -> list[StoredMessage]:
        reply = await self.pull(topic, offset, **rest)
        return decode_records(reply.body)

    async def heartbeat(self, client_id: str, **rest: Any) -> Command:
        return await self.ask(Heartbeat(), heartbeat_body(client_id, **rest))

    async def make_memory_topic(self, name: str) -> None:
        await self.make_topic(name, read=1, write=1, attributes="+orbitmq.storage=memory")

    async def make_topic(
        self, name: str, *, read: int = 4, write: int = 4, perm: int = 6, attributes: str = ""
    ) -> None:
        reply = await self.ask(
            UpdateTopic(
                topic=name,
                template_topic="TBW102",
                read_queues=read,
                write_queues=write,
                permission=perm,
                filter_type="SINGLE_TAG",
                attributes=attributes,
            )
        )
        assert reply.code == 0, reply.remark


@dataclass
class Site:
    """The broker under test and its surroundings."""

    broker: Broker
    clock: ManualClock
    folder: Path
    connect: Callable[[], Awaitable[Peer]]
    options: dict[str, str]

    async def advance_until(self, condition: Callable[[], bool], *, step_ms: int = 100) -> None:
        """Advance the clock until a condition holds; threads get real time to run."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                await self.clock.advance(step_ms)

    async def stored(self, topic: str, queue_id: int, end: int) -> None:
        """Advance the clock until a queue has reached an end."""
        await self.advance_until(lambda: self.broker.store.end_of(topic, queue_id) >= end)


def make_broker(folder: Path, clock: ManualClock, **options: str) -> Broker:
    flags = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerName": "broker-a",
        "storePathRootDir": str(folder / "store"),
        **SMALL_FILES,
        **options,
    }
    return Broker(load_settings(flags=flags), clock=clock)


@asynccontextmanager
async def running(folder: Path, clock: ManualClock, **options: str) -> AsyncIterator[Site]:
    """Run a broker on the store in a folder."""
    broker = make_broker(folder, clock, **options)
    await broker.start()
    try:
        async with AsyncExitStack() as peers:

            async def connect() -> Peer:
                told: list[str] = []

                def note(_: Connection, notice: Command) -> None:
                    told.append(NotifyMembersChanged.decode(notice.fields).consumer_group)

                rpc = await peers.enter_async_context(
                    RpcClient(handlers={NotifyMembersChanged.CODE: note})
                )
                return Peer(f"127.0.0.1:{broker.port}", rpc, told)

            yield Site(broker, clock, folder, connect, options)
    finally:
        await broker.stop()


def crash_image(site: Site, folder: Path) -> None:
    """Copy the files that a kill of the broker would leave now."""
    shutil.copytree(site.folder / "store", folder / "store")


class Disk:
    """Holds or fails the syncs of a store in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._free = threading.Event()
        self._free.set()
        self._waiting = threading.Event()
        self._fails = False
        self._sync = os.fdatasync

    def sync(self, descriptor: int) -> None:
        if not str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(self._folder):
            # From a cluster that another test left running.
            self._sync(descriptor)
            return
        if not self._free.is_set():
            self._waiting.set()
            assert self._free.wait(WAIT_SECONDS * 2)
        if self._fails:
            raise OSError(errno.EIO, "injected")
        self._sync(descriptor)

    def hold(self) -> None:
        self._free.clear()

    def fail(self) -> None:
        """Make every sync fail from now on, also one that is held."""
        self._fails = True
        self._free.set()

    def release(self) -> None:
        self._free.set()

    async def held(self) -> None:
        """Return once a sync is held."""
        await until(self._waiting.is_set)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    gate = Disk(tmp_path)
    monkeypatch.setattr("os.fdatasync", gate.sync)
    yield gate
    gate.release()


@pytest.fixture
def options() -> dict[str, str]:
    """Options of the broker; a test overrides this fixture to set some."""
    return {}


@pytest.fixture
async def site(tmp_path: Path, options: dict[str, str]) -> AsyncIterator[Site]:
    async with running(tmp_path, ManualClock(), **options) as site:
        yield site


@pytest.fixture
async def peer(site: Site) -> Peer:
    return await site.connect()
