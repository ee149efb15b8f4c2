"""A broker that is killed while it delivers timers delivers each message once, and none early."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from orbitmq.client import Message, Producer
from orbitmq.clock import SystemClock
from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore
from tests.interop import wire
from tests.interop.ours import OrbitBroker, OrbitNameServer
from tests.waiting import wait_until

MESSAGES = 80
KILLS = 2
WAIT_S = 60


def _delivered(folder: Path) -> list[StoredMessage]:
    config = StoreConfig(
        root=folder / "store", log_file_bytes=16 << 20, index_slots=10_000, index_entries=40_000
    )
    found: list[StoredMessage] = []
    with MessageStore(config) as store:
        while len(found) < store.end_of("T", 0):
            records = store.read("T", 0, len(found)).records
            found += [decode_record(record) for record in records]
    return found


def test_a_broker_killed_during_delivery_delivers_each_message_once(tmp_path: Path) -> None:
    server = OrbitNameServer(tmp_path)
    broker = OrbitBroker("timers", tmp_path, [server.address])
    due_ms: dict[str, int] = {}
    try:
        server.process.start()
        server.wait_ready()
        broker.restart()
        broker.create_topic("T", queues=1)
        first = datetime.fromtimestamp(SystemClock().now_ms() / 1000 + 4, UTC)
        with Producer("timers", namesrv=server.address) as producer:
            for number in range(MESSAGES):
                due = first + timedelta(milliseconds=25 * number)
                due_ms[f"m{number}"] = int(due.timestamp() * 1000)
                producer.send(Message("T", f"m{number}", deliver_at=due))

        for kill in range(1, KILLS + 1):
            wait_until(
                lambda kill=kill: wire.max_offset(broker.address, "T", 0) >= kill * 25,  # type: ignore[misc]  # bound now
                timeout_s=WAIT_S,
                what="some delivered",
            )
            broker.process.kill()
            broker.restart()
        wait_until(
            lambda: wire.max_offset(broker.address, "T", 0) >= MESSAGES,
            timeout_s=WAIT_S,
            what="all delivered",
        )
        broker.process.stop()
    finally:
        broker.process.kill()
        server.process.kill()

    delivered = _delivered(tmp_path)
    assert sorted(m.body.decode() for m in delivered) == sorted(due_ms)
    assert [m.body for m in delivered if m.store_ms < due_ms[m.body.decode()]] == []
