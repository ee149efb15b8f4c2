"""Rows written exactly once: what is staged, decided and moved, through crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.broker.exactly_once import moving
from orbitmq.broker.exactly_once.query_states import QueryState, QueryStates
from orbitmq.client.aio import Admin
from orbitmq.clock import ManualClock, settle
from orbitmq.errors import RequestRefusedError
from orbitmq.model.names import QUERIES_TOPIC, STAGING_TOPIC
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.staged_writes import (
    COORDINATORS,
    AppointCoordinator,
    BatchDecision,
    BatchStatus,
    CoordinatorReply,
    DecideWrites,
    ForgetQuery,
    ListQueries,
    MoveRows,
    Part,
    QueryPage,
    SourceRange,
    StagedReply,
    StageRows,
)
from orbitmq.protocol.requests.topics import DeleteTopic
from orbitmq.record.batch import BatchedMessage, encode_batch
from orbitmq.record.properties import encode_properties
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.log.draft import Draft
from tests.integration.broker.conftest import Peer, Site, crash_image, running
from tests.integration.client.conftest import start_name_server
from tests.waiting import until

QUERY = "0f0e"
WINNER, LOSER = "a" * 32, "b" * 32
HOUR_MS = 3_600_000


def rows(bodies: Iterable[bytes], **properties: str) -> bytes:
    encoded = encode_properties(properties)
    return encode_batch(BatchedMessage(0, body, encoded) for body in bodies)


async def stage(
    peer: Peer,
    bodies: Iterable[bytes],
    *,
    write_id: str = WINNER,
    first: int = 0,
    topic: str = "T",
    queue_id: int = 0,
    **properties: str,
) -> StagedReply:
    reply = await peer.ask(
        StageRows(
            producer_group="spark",
            topic=topic,
            template_topic="TBW102",
            template_queues=4,
            queue_id=queue_id,
            system_flag=0,
            born_timestamp_ms=Long(1_600_000_000_000),
            flag=0,
            batch=True,
            write_id=write_id,
            first_sequence=Long(first),
        ),
        rows(bodies, **properties),
    )
    assert reply.code == 0, reply.remark
    return StagedReply.decode(reply.fields)


async def appoint(peer: Peer, candidate: str | None = "broker-a", query: str = QUERY) -> str | None:
    reply = await peer.ask(AppointCoordinator(query=query, candidate=candidate))
    assert reply.code == 0, reply.remark
    return CoordinatorReply.decode(reply.fields).coordinator


async def decide(
    peer: Peer,
    batch: int,
    writes: dict[str, int],
    *,
    end: int,
    start: int = 0,
    source: SourceRange | None = None,
    target: str = "",
    query: str = QUERY,
) -> BatchStatus:
    part = Part(writes=writes, start=start, end=end)
    decision = BatchDecision(
        query=query, batch=batch, parts={"broker-a": part}, source=source, target=target
    )
    reply = await peer.ask(DecideWrites(wait_ms=20_000), msgspec.json.encode(decision))
    assert reply.code == 0, reply.remark
    return msgspec.json.decode(reply.body, type=BatchStatus)


async def bodies_of(peer: Peer, *, topic: str = "T", queues: int = 2) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for queue_id in range(queues):
        offset = 0
        while messages := await peer.read(topic, offset, queue_id=queue_id):
            found.update(message.body for message in messages)
            offset += len(messages)
    return found


def once(count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(count))


@pytest.fixture
async def topic(peer: Peer) -> str:
    await peer.make_topic("T")
    return "T"


@pytest.mark.usefixtures("topic")
async def test_rows_are_visible_once_they_are_decided_on(site: Site, peer: Peer) -> None:
    await appoint(peer)
    await stage(peer, [b"0", b"1"], KEYS="k")
    await stage(peer, [b"2"], first=2, queue_id=1)
    assert await bodies_of(peer) == {}

    status = await decide(peer, 0, {WINNER: 3}, end=3)

    assert status.complete
    assert await bodies_of(peer) == once(3)
    (first, *_) = await peer.read("T")
    assert first.properties["KEYS"] == "k"
    assert first.properties["ORBIT_ROW"] == f"{WINNER}/0"
    assert "ORBIT_TO" not in first.properties
    assert first.born_ms == 1_600_000_000_000
    assert site.broker.store.end_of(STAGING_TOPIC, 0) == 3


@pytest.mark.usefixtures("topic")
async def test_a_row_may_be_as_large_as_any_message(peer: Peer) -> None:
    limit = 4 << 20
    largest = bytes(limit)
    await appoint(peer)
    await stage(peer, [largest], KEYS="k")

    await decide(peer, 0, {WINNER: 1}, end=1)

    assert (await bodies_of(peer, queues=1)) == {largest: 1}
    for refused in ([bytes(limit + 1)], [largest, b"another"]):
        with pytest.raises(AssertionError, match="above the limit of 4194304"):
            await stage(peer, refused)


@pytest.mark.usefixtures("topic")
async def test_rows_that_were_staged_twice_are_moved_once_and_in_their_order(peer: Peer) -> None:
    await appoint(peer)
    await stage(peer, [b"2", b"3"], first=2)
    await stage(peer, [b"0", b"1"])
    staged = await stage(peer, [b"2", b"3"], first=2)

    await decide(peer, 0, {WINNER: 4}, end=staged.end)

    assert [message.body for message in await peer.read("T")] == [b"0", b"1", b"2", b"3"]


@pytest.mark.usefixtures("topic")
async def test_rows_of_other_writes_stay_staged(peer: Peer) -> None:
    await appoint(peer)
    await stage(peer, [b"lost"], write_id=LOSER)
    staged = await stage(peer, [b"0"])

    await decide(peer, 0, {WINNER: 1}, end=staged.end)

    assert await bodies_of(peer) == once(1)


@pytest.mark.usefixtures("topic")
async def test_the_first_decision_of_a_batch_is_final(peer: Peer) -> None:
    await appoint(peer)
    staged = await stage(peer, [b"0"])
    again = await stage(peer, [b"again"], write_id=LOSER)
    first = await decide(peer, 7, {WINNER: 1}, end=staged.end)

    asked_again = await decide(peer, 7, {WINNER: 1}, end=staged.end)
    repeated = await decide(peer, 7, {LOSER: 1}, end=again.end)
    with pytest.raises(AssertionError, match="batches up to 7 are decided"):
        await decide(peer, 6, {LOSER: 1}, end=again.end)

    assert first == asked_again == BatchStatus(counts=True, complete=True)
    assert repeated == BatchStatus(counts=False, complete=True)
    assert await bodies_of(peer) == once(1)


# --- the same number, other rows --------------------------------------------------------------


def between(start: str, end: str) -> SourceRange:
    return SourceRange(start=start, end=end)


@pytest.mark.usefixtures("topic")
async def test_a_repeated_batch_from_the_same_source_range_is_dropped_and_known_as_such(
    peer: Peer,
) -> None:
    await appoint(peer)
    staged = await stage(peer, [b"0"])
    again = await stage(peer, [b"again"], write_id=LOSER)
    await decide(peer, 7, {WINNER: 1}, end=staged.end, source=between("six", "seven"))

    repeated = await decide(peer, 7, {LOSER: 1}, end=again.end, source=between("six", "seven"))

    assert repeated == BatchStatus(counts=False, complete=True, same_source=True)
    assert await bodies_of(peer) == once(1)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("batch", "source", "reason"),
    [
        (7, between("six", "another seven"), "for other rows of the source"),
        (8, between("another seven", "eight"), "does not start where batch 7"),
        (3, between("two", "three"), "batches up to 7 are decided at 2023-11-14"),
        (3, None, "batches up to 7 are decided"),
    ],
)
async def test_a_batch_from_another_source_range_is_refused_with_advice(
    peer: Peer, batch: int, source: SourceRange | None, reason: str
) -> None:
    await appoint(peer)
    staged = await stage(peer, [b"0"])
    other = await stage(peer, [b"other"], write_id=LOSER)
    await decide(peer, 7, {WINNER: 1}, end=staged.end, source=between("six", "seven"))

    with pytest.raises(AssertionError, match=reason) as refused:
        await decide(peer, batch, {LOSER: 1}, end=other.end, source=source)

    assert "restored from a backup" in str(refused.value)
    assert f"orbitmq query forget {QUERY}" in str(refused.value)
    assert await bodies_of(peer) == once(1)


@pytest.mark.usefixtures("topic")
async def test_the_target_may_change_between_batches_but_not_within_one(peer: Peer) -> None:
    await appoint(peer)
    staged = await stage(peer, [b"0"])
    await decide(peer, 7, {WINNER: 1}, end=staged.end, source=between("6", "7"), target="T")
    other = await stage(peer, [b"1"], write_id=LOSER)

    with pytest.raises(AssertionError, match=r"was written at .* to topic 'T', not topic 'U'"):
        await decide(peer, 7, {LOSER: 1}, end=other.end, source=between("6", "7"), target="U")
    await decide(peer, 8, {LOSER: 1}, end=other.end, source=between("7", "8"), target="U")

    assert await bodies_of(peer) == once(2)


@pytest.mark.usefixtures("topic")
async def test_a_state_of_version_1_is_honoured(site: Site, peer: Peer, tmp_path: Path) -> None:
    body = (
        b'{"v":1,"query":"0f0e","coordinator":"broker-a","batch":7,"part":{"writes":{},"start":0,'
        b'"end":0},"moved":null,"decided":7,"decision":null,"digest":"d"}'
    )
    await site.broker.parts.storing.put_durably([Draft(topic=QUERIES_TOPIC, body=body)])
    crash_image(site, tmp_path / "image")

    async with running(tmp_path / "image", ManualClock()) as after:
        peer = await after.connect()
        staged = await stage(peer, [b"0"])
        repeated = await decide(peer, 7, {WINNER: 1}, end=staged.end, source=between("6", "7"))
        await decide(peer, 8, {WINNER: 1}, end=staged.end, source=between("7", "8"))

        # Nothing is known about the source of batch 7.
        assert repeated == BatchStatus(counts=False, complete=True, same_source=None)
        assert await bodies_of(peer) == once(1)
        with pytest.raises(AssertionError, match="for other rows of the source"):
            await decide(peer, 8, {WINNER: 1}, end=staged.end, source=between("7", "other"))


@pytest.mark.usefixtures("topic")
async def test_a_broker_does_not_take_another_decision_for_one_that_it_moved(peer: Peer) -> None:
    await stage(peer, [b"0"])
    other = await stage(peer, [b"other"], write_id=LOSER)
    moved = MoveRows(query=QUERY, batch=Long(4), coordinator="broker-b", digest="one")
    part = Part(writes={WINNER: 1}, start=0, end=1)
    assert (await peer.ask(moved, msgspec.json.encode(part))).code == 0
    assert (await peer.ask(moved, msgspec.json.encode(part))).code == 0

    for batch, digest in ((4, "two"), (3, "one")):
        asked = MoveRows(query=QUERY, batch=Long(batch), coordinator="broker-b", digest=digest)
        reply = await peer.ask(
            asked, msgspec.json.encode(Part(writes={LOSER: 1}, start=0, end=other.end))
        )
        assert reply.code == ResponseCode.ILLEGAL_OPERATION
        assert "has moved other rows for batch 4" in (reply.remark or "")

    assert await bodies_of(peer) == once(1)


@pytest.mark.usefixtures("topic")
async def test_rows_for_a_deleted_topic_wait_until_it_is_made_again(site: Site, peer: Peer) -> None:
    await appoint(peer)
    staged = await stage(peer, [b"0"])
    assert (await peer.ask(DeleteTopic(topic="T"))).code == 0
    part = Part(writes={WINNER: 1}, start=0, end=staged.end)
    decision = BatchDecision(query=QUERY, batch=0, parts={"broker-a": part})
    reply = await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(decision))
    status = msgspec.json.decode(reply.body, type=BatchStatus)
    assert not status.complete

    await peer.make_topic("T")

    await site.stored("T", 0, 1)
    assert await bodies_of(peer) == once(1)


async def test_a_forgotten_query_is_decided_like_a_new_one(
    site: Site, peer: Peer, tmp_path: Path
) -> None:
    await peer.make_topic("T")
    await appoint(peer)
    staged = await stage(peer, [b"0"])
    await decide(peer, 7, {WINNER: 1}, end=staged.end, source=between("6", "7"))

    assert (await peer.ask(ForgetQuery(query=QUERY))).code == 0
    assert (await peer.ask(ForgetQuery(query=QUERY))).code == ResponseCode.QUERY_NOT_FOUND
    crash_image(site, tmp_path / "image")

    async with running(tmp_path / "image", ManualClock()) as after:
        peer = await after.connect()
        assert await appoint(peer, None) is None
        await appoint(peer)
        other = await stage(peer, [b"1"], write_id=LOSER)
        await decide(peer, 3, {LOSER: 1}, end=other.end, source=between("2", "3"))
        assert await bodies_of(peer) == once(2)


@pytest.mark.usefixtures("topic")
async def test_a_query_with_rows_to_move_is_forgotten_by_force_only(site: Site, peer: Peer) -> None:
    await appoint(peer)
    staged = await stage(peer, [b"0"])
    absent = Part(writes={WINNER: 1}, start=0, end=staged.end)
    decision = BatchDecision(query=QUERY, batch=0, parts={"broker-z": absent})
    await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(decision))

    refused = await peer.ask(ForgetQuery(query=QUERY))
    forced = await peer.ask(ForgetQuery(query=QUERY, force=True))

    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "batch 0" in (refused.remark or "")
    assert forced.code == 0
    # It is not tried again.
    completion = site.broker.parts.exactly_once.deciding._completions[QUERY]
    await site.advance_until(lambda: completion.is_over)


async def test_queries_are_listed_in_pages(peer: Peer) -> None:
    for query in ("c", "a", "b"):
        await appoint(peer, query=query)

    async def listed(**asked: Any) -> list[str]:
        reply = await peer.ask(ListQueries(**asked))
        return [one.query for one in msgspec.json.decode(reply.body, type=QueryPage).queries]

    assert await listed(limit=2) == ["a", "b"]
    assert await listed(limit=2, after="b") == ["c"]
    assert await listed(limit=2, after="c") == []
    assert await listed(limit=1, query="b") == ["b"]
    assert await listed(limit=1, query="d") == []


async def test_the_first_coordinator_that_a_broker_hears_of_stays(peer: Peer) -> None:
    assert await appoint(peer, None) is None
    assert await appoint(peer, "broker-b") == "broker-b"
    assert await appoint(peer, "broker-a") == "broker-b"

    decision = BatchDecision(query=QUERY, batch=0, parts={})
    reply = await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(decision))

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert "'broker-b' does" in (reply.remark or "")


async def test_rows_are_moved_for_the_coordinator_only(peer: Peer) -> None:
    await appoint(peer, "broker-b")

    reply = await peer.ask(
        MoveRows(query=QUERY, batch=Long(0), coordinator="broker-c"),
        msgspec.json.encode(Part(writes={}, start=0, end=0)),
    )

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert "'broker-b', not 'broker-c'" in (reply.remark or "")


@pytest.mark.usefixtures("topic")
async def test_a_decision_about_missing_rows_moves_none(peer: Peer) -> None:
    await appoint(peer)
    staged = await stage(peer, [b"0", b"1"])
    part = Part(writes={WINNER: 3}, start=0, end=staged.end)

    reply = await peer.ask(
        MoveRows(query=QUERY, batch=Long(0), coordinator="broker-a"), msgspec.json.encode(part)
    )

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "staged 3 rows" in (reply.remark or "")
    assert "2 were found" in (reply.remark or "")
    assert await bodies_of(peer) == {}


@pytest.mark.usefixtures("topic")
async def test_the_next_batch_waits_for_the_one_before(site: Site, peer: Peer) -> None:
    await appoint(peer)
    staged = await stage(peer, [b"0"])
    absent = Part(writes={WINNER: 1}, start=0, end=staged.end)
    decision = BatchDecision(query=QUERY, batch=0, parts={"broker-a": absent, "broker-z": absent})
    asked = await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(decision))
    assert not msgspec.json.decode(asked.body, type=BatchStatus).complete

    following = BatchDecision(query=QUERY, batch=1, parts={})
    reply = await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(following))

    assert reply.code == ResponseCode.SYSTEM_BUSY
    assert "batch 0" in (reply.remark or "")
    await until(lambda: site.broker.store.end_of("T", 0) == 1)


@pytest.mark.usefixtures("topic")
async def test_invalid_rows_are_refused(peer: Peer) -> None:
    with pytest.raises(AssertionError, match="'short' is not a valid write id"):
        await stage(peer, [b"0"], write_id="short")
    with pytest.raises(AssertionError, match="cannot be delayed"):
        await stage(peer, [b"0"], DELAY="3")
    with pytest.raises(AssertionError, match="cannot be delayed"):
        await stage(peer, [b"0"], TIMER_DELAY_MS="3")
    for query in ("", "q" * 256, "two\nlines"):
        with pytest.raises(AssertionError, match="is not a valid query id"):
            await appoint(peer, query=query)


class TestUnderAsyncFlush:
    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "10000"}

    @pytest.mark.usefixtures("topic")
    async def test_staged_rows_are_on_disk_when_the_reply_is_sent(
        self, site: Site, peer: Peer
    ) -> None:
        await stage(peer, [b"0"])

        assert site.broker.store.flushed == site.broker.store.log_end


# --- crashes ----------------------------------------------------------------------------------


async def test_a_broker_that_dies_during_a_move_resumes_after_the_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_count = 20
    monkeypatch.setattr(moving, "CHUNK", 3)
    monkeypatch.setattr(moving, "PROGRESS_ROWS", 6)
    # The store is copied after every few moved rows.
    images: list[Path] = []

    async with running(tmp_path / "first", ManualClock()) as site:

        async def photographed(turns: int) -> None:
            images.append(tmp_path / f"image-{len(images)}")
            crash_image(site, images[-1])
            await settle(turns)

        monkeypatch.setattr(moving, "settle", photographed)
        peer = await site.connect()
        await peer.make_topic("T")
        await appoint(peer)
        await stage(peer, [b"%d" % number for number in range(0, rows_count, 2)])
        staged = await stage(
            peer,
            [b"%d" % number for number in range(1, rows_count, 2)],
            write_id=LOSER,
            queue_id=1,
        )
        await decide(peer, 0, {WINNER: 10, LOSER: 10}, end=staged.end)
        assert await bodies_of(peer) == once(rows_count)
    monkeypatch.setattr(moving, "settle", settle)

    assert len(images) >= rows_count // 3
    for image in images:
        async with running(image, ManualClock()) as site:
            peer = await site.connect()
            status = await decide(peer, 0, {"c" * 32: 1}, end=staged.end)
            assert status.complete
            assert await bodies_of(peer) == once(rows_count)


@pytest.mark.usefixtures("topic")
async def test_a_decision_is_completed_after_a_restart_without_being_asked(
    site: Site, peer: Peer, tmp_path: Path
) -> None:
    await appoint(peer)
    staged = await stage(peer, [b"0"])
    part = Part(writes={WINNER: 1}, start=0, end=staged.end)
    # The decision is stored, but the broker does not know its own part yet.
    await site.broker.parts.exactly_once.states.change(
        QUERY,
        lambda state: msgspec.structs.replace(state, decided=0, decision={"broker-a": part}),  # type: ignore[type-var]
    )
    crash_image(site, tmp_path / "image")

    async with running(tmp_path / "image", ManualClock()) as after:
        await until(lambda: after.broker.store.end_of("T", 0) == 1)


# --- damage -----------------------------------------------------------------------------------


async def _stop_midway(
    site: Site, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Awaitable[str]]:
    """Move three of six rows, to topic T; the others wait for topic U. Returns how to go on."""
    monkeypatch.setattr(moving, "CHUNK", 3)
    await peer.make_topic("U")
    await stage(peer, [b"0", b"1", b"2"])
    staged = await stage(peer, [b"3", b"4", b"5"], first=3, topic="U")
    await peer.ask(DeleteTopic(topic="U"))
    part = msgspec.json.encode(Part(writes={WINNER: 6}, start=0, end=staged.end))

    async def move() -> str:
        reply = await peer.ask(MoveRows(query=QUERY, batch=Long(0), coordinator="broker-b"), part)
        return "" if reply.code == 0 else reply.remark or ""

    assert "topic 'U', which does not exist" in await move()
    await site.stored("T", 0, 3)
    assert await bodies_of(peer) == once(3)
    await peer.make_topic("U")
    return move


def _change_byte(site: Site, topic: str, number: int, at: int) -> None:
    """Change a byte of a record in the log."""
    store = site.broker.store
    ((physical_offset, _, _),) = store.entries(topic, 0, number, 1)
    store.parts.log.files[0].view[physical_offset + at] ^= 0xFF


@pytest.mark.usefixtures("topic")
async def test_a_move_resumes_only_if_it_is_known_which_rows_were_moved(
    site: Site, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = await _stop_midway(site, peer, monkeypatch)
    _change_byte(site, "T", 1, at=4)

    refused = await move()

    assert "which rows of batch 0 of query '0f0e' were moved is not known" in refused
    assert "message 1 of topic 'T' queue 0" in refused
    assert site.broker.store.end_of("T", 0) == 3
    _change_byte(site, "T", 1, at=4)
    assert await move() == ""
    assert await bodies_of(peer) + await bodies_of(peer, topic="U") == once(6)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_move_resumes_with_queue_entries_that_can_be_repaired(
    site: Site, peer: Peer, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    move = await _stop_midway(site, peer, monkeypatch)
    await peer.send("U", b"later")
    await site.stored("U", 0, 1)
    queues = site.broker.store.parts.queues
    queue = queues.find("T", 0)
    assert queue is not None
    queues.write()
    with (queue.folder / f"{0:020d}").open("r+b") as file:
        file.seek(number * ENTRY.size)
        file.write(ENTRY.pack(*site.broker.store.entries("U", 0, 0, 1)[0]))

    assert await move() == ""

    moved = await bodies_of(peer) + await bodies_of(peer, topic="U")
    assert moved == once(6) + Counter([b"later"])


async def test_writes_are_refused_while_a_state_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await appoint(peer)
        await appoint(peer, query="other")
        _change_byte(site, QUERIES_TOPIC, 0, at=4)

    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        assert "exactly-once writes are refused reason=the state of a query" in caplog.text
        # It is not known whose state is damaged.
        for asked in (
            AppointCoordinator(query="other", candidate="broker-a"),
            ForgetQuery(query=QUERY),
            ListQueries(limit=10),
            ListQueries(limit=1, query="new"),
        ):
            refused = await peer.ask(asked)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "cannot be read" in refused.remark
            assert "orbitmq store accept-loss" in refused.remark
        states = site.broker.parts.exactly_once.states
        assert states.needed_from() == site.broker.store.log_start

        await peer.make_topic("T")
        assert (await peer.send("T")).code == ResponseCode.SUCCESS


async def test_rows_are_kept_while_it_is_not_known_where_the_oldest_is(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T")
    await peer.send("T", b"older")
    await stage(peer, [b"0"])
    _change_byte(site, STAGING_TOPIC, 0, at=4)

    assert site.broker.parts.exactly_once.states.needed_from() == site.broker.store.log_start


# --- keeping and deleting -----------------------------------------------------------------------


@pytest.mark.usefixtures("topic")
async def test_a_finished_batch_write_is_forgotten_after_its_time_and_a_stream_never(
    site: Site, peer: Peer
) -> None:
    states, stream, batch, undecided = (
        site.broker.parts.exactly_once.states,
        QUERY,
        "batch/b",
        "batch/u",
    )
    staged = await stage(peer, [b"0"])
    for query in (stream, batch, undecided):
        await appoint(peer, query=query)
    await decide(peer, 0, {WINNER: 1}, end=staged.end)
    await decide(peer, 0, {WINNER: 1}, end=staged.end, query=batch)
    absent = Part(writes={LOSER: 1}, start=0, end=staged.end)
    open_one = BatchDecision(query=undecided, batch=0, parts={"broker-z": absent})
    await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(open_one))

    site.clock.adjust(168 * HOUR_MS)
    await site.clock.advance(60_000)
    assert states.find(batch) is not None
    site.clock.adjust(HOUR_MS)
    await site.advance_until(lambda: states.find(batch) is None, step_ms=60_000)

    assert states.states.keys() == {stream, undecided}
    # It counts as a new one.
    again = await stage(peer, [b"1"], write_id=LOSER)
    await appoint(peer, query=batch)
    status = await decide(peer, 0, {LOSER: 1}, end=again.end, query=batch)
    assert status.counts


async def test_the_coordinator_of_a_batch_write_is_the_last_to_forget_it(tmp_path: Path) -> None:
    query, clock = "batch/b", ManualClock()
    name_server = await start_name_server(tmp_path)
    at = {"namesrvAddr": f"127.0.0.1:{name_server.port}", "brokerIP1": "127.0.0.1"}
    async with (
        running(tmp_path / "a", clock, **at) as first,
        running(tmp_path / "b", clock, **at, brokerName="broker-b") as second,
        Admin(namesrv=at["namesrvAddr"]) as admin,
    ):
        peer, other = await first.connect(), await second.connect()
        await other.make_topic("T")
        staged = await stage(other, [b"0"])
        for each in (peer, other):
            await appoint(each, query=query)
        await admin.key_values.put(COORDINATORS, query, "broker-a")
        lost = Part(writes={WINNER: 1}, start=0, end=staged.end + 1)
        decision = BatchDecision(query=query, batch=0, parts={"broker-b": lost, "broker-z": lost})
        await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(decision))
        at_first, at_second = (one.broker.parts.exactly_once.states for one in (first, second))

        def moved() -> bool:
            kept = at_second.find(query)
            return kept is not None and kept.state.batch == 0 and kept.state.is_complete

        await second.advance_until(moved)
        clock.adjust(400 * HOUR_MS)
        await clock.advance(60_000)
        # The coordinator waits for another broker, and may ask this one again after a restart.
        assert at_second.find(query) is not None

        async with running(tmp_path / "z", clock, **at, brokerName="broker-z") as third:
            await (await third.connect()).make_topic("T")
            await stage(await third.connect(), [b"0"])
            await first.advance_until(
                lambda: (kept := at_first.find(query)) is not None and kept.state.is_complete
            )
            clock.adjust(169 * HOUR_MS)
            await first.advance_until(
                lambda: not (at_first.find(query) or at_second.find(query)), step_ms=60_000
            )

        # The name server is told once the state is gone.
        async with asyncio.timeout(60):
            while await admin.key_values.all(COORDINATORS):
                await settle()
    await name_server.stop()


@pytest.mark.usefixtures("topic")
async def test_a_batch_write_of_unknown_age_is_kept_for_as_long_as_a_new_one(site: Site) -> None:
    states = site.broker.parts.exactly_once.states
    older = {"v": 2, "query": "batch/b", "coordinator": "broker-a", "batch": 0}
    await site.broker.parts.storing.put_durably(
        [Draft(topic=QUERIES_TOPIC, body=msgspec.json.encode(older))]
    )
    states.load()

    def age_is_known() -> bool:
        kept = states.find("batch/b")
        assert kept is not None
        return kept.state.changed_ms > 0

    await site.advance_until(age_is_known, step_ms=60_000)

    site.clock.adjust(170 * HOUR_MS)
    await site.advance_until(lambda: states.find("batch/b") is None, step_ms=60_000)


@pytest.mark.usefixtures("topic")
async def test_rows_are_kept_for_a_day_and_states_forever(site: Site, peer: Peer) -> None:
    store, states = site.broker.store, site.broker.parts.exactly_once.states
    staged_at = store.log_end
    await stage(peer, [b"0"])
    await appoint(peer)
    kept = states.find(QUERY)
    assert kept is not None
    assert states.needed_from() == staged_at

    site.clock.adjust(25 * 3_600_000)

    assert states.needed_from() == kept.physical_offset


@pytest.mark.usefixtures("topic")
async def test_a_state_moves_on_with_the_log(site: Site, peer: Peer) -> None:
    store, states = site.broker.store, site.broker.parts.exactly_once.states
    await appoint(peer)
    first = states.find(QUERY)
    assert first is not None
    while store.newest_file_start == 0:
        await peer.send("T", bytes(1 << 20))

    await states.carry_forward()

    carried = states.find(QUERY)
    assert carried is not None
    assert carried.state == first.state
    assert carried.physical_offset >= store.newest_file_start
    assert states.needed_from() >= store.newest_file_start


@pytest.mark.usefixtures("topic")
async def test_a_state_stays_where_it_is_while_its_rows_are_moved(
    site: Site, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, states = site.broker.store, site.broker.parts.exactly_once.states
    await appoint(peer)
    staged = await stage(peer, [b"0", b"1"])
    await states.change(
        QUERY,
        lambda state: msgspec.structs.replace(
            state,  # type: ignore[type-var]
            batch=0,
            part=Part(writes={WINNER: 2}, start=0, end=staged.end),
            moved=0,
        ),
    )
    before = states.find(QUERY)
    monkeypatch.setattr(type(store), "newest_file_start", store.log_end)

    await states.carry_forward()

    assert states.find(QUERY) == before


@pytest.mark.usefixtures("topic")
async def test_an_invalid_part_is_refused_before_it_is_stored(site: Site, peer: Peer) -> None:
    await appoint(peer)
    for part in (
        Part(writes={WINNER: 1}, start=-5, end=1),
        Part(writes={WINNER: 1}, start=2, end=1),
        Part(writes={WINNER: 0}, start=0, end=1),
    ):
        decision = BatchDecision(query=QUERY, batch=0, parts={"broker-a": part})
        reply = await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(decision))
        assert reply.code == ResponseCode.INVALID_PARAMETER
    for batch in (-1, 2**70):
        decision = BatchDecision(query=QUERY, batch=batch, parts={})
        reply = await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(decision))
        assert reply.code == ResponseCode.INVALID_PARAMETER
    missing = Part(writes={WINNER: 1}, start=0, end=1)

    await peer.ask(
        MoveRows(query=QUERY, batch=Long(0), coordinator="broker-a"), msgspec.json.encode(missing)
    )

    kept = site.broker.parts.exactly_once.states.find(QUERY)
    assert kept is not None
    assert not kept.state.is_moving


async def test_a_decision_too_large_for_a_record_is_refused(peer: Peer) -> None:
    await appoint(peer)
    writes = {f"{number:032x}": 1 for number in range(20_000)}
    parts = {
        name: Part(writes=writes, start=0, end=20_000)
        for name in ("broker-a", "broker-b", "broker-c", "broker-d", "broker-e")
    }
    decision = BatchDecision(query=QUERY, batch=0, parts=parts)

    reply = await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(decision))

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert "the limit is 4194304" in (reply.remark or "")


@pytest.mark.parametrize(
    ("source", "target"), [(None, "T" * 256), (SourceRange(end="e" * 256), "T")]
)
async def test_a_decision_with_overlong_texts_is_refused(
    peer: Peer, source: SourceRange | None, target: str
) -> None:
    await appoint(peer)

    with pytest.raises(AssertionError, match="256 characters is above the limit of 255"):
        await decide(peer, 0, {WINNER: 1}, end=1, source=source, target=target)


async def test_decisions_that_nobody_completes_are_bounded(peer: Peer) -> None:
    parts = {f"nobody-{name}": Part(writes={WINNER: 1}, start=0, end=1) for name in range(900)}

    async def ask_to_decide(number: int) -> Command:
        query = f"q{number}"
        await appoint(peer, query=query)
        decision = BatchDecision(query=query, batch=0, parts=parts)
        return await peer.ask(DecideWrites(wait_ms=0), msgspec.json.encode(decision))

    codes = [(await ask_to_decide(number)).code for number in range(11)]
    refused = await ask_to_decide(11)

    assert set(codes) == {ResponseCode.SUCCESS}
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "9900 brokers to confirm decisions, of at most 10000" in refused.remark
    assert (await peer.ask(ForgetQuery(query="q0", force=True))).code == ResponseCode.SUCCESS
    again = await ask_to_decide(11)
    assert again.code == ResponseCode.SUCCESS, again.remark


async def test_states_of_queries_are_bounded_in_bytes(site: Site) -> None:
    storing = site.broker.parts.exactly_once.states._storing
    states = QueryStates(site.broker.store, storing, clock=site.clock, bytes_max=2000)
    large = {"broker-b": Part(writes={WINNER: 1}, start=0, end=1)}

    async def put(query: str, decision: dict[str, Part] | None) -> None:
        state = QueryState(query=query, coordinator="broker-a", decision=decision)
        await states.change(query, lambda _: state)

    async def fill() -> None:
        for number in range(10):
            await put(f"q{number}", large)

    with pytest.raises(RequestRefusedError, match="bytes of states of queries, of at most 2000"):
        await fill()
    await put("q0", None)
    await put("q0", large)
    again = QueryStates(site.broker.store, storing, clock=site.clock)
    again.load()

    assert again.states == states.states
    assert (again._bytes, again._pending_moves) == (states._bytes, states._pending_moves)


async def test_a_query_for_the_coordinator_stores_nothing(site: Site, peer: Peer) -> None:
    for number in range(50):
        assert await appoint(peer, None, query=f"q{number}") is None
    with pytest.raises(AssertionError, match="is not a valid coordinator id"):
        await appoint(peer, "x" * 300)

    assert len(site.broker.parts.exactly_once.states._locks._locks) == 0
    assert site.broker.parts.exactly_once.states.states == {}
