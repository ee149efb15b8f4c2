"""Official clients send to our broker in every way, and what arrives is what was sent."""

from __future__ import annotations

import pytest

from tests.interop.exchanges import Exchange, bodies, texts

pytestmark = pytest.mark.interop

MESSAGES = 50
UNICODE = "żółć-Привет-你好-🚀"
BODY_BYTES_MAX = 4 << 20


@pytest.mark.scenario("client", "our broker: sends in every mode")
@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch"])
def test_client_receives_what_it_sent(exchange: Exchange, mode: str) -> None:
    sent = exchange.post(*bodies(MESSAGES), mode=mode)
    exchange.subscribe()

    received = exchange.received(MESSAGES)

    assert {outcome.status for outcome in sent} <= {"SEND_OK"}, sent
    assert texts(received) == sorted(str(message["body"]) for message in bodies(MESSAGES))
    # Of a batch, the Go client says no ids; of a one-way send, no client does.
    ids = [one for outcome in sent for one in outcome.message_id.split(",") if one]
    assert sorted(message.message_id for message in received) == sorted(ids) or not ids
    assert len({message.queue_id for message in received}) == (1 if mode == "batch" else 4)


@pytest.mark.scenario("client", "our broker: selects the queue by key")
def test_messages_of_a_key_share_a_queue_and_stay_in_order(exchange: Exchange) -> None:
    keys = [f"order {number % 7}" for number in range(MESSAGES)]
    wishes: list[dict[str, object]] = [
        {"body": f"{key}/{number:02}", "shard": key} for number, key in enumerate(keys)
    ]
    sent = exchange.post(*wishes)
    exchange.subscribe(kind="orderly")

    received = exchange.received(MESSAGES)

    assert {outcome.status for outcome in sent} == {"SEND_OK"}, sent
    for key in set(keys):
        mine = [message for message in received if message.body.startswith(f"{key}/")]
        assert len({message.queue_id for message in mine}) == 1
        assert [message.body for message in mine] == texts(mine)
    assert len(received) == MESSAGES


@pytest.mark.scenario("client", "our broker: everything a message can carry")
def test_message_arrives_as_it_was(exchange: Exchange) -> None:
    exchange.open_producer(compress_above_bytes=1000)
    (first, second) = exchange.post(
        {
            "body": UNICODE,
            "tags": UNICODE,
            "keys": UNICODE,
            "flag": -7,
            "properties": {"żółć": UNICODE, "plain": "a b=c"},
        },
        {"body": UNICODE, "tags": UNICODE, "body_bytes": 20_000},
    )
    # The second passes the filter by its tag as well.
    exchange.subscribe(expression=UNICODE)

    received = {message.message_id: message for message in exchange.received(2)}

    assert (first.status, second.status) == ("SEND_OK", "SEND_OK"), (first, second)
    plain, large = received[first.message_id], received[second.message_id]
    assert (plain.body, plain.tags, plain.keys) == (UNICODE,) * 3
    assert plain.flag == -7
    assert large.record_bytes < large.body_bytes // 10
    assert plain.properties["żółć"] == UNICODE
    assert plain.properties["plain"] == "a b=c"
    assert large.body == UNICODE + "." * (20_000 - len(UNICODE.encode()))


@pytest.mark.scenario("client", "our broker: a body of 4 MB")
def test_body_of_the_largest_size_arrives(exchange: Exchange) -> None:
    # Compressed, noise is larger than the limit.
    exchange.open_producer(compress_above_bytes=2 * BODY_BYTES_MAX)
    sent = exchange.post(
        *({"body": "", "body_bytes": BODY_BYTES_MAX, "noise": True} for _ in range(2)),
    )
    exchange.subscribe()

    received = exchange.received(2)

    assert [outcome.status for outcome in sent] == ["SEND_OK"] * 2, sent
    assert [message.body_bytes for message in received] == [BODY_BYTES_MAX] * 2
    assert len({message.body for message in received}) == 1


@pytest.mark.scenario("client", "our broker: delay levels")
def test_delayed_message_comes_when_its_level_is_over(exchange: Exchange) -> None:
    exchange.subscribe()
    sent = exchange.post(
        {"body": "at once"},
        {"body": "after 1000", "delay_level": 1},
        {"body": "after 2000", "delay_level": 2},
    )

    received = {message.body: message for message in exchange.received(3)}

    assert [outcome.status for outcome in sent] == ["SEND_OK"] * 3, sent
    assert set(received) == {"at once", "after 1000", "after 2000"}
    for delay_ms in (1000, 2000):
        message = received[f"after {delay_ms}"]
        # A broker that is late itself may put them into the topic in any order, but not too early.
        assert message.stored_ms - message.born_ms >= delay_ms
        assert message.received_ms - message.born_ms >= delay_ms


@pytest.mark.scenario("client", "our broker: a topic made by the first message")
def test_topic_is_made_when_a_message_comes_for_it(exchange: Exchange) -> None:
    made = f"{exchange.topic}-made"
    exchange.post(*bodies(1))

    sent = exchange.post({"body": "first", "topic": made}, {"body": "second", "topic": made})
    exchange.subscribe(topic=made)

    assert [outcome.status for outcome in sent] == ["SEND_OK"] * 2, sent
    assert texts(exchange.received(2)) == ["first", "second"]
