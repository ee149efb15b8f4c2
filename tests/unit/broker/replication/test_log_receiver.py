"""The slave's end of the link: whose log it copies."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitmq.broker.replication.config import ReplicationConfig
from orbitmq.broker.replication.log_receiver import LogReceiver
from orbitmq.broker.replication.log_stream import REPORT
from orbitmq.clock import SystemClock
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore


class _Master:
    """Listens for slaves, and keeps what each connection sent first."""

    def __init__(self) -> None:
        self.first_bytes: asyncio.Queue[bytes] = asyncio.Queue()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.first_bytes.put_nowait(await reader.read(REPORT.size))
        finally:
            writer.close()

    def stop(self) -> None:
        self._server.close()


async def test_a_log_is_not_copied_from_a_master_that_was_replaced_meanwhile(
    tmp_path: Path,
) -> None:
    old, new = _Master(), _Master()
    await old.start()
    await new.start()
    present = [old.address]
    store = MessageStore(StoreConfig(root=tmp_path), clock=SystemClock(), held=True, is_copy=True)
    receiver = LogReceiver(
        store=store,
        address=lambda: present[0],
        # The new one is found just before the slave connects.
        prepare=lambda _: present.__setitem__(0, new.address),
        config=ReplicationConfig(),
        clock=SystemClock(),
    )
    try:
        receiver.start()

        # It closes that connection without a word.
        assert await old.first_bytes.get() == b""
        assert await new.first_bytes.get() == REPORT.pack(0)
    finally:
        await asyncio.to_thread(receiver.stop)
        store.close()
        old.stop()
        new.stop()
