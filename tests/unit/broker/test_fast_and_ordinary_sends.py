"""Sends take the fast form or the ordinary one: both store and reply the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.confirmations import Confirmations
from orbitmq.broker.delivery.pulls import Pulls
from orbitmq.broker.delivery.rounds import Rounds
from orbitmq.broker.groups.queue_locks import QueueLocks
from orbitmq.broker.groups.stale_positions import StalePositions
from orbitmq.broker.handlers.sending import SendRequests
from orbitmq.broker.hot_path import HotPath
from orbitmq.broker.plain_topics import PlainTopics
from orbitmq.broker.refusals import code_of
from orbitmq.broker.send_replies import SendReplies
from orbitmq.broker.storing import Storing
from orbitmq.broker.transactions.half_queue import HalfQueue
from orbitmq.broker.transactions.preparing import Preparing
from orbitmq.broker.transactions.recent_halves import RecentHalves
from orbitmq.clock import settle
from orbitmq.errors import ProtocolError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model.unique_ids import UniqueIds
from orbitmq.protocol import fast_forms
from orbitmq.protocol.frame import frame_end
from orbitmq.record.batch import encode_batch
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.transport.connection import Processor
from orbitmq.transport.request_loop import RequestLoop
from tests.unit.broker.groups.clients import new_connection
from tests.unit.broker.parts import BrokerParts, broker_parts
from tests.unit.protocol.send_spellings import (
    CLIENTS,
    FIELDS,
    MESSAGES,
    REQUIRED,
    Spelling,
    batch_fields,
    damaged_sends,
    odd_sends,
    plain_sends,
)

pytestmark = pytest.mark.skipif(not fast_forms.IS_COMPILED, reason="there is no compiled form here")

BROKER_PROPERTIES = {"MSG_REGION": "r", "TRACE_ON": "true", "CLUSTER": "c"}


class Written(asyncio.Transport):
    """Records what a connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.content = bytearray()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.content += data


class OneId(UniqueIds):
    """Gives all messages without an id the same one, on both sides."""

    def make(self) -> str:
        return "0A000009"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a chunk."""

    error: type[Exception] | None
    # Each a frame; later ones may overtake one another.
    replies: list[bytes]
    stored: bytes
    counted: tuple[int, int]


class Side:
    """A broker's way from a chunk to its log, without sockets."""

    def __init__(self, parts: BrokerParts, *, flush_mode: FlushMode, is_fast: bool) -> None:
        self._parts = parts
        confirmations = self._confirmations = Confirmations(
            flushed=parts.store.flushed, is_fenced=lambda: False, timeout_ms=60_000,
            clock=parts.clock, is_sync=flush_mode is FlushMode.SYNC,
        )  # fmt: skip
        parts.store.on_flushed(confirmations.flushed)
        storing = Storing(parts.store, confirmations)
        halves = HalfQueue(parts.store, clock=parts.clock)
        sending = SendRequests(
            config=BrokerConfig,
            store_config=StoreConfig,
            refusal=lambda: None,
            topics=parts.topics,
            changes_reported=settle,
            groups=parts.groups,
            locks=QueueLocks(clock=parts.clock),
            storing=storing,
            preparing=Preparing(
                config=BrokerConfig, halves=halves, recent=RecentHalves(halves), storing=storing
            ),
            delay_levels=18,
            broker_properties=BROKER_PROPERTIES,
            unique_ids=OneId("10.0.0.9", parts.clock.now_ms),
            counters=parts.counters,
            clock=parts.clock,
        )
        self._requests = RequestLoop(sending.by_code(), code_of=code_of)
        plain_topics = PlainTopics(parts.topics, parts.counters, permission=lambda: 6)
        pulls = Pulls(
            config=BrokerConfig, store=parts.store, topics=parts.topics, groups=parts.groups,
            members=parts.members, offsets=parts.offsets, counters=parts.counters,
            tasks=OwnedTasks(), rounds=Rounds(parts.clock), clock=parts.clock,
            positions=StalePositions(parts.clock),
        )  # fmt: skip
        self._processor: Processor = HotPath(
            self._requests,
            store=parts.store,
            confirmations=confirmations,
            pulls=pulls,
            replies=SendReplies(region=BrokerConfig().region, trace_on=BrokerConfig().trace_on),
            plain_topic=plain_topics.find,
            accepts_sends=lambda: True,
            broker_properties=BROKER_PROPERTIES,
            clock=parts.clock,
            read_send=fast_forms.read_send if is_fast else None,
        )
        self._written = Written()
        self._connection = new_connection()
        self._connection.connection_made(self._written)

    async def feed(self, chunk: bytes) -> Outcome:
        """Process a chunk, and wait until all of it is answered."""
        # For messages that leave the choice of the queue to the broker.
        random.seed(7)
        log = self._parts.store.parts.log
        before = log.end
        self._written.content.clear()
        error: type[Exception] | None = None
        replies = b""
        try:
            position, replies = self._processor.process(self._connection, chunk)
        except ProtocolError as raised:
            error = type(raised)
        else:
            assert position == len(chunk)
        await self._requests.deferred.all_done()
        while len(self._confirmations):
            await settle()
        stored = [
            bytes(file.view[max(before - file.first_offset, 0) : log.end - file.first_offset])
            for file in log.files
            if file.end_offset > before
        ]
        counter = self._parts.counters.put("orders")
        return Outcome(
            error,
            sorted(_frames(replies + self._written.content)),
            b"".join(stored),
            (counter.messages, counter.bytes),
        )


