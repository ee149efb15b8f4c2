"""Our producers at our broker and at official ones: every form of send arrives as it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from orbitmq.client import Message
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.core.sending.send_results import SendResult, SendStatus
from orbitmq.model.queues import MessageQueue
from tests.interop.drivers import Driver, JavaDriver, Listed, Received
from tests.interop.python_trials import Trial, digest, numbered, sorted_bodies
from tests.waiting import beside

pytestmark = pytest.mark.interop

UNICODE = "żółć-Привет-你好-🚀"
ANY_BYTES = bytes(range(256)) * 3
LARGE = ("ünïcödé " * 3000).encode()
COMPRESS_ABOVE_BYTES = 4096


def _by_argument(queues: Sequence[MessageQueue], _: Message, argument: Any) -> MessageQueue:
    return queues[int(argument) % len(queues)]


@pytest.mark.scenario("site", "Python sends in every form")
async def test_every_form_of_send_arrives(trial: Trial) -> None:
    topic = trial.topic
    producer = await trial.producer()
    queues = await producer.queues(topic)
    told: asyncio.Queue[SendResult | BaseException] = asyncio.Queue()

    def message(body: str) -> Message:
        return Message(topic, body)

    plain = await producer.send(message("plain"))
    timed = await producer.send(message("timed"), timeout_ms=10_000)
    chosen = await producer.send(message("chosen"), queue=queues[2])
    selected = await producer.send(message("selected"), selector=_by_argument, argument=7)
    batch = await producer.send([message(f"batch {n}") for n in range(3)])
    batch_chosen = await producer.send([message("batch chosen")], queue=queues[1])
    awaited = await producer.send_async(message("awaited"))
    called_back = producer.send_async(
        message("called back"), on_success=told.put_nowait, on_failure=told.put_nowait
    )
    async_chosen = await producer.send_async(message("async chosen"), queue=queues[3])
    async_selected = await producer.send_async(
        message("async selected"), selector=_by_argument, argument=5
    )
    async_batch = await producer.send_async([message(f"async batch {n}") for n in range(2)])
    await producer.send_oneway(message("one-way"))
    await producer.send_oneway(message("one-way chosen"), queue=queues[0])
    await producer.send_oneway(message("one-way selected"), selector=_by_argument, argument=1)
    result = await called_back
    _, inbox = await trial.push()
    received = {m.body.decode(): m for m in await inbox.wait_exactly(17)}

    results = {
        "plain": plain,
        "timed": timed,
        "chosen": chosen,
        "selected": selected,
        "awaited": awaited,
        "called back": result,
        "async chosen": async_chosen,
        "async selected": async_selected,
        "batch chosen": batch_chosen,
    }
    assert await told.get() == result
    for body, sent in results.items():
        arrived = received[body]
        assert sent.status is SendStatus.OK
        assert (sent.message_id, sent.offset_message_id, sent.queue, sent.queue_offset) == (
            arrived.message_id,
            arrived.offset_message_id,
            arrived.queue,
            arrived.queue_offset,
        )
    assert chosen.queue == queues[2]
    assert selected.queue == queues[7 % 4]
    assert async_chosen.queue == queues[3]
    assert async_selected.queue == queues[5 % 4]
    assert received["one-way chosen"].queue == queues[0]
    assert received["one-way selected"].queue == queues[1]
    for sent, bodies in (
        (batch, [f"batch {n}" for n in range(3)]),
        (async_batch, [f"async batch {n}" for n in range(2)]),
    ):
        parts = [received[body] for body in bodies]
        assert sent.message_id.split(",") == [part.message_id for part in parts]
        assert sent.offset_message_id.split(",") == [part.offset_message_id for part in parts]
        assert [part.queue for part in parts] == [sent.queue] * len(parts)
        assert [part.queue_offset for part in parts] == [
            sent.queue_offset + n for n in range(len(parts))
        ]
    assert {"one-way", "plain"} <= set(received)


@pytest.mark.scenario("site", "Python spreads over all queues, makes the topic it needs")
async def test_messages_go_round_and_a_missing_topic_is_made(trial: Trial) -> None:
    producer = await trial.producer()
    made = f"{trial.topic}-made"

    round_trip = [await producer.send(Message(trial.topic, body)) for body in numbered(8)]
    first = [await producer.send(Message(made, body)) for body in numbered(2)]
    _, inbox = await trial.push(topic=made)

    used = [sent.queue.queue_id for sent in round_trip]
    assert sorted(used) == sorted([*range(4), *range(4)])
    assert [sent.status for sent in first] == [SendStatus.OK] * 2
    assert sorted_bodies(await inbox.wait(2)) == numbered(2)


def _messages(topic: str) -> list[Message]:
    """Everything a message can carry."""
    properties = {"żółć": UNICODE, "plain": "a b=c", "empty-ish": " "}
    return [
        Message(topic, UNICODE, tags=UNICODE, keys=["k1", "ключ"], properties=properties, flag=-7),
        Message(topic, ANY_BYTES, tags="bytes", keys="one, two three", flag=2**31 - 1),
        Message(topic, LARGE, tags="large", properties=properties),
        Message(topic, b"\0", flag=-(2**31)),
    ]


def _check_as_sent(message: Message, arrived: Received) -> None:
    assert arrived.body_digest == digest(message.body)
    assert (arrived.tags or "", arrived.keys or "") == (message.tags, " ".join(message.keys))
    assert arrived.flag == message.flag
    assert dict(message.properties).items() <= arrived.properties.items()


@pytest.mark.scenario("site", "Python sends, Java and Go receive the same bytes")
async def test_official_clients_receive_what_python_sent(
    trial: Trial, official_clients: dict[str, Driver]
) -> None:
    producer = await trial.producer(compress_above_bytes=COMPRESS_ABOVE_BYTES)
    messages = _messages(trial.topic)
    batch = [
        Message(trial.topic, f"batch {UNICODE} {n}", tags="b", keys=[f"b{n}"]) for n in range(3)
    ]
    sent = {(await producer.send(message)).message_id: message for message in messages}
    ids = (await producer.send(batch)).message_id.split(",")
    sent |= dict(zip(ids, batch, strict=True))

    async def receive(line: str) -> list[Received]:
        return await beside(
            official_clients[line].consume,
            trial.site.name_server,
            trial.topic,
            len(sent),
            group=f"{trial.group}-{line}",
        )

    for received in await asyncio.gather(*map(receive, official_clients)):
        assert sorted(arrived.message_id for arrived in received) == sorted(sent)
        for arrived in received:
            _check_as_sent(sent[arrived.message_id], arrived)
        (large,) = (arrived for arrived in received if arrived.tags == "large")
        assert large.record_bytes < len(LARGE) // 10


@pytest.mark.scenario("site", "Java and Go send, Python receives the same bytes")
async def test_python_receives_what_official_clients_sent(
    trial: Trial, official_clients: dict[str, Driver]
) -> None:
    properties = {"żółć": UNICODE, "plain": "a b=c"}
    wishes: list[dict[str, object]] = [
        {
            "body_hex": UNICODE.encode().hex(),
            "tags": UNICODE,
            "keys": "k1 ключ",
            "properties": properties,
            "flag": -7,
        },
        {"body_hex": ANY_BYTES.hex(), "tags": "bytes", "keys": "one", "flag": 2**31 - 1},
        {"body_hex": LARGE.hex(), "tags": "large"},
    ]

    async def post(line: str) -> list[str]:
        driver = official_clients[line]
        name = f"{trial.topic}-{line}"
        await beside(
            driver.open_producer,
            name,
            trial.site.name_server,
            compress_above_bytes=COMPRESS_ABOVE_BYTES,
        )
        described = [{"topic": trial.topic, **wish} for wish in wishes]
        outcomes = await beside(driver.post, name, described)
        outcomes += await beside(driver.post, name, described[:2], mode="batch")
        await beside(driver.close_producer, name)
        assert {outcome.status for outcome in outcomes} == {"SEND_OK"}, outcomes
        # Of a batch, the Go client says no ids.
        return [outcome.message_id for outcome in outcomes[:3]]

    ids = await asyncio.gather(*map(post, official_clients))
    _, inbox = await trial.push()
    received = {m.message_id: m for m in await inbox.wait_exactly(len(ids) * 5)}

    for first, second, third in ids:
        _check_like(received[first], wishes[0])
        _check_like(received[second], wishes[1])
        _check_like(received[third], wishes[2])
        assert received[third].size < len(LARGE) // 10
    assert sum(m.body == ANY_BYTES for m in received.values()) == 2 * len(ids)


def _check_like(message: ReceivedMessage, wish: dict[str, object]) -> None:
    assert message.body.hex() == wish["body_hex"]
    assert message.tags == wish["tags"]
    assert " ".join(message.keys) == wish.get("keys", "")
    assert message.flag == wish.get("flag", 0)
    properties = wish.get("properties", {})
    assert isinstance(properties, dict)
    assert properties.items() <= message.properties.items()


@pytest.mark.scenario("site", "bodies compressed by zlib, LZ4, Zstandard, both ways")
async def test_every_kind_of_compression_is_read_by_both_sides(
    trial: Trial, drivers: Callable[[str], JavaDriver]
) -> None:
    java = await beside(drivers, "v5")
    ours = {}
    for kind in ("zlib", "lz4", "zstd"):
        producer = await trial.producer(compress_kind=kind, compress_above_bytes=1000)
        body = f"{kind} from Python ".encode() * 1000
        await producer.send(Message(trial.topic, body))
        ours[digest(body)] = kind
    theirs = {}
    for kind in ("ZLIB", "LZ4", "ZSTD"):
        text = f"{kind} from Java " * 1000
        theirs[text.encode()] = kind
        listed = [Listed(body=text)]
        await beside(
            java.produce_listed,
            trial.site.name_server,
            trial.topic,
            listed,
            compression=kind,
        )
    _, inbox = await trial.push()
    by_python = await inbox.wait_exactly(6)
    by_java = await beside(
        java.consume, trial.site.name_server, trial.topic, 6, group=f"{trial.group}-java"
    )

    assert set(theirs) <= {message.body for message in by_python}
    assert set(ours) <= {message.body_digest for message in by_java}
    assert all(message.size < 2000 for message in by_python)
    assert len({message.body for message in by_python}) == 6


@pytest.mark.scenario("site", "delay levels")
async def test_delayed_message_comes_when_its_level_is_over(trial: Trial) -> None:
    producer = await trial.producer()
    _, inbox = await trial.push()
    await producer.send(Message(trial.topic, "at once"))
    await producer.send(Message(trial.topic, "after 1000", delay_level=1))
    await producer.send(Message(trial.topic, "after 2000", delay_level=2))

    received = await inbox.wait_exactly(3)

    # A broker that is late itself may deliver them in any order, but not too early.
    delays_ms = {b"at once": 0, b"after 1000": 1000, b"after 2000": 2000}
    assert {message.body for message in received} == set(delays_ms)
    for message, received_ms in zip(received, inbox.received_ms, strict=True):
        assert received_ms - message.born_ms >= delays_ms[message.body]
        assert message.delay_level == delays_ms[message.body] // 1000
        # A copy of it is not delayed again.
        assert message.as_message().delay_level == 0


@pytest.mark.scenario("site", "messages of a sharding key in order, a body of 4 MB")
async def test_keys_keep_their_order_and_large_bodies_arrive(trial: Trial) -> None:
    producer = await trial.producer(compress_above_bytes=8 << 20)
    large = bytes(4 << 20)
    keys = [f"order {number % 7}" for number in range(50)]
    for number, key in enumerate(keys):
        await producer.send(
            Message(trial.topic, f"{key}/{number:02}", sharding_key=key),
            selector=_by_hash,
            argument=key,
        )
    await producer.send(Message(trial.topic, large), timeout_ms=20_000)
    _, inbox = await trial.push(ordered=True)

    received = await inbox.wait_exactly(51)

    for key in set(keys):
        mine = [m for m in received if m.body.startswith(f"{key}/".encode())]
        assert len({m.queue for m in mine}) == 1
        assert [m.body for m in mine] == sorted_bodies(mine)
    assert sum(m.body == large for m in received) == 1


def _by_hash(queues: Sequence[MessageQueue], _: Message, argument: Any) -> MessageQueue:
    return queues[sum(str(argument).encode()) % len(queues)]
