"""Messages that are not due yet: listed, counted and brought forward, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.timers.pending_messages import PendingMessages
from orbitmq.clock import ManualClock
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pending import (
    CountPending,
    DeliverPending,
    ListPending,
    PendingCounts,
    PendingPage,
)
from orbitmq.protocol.requests.sending import RecallMessage, SendReply
from orbitmq.record.decode import StoredMessage
from orbitmq.store.log.draft import Draft, Receipt
from orbitmq.store.timers import pending
from tests.integration.broker.conftest import WAIT_SECONDS, Peer, Site, crash_image, running
from tests.waiting import until

HOUR_MS = 3_600_000


@pytest.fixture
async def topic(peer: Peer) -> str:
    await peer.make_topic("T", read=1, write=1)
    return "T"


async def send(
    peer: Peer, name: str, due_ms: int, *, topic: str = "T", body: bytes | None = None
) -> None:
    due = str(due_ms)
    reply = await peer.send(topic, body or name.encode(), unique_id=name, TIMER_DELIVER_MS=due)
    assert reply.code == ResponseCode.SUCCESS, reply.remark


async def taken_in(site: Site) -> None:
    """Wait until the wheel has all visible messages."""
    async with asyncio.timeout(WAIT_SECONDS):
        while site.broker.parts.timers.timers.behind:
            await site.clock.advance(0)


async def listed(peer: Peer, **rest: object) -> list[str]:
    """The names of all pending messages, read page by page."""
    names: list[str] = []
    cursor: str | None = None
    while cursor != "":
        asked = {"due_from_ms": Long(0), "due_until_ms": Long(0), "limit": 2} | rest
        reply = await peer.ask(ListPending(cursor=cursor, **asked))  # type: ignore[arg-type]  # by name
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        page = msgspec.json.decode(reply.body, type=PendingPage)
        names += [message.message_id for message in page.messages]
        cursor = page.cursor
    return names


async def counted(peer: Peer) -> int:
    reply = await peer.ask(
        CountPending(due_from_ms=Long(0), due_until_ms=Long(0), span_ms=Long(HOUR_MS))
    )
    return sum(count for _, count in msgspec.json.decode(reply.body, type=PendingCounts).counts)


@pytest.mark.usefixtures("topic")
async def test_pages_have_every_message_once_by_due_second(site: Site, peer: Peer) -> None:
    now_ms = site.clock.now_ms()
    names = [f"m{number}" for number in range(9)]
    for number, name in enumerate(names):
        await send(peer, name, now_ms + (9 - number) * HOUR_MS)
    await taken_in(site)

    assert await listed(peer) == names[::-1]
    assert await counted(peer) == 9
    assert await listed(peer, due_until_ms=Long(now_ms + 2 * HOUR_MS)) == ["m8", "m7"]
    assert await listed(peer, due_from_ms=Long(now_ms + 8 * HOUR_MS)) == ["m1", "m0"]
    assert await listed(peer, topic="other") == []
    assert await listed(peer, message_id="m3") == ["m3"]
    assert await listed(peer, message_id="m33") == []


@pytest.mark.usefixtures("topic")
async def test_a_message_brought_forward_is_delivered_now_and_not_again(
    site: Site, peer: Peer
) -> None:
    now_ms = site.clock.now_ms()
    await send(peer, "a", now_ms + 5000)
    await send(peer, "b", now_ms + 5000)
    await taken_in(site)

    reply = await peer.ask(DeliverPending(message_id="a", topic="T"))
    again = await peer.ask(DeliverPending(message_id="a", topic="T"))
    other = await peer.ask(DeliverPending(message_id="b", topic="X"))

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert [message.body for message in await peer.read()] == [b"a"]
    assert "is pending" in str(again.remark)
    assert "is pending" in str(other.remark)
    await taken_in(site)
    assert await listed(peer) == ["b"]
    await site.stored("T", 0, 2)
    await site.advance_until(lambda: site.clock.now_ms() > now_ms + 9000)
    assert [message.body for message in await peer.read()] == [b"a", b"b"]
    assert await listed(peer) == []


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("first", ["T", "OTHER"])
async def test_messages_of_other_topics_with_the_id_are_not_brought_forward(
    site: Site, peer: Peer, first: str
) -> None:
    await peer.make_topic("OTHER", read=1, write=1)
    due_ms = site.clock.now_ms() + 5000
    for topic in sorted(["T", "OTHER"], key=lambda name: name != first):
        await send(peer, "a", due_ms, topic=topic)
    await taken_in(site)

    reply = await peer.ask(DeliverPending(message_id="a", topic="T"))
    early = len(await peer.read()), len(await peer.read("OTHER"))
    await site.stored("OTHER", 0, 1)
    await site.advance_until(lambda: site.clock.now_ms() > due_ms + 3000)

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert early == (1, 0)
    assert (len(await peer.read()), len(await peer.read("OTHER"))) == (1, 1)


@pytest.mark.usefixtures("topic")
async def test_all_messages_of_a_topic_and_second_with_the_id_are_brought_forward(
    site: Site, peer: Peer
) -> None:
    due_ms = site.clock.now_ms() + 5000
    await send(peer, "a", due_ms, body=b"first")
    await send(peer, "a", due_ms, body=b"second")
    await taken_in(site)

    reply = await peer.ask(DeliverPending(message_id="a", topic="T"))
    early = [message.body for message in await peer.read()]
    await site.advance_until(lambda: site.clock.now_ms() > due_ms + 3000)

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert early == [b"first", b"second"]
    assert len(await peer.read()) == 2


@pytest.mark.usefixtures("topic")
async def test_an_id_of_more_messages_than_are_found_is_not_brought_forward(
    site: Site, peer: Peer
) -> None:
    due_ms = site.clock.now_ms() + HOUR_MS
    for _ in range(33):
        await send(peer, "a", due_ms)
    await taken_in(site)

    reply = await peer.ask(DeliverPending(message_id="a", topic="T"))

    assert "too many messages have the id" in str(reply.remark)
    assert await counted(peer) == 33


@pytest.mark.usefixtures("topic")
async def test_delivery_does_not_wait_for_requests_about_pending_messages(
    site: Site, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "SLICE_UNITS", 1)
    now_ms = site.clock.now_ms()
    for number in range(20):
        await send(peer, f"m{number}", now_ms + HOUR_MS + number * 1000)
    await send(peer, "due", now_ms + 1500)
    await taken_in(site)
    turn = site.broker.parts.timers.turn
    lists: list[asyncio.Task[list[str]]] = []

    async with turn:
        lists += [asyncio.create_task(listed(peer, limit=1000)) for _ in range(10)]
        await until(lambda: site.broker.parts.pending._requests.count == len(lists))
        await site.clock.advance(1500)
    await until(lambda: site.broker.store.end_of("T", 0) == 1)

    assert not any(task.done() for task in lists)
    names = await asyncio.gather(*lists)
    assert all(set(each) >= {f"m{number}" for number in range(20)} for each in names)


@pytest.mark.usefixtures("topic")
async def test_requests_beyond_those_at_work_and_waiting_are_refused(
    site: Site, peer: Peer
) -> None:
    await send(peer, "a", site.clock.now_ms() + HOUR_MS)
    await taken_in(site)
    zero = Long(0)

    async with site.broker.parts.timers.turn:
        asked = [
            asyncio.create_task(peer.ask(header))
            for _ in range(20)
            for header in (
                ListPending(due_from_ms=zero, due_until_ms=zero, limit=1),
                CountPending(due_from_ms=zero, due_until_ms=zero, span_ms=Long(HOUR_MS)),
                DeliverPending(message_id="none", topic="T"),
            )
        ]
        await until(lambda: sum(task.done() for task in asked) == 50)
        refused = [task.result() for task in asked if task.done()]
    replies = await asyncio.gather(*asked)
    after = await counted(peer)

    assert {reply.code for reply in refused} == {ResponseCode.SYSTEM_BUSY}
    assert "retry after a pause" in str(refused[0].remark)
    assert [reply.code for reply in replies].count(ResponseCode.SYSTEM_BUSY) == 50
    assert after == 1


@pytest.mark.usefixtures("topic")
async def test_requests_at_once_bring_a_message_forward_once(site: Site, peer: Peer) -> None:
    await send(peer, "a", site.clock.now_ms() + HOUR_MS)
    await taken_in(site)

    replies = await asyncio.gather(
        *(peer.ask(DeliverPending(message_id="a", topic="T")) for _ in range(5))
    )

    assert [reply.code for reply in replies].count(ResponseCode.SUCCESS) == 1
    assert [message.body for message in await peer.read()] == [b"a"]


@pytest.mark.usefixtures("topic")
async def test_a_message_that_is_being_recalled_is_not_brought_forward(
    site: Site, peer: Peer
) -> None:
    reply = await peer.send(
        "T", b"a", unique_id="a", TIMER_DELIVER_MS=str(site.clock.now_ms() + HOUR_MS)
    )
    handle = SendReply.decode(reply.fields).recall_handle or ""
    await taken_in(site)

    recalled, delivered = await asyncio.gather(
        peer.ask(RecallMessage(topic="T", recall_handle=handle)),
        peer.ask(DeliverPending(message_id="a", topic="T")),
    )

    assert recalled.code == ResponseCode.SUCCESS
    assert "is pending" in str(delivered.remark)
    assert await peer.read() == []


@pytest.mark.usefixtures("topic")
async def test_a_message_due_after_a_lowered_limit_is_not_half_brought_forward(
    site: Site, peer: Peer, tmp_path: Path
) -> None:
    await send(peer, "a", site.clock.now_ms() + HOUR_MS)
    await taken_in(site)
    crash_image(site, tmp_path / "image")

    async with running(
        tmp_path / "image", ManualClock(site.clock.now_ms()), timerMaxDelaySec="60"
    ) as second:
        other = await second.connect()
        reply = await other.ask(DeliverPending(message_id="a", topic="T"))

        assert "timerMaxDelaySec" in str(reply.remark)
        assert await other.read() == []
        assert await listed(other) == ["a"]


@pytest.mark.usefixtures("topic")
async def test_a_broker_starts_though_a_marker_cannot_be_stored(
    site: Site, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = site.clock.now_ms()
    await send(peer, "a", now_ms + 120_000)
    await taken_in(site)
    await site.advance_until(lambda: site.clock.now_ms() > now_ms + 3000)
    take_back = PendingMessages._take_back

    def kill_and_take_back(pending: PendingMessages, message: StoredMessage) -> Receipt:
        crash_image(site, tmp_path / "image")
        return take_back(pending, message)

    monkeypatch.setattr(PendingMessages, "_take_back", kill_and_take_back)
    await peer.ask(DeliverPending(message_id="a", topic="T"))
    monkeypatch.undo()

    clock = ManualClock(site.clock.now_ms())
    async with running(tmp_path / "image", clock, timerMaxDelaySec="60") as second:
        other = await second.connect()
        await second.advance_until(lambda: clock.now_ms() > now_ms + 130_000, step_ms=1000)

        assert [message.body for message in await other.read()] == [b"a"]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("image", ["half", "whole"])
async def test_a_kill_while_a_message_is_brought_forward_leaves_one_message(
    site: Site, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    now_ms = site.clock.now_ms()
    await send(peer, "a", now_ms + 50_000)
    await taken_in(site)
    await site.advance_until(lambda: site.clock.now_ms() > now_ms + 3000)
    take_back = PendingMessages._take_back

    def kill_and_take_back(pending: PendingMessages, message: StoredMessage) -> Receipt:
        # Between the two appends.
        crash_image(site, tmp_path / "half")
        return take_back(pending, message)

    monkeypatch.setattr(PendingMessages, "_take_back", kill_and_take_back)
    await peer.ask(DeliverPending(message_id="a", topic="T"))
    monkeypatch.undo()
    crash_image(site, tmp_path / "whole")

    clock = ManualClock(site.clock.now_ms())
    async with running(tmp_path / image, clock) as second:
        other = await second.connect()
        await taken_in(second)
        assert await listed(other) == []
        await second.advance_until(lambda: clock.now_ms() > now_ms + 60_000, step_ms=1000)
        assert [message.body for message in await other.read()] == [b"a"]
    async with running(tmp_path / image, clock) as third:
        assert [m.body for m in await (await third.connect()).read()] == [b"a"]


@pytest.mark.usefixtures("topic")
async def test_a_kill_between_the_copies_of_one_id_loses_none_of_them(
    site: Site, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = site.clock.now_ms()
    await send(peer, "a", now_ms + 50_000, body=b"first")
    await send(peer, "a", now_ms + 50_000, body=b"second")
    await taken_in(site)
    await site.advance_until(lambda: site.clock.now_ms() > now_ms + 3000)
    append = site.broker.store.append

    def append_and_kill(draft: Draft) -> Receipt:
        receipt = append(draft)
        if not (tmp_path / "image").exists():
            crash_image(site, tmp_path / "image")
        return receipt

    monkeypatch.setattr(site.broker.store, "append", append_and_kill)
    await peer.ask(DeliverPending(message_id="a", topic="T"))
    monkeypatch.undo()

    clock = ManualClock(site.clock.now_ms())
    async with running(tmp_path / "image", clock) as second:
        other = await second.connect()
        await second.advance_until(lambda: clock.now_ms() > now_ms + 60_000, step_ms=1000)
        assert [message.body for message in await other.read()] == [b"first", b"second"]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("cursor", ["x", "1:", "-5:y", "9" * 59, "{slot}:7", "{slot}:999999"])
async def test_a_cursor_that_no_page_gave_is_refused(site: Site, peer: Peer, cursor: str) -> None:
    due_ms = site.clock.now_ms() + HOUR_MS
    await send(peer, "a", due_ms)
    await taken_in(site)
    cursor = cursor.format(slot=(due_ms - 1) // 1000 * 1000)

    reply = await peer.ask(
        ListPending(cursor=cursor, due_from_ms=Long(0), due_until_ms=Long(0), limit=1)
    )

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert "begin" in str(reply.remark)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(("low", "high"), [(-5, -1), (2**63 - 1, 2**63 - 1), (0, -(2**63))])
async def test_senseless_ranges_list_and_count_nothing(
    site: Site, peer: Peer, low: int, high: int
) -> None:
    await send(peer, "a", site.clock.now_ms() + HOUR_MS)
    await taken_in(site)

    assert await listed(peer, due_from_ms=Long(low), due_until_ms=Long(high)) == []
    reply = await peer.ask(
        CountPending(due_from_ms=Long(low), due_until_ms=Long(high), span_ms=Long(-1))
    )
    assert reply.code == ResponseCode.SUCCESS
    assert msgspec.json.decode(reply.body, type=PendingCounts).counts == []