def _frames(content: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(content):
        end = frame_end(content, position)
        yield content[position:end]
        position = end


@asynccontextmanager
async def both_sides(folder: Path, flush_mode: FlushMode) -> AsyncIterator[tuple[Side, Side]]:
    async with AsyncExitStack() as stack:
        sides = []
        for name in ("fast", "ordinary"):
            parts = await stack.enter_async_context(broker_parts(folder / name))
            await parts.make_topic("orders", queues=3)
            sides.append(Side(parts, flush_mode=flush_mode, is_fast=name == "fast"))
        yield sides[0], sides[1]


@pytest.fixture(scope="module", params=FlushMode)
def feed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[bytes], Outcome]]:
    """Feed a chunk to both sides, which must do the same; returns the outcome."""
    with asyncio.Runner() as runner:
        context = both_sides(tmp_path_factory.mktemp("sides"), request.param)
        fast, ordinary = runner.run(context.__aenter__())

        def feed_both(chunk: bytes) -> Outcome:
            by_fast, by_ordinary = runner.run(fast.feed(chunk)), runner.run(ordinary.feed(chunk))
            assert by_fast == by_ordinary
            return by_fast

        yield feed_both
        runner.run(context.__aexit__(None, None, None))


Feed = Callable[[bytes], Outcome]


def is_fast(frame: bytes) -> bool:
    assert fast_forms.read_send is not None
    return fast_forms.read_send(frame, 0, len(frame), b"M\x01m\x02") is not None


@given(st.lists(plain_sends(), min_size=1, max_size=3))
def test_plain_sends_are_stored_and_answered_alike(feed: Feed, frames: list[bytes]) -> None:
    fast = [frame for frame in frames if is_fast(frame)]

    feed(b"".join(fast))
    for frame in frames:
        feed(frame)


@given(odd_sends())
def test_odd_sends_are_stored_answered_or_refused_alike(feed: Feed, frame: bytes) -> None:
    feed(frame)


@given(damaged_sends())
def test_damaged_sends_are_stored_answered_or_refused_alike(feed: Feed, frame: bytes) -> None:
    feed(frame)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("value", ["v", "值 ß 😀", '"quoted" \\ / <b>&\t'])
def test_sends_of_clients_in_other_languages_take_the_fast_form(
    feed: Feed, client: Spelling, code: int, value: str
) -> None:
    properties = f"UNIQ_KEY\x01A1\x02KEYS\x01{value}\x02"
    one = client(code, {**FIELDS, "properties": properties, "producerGroup": value}, b"body")
    batch = client(code, batch_fields(producerGroup=value), encode_batch(MESSAGES))

    assert is_fast(one)
    assert is_fast(batch)
    outcome = feed(one + batch)
    assert len(outcome.replies) == 2
    assert value.encode() in outcome.stored
    assert outcome.stored.count(b"UNIQ_KEY") == 4


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("missing", REQUIRED)
def test_a_send_without_a_required_field_is_refused(
    feed: Feed, client: Spelling, missing: str
) -> None:
    fields = {name: text for name, text in FIELDS.items() if name != missing}

    outcome = feed(client(310, fields, b"body"))

    assert outcome.stored == b""
    assert f"field '{missing}' of SendMessageShort is missing".encode() in outcome.replies[0]
