"""Audits of the directory of a broker that runs, and of the same after it stopped."""

from __future__ import annotations

from pathlib import Path

from orbitmq.clock import ManualClock
from orbitmq.pipelines.auditing.tasks import ItemOptions
from orbitmq.protocol.requests.topics import DeleteTopic
from tests.integration.broker.conftest import running
from tests.integration.broker.test_staged_writes import stage
from tests.integration.broker.test_transactions import COMMIT, ROLL_BACK, end, prepare
from tests.unit.pipelines.auditing.audits import audited_store

# As this suite's brokers have them.
OPTIONS = ItemOptions(index_slots=100)


async def test_what_a_broker_stores_for_itself_is_no_defect(tmp_path: Path) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=4, write=4)
        await peer.make_topic("gone", read=2, write=2)
        for number in range(40):
            await peer.send("T", b"plain", queue_id=number % 4, KEYS=f"key{number}")
            await peer.send("gone", b"deleted", queue_id=number % 2)
        await peer.send("T", b"level", DELAY="3")
        await peer.send("T", b"timer", TIMER_DELAY_MS="3600000")
        await prepare(peer, unique_id="open")
        await end(peer, await prepare(peer, unique_id="committed"), COMMIT)
        await end(peer, await prepare(peer, unique_id="rolled back"), ROLL_BACK)
        await stage(peer, [b"a", b"b", b"c"])
        assert (await peer.ask(DeleteTopic(topic="gone"))).code == 0
        await peer.make_topic("gone", read=2, write=2)
        await peer.send("gone", b"again")
        live = audited_store(tmp_path / "store", options=OPTIONS)
    stopped = audited_store(tmp_path / "store", options=OPTIONS)

    assert live.findings == []
    assert stopped.findings == []
    assert live.records >= 90
    assert stopped.records >= live.records
